"""Ports for servers that are started later, in processes of their own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import tempfile
from functools import cache
from pathlib import Path

HOST = "127.0.0.1"
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 11_000
"""Among those below are some that a browser opens no page at (10080)."""
TRIES = 1000

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return so many ports of loopback that nobody uses, and none that this process or another that runs was given.

    Between the choice and the moment when a server listens there seconds may pass. So they lie below the ports that
    the kernel gives to every connection and to who asks for any port: nobody has them meanwhile by chance. Where these
    can't be told (no Linux), any will do.

    Raises:
        OSError: none was found.
    """
    return [_free() for _ in range(count)]


def _free() -> int:
    for _ in range(TRIES):
        with contextlib.suppress(OSError), socket.create_server((HOST, _below_ephemeral())) as held:
            port: int = held.getsockname()[1]
            if port not in _given and _reserved(port):
                _given.add(port)
                return port
    raise OSError(f"no free port on {HOST} in {TRIES} tries")


def _reserved(port: int) -> bool:
    """Reserve a port among the processes of this user until this one ends; False where another has it."""
    file = _reservations()
    if file is None:
        return True
    try:
        # Of a file that stays empty the byte with the port's number; the kernel gives it back when the process ends.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _reservations() -> int | None:
    """Open the file whose bytes are reserved, if there can be one."""
    path = Path(tempfile.gettempdir()) / f"tightship-ports-{os.getuid()}"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None


def _below_ephemeral() -> int:
    """Return a port at random, 0 where there are too few; a seed of the tests' own would give two runs the same."""
    try:
        lowest = int(EPHEMERAL.read_text().split()[0])
    except OSError:
        return 0
    return LOWEST + secrets.randbelow(lowest - LOWEST) if lowest > 2 * LOWEST else 0


__all__ = ["free_ports"]

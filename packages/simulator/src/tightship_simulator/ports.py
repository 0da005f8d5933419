"""Ports for servers that are started later, in processes of their own."""

from __future__ import annotations

import contextlib
import secrets
import socket
from pathlib import Path

HOST = "127.0.0.1"
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 11_000
"""Among those below are some that a browser opens no page at (10080)."""
TRIES = 1000

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return so many ports of loopback that nobody uses, and none that this process was ever given before.

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
            if port not in _given:
                _given.add(port)
                return port
    raise OSError(f"no free port on {HOST} in {TRIES} tries")


def _below_ephemeral() -> int:
    """Return a port at random, 0 where there are too few; a seed of the tests' own would give two runs the same."""
    try:
        lowest = int(EPHEMERAL.read_text().split()[0])
    except OSError:
        return 0
    return LOWEST + secrets.randbelow(lowest - LOWEST) if lowest > 2 * LOWEST else 0


__all__ = ["free_ports"]

"""Watches over what runs on virtual time: whether it reaches for the machine around it.

Two watches, because they cost differently. :func:`outside` hears, by an audit hook, of sockets, processes, threads and
sleeps, and may be on for every test. :func:`readings` hears of each reading of a real clock or of real chance by our
own code, by a profile function that makes all code slower.
"""

from __future__ import annotations

import importlib
import os
import random
import secrets
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime
from types import CodeType, FrameType

OURS = ("tightship", "node_compactor", "node_refiner", "hpa_scaler", "tightship_simulator", "tightship_testkit")
"""Packages whose readings count: a library may time itself, as long as nothing that we do depends on it."""

_EVENTS = frozenset(
    {
        "_thread.start_new_thread",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.system",
        "socket.__new__",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.sendto",
        "subprocess.Popen",
        "time.sleep",
    }
)
_CLOCKS = frozenset(
    {
        time.clock_gettime,
        time.clock_gettime_ns,
        time.gmtime,
        time.localtime,
        time.monotonic,
        time.monotonic_ns,
        time.perf_counter,
        time.perf_counter_ns,
        time.process_time,
        time.process_time_ns,
        time.time,
        time.time_ns,
        time.thread_time,
        datetime.now,
        datetime.today,
        datetime.utcnow,
        date.today,
        os.urandom,
        os.getrandom,
    }
)
_CHANCE: frozenset[CodeType] = frozenset(
    each.__code__
    for each in (
        uuid.uuid1,
        uuid.uuid4,
        secrets.randbelow,
        secrets.token_bytes,
        secrets.token_hex,
        random.SystemRandom.random,
        random.SystemRandom.getrandbits,
    )
)

_listening: list[list[str]] = []
_hooked = False


def _hear(event: str, _arguments: tuple[object, ...]) -> None:
    if _listening and event in _EVENTS:
        caller = sys._getframe(1)
        for heard in _listening:
            heard.append(f"{event} in {caller.f_code.co_filename}:{caller.f_lineno}")


@contextmanager
def outside() -> Iterator[list[str]]:
    """Yield a list that is told of every socket, process, thread and sleep while the context lasts."""
    global _hooked  # noqa: PLW0603 - an audit hook is for ever: one is enough
    if not _hooked:
        with suppress(ImportError):
            # It asks the machine for IPv6 when it is imported, which may be in the middle of a test.
            importlib.import_module("urllib3.util.connection")
        sys.addaudithook(_hear)
        _hooked = True
    heard: list[str] = []
    _listening.append(heard)
    try:
        yield heard
    finally:
        # By identity: two lists that have heard nothing are equal.
        _listening[:] = [each for each in _listening if each is not heard]


@contextmanager
def readings() -> Iterator[list[str]]:
    """Yield a list that is told where code of ours reads a real clock, or takes real chance."""
    heard: list[str] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:
        caller: FrameType | None = None
        if event == "c_call" and argument in _CLOCKS:
            caller, what = frame, str(getattr(argument, "__qualname__", argument))
        elif event == "call" and frame.f_code in _CHANCE:
            caller, what = frame.f_back, frame.f_code.co_qualname
        if caller is not None and str(caller.f_globals.get("__name__", "")).partition(".")[0] in OURS:
            heard.append(f"{what} in {caller.f_code.co_filename}:{caller.f_lineno}")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield heard
    finally:
        sys.setprofile(before)


__all__ = ["OURS", "outside", "readings"]

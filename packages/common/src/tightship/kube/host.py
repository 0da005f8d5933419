"""Everything that a process takes from its machine: clocks, random numbers, and the way to a server.

A controller in its own process takes all of these from the operating system. A simulation runs many controllers in one
process, on one event loop whose clock is virtual: the monotonic clock is then the loop's, and each controller runs in a
:mod:`context <contextvars>` with its own :class:`Host`.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")


class Loop(asyncio.SelectorEventLoop):
    """An event loop that ends while a name is being resolved, for which the resolver may take half a minute."""

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        """See :func:`socket.getaddrinfo`."""
        # The end of a process waits for the threads of the loop's executor, but not for this one.
        found: asyncio.Future[Any] = self.create_future()

        def settle(result: Any, error: OSError | UnicodeError | None) -> None:
            if not found.done():
                if error is None:
                    found.set_result(result)
                else:
                    found.set_exception(error)

        def resolve() -> None:
            result, failure = None, None
            try:
                result = socket.getaddrinfo(host, port, family, type, proto, flags)
            except (OSError, UnicodeError) as error:
                failure = error
            with suppress(RuntimeError):  # the loop may have ended meanwhile
                self.call_soon_threadsafe(settle, result, failure)

        threading.Thread(target=resolve, name=f"resolving {host}", daemon=True).start()
        return await found


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(work)


class Host(Struct, frozen=True, kw_only=True):
    """The machine as one controller sees it.

    *wall* returns seconds since 1970. *connector* makes the connector of an HTTP client; with ``None`` the client uses
    sockets. *run* runs the coroutine of a command to its end. *own_process* says whether the controller is alone in its
    process, so that the CPU time and memory of the process are its own. *stopwatch* returns the seconds of processor
    time that the running thread has spent; ``None`` means that such time must not matter, as on virtual time.
    """

    wall: Callable[[], float] = time.time
    connector: Callable[[], aiohttp.BaseConnector] | None = None
    run: Callable[[Coroutine[Any, Any, Any]], Any] = _run
    own_process: bool = True
    stopwatch: Callable[[], float] | None = time.thread_time


_SYSTEM = Host()

HOST: ContextVar[Host] = ContextVar("host", default=_SYSTEM)
"""The host of the running controller. Tasks, and threads that asyncio starts, inherit it."""


def monotonic() -> float:
    """Return the seconds of a clock that never goes back: the running event loop's clock, else the system's.

    A loop of the standard library uses the system's clock.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def wall() -> float:
    """Return the seconds since 1970 that this host's clock shows."""
    return HOST.get().wall()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine of a command to its end, and return what it returns."""
    result: T = HOST.get().run(work)
    return result


def token(digits: int) -> str:
    """Return *digits* random hexadecimal digits: a name that no other process picks, not a secret."""
    return f"{random.getrandbits(4 * digits):0{digits}x}"


TOLERATED = 2.0
"""Seconds by which our clock may differ from the server's: a host with synchronized time is never corrected."""


@lru_cache(maxsize=16)
def _seconds_of(date: str) -> float:
    """Return the seconds since 1970 of an HTTP date, the same for all answers of a second. Raises ValueError."""
    return parsedate_to_datetime(date).timestamp()


class ServerClock:
    """Seconds since 1970 by the API server's clock; by our own clock until the server has answered.

    All replicas of all controllers use this time, whatever their own clocks show. Every answer has a ``Date``, to the
    second. The server's clock showed that date at some time between request and answer. Our clock is corrected only if
    it lies outside that interval by more than :data:`TOLERATED`.
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        """Return the time."""
        return wall() + self._ahead

    def observe(self, date: str | None, sent: float) -> None:
        """Record an answer dated *date* to a request sent at *sent* by the monotonic clock."""
        try:
            stamp = _seconds_of(date or "")
        except ValueError:
            return
        now = wall()
        asked = now - (monotonic() - sent)
        # If the replica was stopped between the two, the interval is wide and changes little.
        self._ahead = min(max(self._ahead, stamp - now - TOLERATED), stamp + 1 - asked + TOLERATED)

"""The loop of a controller: regular passes, sooner when woken, despite errors in a pass."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import ParamSpec, TypeVar

from tightship.kube.host import monotonic
from tightship.kube.retrying import RetryPolicy
from tightship.objects.api_errors import KubeError, one_line
from tightship.process.heartbeat import Heartbeat
from tightship.process.metrics import RunMetrics

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")

JITTER = 0.25
"""The part of the interval by which a wait varies, as in the older controllers."""

_FIRST_RETRY = 5.0
_LONGEST_RETRY = 60.0

_numbers = count()
_in_threads: dict[int, str] = {}


def jittered(seconds: float, spread: Callable[[], float] = random.random) -> float:
    """Return *seconds*, changed at random by up to :data:`JITTER` in either direction."""
    return seconds * (1 + JITTER * (2 * spread() - 1))


async def every(
    interval: float | Callable[[], float],
    work: Callable[[], Awaitable[object]],
    *,
    stop: asyncio.Event,
    wake: asyncio.Event,
    heartbeat: Heartbeat,
    metrics: RunMetrics,
    least: float = 0.0,
    fatal: tuple[type[Exception], ...] = (),
    name: str = "loop",
    spread: Callable[[], float] = random.random,
) -> None:
    """Do *work* at once and then every *interval* seconds, more or less by :data:`JITTER`, until *stop* is set.

    Pass a variable interval as a function. *wake* ends a wait early, but not before *least* seconds, and is cleared
    before the pass that it causes. A failed pass is logged and counted, and the next pass follows after 5 s, doubling
    up to 60 s, if that is sooner than the interval. Only an error of a *fatal* type ends the loop. *stop* never
    interrupts a pass: the pass checks *stop* itself, or is cancelled.
    """
    retry = RetryPolicy(first=_FIRST_RETRY, longest=_LONGEST_RETRY, jitter=0.5, spread=spread)
    failures = 0
    while not stop.is_set():
        wake.clear()
        heartbeat.beat()
        began, before = monotonic(), failures
        try:
            await work()
        except fatal:
            raise
        except Exception as error:  # the loop outlives every pass
            failures += 1
            _complain(name, error, again=before > 0)
        else:
            failures = 0
            if before:
                _log.info("%s: succeeded again", name)
        metrics.loop_done(monotonic() - began, succeeded=not failures)
        seconds = jittered(interval() if callable(interval) else interval, spread)
        if failures:
            seconds = min(seconds, retry.seconds(failures))
        heartbeat.beat(seconds)
        await _pause(seconds, min(least, seconds), stop, wake)


async def _pause(seconds: float, least: float, stop: asyncio.Event, wake: asyncio.Event) -> None:
    """Wait *seconds*; until *stop*; or, once *least* seconds have passed, until *wake*."""
    if not await any_of(stop, timeout=least):
        await any_of(stop, wake, timeout=seconds - least)


async def any_of(*events: asyncio.Event, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - its end is a value
    """Wait until one of *events* is set. Return true then, and false after *timeout* seconds."""
    if any(event.is_set() for event in events):
        return True
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    return bool(done)


async def a_few_at_a_time(work: Callable[[Item], Awaitable[None]], items: Iterable[Item], at_once: int) -> None:
    """Do *work* for each of *items* in order, *at_once* at a time. After all items, raise the first error.

    A cancelled call starts no more work.
    """
    waiting = iter(items)
    errors: list[Exception] = []

    async def worker() -> None:
        for item in waiting:
            try:
                await work(item)
            except Exception as error:  # raised at the end
                errors.append(error)

    async with asyncio.TaskGroup() as workers:
        for _ in range(at_once):
            workers.create_task(worker())
    if errors:
        raise errors[0]


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of *function*, run in a thread because it would keep the loop from renewing its Lease.

    Nobody may change the arguments meanwhile. A thread can't be cancelled: the end of the process waits for the thread
    within the grace, and names a thread that does not end.
    """

    def tracked() -> T:
        number = next(_numbers)
        # Of a callable object only the type: its repr may print a whole cluster.
        _in_threads[number] = getattr(function, "__qualname__", type(function).__qualname__)
        try:
            return function(*args, **kwargs)
        finally:
            del _in_threads[number]

    return await asyncio.to_thread(tracked)


def threads_at_work() -> list[str]:
    """Return the names of unfinished calls of :func:`in_thread`."""
    return list(_in_threads.values())


def _complain(name: str, error: Exception, *, again: bool) -> None:
    if isinstance(error, KubeError):
        # Expected now and then. Metrics show a failure that lasts.
        _log.log(logging.DEBUG if again else logging.WARNING, "%s: failed, trying again: %s", name, one_line(error))
    else:
        _log.error("%s: failed, trying again: %s", name, one_line(error), exc_info=error)

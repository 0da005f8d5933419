"""The process of a controller: signals, supervised tasks, and an end within the grace, whatever still runs. Its loops
are regular passes, sooner when woken, despite errors in a pass; for the liveness probe, each says that it still runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from itertools import count
from typing import ParamSpec, TypeVar

from tightship.kube.host import Loop, monotonic
from tightship.kube.pacing import RetryPolicy
from tightship.objects.api_errors import KubeError, one_line
from tightship.process.metrics import RunMetrics


class Heartbeat:
    """The sign of life of one loop. The loop counts as hung once a beat is *deadline* seconds late.

    A loop announces how long it will wait, so the deadline covers only its work, however long its interval is. Only the
    loop itself can miss the deadline: an outage of the API server is no reason to restart.
    """

    def __init__(self, name: str, deadline: float, *, clock: Callable[[], float] = monotonic) -> None:
        self.name = name
        self.deadline = deadline
        self._clock = clock
        self._last = clock()
        self._due = self._last

    def beat(self, quiet: float = 0.0) -> None:
        """Report that the loop lives, and that the next beat may be *quiet* seconds away."""
        self._last = self._clock()
        self._due = self._last + quiet

    @property
    def age(self) -> float:
        """Seconds since the last beat, or since the start."""
        return self._clock() - self._last

    @property
    def late(self) -> float:
        """Seconds by which the next beat is late; negative before it is due."""
        return self._clock() - self._due

    @property
    def alive(self) -> bool:
        """Whether the loop is within its deadline."""
        return self.late <= self.deadline

    def __str__(self) -> str:
        due = f"{self.late:.0f} s late" if self.late > 0 else f"due in {-self.late:.0f} s"
        return f"{self.name}: last beat {self.age:.0f} s ago, {due}, may be {self.deadline:.0f} s late"


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


EXIT_OK = 0
EXIT_CRASHED = 1
EXIT_INTERRUPTED = 130

_OWN_SHARE = 0.8
"""The part of the grace in which the controller may end by itself. After that it is cancelled."""


class Runtime:
    """The argument of a controller's main function. Setting *stop* asks the controller to end; tasks are supervised.

    While *starting*, the controller has nothing to finish, and whatever it waits for, a stop cancels it at once.
    """

    def __init__(self, stopping: Callable[[], None] = lambda: None) -> None:
        self.stop = asyncio.Event()
        self.crashed = False
        self.starting = False
        self._stopping = stopping
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run *work* in the background until the controller's main function has ended; then it is cancelled.

        An error in *work* is logged, sets *stop*, and makes the process exit with 1. A normal return has no effect.
        """
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def crash(self, name: str, error: BaseException) -> None:
        """Log that *error* ended *name*, and end the process with 1."""
        self.crashed = True
        expected = isinstance(error, KubeError)
        _log.critical("%s ended: %s", name, one_line(error), exc_info=None if expected else error)
        self.end()

    def end(self) -> None:
        """Set *stop* and start the grace."""
        self._stopping()
        self.stop.set()

    def running(self) -> list[str]:
        """Return the names of the background tasks that run."""
        return sorted(task.get_name() for task in self._tasks if not task.done())

    async def close(self) -> None:
        """Cancel the background tasks and wait until they end, however long that takes."""
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tasks.difference_update(tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crash(task.get_name(), error)


def run_controller(main: Callable[[Runtime], Awaitable[None]], grace: float, *, name: str) -> int:
    """Run *main* until it returns, and return the exit code: 0, or 1 after an error in it or in a task.

    SIGTERM and SIGINT set ``stop``, and *main* should then return. After most of *grace* seconds it is cancelled. At
    the end of the grace the process exits with 1 and reports what still runs, even if a thread or the event loop hangs.
    SIGINT gives 130; a second SIGINT ends the process at once. Call this function once, in the main thread.
    """
    process = _Process(main, grace, name)
    try:
        # Closing the runner waits for the threads of in_thread(), without which the interpreter could not end.
        with asyncio.Runner(loop_factory=Loop) as runner:
            return runner.run(process.run())
    finally:
        process.finished()


class _Process:
    def __init__(self, main: Callable[[Runtime], Awaitable[None]], grace: float, name: str) -> None:
        self._main = main
        self._grace = grace
        self._name = name
        self._runtime: Runtime | None = None
        self._task: asyncio.Task[None] | None = None
        self._interrupted = False
        self._over = threading.Event()
        self._deadline: float | None = None

    async def run(self) -> int:
        runtime = self._runtime = Runtime(self._arm)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_signal, signal.SIGTERM)
        loop.add_signal_handler(signal.SIGINT, self._on_signal, signal.SIGINT)
        task = self._task = asyncio.create_task(self._call_main(runtime), name=self._name)
        watch = asyncio.create_task(self._watch_stop(runtime, task))
        try:
            await asyncio.wait((task,))
        finally:
            watch.cancel()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            runtime.crash(self._name, error)
        self._arm()  # the grace also covers the tasks
        await runtime.close()
        if runtime.crashed:
            return EXIT_CRASHED
        if task.cancelled() and not runtime.starting:
            _log.error("%s did not end by itself and was cancelled", self._name)
            return EXIT_CRASHED
        return EXIT_INTERRUPTED if self._interrupted else EXIT_OK

    async def _call_main(self, runtime: Runtime) -> None:
        await self._main(runtime)

    async def _watch_stop(self, runtime: Runtime, task: asyncio.Task[None]) -> None:
        """Give the main function its share of the grace after the stop, then cancel it."""
        await any_of(runtime.stop)
        self._arm()
        if runtime.starting:
            task.cancel()
            return
        await asyncio.sleep(self._grace * _OWN_SHARE)
        _log.warning(
            "%s still runs %g s after it was told to stop; cancelling it", self._name, self._grace * _OWN_SHARE
        )
        task.cancel()

    def _on_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGINT and self._interrupted:
            self._exit(EXIT_INTERRUPTED, "interrupted twice; ending at once")
        self._interrupted |= number == signal.SIGINT
        if self._runtime is not None and not self._runtime.stop.is_set():
            _log.info("%s: stopping on %s", self._name, number.name)
            self._runtime.end()

    def _arm(self) -> None:
        """Start the grace, once. A thread watches the grace, which must end even if the event loop hangs."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace
            threading.Thread(target=self._enforce, name="grace", daemon=True).start()

    def _enforce(self) -> None:
        assert self._deadline is not None
        if self._over.wait(max(0.0, self._deadline - time.monotonic())):
            return
        running = self._runtime.running() if self._runtime is not None else []
        if self._task is not None and not self._task.done():
            running.insert(0, self._name)
        running += [f"thread of {each}" for each in threads_at_work()]
        what = ", ".join(running) or "the event loop"
        self._exit(EXIT_CRASHED, f"not ended within {self._grace:g} s; exiting anyway. Still running: {what}")

    def _exit(self, code: int, why: str) -> None:
        _log.critical("%s: %s", self._name, why)
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        # Not sys.exit: the interpreter would wait for the threads.
        os._exit(code)

    def finished(self) -> None:
        """Stop watching the grace, because everything has ended."""
        self._over.set()

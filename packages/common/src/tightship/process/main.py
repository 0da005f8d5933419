"""The process of a controller: signals, supervised tasks, and an end within the grace, whatever still runs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress

from tightship.kube.host import Loop
from tightship.objects.api_errors import KubeError, one_line
from tightship.process.loop import any_of, threads_at_work

_log = logging.getLogger(__name__)

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

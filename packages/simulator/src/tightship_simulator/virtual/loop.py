"""An event loop whose clock is virtual: it jumps to the next timer as soon as nothing else is left to do.

A sleep of ten minutes costs nothing, and the order of all that happens depends on nothing but the program: there is no
socket, no thread and no real clock. Callables for a thread run at once, in the loop. What runs belongs to a
:class:`~tightship_simulator.virtual.process.Process`, or to none; a process can be stopped or killed between any two
steps.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

from tightship_simulator.virtual.network import Network
from tightship_simulator.virtual.process import PROCESS

T = TypeVar("T")

MOST_STEPS = 2_000_000
"""Steps without a tick of the clock after which the program counts as stuck, unless the loop is told otherwise."""

_CLEAN_AT = 2_000
"""Timers, half of them cancelled, at which the cancelled ones are thrown away."""


class StuckError(RuntimeError):
    """The program waits for what never comes, or turns without end at one moment; the text says which."""


class _Task(asyncio.Task[Any]):
    """A task that hashes by the order of its making: sets of tasks are then walked in the same order in every run."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class _Due(float):
    """The time of a *timer*. The heap compares plain numbers, where timers themselves would be asked in Python."""

    __slots__ = ("timer",)
    timer: Any


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. *network* is how what runs in the loop connects. *start* is the first time, in seconds."""

    # What asyncio's own loop keeps its work in.
    _ready: deque[Any]
    _scheduled: list[_Due]
    _stopping: bool
    _timer_cancelled_count: int
    _closed: bool
    _check_closed: Callable[[], None]

    def __init__(self, start: float = 1000.0) -> None:
        super().__init__()
        self._now = start
        self._at_once = 0
        self.most_steps = MOST_STEPS
        self._tasks_made = 0
        self.network = Network(self)
        self.set_task_factory(_make_task)

    def time(self) -> float:
        """Return the virtual seconds."""
        return self._now

    # The turns of the loop. BaseEventLoop.run_forever() calls _run_once() until it is stopped.

    def _run_once(self) -> None:
        ready = self._ready
        if len(self._scheduled) > _CLEAN_AT:
            self._throw_away_cancelled()
        if not ready:
            self._tick()
        self._fall_due()
        self._at_once += len(ready)
        if self._at_once > self.most_steps:
            steps, self._at_once = self._at_once, 0  # what is to be done at the end has its own steps
            raise StuckError(f"{steps:,} steps at {self._now:.3f} s, and no end: {ready[0]!r}")
        for _ in range(len(ready)):
            if not ready:
                break  # a nested run has done the rest
            handle = ready.popleft()
            if handle._cancelled:
                continue
            context = handle._context
            process = context.get(PROCESS)
            if process is None or process.admits(handle):
                try:
                    context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # as Handle._run(), of which this is what runs without an error
                    detail = f"Exception in callback {handle!r}"
                    self.call_exception_handler({"message": detail, "exception": error, "handle": handle})

    def _tick(self) -> None:
        """Go on to the time of the next timer."""
        timers = self._scheduled
        while timers and timers[0].timer._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(timers).timer._scheduled = False
        if timers:
            if timers[0] > self._now:
                self._now = timers[0].timer._when
                self._at_once = 0
        elif not self._stopping:
            raise StuckError(f"nothing is left to happen after {self._now:.3f} s, and the program has not ended")

    def _fall_due(self) -> None:
        timers, now = self._scheduled, self._now
        while timers and timers[0] <= now:
            timer = heapq.heappop(timers).timer
            timer._scheduled = False
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            else:
                self._ready.append(timer)

    def _throw_away_cancelled(self) -> None:
        timers = self._scheduled
        if self._timer_cancelled_count * 2 <= len(timers):
            return
        for each in timers:
            each.timer._scheduled = not each.timer._cancelled
        self._scheduled = [each for each in timers if not each.timer._cancelled]
        heapq.heapify(self._scheduled)
        self._timer_cancelled_count = 0

    # As asyncio's own, less what it checks for other threads and in debug mode: of a run they are every tenth second.

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> events.Handle:  # type: ignore[override]
        """Call *callback* in the next turn."""
        if self._closed:
            self._check_closed()
        handle = events.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        """Call *callback* at that time."""
        if self._closed:
            self._check_closed()
        timer: Any = events.TimerHandle(when, callback, args, self, context)
        due = _Due(when)
        due.timer = timer
        heapq.heappush(self._scheduled, due)
        timer._scheduled = True
        made: events.TimerHandle = timer
        return made

    def run_nested(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* to its end from inside a running task, which waits meanwhile while all others go on.

        For what calls :func:`asyncio.run`, which has a loop to itself where time is real.
        """
        waiting = asyncio.current_task(self)
        task = self.create_task(work)
        if waiting is not None:
            asyncio.tasks._leave_task(self, waiting)
        try:
            while not task.done():
                self._run_once()
        finally:
            if waiting is not None:
                asyncio.tasks._enter_task(self, waiting)
        return task.result()

    def resume(self, handles: list[asyncio.Handle]) -> None:
        """Go on with *handles*, in their order: their process runs again."""
        self._ready.extend(handles)

    # What other loops do with sockets and threads.

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.Handle:
        """Call *callback* soon: there are no other threads."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Call *func* now, and return a future that is done."""
        del executor
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except StopIteration as error:
            done.set_exception(RuntimeError(f"{func!r} raised StopIteration: {error}"))
        except Exception as error:  # it is whoever awaits the future that deals with it
            done.set_exception(error)
        return done

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: int | None = None,
        *,
        sock: Any = None,
        **_: Any,
    ) -> asyncio.AbstractServer:
        """Listen in the virtual network, under the name of the running process; *host* is of no account.

        Raises :class:`OSError` for a socket: it would take a port of the machine, which another worker's may have.
        """
        del host
        if sock is not None:
            raise OSError(f"no {sock}: in virtual time there is no machine around")
        return self.network.listen(protocol_factory, port or 0)

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **_: Any
    ) -> tuple[asyncio.Transport, Any]:
        """Connect in the virtual network. Raises :class:`ConnectionRefusedError`."""
        return await self.network.connect(protocol_factory, str(host), int(port))

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Refuse: names are those of processes, and nobody looks them up."""
        raise OSError(f"no address of {host!r}, port {port!r}: in virtual time there is no machine around")

    async def create_datagram_endpoint(self, *_: Any, **__: Any) -> Any:
        """Refuse: there are connections only."""
        raise OSError("no datagrams: in virtual time there is no machine around")

    def _write_to_self(self) -> None:
        """Nobody waits in another thread."""

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
    **options: Any,
) -> asyncio.Task[T]:
    assert isinstance(loop, VirtualLoop)
    loop._tasks_made += 1
    task: asyncio.Task[T] = _Task(coro, number=loop._tasks_made, loop=loop, **options)  # type: ignore[arg-type]
    context: Context | None = options.get("context")
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.keep(task)
    return task


__all__ = ["MOST_STEPS", "StuckError", "VirtualLoop"]

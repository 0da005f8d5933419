"""Processes of a simulated machine: what runs in one context, and can be stopped or killed between any two steps.

A process that is killed does not hear of it: none of its ``finally`` blocks runs, no connection says farewell. What is
left of it is kept until the simulation is over, and only then cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from tightship.kube.host import HOST, Host

if TYPE_CHECKING:
    from tightship_simulator.virtual.loop import VirtualLoop

T = TypeVar("T")

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""The process to which what runs belongs; ``None`` for the world around it."""


_PATIENCE = 100
"""How often a task is cancelled that goes on all the same."""


class Process:
    """One process, named *name*: it runs coroutines in a context of its own, in which *host* is its machine.

    *steps* counts the steps that it has made; *at_step* is called before the step whose number is *stop_at*, and may
    kill or stop it. *killed* is set when it has been killed.
    """

    def __init__(self, loop: VirtualLoop, name: str, host: Host) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.buried = False
        self.steps = 0
        self.stop_at = -1
        self.at_step: Callable[[], object] = self.kill
        self._loop = loop
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._held: list[asyncio.Handle] = []
        self.killed = asyncio.Event()
        self._context = copy_context()
        self._context.run(PROCESS.set, self)
        self._context.run(HOST.set, host)

    @property
    def context(self) -> Context:
        """The context in which all of the process runs."""
        return self._context

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin *work* in this process."""
        return self._loop.create_task(work, name=self.name, context=self._context.copy())

    def admits(self, handle: asyncio.Handle) -> bool:
        """Whether *handle*, whose turn it is, may run now; one that may not is kept.

        That of a frozen process runs when it goes on, that of a dead one when it is buried: a task whose turn was lost
        could not even be cancelled.
        """
        if self.alive and not self.frozen:
            self.steps += 1
            if self.steps != self.stop_at:
                return True
            self.at_step()
            if self.alive and not self.frozen:
                return True
        self._held.append(handle)
        return False

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold *task* until it is done: the garbage collector must not close the coroutines of a killed process."""
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def freeze(self) -> None:
        """Stop the process as SIGSTOP does: time goes on, and what it is sent waits."""
        self.frozen = True

    def thaw(self) -> None:
        """Let a frozen process go on."""
        if self.frozen:
            self.frozen = False
            self._go_on()

    def kill(self) -> None:
        """End the process as SIGKILL does: nothing of it runs any more, and its connections are cut."""
        if self.alive:
            self.alive = self.frozen = False
            self.killed.set()
            self._loop.network.orphan(self)

    async def bury(self) -> None:
        """Cancel what is left of the process, alive or dead, and wait for its end. To be called outside of it, last.

        Nothing reaches it any more, and it reaches nothing. Raises :class:`RuntimeError` where a task does not end.
        """
        self.buried = True
        self._loop.network.orphan(self)
        self._loop.network.cut(self)
        self.alive, self.frozen, self.stop_at = True, False, -1
        self._go_on()
        for _ in range(_PATIENCE):
            tasks = [each for each in self._tasks if not each.done()]
            if not tasks:
                break
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks, timeout=60)
        else:
            names = ", ".join(sorted(each.get_name() for each in tasks))
            raise RuntimeError(f"{self.name}: these tasks don't end, however often they are cancelled: {names}")
        self.alive = False

    def _go_on(self) -> None:
        held, self._held = self._held, []
        self._loop.resume(held)


__all__ = ["PROCESS", "Process"]

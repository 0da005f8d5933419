"""Processes that look like a replica and break a promise: the observer has to find them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from tightship.kube.host import HOST
from tightship_simulator.virtual.process import Process
from tightship_testkit.disasters.observer import Observer
from tightship_testkit.disasters.promises.base import Violation
from tightship_testkit.disasters.run import run
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.world import World


class RogueReplica:
    """A replica of the controller in *name*, as far as the world knows, that asks servers for what it likes."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.program = name.rpartition("-")[0]
        self.ended = self.crashed = False
        self.error: BaseException | None = None
        self.process = Process(world.simulation.loop, name, HOST.get())
        world.simulation.replicas.append(self)  # type: ignore[arg-type]
        world.teams[self.program].replicas.append(self)  # type: ignore[arg-type]

    def stop(self) -> None:
        """Be told to end."""
        self.ended = True

    async def stopped(self) -> None:
        """End."""
        self.ended = True

    async def send(self, method: str, url: str, **options: Any) -> int:
        """Send a request, in the process, and return the status of the answer."""

        async def send() -> int:
            async with (
                self.world.simulation.session() as session,
                session.request(method, url, **options) as answer,
            ):
                await answer.read()
                return answer.status

        return await self.process.run(send())


L = TypeVar("L", bound=RogueReplica)
Step = float | Callable[[L], object]
"""Seconds to wait, or something that a rogue replica does; what it returns may be awaited."""


class RogueStory(Generic[L]):
    """What a rogue replica does, one step after the other, and in which scenario."""

    def __init__(self, make: Callable[[World], L], steps: Sequence[Step[L]], scenario: Scenario) -> None:
        self.make = make
        self.steps = steps
        self.scenario = scenario

    async def reported(self, world: World) -> None:
        """Tell it in *world*."""
        await play(self.make(world), self.steps)

    def violations(self) -> list[Violation]:
        """Play the scenario with its rogue replica, and return what the observer finds."""
        tasks: list[asyncio.Task[None]] = []

        def ready(world: World, _: Observer) -> None:
            tasks.append(asyncio.create_task(self.reported(world)))

        result = run(self.scenario, ready)
        [task] = tasks
        assert task.done(), "the rogue replica was not done in time"
        task.result()
        return result.violations


async def play(rogue: L, steps: Sequence[Step[L]]) -> None:
    """Take *steps*."""
    for step in steps:
        if isinstance(step, int | float):
            await asyncio.sleep(step)
            continue
        done = step(rogue)
        if inspect.isawaitable(done):
            await done

"""Plays a scenario on virtual time, and says what was broken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from msgspec import Struct

from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.node_autoscaler import Rules
from tightship_simulator.virtual.simulation import Simulation, simulate
from tightship_testkit.disasters import cluster
from tightship_testkit.disasters.faults import Door
from tightship_testkit.disasters.known import finding
from tightship_testkit.disasters.observer import Observer, Tracebacks
from tightship_testkit.disasters.promises.base import Violation
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.world import World

SPEEDS = Speeds(pods=Pace(start=2.0, stop=4.0, boot=8.0), nodes=Rules(unneeded=40.0, taint_delay=2.0, eviction=30.0))
STOP = 30.0
"""Seconds that replicas have to end at the end."""

Ready = Callable[[World, Observer], None]


class Result(Struct, frozen=True, kw_only=True):
    """What came of a scenario. The same scenario has the same *digest* of all changes and requests."""

    violations: list[Violation]
    digest: str
    seconds: float
    """Virtual ones."""
    changes: int
    faults: int
    """Requests that met one."""

    @property
    def new(self) -> list[Violation]:
        """The violations that are no known findings."""
        return [each for each in self.violations if finding(each) is None]


def run(scenario: Scenario, ready: Ready = lambda _world, _observer: None) -> Result:
    """Play *scenario*; *ready* is called when its cluster is there and before anything runs."""
    door = Door(scenario)

    async def play(simulation: Simulation) -> Result:
        world = World(simulation, scenario)
        observer = Observer(world)
        simulation.network.delay = lambda: simulation.rng.random() * scenario.latency
        handler = Tracebacks(observer)
        logging.getLogger().addHandler(handler)
        try:
            _found(world)
            door.opened(world, observer)
            ready(world, observer)
            await _play(world, observer)
        finally:
            logging.getLogger().removeHandler(handler)
        return Result(
            violations=observer.violations,
            digest=observer.digest,
            seconds=world.now,
            changes=world.store.version,
            faults=door.met,
        )

    return simulate(
        play,
        seed=scenario.seed,
        groups=cluster.groups(scenario),
        speeds=SPEEDS,
        middlewares=[door.middleware],
    )


def _found(world: World) -> None:
    """Make the cluster, and start the replicas."""
    world.store.load(cluster.objects(world.scenario))
    for team in world.teams.values():
        if world.store.find("Namespace", team.controller.namespace) is None:
            world.store.create("Namespace", {"metadata": {"name": team.controller.namespace}})
        world.configure(team, team.settings)
        for skew in team.controller.skews:
            world.start(team, skew)


async def _play(world: World, observer: Observer) -> None:
    watch = asyncio.create_task(observer.watch(), name="observer")
    try:
        await world.play()
        await asyncio.sleep(max(0.0, world.scenario.story + world.scenario.quiet - world.now))
        observer.ended()
        await _stop(world)
        observer.stopped()
    finally:
        watch.cancel()
        await asyncio.wait([watch])
    if not watch.cancelled():
        watch.result()


async def _stop(world: World) -> None:
    alive = [replica for team in world.teams.values() for replica in team.alive]
    # One that doesn't end is found by its promise.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP):
            await asyncio.gather(*(each.stopped() for each in alive))


__all__ = ["Result", "run"]

"""Plays a scenario on virtual time, and says what was broken."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable

import aiohttp
from msgspec import Struct

from tightship_simulator.life.karpenter import Karpenter
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.node_autoscaler import Rules
from tightship_simulator.virtual.loop import StuckError
from tightship_simulator.virtual.simulation import Simulation, simulate
from tightship_testkit.disasters import cluster, landings
from tightship_testkit.disasters.faults import Door
from tightship_testkit.disasters.known import finding
from tightship_testkit.disasters.observer import Observer, Tracebacks
from tightship_testkit.disasters.promises.base import Violation
from tightship_testkit.disasters.promises.running import LeadersLead, NoCrash
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.sleeping import Rehearsal
from tightship_testkit.disasters.world import Json, World

PODS = Pace(start=2.0, stop=4.0, boot=8.0, lost=10.0)
PORT = 9101
"""On which replicas answer probes."""
PROBE = aiohttp.ClientTimeout(total=5.0)
STEPS_AT_ONCE = 100_000
"""Steps at one moment after which somebody counts as turning without end."""
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
    rehearsal = Rehearsal(scenario)
    if not rehearsal.over:
        _rehearse(scenario, rehearsal)
        _forget()

    def rehearsed(world: World, observer: Observer) -> None:
        world.rehearsed = rehearsal.moments
        ready(world, observer)

    return _run(scenario, rehearsed)


def _rehearse(scenario: Scenario, rehearsal: Rehearsal) -> None:
    """Play *scenario* until *rehearsal* is over, or to its end."""

    def ready(world: World, _: Observer) -> None:
        playing = asyncio.current_task()

        def heard(sender: str, _reader: str, data: bytes) -> None:
            rehearsal.heard(world, sender, data)
            if rehearsal.over and playing is not None:
                playing.cancel()

        world.simulation.network.tap = heard

    with contextlib.suppress(asyncio.CancelledError):
        _run(scenario, ready)


def _forget() -> None:
    """Have what a rehearsal left unfinished end now, unheard: in the run its errors would be taken for the run's."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.collect()
    logging.disable(before)


def _run(scenario: Scenario, ready: Ready) -> Result:
    door = Door(scenario)
    worlds: list[World] = []
    observers: list[Observer] = []

    def measure(hpa: Json, metric: Json, current: int) -> float | None:
        market = worlds[0].market if worlds else None
        return market.measure(hpa, metric, current) if market is not None else None

    async def play(simulation: Simulation) -> Result:
        world = World(simulation, scenario)
        worlds.append(world)
        observer = Observer(world)
        observers.append(observer)
        simulation.loop.most_steps = STEPS_AT_ONCE
        simulation.network.delay = lambda: simulation.rng.random() * scenario.latency
        simulation.network.refuses = world.refuses
        handler = Tracebacks(observer)
        logging.getLogger().addHandler(handler)
        try:
            async with world.market.open() if world.market is not None else contextlib.nullcontext():
                _found(world)
                door.opened(world, observer)
                ready(world, observer)
                await _play(world, observer)
        finally:
            logging.getLogger().removeHandler(handler)
        return _result(world, observer, door)

    try:
        return simulate(
            play,
            seed=scenario.seed,
            groups=cluster.groups(scenario),
            measure=measure,
            speeds=Speeds(pods=PODS, nodes=_rules(scenario)),
            middlewares=[door.middleware],
        )
    except StuckError as error:
        if not observers:
            raise
        promise = next(each for each in observers[0].promises if isinstance(each, NoCrash))
        promise.broken("world", f"turns without end: {error}")
        return _result(worlds[0], observers[0], door)


def _result(world: World, observer: Observer, door: Door) -> Result:
    return Result(
        violations=observer.violations,
        digest=observer.digest,
        seconds=world.now,
        changes=world.store.version,
        faults=door.met,
    )


def _rules(scenario: Scenario) -> Rules:
    rules = scenario.autoscaler
    return Rules(unneeded=rules.unneeded, taint_delay=2.0, eviction=30.0, threshold=rules.threshold)


def _found(world: World) -> None:
    """Make the cluster, and start the replicas."""
    world.store.load(cluster.objects(world.scenario))
    if world.store.list("NodePool"):
        world.simulation.living.others.append(Karpenter())
    rights = landings.charted(world)
    world.rules.append(rights)
    world.denials.append(rights)
    for namespace in (cluster.SHOP, *(team.controller.namespace for team in world.teams.values())):
        if world.store.find("Namespace", namespace) is None:
            world.store.create("Namespace", {"metadata": {"name": namespace}})
    for team in world.teams.values():
        world.configure(team, team.settings)
        landings.install(world, team)
        for skew in team.controller.skews:
            world.start(team, skew)


async def _play(world: World, observer: Observer) -> None:
    watch = asyncio.create_task(observer.watch(), name="observer")
    others = [asyncio.create_task(world.let_go(), name="finalizers")]
    try:
        await world.play()
        await asyncio.sleep(max(0.0, world.scenario.story + world.scenario.quiet - world.now))
        await _probe(world, observer)
        observer.ended()
        await _stop(world)
        observer.stopped()
    finally:
        for task in (watch, *others):
            task.cancel()
        await asyncio.wait([watch, *others])
    for task in (watch, *others):
        if not task.cancelled():
            task.result()


async def _probe(world: World, observer: Observer) -> None:
    """Ask each replica whether it is well."""
    promise = next(each for each in observer.promises if isinstance(each, LeadersLead))
    async with world.simulation.session() as session:
        for replica in [each for team in world.teams.values() for each in team.alive]:
            for path in ("/healthz", "/readyz"):
                try:
                    async with session.get(f"http://{replica.name}:{PORT}{path}", timeout=PROBE) as answer:
                        code = answer.status
                except (aiohttp.ClientError, TimeoutError):
                    code = 0
                promise.probed(replica.name, path, code)


async def _stop(world: World) -> None:
    alive = [replica for team in world.teams.values() for replica in team.alive]
    world.asked_to_end.update(each.name for each in alive)
    # One that doesn't end is found by its promise.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP):
            await asyncio.gather(*(each.stopped() for each in alive))


__all__ = ["Result", "run"]

"""Steps that happen to replicas of controllers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tightship_simulator.virtual.simulation import Replica
from tightship_testkit.disasters.drawing import MissingError, any_of, draws, one_of, program, share
from tightship_testkit.disasters.registry import step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.world import Team, World

_PATIENCE = 60.0
"""Seconds after which what waits for a step of a process happens anyway."""
_LOOK = 0.5
"""Seconds between two looks of a step that waits for a replica to be stopped."""
MOMENT = one_of("", "", "", "Claimed", "Evicting", "Drained", "Restoring")
VICTIM = draws(program=program, leader=share(0.8), moment=MOMENT)


def any_skew(rng: Random) -> float:
    """Return by how many seconds a clock is ahead: a few, now and then minutes or hours."""
    if rng.random() < 0.06:
        return rng.choice((-3600.0, -300.0, -60.0, 60.0, 300.0, 3600.0, 90_000.0))
    return round(rng.uniform(-5, 5), 1)


async def _at_step(world: World, replica: Replica, steps: int, what: Callable[[], None]) -> None:
    """Do *what* to a replica before its step that is so many from now, or when it makes none."""
    process, done = replica.process, False

    def once() -> None:
        nonlocal done
        done = True
        what()

    process.at_step = once
    process.stop_at = process.steps + steps
    waited = 0.0
    while not done and steps and waited < _PATIENCE and not world.quiet and not replica.ended:
        await world.pause(0.5)
        waited += 0.5
    process.stop_at = -1
    if not done and not replica.ended:
        what()


async def _when(world: World, program: str, leader: bool, moment: str) -> Replica:
    """Wait until a node is in the phase *moment*, if it is one, and return the replica that is meant."""
    if moment:
        await world.in_drain([moment], 120.0)
    found = world.pick(world.team_of(program), leader) if not world.quiet else None
    if found is None:
        raise MissingError
    return found


@step(
    VICTIM, steps=lambda rng, _: rng.choice((0, rng.randint(1, 60), rng.randint(1, 600))),
    back=one_of(1.0, 5.0, 30.0), skew=lambda rng, _: any_skew(rng), weight=4,
)  # fmt: skip
async def kill(
    world: World, *, program: str, leader: bool, steps: int, back: float, skew: float, moment: str = ""
) -> None:
    """A replica is killed between two steps of its own; another one starts in its place."""
    victim = await _when(world, program, leader, moment)
    world.tell(f"{victim.name} is killed {steps} steps from now")
    await _at_step(world, victim, steps, victim.process.kill)
    await world.pause(back)
    world.start(world.teams[program], skew)


@step(
    VICTIM, steps=lambda rng, _: rng.choice((0, rng.randint(1, 200))), seconds=one_of(3.0, 12.0, 25.0, 60.0), weight=3
)  # fmt: skip
async def freeze(world: World, *, program: str, leader: bool, steps: int, seconds: float, moment: str = "") -> None:
    """A replica is stopped between two steps of its own, and goes on later."""
    victim = await _when(world, program, leader, moment)
    world.tell(f"{victim.name} is stopped {steps} steps from now, for {seconds:g} s")
    await _at_step(world, victim, steps, victim.process.freeze)
    await world.pause(seconds)
    world.tell(f"{victim.name} goes on")
    world.blinded(victim.name, world.now)
    victim.process.thaw()


def _followed(rng: Random, scenario: Scenario) -> str:
    """Draw a controller of nodes that has another replica to take over."""
    found = [each for each in scenario.controllers if each.program != "hpa-scaler" and len(each.skews) > 1]
    return str(any_of(rng, found).program)


@step(
    program=_followed,
    request=one_of("eviction", "eviction", "eviction", "node"),
    number=one_of(1, 1, 2, 3),
    before=one_of(0, 0, 1, 2),
    seconds=one_of(30.0, 40.0),
    weight=0,
)
async def freeze_as_it_asks(
    world: World, *, program: str, request: str, number: int, before: int, seconds: float
) -> None:
    """A replica is stopped before the very step in which a request of its controller leaves, the one of that number,
    or a few steps before; others lead when it goes on. A rehearsal has told which step that is.
    """
    name, steps = world.rehearsed.get((program, request, number), ("", 0))
    team, armed = world.team_of(program), list[Replica]()
    # It looks in the rehearsal, too: up to the moment both runs are the same, step by step.
    while not world.quiet and not any(each.process.frozen for each in armed):
        for each in team.alive:
            if each.name == name and each not in armed and each.process.steps < steps - before:
                each.process.at_step = each.process.freeze
                each.process.stop_at = steps - before
                armed.append(each)
        await world.pause(_LOOK)
    for each in armed:
        if not each.process.frozen:
            each.process.stop_at = -1  # the story is over: nobody would let it go on
            continue
        world.tell(f"{name} is stopped before it asks for {request} {number}, for {seconds:g} s")
        await world.pause(seconds)
        world.tell(f"{name} goes on")
        world.blinded(name, world.now)
        each.process.thaw()


@step(VICTIM, back=one_of(0.0, 1.0, 20.0), skew=lambda rng, _: any_skew(rng), weight=2)
async def restart(world: World, *, program: str, leader: bool, back: float, skew: float, moment: str = "") -> None:
    """A replica is told to end, and another one starts in its place."""
    victim = await _when(world, program, leader, moment)
    world.tell(f"{victim.name} is told to end")
    victim.stop()
    await world.pause(back)
    world.start(world.teams[program], skew)


@step(program=program, seconds=one_of(30.0, 100.0, 1000.0), moment=MOMENT, weight=0.7)
async def dry_run(world: World, *, program: str, seconds: float, moment: str = "") -> None:
    """All replicas of a controller are replaced by a dry run, and perhaps by live ones again."""
    if moment:
        await world.in_drain([moment], 120.0)
    team = world.team_of(program)
    if team.dry_run or world.quiet:
        return
    await _replaced(world, team, dry=True)
    await world.pause(seconds)
    if not world.quiet:
        await _replaced(world, team, dry=False)


async def _replaced(world: World, team: Team, *, dry: bool) -> None:
    world.tell(f"{team.program} {'becomes a dry run' if dry else 'is live again'}")
    for each in team.alive:
        each.stop()
    team.dry_run = dry
    await world.pause(2.0)
    world.start(team, 0.0)


__all__ = ["any_skew"]

"""Steps that happen to replicas of controllers."""

from __future__ import annotations

from random import Random

from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.world import World


def _killed(rng: Random, scenario: Scenario) -> Args | None:
    if not scenario.controllers:
        return None
    return {
        "program": rng.choice(scenario.controllers).program,
        "leader": rng.random() < 0.8,
        "steps": rng.choice((0, rng.randint(1, 300))),
        "back": rng.choice((1.0, 5.0, 30.0)),
        "skew": round(rng.uniform(-5, 5), 1),
    }


@step(_killed, weight=4)
async def kill(world: World, *, program: str, leader: bool, steps: int, back: float, skew: float) -> None:
    """A replica is killed between two steps of its own, so many from now; another one starts in its place."""
    team = world.team(program)
    victim = world.pick(team, leader) if team is not None else None
    if team is None or victim is None:
        return
    world.tell(f"{victim.name} is killed {steps} steps from now")
    if steps:
        victim.process.stop_at = victim.process.steps + steps
        victim.process.at_step = victim.process.kill
        waits = 0.0
        while victim.process.alive and waits < 60:
            await world.pause(0.5)
            waits += 0.5
            if world.quiet:
                break
    victim.process.kill()
    await world.pause(back)
    world.start(team, skew)

"""Steps of people at nodes."""

from __future__ import annotations

from random import Random

from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.world import World


def _cordoned(rng: Random, scenario: Scenario) -> Args | None:
    if not scenario.nodes:
        return None
    return {"node": rng.choice(scenario.nodes).name, "seconds": rng.choice((20.0, 60.0, 600.0))}


@step(_cordoned, weight=2)
async def cordon(world: World, *, node: str, seconds: float) -> None:
    """A person cordons a node that is not cordoned, and uncordons it later, unless the story is over."""
    found = world.store.find("Node", node)
    if found is None or found["spec"].get("unschedulable"):
        return
    world.tell(f"a person cordons {node}")
    world.store.modify("Node", node, change=lambda each: each["spec"].update(unschedulable=True))
    await world.pause(seconds)
    found = world.store.find("Node", node)
    if found is not None and not world.quiet:
        world.tell(f"a person uncordons {node}")
        world.store.modify("Node", node, change=lambda each: each["spec"].pop("unschedulable", None) and None)

"""Steps of those who say how few nodes a group may have, and which nodes Karpenter deletes."""

from __future__ import annotations

from tightship_testkit.disasters.cluster import POOL
from tightship_testkit.disasters.drawing import named, one_of, share
from tightship_testkit.disasters.groups import (
    DISRUPTIONS,
    MINIMUM,
    STATUS,
    SYSTEM,
    minimums_of,
    status_text,
)
from tightship_testkit.disasters.promises.reading import annotations as notes_of
from tightship_testkit.disasters.registry import AUTOSCALER, step
from tightship_testkit.disasters.steps.people import WITHIN, annotate
from tightship_testkit.disasters.world import World

_POOL = named(lambda scenario: scenario.pools)
_MOMENT = one_of("", "Claimed", "Evicting")


@step(pool=_POOL, least=one_of(0, 1, 2, 3), old=share(0.3), moment=_MOMENT, weight=0, author=AUTOSCALER)
async def resize_group(world: World, *, pool: str, least: int, old: bool, moment: str) -> None:
    """Someone sets another minimum size of a node group, in the middle of a drain or not."""
    if moment:
        await world.in_drain([moment], WITHIN)
    if world.quiet:
        return
    world.tell(f"the minimum size of group {pool} is {least}")
    status = world.store.find("ConfigMap", STATUS, SYSTEM)
    if status is not None:
        text = status_text({**minimums_of(status), pool: least}, old)
        world.store.modify("ConfigMap", STATUS, SYSTEM, lambda each: {**each, "data": {"status": text}})
    for node in world.store.list("Node"):
        if MINIMUM in notes_of(node) and node["metadata"]["labels"].get(POOL) == pool:
            annotate(world, "Node", node["metadata"]["name"], "", {MINIMUM: str(least)})


@step(pool=_POOL, how=one_of(*DISRUPTIONS, "static"), moment=_MOMENT, weight=0)
async def set_disruption(world: World, *, pool: str, how: str, moment: str) -> None:
    """A person sets when Karpenter deletes nodes of a NodePool, in the middle of a drain or not."""
    if moment:
        await world.in_drain([moment], WITHIN)
    if world.quiet or world.store.find("NodePool", pool) is None:
        return
    world.tell(f"NodePool {pool} is {how}")
    spec = {"replicas": 3} if how == "static" else {"disruption": DISRUPTIONS[how]}
    world.store.modify("NodePool", pool, change=lambda each: {**each, "spec": spec})

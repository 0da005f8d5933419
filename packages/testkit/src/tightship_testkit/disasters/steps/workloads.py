"""Steps of those who run workloads."""

from __future__ import annotations

from random import Random

from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.world import World


def _scaled(rng: Random, scenario: Scenario) -> Args | None:
    fitting = [each for each in scenario.workloads if each.kind in ("Deployment", "StatefulSet")]
    if not fitting:
        return None
    chosen = rng.choice(fitting)
    return {"kind": chosen.kind, "workload": chosen.name, "replicas": rng.choice((0, 1, 1, 2, 3, 4, 6, 9))}


@step(_scaled, weight=4)
def scale(world: World, *, kind: str, workload: str, replicas: int) -> None:
    """A workload is scaled up or down."""
    if world.store.find(kind, workload, "shop") is not None:
        world.tell(f"{kind} {workload} is scaled to {replicas}")
        world.store.modify(kind, workload, "shop", lambda each: each["spec"].update(replicas=replicas))

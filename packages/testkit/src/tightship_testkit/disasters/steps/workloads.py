"""Steps of those who run workloads."""

from __future__ import annotations

from functools import partial
from random import Random

from tightship_testkit.disasters.cluster import SHOP, budget, workload
from tightship_testkit.disasters.drawing import Drawn, MissingError, any_of, named, one_of, share
from tightship_testkit.disasters.promises.reading import controller, leaving
from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Budget, Scenario, Workload
from tightship_testkit.disasters.world import Json, World

_SCALED = ("Deployment", "ReplicaSet", "StatefulSet")


def _of(*kinds: str) -> Drawn:
    """Draw the name of a workload of one of these kinds."""
    return named(lambda scenario: [each for each in scenario.workloads if each.kind in kinds])


def _any_scaled(rng: Random, scenario: Scenario) -> Args:
    chosen = any_of(rng, [each for each in scenario.workloads if each.kind in _SCALED])
    return {"kind": chosen.kind, "workload": chosen.name}


@step(_any_scaled, replicas=one_of(0, 1, 1, 2, 3, 4, 6), weight=4)
def scale(world: World, *, kind: str, workload: str, replicas: int) -> None:
    """A workload is scaled up or down."""
    if world.store.find(kind, workload, SHOP) is not None:
        world.tell(f"{kind} {workload} is scaled to {replicas}")
        world.store.modify(kind, workload, SHOP, lambda each: each["spec"].update(replicas=replicas))


def _all_deployments(_: Random, scenario: Scenario) -> Args:
    if not scenario.of("Deployment"):
        raise MissingError
    return {"workloads": [each.name for each in scenario.of("Deployment")]}


@step(_all_deployments, least=one_of(0, 1), most=one_of(4, 6, 8), every=one_of(25.0, 40.0, 60.0))
async def waves(world: World, *, workloads: list[str], least: int, most: int, every: float) -> None:
    """The load of many workloads rises and falls together, until the story is over."""
    replicas = most
    while not world.quiet:
        world.tell(f"{', '.join(workloads)} are scaled to {replicas}")
        for name in workloads:
            if world.store.find("Deployment", name, SHOP) is not None:
                world.store.modify("Deployment", name, SHOP, partial(_set_replicas, replicas))
        replicas = least if replicas == most else most
        await world.pause(every)


def _set_replicas(replicas: int, thing: Json) -> None:
    thing["spec"]["replicas"] = replicas


@step(workload=_of("Deployment"), weight=2)
def rollout(world: World, *, workload: str) -> None:
    """A Deployment gets a new image."""

    def newer(thing: Json) -> None:
        main = thing["spec"]["template"]["spec"]["containers"][0]
        main["image"] = f"registry.example.com/app:{int(world.now)}"

    if world.store.find("Deployment", workload, SHOP) is not None:
        world.tell(f"Deployment {workload} is rolled out")
        world.store.modify("Deployment", workload, SHOP, newer)


@step(workload=_of("StatefulSet", "Deployment"), number=lambda rng, _: rng.randint(0, 3))
def delete_pod(world: World, *, workload: str, number: int) -> None:
    """Somebody deletes one of a workload's pods; that of a StatefulSet comes back under its name."""
    found = [each for each in world.store.list("Pod", SHOP) if each["metadata"]["labels"].get("app") == workload]
    if found:
        name = found[number % len(found)]["metadata"]["name"]
        world.tell(f"pod {name} is deleted")
        world.store.delete("Pod", name, SHOP)


def _patience(_: Random, scenario: Scenario) -> float:
    if not scenario.of("StatefulSet"):
        raise MissingError
    return 150.0


@step(within=_patience, quick=share(0.5))
async def stateful_pod_comes_back(world: World, *, within: float, quick: bool) -> None:
    """A pod of a StatefulSet on a node that is being emptied is deleted, and back under its name at once."""
    node = await world.in_drain(["Claimed", "Evicting"], within)
    for pod in world.store.list("Pod", SHOP):
        owner = controller(pod)
        if (
            pod["spec"].get("nodeName") == node
            and owner is not None
            and owner["kind"] == "StatefulSet"
            and not leaving(pod)
        ):
            name = pod["metadata"]["name"]
            world.tell(f"pod {name} on {node} is deleted")
            world.store.delete("Pod", name, SHOP, grace=0 if quick else None)
            return


_BUDGETS: tuple[Args, ...] = (
    {"minAvailable": 0}, {"minAvailable": 1}, {"minAvailable": 100}, {"minAvailable": "50%"}, {"minAvailable": "100%"},
    {"maxUnavailable": 0}, {"maxUnavailable": 1}, {"maxUnavailable": "30%"},
)  # fmt: skip


def any_budget(rng: Random) -> Args:
    """Return the spec of a budget."""
    spec = dict(rng.choice(_BUDGETS))
    if rng.random() < 0.2:
        spec["unhealthyPodEvictionPolicy"] = rng.choice(("AlwaysAllow", "IfHealthyBudget"))
    return spec


@step(workload=_of(*_SCALED), spec=lambda rng, _: any_budget(rng), weight=2)
def edit_budget(world: World, *, workload: str, spec: Args) -> None:
    """A PodDisruptionBudget is made, or changed to this."""
    made = budget(Budget(name=f"{workload}-budget", workload=workload, spec=spec))
    name = made["metadata"]["name"]
    if world.store.find("Namespace", SHOP) is None:
        return  # a story that was shrunk to no workload
    world.tell(f"PodDisruptionBudget {name} is {spec}")
    if world.store.find("PodDisruptionBudget", name, SHOP) is None:
        world.store.create("PodDisruptionBudget", made)
    else:
        world.store.modify("PodDisruptionBudget", name, SHOP, lambda each: {**each, "spec": made["spec"]})


@step(budget=named(lambda scenario: scenario.budgets), weight=0.5)
def delete_budget(world: World, *, budget: str) -> None:
    """A PodDisruptionBudget is deleted."""
    world.delete("PodDisruptionBudget", budget, SHOP)


@step(workload=_of(*_SCALED), seconds=one_of(20.0, 120.0), weight=0.5)
async def second_budget(world: World, *, workload: str, seconds: float) -> None:
    """The pods of a workload fall under two budgets for a while, which forbids their eviction."""
    name = f"{workload}-second"
    if world.store.find("PodDisruptionBudget", name, SHOP) is not None:
        return
    world.tell(f"PodDisruptionBudget {name} is made, too")
    world.store.create("PodDisruptionBudget", budget(Budget(name=name, workload=workload, spec={"maxUnavailable": 1})))
    await world.pause(seconds)
    world.delete("PodDisruptionBudget", name, SHOP)


@step(
    name=lambda rng, _: f"late{rng.randint(0, 99)}", replicas=one_of(1, 2, 4), cpu=one_of("300m", "1", "1900m", "9"),
    seconds=one_of(30.0, 90.0, 600.0), weight=2,
)  # fmt: skip
async def add_workload(world: World, *, name: str, replicas: int, cpu: str, seconds: float) -> None:
    """A new Deployment, perhaps too large for any node, is made, and deleted after a while."""
    if world.store.find("Deployment", name, SHOP) is not None:
        return
    world.tell(f"Deployment {name} of {replicas} pods with {cpu} CPU is made")
    world.store.create("Deployment", workload(Workload(name=name, replicas=replicas, cpu=cpu)))
    await world.pause(seconds)
    world.delete("Deployment", name, SHOP)


__all__ = ["any_budget"]

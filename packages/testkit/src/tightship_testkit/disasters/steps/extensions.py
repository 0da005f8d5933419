"""Steps with what newer clusters have: deletion costs, maintenance, buffers."""

from __future__ import annotations

from random import Random

from tightship_simulator.life.changes import with_condition
from tightship_simulator.life.openers import EvictionAutoscaler
from tightship_testkit.disasters.cluster import SHOP
from tightship_testkit.disasters.drawing import MissingError, one_of, share
from tightship_testkit.disasters.promises.reading import COST, COST_MARK
from tightship_testkit.disasters.promises.reading import annotations as notes_of
from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.steps.people import NODE
from tightship_testkit.disasters.world import Json, World

_OF_NODES = ("node-compactor", "node-refiner")


def _whose(rng: Random, scenario: Scenario) -> Args:
    found = [each.program for each in scenario.controllers if each.program in _OF_NODES]
    if not found:
        raise MissingError
    return {"program": rng.choice(found)}


@step(lives=one_of(0.0, 60.0, 600.0, 600.0), cooldown=one_of(5.0, 20.0), most=one_of(1, 4), weight=0)
async def surge_on_cordon(world: World, *, lives: float, cooldown: float, most: int) -> None:
    """Azure's eviction-autoscaler guards Deployments and surges what a cordon displaces, until it dies.

    Those with an HPA it leaves out: the stories know of each HPA whose bounds are whose, and not of a surge.
    """
    world.tell(f"eviction-autoscaler guards Deployments without an HPA for {lives:g} s")
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in world.store.list("HorizontalPodAutoscaler", SHOP)}
    for each in world.store.list("Deployment", SHOP):
        name = each["metadata"]["name"]
        if name in scaled:
            continue
        meta = {"name": name, "namespace": SHOP, "annotations": {"ownedBy": "EvictionAutoScaler", "target": name}}
        spec = {"minAvailable": each["spec"]["replicas"], "selector": {"matchLabels": {"app": name}}}
        for guard in world.store.list("PodDisruptionBudget", SHOP):
            if (guard["spec"].get("selector") or {}).get("matchLabels") == spec["selector"]["matchLabels"]:
                world.store.delete("PodDisruptionBudget", guard["metadata"]["name"], SHOP)
        guarded = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}
        world.store.create("PodDisruptionBudget", guarded)
    actor = EvictionAutoscaler(cooldown, most)
    world.simulation.living.others.append(actor)
    world.simulation.living.wake()
    await world.pause(lives)
    actor.dead = True


@step(cost=one_of("-2147483648", "-7", "0", "12", "none"), over=share(0.3), every=one_of(1, 2), weight=0)
def price_pods(world: World, *, cost: str, over: bool, every: int) -> None:
    """A person writes deletion costs on some pods, perhaps over ours."""
    for number, pod in enumerate(world.store.list("Pod", SHOP)):
        if number % every or (COST_MARK in notes_of(pod) and not over):
            continue
        name = pod["metadata"]["name"]
        world.tell(f"pod {name} gets the deletion cost {cost}")
        world.store.modify(
            "Pod", name, SHOP, lambda each: each["metadata"].setdefault("annotations", {}).update({COST: cost})
        )


@step(
    NODE,
    condition=one_of("MaintenancePlanned", "MaintenancePlanned", "MaintenanceInProgress", "DrainInProgress"),
    seconds=one_of(20.0, 60.0, 600.0),
    weight=0,
)
async def maintain(world: World, *, node: str, condition: str, seconds: float) -> None:
    """Maintenance of a node is planned, or under way, for a while."""

    def reported(status: str) -> None:
        def change(thing: Json) -> None:
            thing["status"]["conditions"] = with_condition(thing, condition, status, "2026-01-05T08:00:00Z")

        if world.store.find("Node", node) is not None:
            world.tell(f"{condition} of {node} is {status}")
            world.store.modify("Node", node, change=change, part="status")

    reported("True")
    await world.pause(seconds)
    reported("False")


@step(_whose, on=share(0.4), moment=one_of("", "Claimed", "Evicting"), weight=0)
async def switch_costs(world: World, *, program: str, on: bool, moment: str) -> None:
    """Deletion costs are switched on or off, in the middle of a drain or not."""
    team = world.team_of(program)
    if moment:
        await world.in_drain([moment], 100.0)
    if not world.quiet:
        world.tell(f"{program}: deletion costs are {'on' if on else 'off'}")
        world.configure(team, {**team.settings, "deletionCost": on})


@step(replicas=one_of(0, 1, 3, 8), weight=0)
def resize_buffer(world: World, *, replicas: int) -> None:
    """The autoscaler gives another number for a buffer."""

    def change(thing: Json) -> None:
        thing["status"]["replicas"] = replicas

    if world.store.find("CapacityBuffer", "spare", SHOP) is not None:
        world.tell(f"CapacityBuffer spare is for {replicas} pods")
        world.store.modify("CapacityBuffer", "spare", SHOP, change, part="status")

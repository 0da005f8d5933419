"""Steps of the autoscaler, the cloud and the kubelets: nodes that come, go, and are not well."""

from __future__ import annotations

from random import Random

from tightship_testkit.disasters.cluster import node as made_node
from tightship_testkit.disasters.drawing import named, one_of, share
from tightship_testkit.disasters.promises.reading import (
    TERMINATION,
    TO_BE_DELETED,
    cordoned,
    has_taint,
    taints,
    terminating,
)
from tightship_testkit.disasters.registry import AUTOSCALER, HANDLER, Args, step
from tightship_testkit.disasters.scenario import Node, Scenario
from tightship_testkit.disasters.steps.people import NODE, PHASE, WITHIN, empty, set_cordon
from tightship_testkit.disasters.world import Json, World


@step(NODE, joins=share(0.6), seconds=one_of(3.0, 20.0, 60.0), deletes=share(0.5), weight=2, author=AUTOSCALER)
async def autoscaler_takes(world: World, *, node: str, joins: bool, seconds: float, deletes: bool) -> None:
    """The autoscaler taints a node, one in drain if it *joins*; then it deletes it, or gives it back."""
    if joins:
        node = await world.in_drain(["Claimed", "Evicting", "Drained"], WITHIN) or node
    found = world.thing("Node", node)
    if has_taint(found, TO_BE_DELETED):
        return
    uid, was_cordoned = found["metadata"]["uid"], cordoned(found)

    def take(thing: Json) -> None:
        thing["spec"]["unschedulable"] = True
        taint = {"key": TO_BE_DELETED, "value": str(int(world.wall)), "effect": "NoSchedule"}
        thing["spec"]["taints"] = [*taints(thing), taint]

    world.tell(f"the autoscaler takes {node}")
    world.store.modify("Node", node, change=take)
    await world.pause(seconds)
    if world.thing("Node", node)["metadata"]["uid"] != uid:
        return
    if deletes:
        world.delete("Node", node)
        return

    def give_back(thing: Json) -> None:
        thing["spec"]["taints"] = [each for each in taints(thing) if each["key"] != TO_BE_DELETED]
        if not was_cordoned:
            thing["spec"].pop("unschedulable", None)

    world.tell(f"the autoscaler gives {node} back")
    world.store.modify("Node", node, change=give_back)


@step(
    NODE,
    joins=share(0.7),
    tainted=share(0.5),
    seconds=one_of(5.0, 30.0, 90.0),
    cancelled=share(0.5),
    weight=0,
    author=HANDLER,
)
async def termination_handler(
    world: World, *, node: str, joins: bool, tainted: bool, seconds: float, cancelled: bool
) -> None:
    """A handler marks, cordons and empties a node, one in drain if it *joins*. Then the node goes, or what was to come
    is *cancelled*: the handler lifts the cordon, whoever's it is, and takes its marks off.
    """
    if joins:
        node = await world.in_drain(["Claimed", "Evicting", "Drained"], WITHIN) or node
    found = world.thing("Node", node)
    if terminating(found) or world.quiet:
        return
    uid = found["metadata"]["uid"]

    def mark(thing: Json) -> None:
        thing["metadata"]["labels"][f"{TERMINATION}action"] = "cordon-and-drain"
        more = [{"key": f"{TERMINATION}spot-itn", "value": "event", "effect": "NoSchedule"}] if tainted else []
        thing["spec"]["taints"] = [*taints(thing), *more]

    def unmark(thing: Json) -> None:
        del thing["metadata"]["labels"][f"{TERMINATION}action"]
        thing["spec"]["taints"] = [each for each in taints(thing) if not each["key"].startswith(TERMINATION)]

    world.tell(f"a termination handler takes {node}")
    world.store.modify("Node", node, change=mark)
    if not cordoned(found):
        set_cordon(world, node, True)
    await empty(world, node)
    await world.pause(seconds)
    if world.thing("Node", node)["metadata"]["uid"] != uid:
        return
    if not cancelled:
        world.delete("Node", node)
        return
    set_cordon(world, node, False)
    world.tell(f"the termination handler gives {node} back")
    world.store.modify("Node", node, change=unmark)


@step(NODE, author=AUTOSCALER)
def delete_node(world: World, *, node: str) -> None:
    """The cloud takes a node away, with all that runs on it."""
    world.delete("Node", node)


@step(
    pool=named(lambda scenario: scenario.pools),
    name=lambda rng, _: f"added{rng.randint(0, 99)}",
    author=AUTOSCALER,
)
def add_node(world: World, *, pool: str, name: str) -> None:
    """A node joins."""
    shape = next((each for each in world.scenario.pools if each.name == pool), None)
    if shape is not None and world.store.find("Node", name) is None:
        world.tell(f"{name} joins pool {pool}")
        made = made_node(Node(name=name, pool=pool), shape)
        del made["metadata"]["creationTimestamp"]
        world.store.create("Node", made)


@step(phases=one_of(["Claimed"], ["Evicting"], ["Drained"]), seconds=one_of(0.0, 0.5, 5.0), author=AUTOSCALER)
async def remake_node(world: World, *, phases: list[str], seconds: float) -> None:
    """A node in drain is deleted and made anew under its name, with its pods still there."""
    node = await world.in_drain(phases, WITHIN)
    found = world.thing("Node", node)
    world.tell(f"{node} is deleted and made anew under its name")
    world.store.delete("Node", node)
    if seconds:
        await world.pause(seconds)
    if world.store.find("Node", node) is not None:
        return
    labels = dict(found["metadata"]["labels"])
    world.store.create("Node", {"metadata": {"name": node, "labels": labels}, "spec": {}, "status": found["status"]})


def set_ready(world: World, node: str, on: bool) -> None:
    """Have a node, and the pods on it, be Ready or not."""
    status = "True" if on else "False"

    def change(thing: Json) -> None:
        for each in (thing.get("status") or {}).get("conditions") or []:
            if each["type"] == "Ready":
                each["status"] = status

    if world.store.find("Node", node) is None:
        return
    world.tell(f"{node} is {'Ready again' if on else 'not Ready'}")
    world.store.modify("Node", node, change=change, part="status")
    for pod in world.store.list("Pod"):
        if pod["spec"].get("nodeName") == node and pod["status"].get("phase") == "Running":
            world.store.modify("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], change, part="status")


def _when(rng: Random, scenario: Scenario) -> Args | None:
    return PHASE(rng, scenario) if rng.random() < 0.6 else {"phases": [], "after": 0.0}


@step(NODE, _when, seconds=one_of(5.0, 25.0, 60.0), weight=2, author="node lifecycle")
async def not_ready(world: World, *, node: str, phases: list[str], after: float, seconds: float) -> None:
    """A node is not Ready for a while: one in drain where *phases* are named and a drain reaches one of them."""
    if phases:
        node = await world.in_drain(phases, WITHIN, after) or node
    set_ready(world, node, False)
    await world.pause(seconds)
    set_ready(world, node, True)

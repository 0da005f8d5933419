"""Steps of people at nodes, and at what stands on them."""

from __future__ import annotations

from tightship_simulator.api.errors import Refused
from tightship_simulator.api.subresources import evict
from tightship_testkit.disasters.drawing import draws, named, one_of, share
from tightship_testkit.disasters.promises.reading import DRAINING, cordoned, daemon, leaving, taints
from tightship_testkit.disasters.registry import step
from tightship_testkit.disasters.world import DRAIN, Json, World

NODE_OPT_OUTS = {
    "tightship.dev/do-not-drain": "true",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
    "karpenter.sh/do-not-disrupt": "true",
    "node-autoscaling.kubernetes.io/do-not-disrupt": "true",
}
POD_OPT_OUTS = {
    "tightship.dev/do-not-drain": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
    "node-autoscaling.kubernetes.io/do-not-disrupt": "true",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction": "true",
}
WITHIN = 150.0
"""Seconds that a step waits for a node in drain."""
_PHASES = (
    ["Claimed"],
    ["Claimed"],
    ["Evicting"],
    ["Evicting"],
    ["Drained"],
    ["Claimed", "Evicting", "Drained", "Restoring"],
)
NODE = draws(node=named(lambda scenario: scenario.nodes))
"""A node that is there from the beginning."""
PHASE = draws(phases=lambda rng, _: list(rng.choice(_PHASES)), after=one_of(0.0, 0.5, 2.0, 6.0))
"""At what point of a drain something happens."""
_OPT_OUT = one_of(*sorted(NODE_OPT_OUTS))


def set_cordon(world: World, node: str, on: bool) -> None:
    """Cordon or uncordon a node."""

    def change(thing: Json) -> None:
        if on:
            thing["spec"]["unschedulable"] = True
        else:
            thing["spec"].pop("unschedulable", None)

    if world.store.find("Node", node) is not None:
        world.tell(f"{'cordon' if on else 'uncordon'} {node}")
        world.store.modify("Node", node, change=change)


@step(NODE, seconds=one_of(20.0, 60.0, 600.0), weight=2)
async def cordon(world: World, *, node: str, seconds: float) -> None:
    """A person cordons a node that is not cordoned, and uncordons it later, unless the story is over."""
    if cordoned(world.thing("Node", node)):
        return
    set_cordon(world, node, True)
    await world.pause(seconds)
    if not world.quiet:
        set_cordon(world, node, False)


@step(PHASE, weight=2)
async def uncordon_in_drain(world: World, *, phases: list[str], after: float) -> None:
    """A person uncordons a node that is in drain."""
    node = await world.in_drain(phases, WITHIN, after)
    if node:
        set_cordon(world, node, False)


def untaint(world: World, node: str) -> None:
    """Take our taint off a node."""

    def change(thing: Json) -> None:
        kept = [each for each in taints(thing) if each["key"] != DRAINING]
        thing["spec"]["taints"] = kept

    if world.store.find("Node", node) is not None:
        world.tell(f"take the taint {DRAINING} off {node}")
        world.store.modify("Node", node, change=change)


@step(PHASE)
async def untaint_in_drain(world: World, *, phases: list[str], after: float) -> None:
    """A person takes our taint off a node that is in drain."""
    node = await world.in_drain(phases, WITHIN, after)
    if node:
        untaint(world, node)


@step(PHASE, taint=share(0.5), between=one_of(0.0, 0.1, 1.0, 20.0), weight=1.5)
async def recordon_in_drain(world: World, *, phases: list[str], after: float, taint: bool, between: float) -> None:
    """A person uncordons a node that is in drain, takes our taint off or doesn't, and cordons it for themselves."""
    node = await world.in_drain(phases, WITHIN, after)
    if not node:
        return
    set_cordon(world, node, False)
    if taint:
        untaint(world, node)
    if between:
        await world.pause(between)
    set_cordon(world, node, True)


@step(NODE, joins=share(0.3), back=share(0.5))
async def kubectl_drain(world: World, *, node: str, joins: bool, back: bool) -> None:
    """A person drains a node as kubectl does, one of ours in drain if it *joins*; then perhaps it comes *back*."""
    if joins:
        node = await world.in_drain(["Claimed", "Evicting"], WITHIN) or node
    found = world.thing("Node", node)
    world.tell(f"kubectl drain {node}")
    if not cordoned(found):
        set_cordon(world, node, True)
    await empty(world, node)
    if back and not world.quiet:
        await world.pause(20.0)
        set_cordon(world, node, False)


async def empty(world: World, node: str) -> None:
    """Evict the pods of a node, and try again for half a minute."""
    for _ in range(6):
        left = [
            each
            for each in world.store.list("Pod")
            if each["spec"].get("nodeName") == node and not daemon(each) and not leaving(each)
        ]
        for pod in left:
            try:
                evict(world.store, pod["metadata"]["name"], pod["metadata"]["namespace"])
            except Refused:
                continue
        if not left:
            break
        await world.pause(5.0)


@step(pool=named(lambda scenario: scenario.pools), between=one_of(0.0, 30.0, 90.0), weight=1.5)
async def replace_pool(world: World, *, pool: str, between: float) -> None:
    """A person replaces a pool: cordons all its nodes at once, and drains one after another, with time *between*."""
    nodes = [each.name for each in world.scenario.nodes if each.pool == pool]
    there = [name for name in nodes if world.store.find("Node", name) is not None]
    for name in there:
        if not cordoned(world.thing("Node", name)):
            set_cordon(world, name, True)
    for name in there:
        await world.pause(between)
        if world.store.find("Node", name) is not None and not world.quiet:
            await kubectl_drain(world, node=name, joins=False, back=False)


def annotate(world: World, kind: str, name: str, namespace: str, annotations: dict[str, str | None]) -> None:
    """Set annotations of an object, ``None`` takes one off."""

    def change(thing: Json) -> None:
        notes = thing["metadata"].setdefault("annotations", {})
        for key, value in annotations.items():
            if value is None:
                notes.pop(key, None)
            else:
                notes[key] = value

    if world.store.find(kind, name, namespace) is not None:
        world.tell(f"annotate {kind} {name} {annotations}")
        world.store.modify(kind, name, namespace, change)


@step(PHASE, annotation=_OPT_OUT, weight=1.5)
async def node_opts_out(world: World, *, phases: list[str], after: float, annotation: str) -> None:
    """A node in drain opts out."""
    node = await world.in_drain(phases, WITHIN, after)
    if node:
        annotate(world, "Node", node, "", {annotation: NODE_OPT_OUTS[annotation]})


@step(PHASE, annotation=one_of(*sorted(POD_OPT_OUTS)), all=share(0.5), weight=1.5)
async def pod_opts_out(world: World, *, phases: list[str], after: float, annotation: str, all: bool) -> None:  # noqa: A002
    """A pod of a node in drain opts out, or *all* do."""
    node = await world.in_drain(phases, WITHIN, after)
    for pod in world.store.list("Pod"):
        if node and pod["spec"].get("nodeName") == node and not leaving(pod):
            meta = pod["metadata"]
            annotate(world, "Pod", meta["name"], meta["namespace"], {annotation: POD_OPT_OUTS[annotation]})
            if not all:
                break


@step(NODE, annotation=_OPT_OUT, seconds=one_of(30.0, 600.0), weight=0.5)
async def opt_out(world: World, *, node: str, annotation: str, seconds: float) -> None:
    """A node opts out for a while, whatever it is doing."""
    annotate(world, "Node", node, "", {annotation: NODE_OPT_OUTS[annotation]})
    await world.pause(seconds)
    if not world.quiet:
        annotate(world, "Node", node, "", {annotation: None})


_CONDITION = one_of("MaintenancePlanned", "DrainInProgress", "MaintenanceInProgress", "Drained")


@step(PHASE, condition=_CONDITION, joins=share(0.5), seconds=one_of(20.0, 300.0))
async def maintenance(
    world: World, *, phases: list[str], after: float, condition: str, joins: bool, seconds: float
) -> None:
    """A tool sets a lifecycle condition on a node for a while: one in drain if it *joins*, else any."""
    node = await world.in_drain(phases, WITHIN, after) if joins else ""
    names = [each["metadata"]["name"] for each in world.store.list("Node")]
    node = node or (names[0] if names else "")

    def said(status: str) -> None:
        if world.store.find("Node", node) is not None:
            world.tell(f"{node}: {condition} is {status}")
            world.store.modify("Node", node, change=lambda thing: _set_condition(thing, condition, status))

    said("True")
    await world.pause(seconds)
    said("False")


def _set_condition(thing: Json, condition: str, status: str) -> None:
    found = [each for each in thing["status"].get("conditions") or [] if each["type"] != condition]
    thing["status"]["conditions"] = [*found, {"type": condition, "status": status, "reason": "AdminRequested"}]


@step(NODE)
async def write_beside(world: World, *, node: str) -> None:
    """Somebody keeps writing labels, annotations and taints of their own on a node for a while."""
    for number in range(8):
        found = world.store.find("Node", node)
        if found is None or world.quiet:
            return

        def change(thing: Json, number: int = number) -> None:
            thing["metadata"]["labels"]["example.com/round"] = str(number)
            thing["metadata"].setdefault("annotations", {})["example.com/round"] = str(number)
            kept = [each for each in taints(thing) if each["key"] != "example.com/soft"]
            more = (
                [{"key": "example.com/soft", "value": str(number), "effect": "PreferNoSchedule"}] if number % 2 else []
            )
            thing["spec"]["taints"] = [*kept, *more]

        world.store.modify("Node", node, change=change)
        await world.pause(1.5)


@step(PHASE, text=one_of("", "{", "[]", '{"v":9}', '{"v":1,"phase":"Lost"}'), weight=0.7)
async def garble_drain(world: World, *, phases: list[str], after: float, text: str) -> None:
    """Somebody spoils the annotation of a node in drain, or takes it off."""
    node = await world.in_drain(phases, WITHIN, after)
    if node:
        annotate(world, "Node", node, "", {DRAIN: text or None})


@step(PHASE, weight=0.7)
async def delete_claims(world: World, *, phases: list[str], after: float) -> None:
    """Somebody deletes the list of claims while a node is in drain."""
    node = await world.in_drain(phases, WITHIN, after)
    for lease in world.store.list("Lease") if node else ():
        meta = lease["metadata"]
        if meta["name"] == "tightship-claims":
            world.delete("Lease", meta["name"], meta["namespace"])


COUNTS = ("tightship.dev/begun", "tightship.dev/evicted-workloads")


@step(
    PHASE,
    text=one_of("", "{", "[1]", '{"a":[[9999999999,1]]}', '[{"at":"2126-01-01T00:00:00Z","nodes":1}]'),
    weight=0.5,
)
async def edit_counts(world: World, *, phases: list[str], after: float, text: str) -> None:
    """Somebody spoils the counts of rates while a node is in drain, and removes them soon after."""
    node = await world.in_drain(phases, WITHIN, after)
    for value in (text, None) if node else ():
        for meta in [each["metadata"] for each in world.store.list("Lease")]:
            if meta["name"] == "tightship-claims":
                annotate(world, "Lease", meta["name"], meta["namespace"], dict.fromkeys(COUNTS, value))
        await world.pause(10.0)


__all__ = ["NODE", "PHASE", "WITHIN", "annotate", "empty", "set_cordon"]

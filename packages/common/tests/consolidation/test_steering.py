"""Which nodes carry the soft taint, and that it is written and read without side effects."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.draining.writing import LiveNode
from tightship.nodes.soft_taints import EFFECT, NEITHER, Marks, labelled_by_others, marked, marks_patch, steer
from tightship.objects.node import LEAVING
from tightship.planning.plan import Move, Plan, Removal
from tightship.planning.plan.model import CANDIDATE
from tightship_testkit.builders import decoded, node, pod, snapshot

Json = dict[str, Any]
ME = "node-toy"
WE = Beside(ME)
OURS = {"key": CANDIDATE, "value": ME, "effect": EFFECT}
SIBLINGS = OURS | {"value": "node-sibling"}
OTHER = {"key": "team", "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
DRAINING = {"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}
BEING_DELETED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}


ON, OFF = Marks(True, False), NEITHER


def of(*names: str) -> Plan:
    return Plan("least-utilized", "likely", tuple(Removal(name, 1, ()) for name in names), {})


def changes(on: tuple[str, ...] = (), off: tuple[str, ...] = ()) -> list[tuple[str, Marks]]:
    return [*((name, ON) for name in on), *((name, OFF) for name in off)]


def cluster(**taints: list[Json]) -> Snapshot:
    """Nodes n1 to n4 with these taints."""
    return snapshot(*(node(name, taints=taints.get(name, [])) for name in ("n1", "n2", "n3", "n4")))


@pytest.mark.parametrize(
    ("now", "plan", "limit", "change"),
    [
        ({}, of("n3", "n1"), 20, changes(("n3", "n1"), ())),
        ({}, of("n3", "n1"), 1, changes(("n3",), ())),
        ({}, of("n3", "n1"), 0, changes()),
        ({"n1": [OURS], "n3": [OURS]}, of("n3", "n1"), 20, changes()),
        ({"n1": [OURS], "n2": [OURS]}, of("n3", "n1"), 20, changes(("n3",), ("n2",))),
        ({"n1": [OURS]}, of("n3", "n1"), 1, changes(("n3",), ("n1",))),
        ({"n4": [OURS], "n2": [OURS]}, of(), 20, changes((), ("n2", "n4"))),
        ({"n3": [DRAINING]}, of("n3", "n1"), 1, changes(("n1",), ())),
        ({"n3": [DRAINING, OURS]}, of("n1"), 20, changes(("n1",))),
        ({"n3": [BEING_DELETED, OURS]}, of("n1"), 20, changes(("n1",), ())),
        ({"n3": [SIBLINGS]}, of("n3"), 20, changes()),
        ({"n3": [SIBLINGS]}, of(), 20, changes()),
        ({}, of("gone"), 20, changes()),
    ],
    ids=[
        "planned",
        "no more than allowed, the first of the plan",
        "none allowed",
        "carried already",
        "left the plan",
        "beyond the limit now",
        "an empty plan",
        "in drain: not needed",
        "in drain since: cordoned, it keeps the taint until it goes",
        "being deleted: not touched",
        "a sibling's steers as well",
        "a sibling's is not ours to remove",
        "gone",
    ],
)
def test_just_the_first_nodes_of_the_plan_carry_the_taint(
    now: Json, plan: Plan, limit: int, change: list[tuple[str, Marks]]
) -> None:
    assert list(steer(cluster(**now), plan, limit, True, WE).items()) == change


def test_a_node_that_somebody_maintains_loses_a_taint_that_no_plan_wants() -> None:
    """A maintenance may take hours, and the controller may be switched off meanwhile."""
    maintained = snapshot(node("n1", taints=[OURS], true=("DrainInProgress",)))
    assert list(steer(maintained, of(), 20, True, WE).items()) == changes((), ("n1",))


def test_switched_off_every_node_loses_it() -> None:
    held = cluster(n1=[OURS], n2=[SIBLINGS], n3=[BEING_DELETED, OURS], n4=[OTHER])
    assert marked(held, WE) == ("n1", "n3")
    assert list(steer(held, of("n1"), 20, False, WE).items()) == changes((), ("n1", "n3"))


def live(*taints: Json, **spec: Any) -> LiveNode:
    [view] = snapshot(node(taints=list(taints), **spec)).nodes.values()
    return LiveNode(view.node, "7", tuple(taints))


def test_all_other_taints_stay_as_the_server_has_them() -> None:
    added = marks_patch(live(OTHER, BEING_DELETED | {"key": "x"}), ON, WE)
    assert added.taints == (OTHER, BEING_DELETED | {"key": "x"}, OURS)
    removed = marks_patch(live(OTHER, OURS, SIBLINGS | {"effect": "NoSchedule"}), OFF, WE)
    assert removed.taints == (OTHER, SIBLINGS | {"effect": "NoSchedule"})
    for patch in (added, removed):
        assert patch.annotations == {}
        assert patch.unschedulable is None


@pytest.mark.parametrize(
    ("node_now", "on"),
    [
        (live(OURS), True),
        (live(SIBLINGS), True),
        (live(), False),
        (live(SIBLINGS), False),
        (live(unschedulable=True), True),
        (live(DRAINING), True),
        (live(BEING_DELETED), True),
    ],
    ids=["on", "a sibling's is on", "off", "a sibling's is no matter", "cordoned", "in drain", "being deleted"],
)
def test_nothing_is_written_where_nothing_changes(node_now: LiveNode, on: bool) -> None:
    assert marks_patch(node_now, Marks(on, False), WE) is None


MINE = {LEAVING: ME}


def labelled(*pods: Json, **labels: str) -> Snapshot:
    """Nodes n1 to n4 with these values of the label."""
    names = ("n1", "n2", "n3", "n4")
    return snapshot(*(node(name, labels={LEAVING: labels[name]} if name in labels else {}) for name in names), *pods)


@pytest.mark.parametrize(
    ("now", "plan", "limit", "label", "expected"),
    [
        ({}, of("n3", "n1"), 1, True, {"n3": Marks(True, True), "n1": Marks(False, True)}),
        ({"n3": ME}, of("n3"), 0, True, {}),
        ({"n1": ME}, of("n3"), 0, True, {"n3": Marks(False, True), "n1": Marks(False, False)}),
        ({"n1": ME}, of("n3"), 0, None, {}),
        ({"n1": ME, "n3": ME}, of("n3"), 0, False, {"n1": Marks(False, False), "n3": Marks(False, False)}),
        ({"n3": "by-hand"}, of("n3"), 0, True, {}),
        ({"n1": "by-hand", "n2": "node-sibling.00000000"}, of(), 0, True, {}),
    ],
    ids=["all of the plan", "there already", "left the plan", "left alone", "taken off", "of somebody", "of others"],
)
def test_all_nodes_of_the_plan_carry_the_label(
    now: Json, plan: Plan, limit: int, label: bool | None, expected: Json
) -> None:
    assert steer(labelled(**now), plan, limit, True, WE, label=label) == expected


def test_a_node_where_the_plan_lets_pods_land_before_it_goes_carries_no_label() -> None:
    web = decoded(pod("web-1", on="n1"))
    plan = Plan("toy", "likely", (Removal("n1", 1, (Move(web, "n1", "n2"),)), Removal("n2", 1, ())), {})
    assert steer(labelled(), plan, 0, True, WE, label=True) == {"n1": Marks(False, True)}


def test_a_plan_sees_no_label_of_the_kind() -> None:
    """It would change with each plan, and the plan with the label."""
    one = snapshot(node(labels={"zone": "a", **MINE})).nodes["n1"].node
    assert (one.labels, one.leaving) == ({"zone": "a"}, ME)
    assert snapshot(node(labels={"zone": "a"})).nodes["n1"].node.leaving is None


def test_taint_and_label_are_one_patch_and_a_label_of_others_stays() -> None:
    [view] = snapshot(node(labels=MINE)).nodes.values()
    mine = LiveNode(view.node, "7", (OURS, OTHER))
    patch = marks_patch(LiveNode(live().node, "7", ()), Marks(True, True), WE)
    assert (patch.taints, patch.labels) == ((OURS,), MINE)
    assert marks_patch(mine, Marks(None, False), WE).labels == {LEAVING: None}
    assert marks_patch(mine, Marks(None, False), Beside("node-other")) is None


def test_labels_that_no_controller_of_tightship_wrote_are_told() -> None:
    there = labelled(n1="by-hand", n2="node-compactor.1f0a77c3", n3="node-refiner", n4="")
    assert labelled_by_others(there) == ("n1 ('by-hand')", "n4 ('')")

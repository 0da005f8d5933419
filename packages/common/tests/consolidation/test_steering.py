"""Which nodes carry the soft taint, and that it is written and read without side effects."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.drain_io.writing import LiveNode
from tightship.nodes.soft_taints import EFFECT, Steering, candidate_patch, steer, tainted
from tightship.planning.cluster import Snapshot
from tightship.planning.installations import Beside
from tightship.planning.plan import Plan, Removal
from tightship.planning.plan.model import CANDIDATE
from tightship_testkit.builders import node, snapshot

Json = dict[str, Any]
ME = "node-toy"
WE = Beside(ME)
OURS = {"key": CANDIDATE, "value": ME, "effect": EFFECT}
SIBLINGS = OURS | {"value": "node-sibling"}
OTHER = {"key": "team", "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
DRAINING = {"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}
BEING_DELETED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}


def of(*names: str) -> Plan:
    return Plan("least-utilized", "likely", tuple(Removal(name, 1, ()) for name in names), {})


def cluster(**taints: list[Json]) -> Snapshot:
    """Nodes n1 to n4 with these taints."""
    return snapshot(*(node(name, taints=taints.get(name, [])) for name in ("n1", "n2", "n3", "n4")))


@pytest.mark.parametrize(
    ("now", "plan", "limit", "change"),
    [
        ({}, of("n3", "n1"), 20, Steering(("n3", "n1"), ())),
        ({}, of("n3", "n1"), 1, Steering(("n3",), ())),
        ({}, of("n3", "n1"), 0, Steering()),
        ({"n1": [OURS], "n3": [OURS]}, of("n3", "n1"), 20, Steering()),
        ({"n1": [OURS], "n2": [OURS]}, of("n3", "n1"), 20, Steering(("n3",), ("n2",))),
        ({"n1": [OURS]}, of("n3", "n1"), 1, Steering(("n3",), ("n1",))),
        ({"n4": [OURS], "n2": [OURS]}, of(), 20, Steering((), ("n2", "n4"))),
        ({"n3": [DRAINING]}, of("n3", "n1"), 1, Steering(("n1",), ())),
        ({"n3": [DRAINING, OURS]}, of("n1"), 20, Steering(("n1",), ("n3",))),
        ({"n3": [BEING_DELETED, OURS]}, of("n1"), 20, Steering(("n1",), ())),
        ({"n3": [SIBLINGS]}, of("n3"), 20, Steering()),
        ({"n3": [SIBLINGS]}, of(), 20, Steering()),
        ({}, of("gone"), 20, Steering()),
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
        "in drain since",
        "being deleted: not touched",
        "a sibling's steers as well",
        "a sibling's is not ours to remove",
        "gone",
    ],
)
def test_just_the_first_nodes_of_the_plan_carry_the_taint(now: Json, plan: Plan, limit: int, change: Steering) -> None:
    assert steer(cluster(**now), plan, limit, True, WE) == change


def test_a_node_that_somebody_maintains_loses_a_taint_that_no_plan_wants() -> None:
    """A maintenance may take hours, and the controller may be switched off meanwhile."""
    maintained = snapshot(node("n1", taints=[OURS], true=("DrainInProgress",)))
    assert steer(maintained, of(), 20, True, WE) == Steering((), ("n1",))


def test_switched_off_every_node_loses_it() -> None:
    held = cluster(n1=[OURS], n2=[SIBLINGS], n3=[BEING_DELETED, OURS], n4=[OTHER])
    assert tainted(held, WE) == ("n1", "n3")
    assert steer(held, of("n1"), 20, False, WE) == Steering((), ("n1", "n3"))


def live(*taints: Json, **spec: Any) -> LiveNode:
    [view] = snapshot(node(taints=list(taints), **spec)).nodes.values()
    return LiveNode(view.node, "7", tuple(taints))


def test_all_other_taints_stay_as_the_server_has_them() -> None:
    added = candidate_patch(live(OTHER, BEING_DELETED | {"key": "x"}), True, WE)
    assert added.taints == (OTHER, BEING_DELETED | {"key": "x"}, OURS)
    removed = candidate_patch(live(OTHER, OURS, SIBLINGS | {"effect": "NoSchedule"}), False, WE)
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
    assert candidate_patch(node_now, on, WE) is None

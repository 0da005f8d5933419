"""kube-scheduler of the embedded cluster."""

from __future__ import annotations

from lively import AT, Json, node, pod, snapshot, unschedulable

from tightship_simulator.life.changes import Bind, Patch, condition
from tightship_simulator.life.scheduler import schedule


def _scheduled(*items: Json) -> list[Bind | Patch]:
    waiting = {f"shop/{item['metadata']['name']}": item for item in items if item["kind"] == "Pod"}
    changes = schedule(snapshot(*items), waiting, AT)
    assert all(isinstance(each, Bind | Patch) for each in changes)
    return changes  # type: ignore[return-value]


def test_a_pod_goes_to_the_least_allocated_node() -> None:
    [bound] = _scheduled(node("n1"), node("n2"), pod("old", "n1"), pod("new"))
    assert bound == Bind(bound.item, "n2")
    assert bound.item["metadata"]["name"] == "new"


def test_pods_of_one_look_take_their_room_from_each_other() -> None:
    changes = _scheduled(node("n1", "2"), pod("a"), pod("b"), pod("c"))
    assert [type(each) for each in changes] == [Bind, Bind, Patch]


def test_a_pod_that_fits_nowhere_is_unschedulable_and_told_so_once() -> None:
    [change] = _scheduled(node("n1", "2"), pod("big", cpu="3"))
    assert isinstance(change, Patch)
    assert change.status
    [told] = change.merge["status"]["conditions"]
    assert (told["type"], told["status"], told["reason"]) == ("PodScheduled", "False", "Unschedulable")
    again = {**change.item, "status": change.merge["status"]}
    assert condition(again, "PodScheduled")["reason"] == "Unschedulable"
    assert _scheduled(node("n1", "2"), again) == []


def test_a_pod_told_unschedulable_is_bound_when_there_is_room() -> None:
    [change] = _scheduled(node("n1"), unschedulable("late"))
    assert isinstance(change, Bind)


def test_cordoned_and_tainted_nodes_and_those_that_are_not_ready_get_nothing() -> None:
    taint = {"key": "tightship.dev/draining", "value": "x", "effect": "NoSchedule"}
    nodes = (node("cordoned", unschedulable=True), node("tainted", taints=[taint]), node("starting", ready=False))
    [change] = _scheduled(*nodes, pod("new"))
    assert isinstance(change, Patch)


def test_an_object_that_cannot_be_read_stops_nobody() -> None:
    bad = pod("bad")
    bad["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "much"
    [change] = _scheduled(node("n1"), bad, pod("new"))
    assert change.item["metadata"]["name"] == "new"


def test_the_higher_priority_comes_first() -> None:
    changes = _scheduled(node("n1", "1"), pod("low"), pod("high", priority=10))
    assert [each.item["metadata"]["name"] for each in changes if isinstance(each, Bind)] == ["high"]


def test_a_pod_of_another_scheduler_is_left_alone() -> None:
    assert _scheduled(node("n1"), pod("other", schedulerName="mine")) == []

"""kube-scheduler of the embedded cluster."""

from __future__ import annotations

import pytest
from lively import AT, Json, node, pod, snapshot, unschedulable

from tightship_simulator.life.changes import Bind, Patch
from tightship_simulator.life.scheduler import schedule

TAINT = {"key": "tightship.dev/draining", "value": "x", "effect": "NoSchedule"}


def _scheduled(*items: Json) -> list[Bind | Patch]:
    waiting = {f"shop/{item['metadata']['name']}": item for item in items if item["kind"] == "Pod"}
    changes = schedule(snapshot(*items), waiting, AT)
    assert all(isinstance(each, Bind | Patch) for each in changes)
    return changes  # type: ignore[return-value]


def _unreadable(name: str) -> Json:
    found = pod(name)
    found["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "much"
    return found


def _leaves(name: str) -> Json:
    found = node(name)
    found["metadata"]["labels"]["tightship.dev/leaving"] = "node-toy"
    return found


def _keeps_off(name: str) -> Json:
    terms = [{"matchExpressions": [{"key": "tightship.dev/leaving", "operator": "DoesNotExist"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod(name, affinity={"nodeAffinity": required})


@pytest.mark.parametrize(
    ("items", "outcome"),
    [
        ([node("n1"), node("n2"), pod("old", "n1"), pod("new")], {"new": "n2"}),
        ([node("n1", "2"), pod("a"), pod("b"), pod("c")], {"a": "n1", "b": "n1", "c": ""}),
        ([node("n1"), unschedulable("late")], {"late": "n1"}),
        ([node("n1", unschedulable=True), node("n2", taints=[TAINT]), node("n3", ready=False), pod("p")], {"p": ""}),
        ([node("n1"), _unreadable("bad"), pod("new")], {"new": "n1"}),
        ([node("n1", "1"), pod("low"), pod("high", priority=10)], {"high": "n1", "low": ""}),
        ([node("n1"), pod("other", schedulerName="mine")], {}),
        ([node("n1"), pod("new", schedulingGates=[{"name": "example.com/later"}])], {}),
        ([_leaves("n1"), node("n2", "1"), pod("plain")], {"plain": "n1"}),
        ([_leaves("n1"), node("n2", "1"), _keeps_off("led")], {"led": "n2"}),
        ([_leaves("n1"), _keeps_off("led")], {"led": ""}),
    ],
    ids=[
        "the least allocated node", "pods of one look take their room", "there is room again", "no node takes any",
        "what can't be read stops nobody", "the higher priority first", "another scheduler's",
        "a gate waits", "a label is nothing to others", "a led pod keeps off it", "a led pod finds none",
    ],
)  # fmt: skip
def test_pods_get_nodes(items: list[Json], outcome: dict[str, str]) -> None:
    changes = _scheduled(*items)
    assert {each.item["metadata"]["name"]: each.node if isinstance(each, Bind) else "" for each in changes} == outcome


def test_a_pod_that_fits_nowhere_is_told_so_once() -> None:
    [change] = _scheduled(node("n1", "2"), pod("big", cpu="3"))
    assert isinstance(change, Patch)
    assert change.status
    [reported] = change.merge["status"]["conditions"]
    assert (reported["type"], reported["status"], reported["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert _scheduled(node("n1", "2"), {**change.item, "status": change.merge["status"]}) == []

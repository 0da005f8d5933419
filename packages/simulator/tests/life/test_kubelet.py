"""Kubelets that take their time."""

from __future__ import annotations

import pytest
from lively import AT, LATER, Json, node, pod

from tightship_simulator.life.changes import Change, Delete, Patch
from tightship_simulator.life.index import Index
from tightship_simulator.life.kubelet import BOOTING, EXIT_AFTER, STOPS_AFTER, Kubelets, Pace

PACE = Pace(start=10, stop=20, boot=60)


def _bound(name: str, place: str) -> Json:
    found = pod(name)
    found["spec"]["nodeName"] = place
    return found


def _leaving(grace: int, **notes: str) -> list[Json]:
    """Return a node, and a pod on it that is told to end."""
    found = pod("old", "n1")
    meta = {"deletionTimestamp": AT, "deletionGracePeriodSeconds": grace, "annotations": notes}
    found["metadata"] |= meta
    return [node("n1"), found]


def _when(items: list[Json], most: float = 700, pace: Pace = PACE) -> tuple[float, list[Change]]:
    """Return when something happens first, looking once a second, and what."""
    kubelets, now = Kubelets(pace), 0.0
    while now <= most:
        changes = kubelets.step(Index(items), now, LATER)
        if changes:
            return now, changes
        now += 1.0
    return now, []


def test_a_bound_pod_becomes_ready_after_a_while() -> None:
    when, [change] = _when([node("n1"), _bound("new", "n1")])
    assert PACE.start / 2 <= when <= PACE.start
    assert isinstance(change, Patch)
    assert change.merge["status"]["phase"] == "Running"
    assert {"type": "Ready", "status": "True", "lastTransitionTime": LATER} in change.merge["status"]["conditions"]


@pytest.mark.parametrize(
    "items",
    [[node("n1", ready=False), _bound("new", "n1")], [node("n1"), pod("new")], [node("n1", ready=False)]],
    ids=["its node is not ready", "not bound", "a broken node stays broken"],
)
def test_nothing_happens(items: list[Json]) -> None:
    assert _when(items, 200)[1] == []


@pytest.mark.parametrize(
    ("items", "pace", "earliest", "latest"),
    [
        (_leaving(8), PACE, 4, 8),
        (_leaving(600), PACE, 0, PACE.stop),
        (_leaving(600, **{STOPS_AFTER: "100"}), PACE, 50, 100),
        (_leaving(8, **{EXIT_AFTER: "40s"}), PACE, 40, 40),
        ([node("n1"), pod("orphan", "n2")], PACE, 0, 0),
        ([node("n1"), pod("orphan", "n2")], Pace(lost=40), 20, 40),
    ],
    ids=[
        "within its grace",
        "sooner",
        "later than others",
        "past its grace",
        "its node is gone",
        "it outlives its node",
    ],
)
def test_a_pod_that_ends_is_deleted_in_time(items: list[Json], pace: Pace, earliest: float, latest: float) -> None:
    when, [change] = _when(items, pace=pace)
    assert earliest <= when <= latest
    assert change == Delete(items[1], grace=0)


def test_a_new_node_becomes_ready_loses_its_taint_and_its_mark() -> None:
    taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, {"key": "own", "effect": "NoSchedule"}]
    new = node("n1", ready=False, taints=taints)
    new["metadata"]["labels"][BOOTING] = "true"
    when, changes = _when([new])
    assert PACE.boot / 2 <= when <= PACE.boot
    status, spec = changes
    assert isinstance(status, Patch)
    assert isinstance(spec, Patch)
    assert status.merge["status"]["conditions"][0]["status"] == "True"
    assert spec.merge == {"metadata": {"labels": {BOOTING: None}}, "spec": {"taints": [taints[1]]}}

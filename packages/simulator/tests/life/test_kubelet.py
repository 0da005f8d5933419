"""Kubelets that take their time."""

from __future__ import annotations

from lively import AT, LATER, Json, node, pod

from tightship_simulator.life.changes import Change, Delete, Patch
from tightship_simulator.life.index import Index
from tightship_simulator.life.kubelet import BOOTING, EXIT_AFTER, STOPS_AFTER, Kubelets, Pace

PACE = Pace(start=10, stop=20, boot=60)


def _bound(name: str, place: str) -> Json:
    found = pod(name)
    found["spec"]["nodeName"] = place
    return found


def _leaving(name: str, place: str, grace: int = 30) -> Json:
    found = pod(name, place)
    found["metadata"] |= {"deletionTimestamp": AT, "deletionGracePeriodSeconds": grace}
    return found


def _when(items: list[Json], most: float) -> tuple[float, list[Change]]:
    """Return when something happens first, looking once a second, and what."""
    kubelets, now = Kubelets(PACE), 0.0
    while now <= most:
        changes = kubelets.step(Index(items), now, LATER)
        if changes:
            return now, changes
        now += 1.0
    return now, []


def test_a_bound_pod_becomes_ready_after_a_while() -> None:
    when, [change] = _when([node("n1"), _bound("new", "n1")], 60)
    assert PACE.start / 2 <= when <= PACE.start
    assert isinstance(change, Patch)
    assert change.merge["status"]["phase"] == "Running"
    assert {"type": "Ready", "status": "True", "lastTransitionTime": LATER} in change.merge["status"]["conditions"]


def test_no_pod_starts_on_a_node_that_is_not_ready() -> None:
    assert _when([node("n1", ready=False), _bound("new", "n1")], 100)[1] == []


def test_an_unbound_pod_does_not_start() -> None:
    assert _when([node("n1"), pod("new")], 100)[1] == []


def test_a_pod_that_is_told_to_end_is_gone_within_its_grace() -> None:
    when, [change] = _when([node("n1"), _leaving("old", "n1", grace=8)], 60)
    assert 4 <= when <= 8
    assert change == Delete(change.item, grace=0)


def test_a_pod_ends_sooner_than_a_long_grace() -> None:
    when, _ = _when([node("n1"), _leaving("old", "n1", grace=600)], 700)
    assert when <= PACE.stop


def test_a_pod_may_say_itself_how_long_it_takes_to_end_past_its_grace() -> None:
    slow = _leaving("old", "n1", grace=8)
    slow["metadata"]["annotations"] = {EXIT_AFTER: "40s"}
    assert _when([node("n1"), slow], 60)[0] == 40


def test_pods_of_a_node_that_is_gone_are_collected() -> None:
    _, [change] = _when([node("n1"), pod("orphan", "n2")], 0)
    assert change == Delete(change.item, grace=0)


def test_a_new_node_becomes_ready_loses_its_taint_and_its_mark() -> None:
    taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, {"key": "own", "effect": "NoSchedule"}]
    new = node("n1", ready=False, taints=taints)
    new["metadata"]["labels"][BOOTING] = "true"
    when, changes = _when([new], 100)
    assert PACE.boot / 2 <= when <= PACE.boot
    status, spec = changes
    assert isinstance(status, Patch)
    assert isinstance(spec, Patch)
    assert status.merge["status"]["conditions"][0]["status"] == "True"
    assert spec.merge == {"metadata": {"labels": {BOOTING: None}}, "spec": {"taints": [taints[1]]}}


def test_a_node_that_is_broken_stays_broken() -> None:
    assert _when([node("n1", ready=False)], 200)[1] == []


def test_a_pod_may_take_longer_to_end_than_others() -> None:
    slow = _leaving("old", "n1", grace=600)
    slow["metadata"]["annotations"] = {STOPS_AFTER: "100"}
    when, _ = _when([node("n1"), slow], 700)
    assert 50 <= when <= 100


def test_pods_outlive_their_node_for_a_while_where_the_pace_says_so() -> None:
    kubelets, index = Kubelets(Pace(lost=40)), Index([pod("orphan", "n2")])
    assert kubelets.step(index, 0.0, LATER) == []
    assert 20 <= kubelets.due <= 40
    assert len(kubelets.step(index, 40.0, LATER)) == 1

"""How much of a node is requested, and what may be left out of both sides."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.planning.plan.model import Utilization, UtilizationRules, utilization
from tightship_testkit.builders import NOW, controller, node, pod, snapshot

Json = dict[str, Any]

AGENT = pod("agent", owner=controller("DaemonSet", "agent"), cpu="500m", memory="1Gi")
STATIC = pod("static", owner=controller("Node", "n1"), notes={"kubernetes.io/config.mirror": "x"}, cpu="300m")
WEB = pod(cpu="1")


def used(*pods: Json, rules: UtilizationRules = UtilizationRules(), allocatable: Json | None = None) -> Utilization:
    [view] = snapshot(node(allocatable=allocatable), *pods).nodes.values()
    return utilization(view, NOW, rules)


@pytest.mark.parametrize(
    ("rules", "requested", "allocatable"),
    [
        (UtilizationRules(), 1800, 4000),
        (UtilizationRules(ignore_daemonsets=True), 1300, 3500),
        (UtilizationRules(ignore_mirror_pods=True), 1500, 3700),
        (UtilizationRules(ignore_daemonsets=True, ignore_mirror_pods=True), 1000, 3200),
    ],
)
def test_ignored_pods_leave_both_sides(rules: UtilizationRules, requested: int, allocatable: int) -> None:
    found = used(AGENT, STATIC, WEB, rules=rules)
    assert (found.requested["cpu"], found.allocatable["cpu"]) == (requested, allocatable)
    assert found.ratio("cpu") == pytest.approx(requested / allocatable, abs=1e-9)


@pytest.mark.parametrize(
    ("deletion", "requested"),
    [(NOW + 30, 1000), (NOW, 1000), (NOW - 1, None), (NOW - 3600, None)],
    ids=["in its grace period", "at its end", "past it", "long past it"],
)
def test_a_terminating_pod_counts_until_its_grace_period_ends(deletion: float, requested: int | None) -> None:
    assert (used(pod(cpu="1", deletion=deletion)).requested["cpu"] or None) == requested


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_does_not_count(phase: str) -> None:
    assert used(pod(phase=phase)).ratio("cpu") == 0.0


def test_a_pending_pod_that_is_bound_counts() -> None:
    assert used(pod(cpu="1", phase="Pending")).ratio("cpu") == 0.25


def test_extended_resources_count_where_the_node_has_them() -> None:
    load = Utilization({"cpu": 100, "nvidia.com/gpu": 1000}, {"cpu": 1000, "nvidia.com/gpu": 4000, "example.com/no": 0})
    assert load.extended == {"nvidia.com/gpu": 0.25}


@pytest.mark.parametrize(
    ("text", "milli"),
    [("1", 1000), ("100m", 100), ("0.5", 500), ("1e3", 1_000_000), ("5n", 1), ("1500000u", 1500)],
)
def test_every_form_of_a_quantity_counts(text: str, milli: int) -> None:
    assert used(pod(cpu=text)).requested["cpu"] == milli


def test_a_ratio_is_infinite_where_there_is_nothing_to_allocate() -> None:
    assert used(pod(), allocatable={}).ratio("cpu") == float("inf")
    assert used(allocatable={}).ratio("cpu") == 0.0
    assert used(pod()).ratio("example.com/card") == 0.0


def test_more_daemonset_pods_than_the_node_has_make_no_negative_room() -> None:
    big = pod("agent", owner=controller("DaemonSet", "agent"), cpu="5")
    found = used(big, rules=UtilizationRules(ignore_daemonsets=True))
    assert (found.requested["cpu"], found.allocatable["cpu"], found.ratio("cpu")) == (0, 0, 0.0)

"""Pods without a node: how many there are, and how many of them could run now."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.planning.plan.reserving import pending_pods
from tightship_testkit.builders import NOW, controller, node, pod, snapshot

Json = dict[str, Any]


def waiting(name: str, **spec: Any) -> Json:
    return pod(name, **{"on": "", "phase": "Pending", "cpu": "1500m", **spec})


def refused(name: str, **spec: Any) -> Json:
    """Return a pod for which its scheduler, whichever that is, has found no node."""
    raw = waiting(name, **spec)
    raw["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    return raw


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ([], (0, 0)),
        ([pod("bound")], (0, 0)),
        ([waiting("a")], (1, 1)),
        ([waiting(name) for name in "abcde"], (5, 4)),
        ([waiting("a", cpu="5")], (1, 0)),
        ([waiting("a", nodeSelector={"disk": "ssd"}), waiting("b")], (2, 1)),
        ([waiting("a", schedulerName="another")], (1, 0)),
        ([waiting("a", schedulingGates=[{"name": "example.com/quota"}])], (1, 0)),
        ([waiting("a", deletion=NOW)], (0, 0)),
        ([refused("a", schedulerName="volcano")], (1, 1)),
        ([waiting("a", owner=controller("DaemonSet", "agent"))], (1, 0)),
    ],
)
def test_pending_pods_are_counted_with_those_that_nodes_could_run(pods: list[Json], found: tuple[int, int]) -> None:
    assert pending_pods(snapshot(node("n1"), node("n2"), *pods)) == found

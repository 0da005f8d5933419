"""What takes away the nodes that a drain has emptied, and no other."""

from __future__ import annotations

import math

from lively import AT, Json, looking, node, pod, unschedulable, workload

from tightship_simulator.life.changes import Delete, Patch
from tightship_simulator.life.node_autoscaler import TO_BE_DELETED
from tightship_simulator.life.remover import Remover

TAINT = "example.com/draining"
OURS = {"key": TAINT, "value": "1", "effect": "NoSchedule"}


def drained(name: str = "n1", **spec: object) -> Json:
    return node(name, **{"unschedulable": True, "taints": [OURS], **spec})


def removed(*items: Json, until: float = 10.0) -> list[str]:
    """Return the nodes that are removed, looking once a second."""
    remover = Remover(TAINT, 5.0)
    for now in range(int(until) + 1):
        remover.step(looking(items), float(now), AT)
    return remover.removed[:1]


def test_an_emptied_node_is_marked_and_deleted_after_a_while() -> None:
    remover = Remover(TAINT, 5.0)
    look = looking([drained(), node("n2")])
    assert remover.step(look, 100.0, AT) == []
    assert remover.due == 105.0
    mark, deletion = remover.step(look, 105.0, AT)
    assert isinstance(mark, Patch)
    assert mark.guarded
    assert [each["key"] for each in mark.merge["spec"]["taints"]] == [TAINT, TO_BE_DELETED]
    assert deletion == Delete(mark.item)
    assert remover.removed == ["n1"]
    assert remover.due == math.inf


def test_only_nodes_that_are_cordoned_tainted_and_empty_go() -> None:
    daemon = pod("daemon", "n1", owner=workload("DaemonSet", "agents"))
    mirror = pod("mirror", "n1")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert removed(drained(), daemon, mirror) == ["n1"]
    assert removed(drained(), pod("web", "n1")) == []
    assert removed(drained(unschedulable=False)) == []
    assert removed(drained(taints=[])) == []
    assert removed(drained(), unschedulable("web")) == []


def test_the_time_begins_anew_once_a_node_has_had_a_pod_again() -> None:
    remover = Remover(TAINT, 5.0)
    remover.step(looking([drained()]), 100.0, AT)
    remover.step(looking([drained(), pod("late", "n1")]), 104.0, AT)
    remover.step(looking([drained()]), 108.0, AT)
    assert remover.due == 113.0

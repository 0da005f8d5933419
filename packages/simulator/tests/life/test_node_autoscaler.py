"""The Cluster Autoscaler by its rules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from lively import Json, node, pod, snapshot, unschedulable, workload

from tightship_simulator.api.landing import LEAVING, drawn
from tightship_simulator.life.changes import Change, Create, Delete, Evict, Patch
from tightship_simulator.life.kubelet import BOOTING
from tightship_simulator.life.node_autoscaler import TO_BE_DELETED, NodeAutoscaler, NodeGroup, Rules

RULES = Rules(unneeded=100, taint_delay=5, eviction=60, threshold=0.5)
OWNER = workload("ReplicaSet", "web", 5)
DAEMONS = workload("DaemonSet", "agent")


def _group(name: str = "a", least: int = 1, most: int = 5, cpu: str = "4") -> NodeGroup:
    template = node("template", cpu, pool=name)
    del template["metadata"]["uid"]
    return NodeGroup(name, template, least, most)


def _step(autoscaler: NodeAutoscaler, now: float, *items: Json) -> list[Change]:
    nodes = {item["metadata"]["name"]: item for item in items if item["kind"] == "Node"}
    pods = {f"shop/{item['metadata']['name']}": item for item in items if item["kind"] == "Pod"}
    return autoscaler.step(snapshot(OWNER, DAEMONS, *items), nodes, pods, now)


def _steps(group: NodeGroup, items: Sequence[Json], *times: float) -> list[Change]:
    """Return what is done at the last of *times*."""
    autoscaler = NodeAutoscaler([group], RULES)
    return [_step(autoscaler, now, *items) for now in times][-1]


def _added(changes: list[Change]) -> list[str]:
    return [
        each.item["metadata"]["labels"]["cloud.google.com/gke-nodepool"] for each in changes if isinstance(each, Create)
    ]


def _tainted(changes: list[Change]) -> list[str]:
    return [each.item["metadata"]["name"] for each in changes if isinstance(each, Patch)]


def _coming() -> Json:
    found = node("n2", ready=False, taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    found["metadata"]["labels"][BOOTING] = "true"
    return found


FULL = (node("n1"), pod("old", "n1", "4"))
FOUR = [unschedulable(f"p{number}", "4") for number in range(4)]
PICKY = unschedulable("picky", "1", nodeSelector={"cloud.google.com/gke-nodepool": "b"})


@pytest.mark.parametrize(
    ("groups", "items", "added"),
    [
        ([_group()], [*FULL, *(unschedulable(f"p{number}", "2") for number in range(3))], ["a", "a"]),
        ([_group()], [*FULL, _coming(), unschedulable("p", "4")], []),
        ([_group("a"), _group("b", cpu="16")], [node("n1"), unschedulable("big", "10")], ["b"]),
        ([_group("a"), _group("b")], [node("n1"), PICKY], ["b"]),
        ([_group(most=3)], [*FULL, *FOUR], ["a", "a"]),
        ([_group()], [node("n1"), unschedulable("huge", "100")], []),
    ],
    ids=[
        "as many as pods fill", "those on their way count", "a shape that takes the pod", "the pool that it selects",
        "not beyond the maximum", "none where none could take it",
    ],
)  # fmt: skip
def test_pods_that_wait_get_nodes(groups: list[NodeGroup], items: list[Json], added: list[str]) -> None:
    changes = _step(NodeAutoscaler(groups, RULES), 0, *items)
    assert _added(changes) == added
    made = [each.item for each in changes if isinstance(each, Create)]
    assert len({each["metadata"]["name"] for each in made}) == len(added)
    for each in made:
        assert each["status"]["conditions"][0]["status"] == "False"
        assert BOOTING in each["metadata"]["labels"]
        assert each["spec"]["taints"][0]["key"] == "node.kubernetes.io/not-ready"


def _leaves(name: str) -> Json:
    found = node(name)
    found["metadata"]["labels"][LEAVING] = "node-toy"
    return found


def test_a_template_has_the_label_of_the_node_that_it_is_made_of_until_there_is_another() -> None:
    """A pod that keeps off nodes that leave gets no node of such a group; the same pod made anew does."""
    autoscaler = NodeAutoscaler([_group()], RULES)
    led = unschedulable("led", "1", affinity=drawn(None, ["n9"]))
    full = pod("old", "n1", "4")
    assert _added(_step(autoscaler, 0, _leaves("n1"), full, led)) == []
    assert _added(_step(autoscaler, 1, led)) == [], "the group is empty, and its last template stays"
    assert _added(_step(autoscaler, 2, unschedulable("anew", "1"))) == ["a"]
    assert _added(_step(autoscaler, 3, node("n1"), full, led)) == ["a"]


def test_an_empty_node_goes_after_it_was_unneeded_for_long_enough_the_taint_first() -> None:
    autoscaler = NodeAutoscaler([_group()], RULES)
    items = (node("n1"), pod("old", "n1", "3"), node("n2"), pod("agent-n2", "n2", "1", owner=DAEMONS))
    assert _step(autoscaler, 0, *items) == []
    assert _step(autoscaler, 99, *items) == []
    [taint] = _step(autoscaler, 100, *items)
    assert isinstance(taint, Patch)
    assert taint.guarded
    assert taint.item["metadata"]["name"] == "n2"
    assert taint.merge["spec"]["unschedulable"] is True
    assert taint.merge["spec"]["taints"][0]["key"] == TO_BE_DELETED
    assert _step(autoscaler, 104, *items) == []
    [gone] = _step(autoscaler, 105, *items)
    assert gone == Delete(gone.item)
    assert gone.item["metadata"]["name"] == "n2"


def test_a_node_that_is_needed_in_between_waits_all_over_again() -> None:
    autoscaler = NodeAutoscaler([_group()], RULES)
    busy, empty = (node("n1"), pod("old", "n1", "3")), node("n2")
    _step(autoscaler, 0, *busy, empty)
    _step(autoscaler, 50, *busy, empty, pod("guest", "n2", "3"))
    assert _step(autoscaler, 120, *busy, empty) == []
    assert _tainted(_step(autoscaler, 220, *busy, empty)) == ["n2"]


def test_a_node_that_stays_because_its_pool_has_its_least_takes_no_room_from_others() -> None:
    autoscaler = NodeAutoscaler([_group("a"), _group("b", least=0), _group("c")], RULES)
    light = (node("n1", pool="a"), pod("light", "n1", "1", owner=OWNER))
    items = (
        *light,
        node("n2", pool="b"),
        pod("moves", "n2", "1600m", owner=OWNER),
        node("n3", pool="c"),
        pod("big", "n3", "2200m", owner=OWNER),
    )
    _step(autoscaler, 0, *items)
    assert _tainted(_step(autoscaler, 100, *items)) == ["n2"]


def _busy(cpu: str = "3") -> tuple[Json, Json]:
    return node("n1"), pod("old", "n1", cpu, owner=OWNER)


def _noted(name: str) -> Json:
    found = node(name)
    found["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    return found


LIGHT = pod("light", "n2", "1", owner=OWNER)


@pytest.mark.parametrize(
    ("group", "items", "tainted"),
    [
        (_group(most=2), [*_busy(), node("n2"), unschedulable("huge", "100")], []),
        (_group(least=2), [node("n1"), node("n2"), node("n3")], ["n1"]),
        (_group(), [*_busy(), node("n2", pool="b")], []),
        (_group(), [*_busy(), _noted("n2")], []),
        (_group(), [*_busy(), node("n2"), LIGHT], ["n2"]),
        (_group(), [*_busy("4"), node("n2"), LIGHT], []),
        (_group(), [*_busy("2"), node("n2"), pod("bare", "n2", "1")], []),
    ],
    ids=[
        "while pods wait", "a pool keeps its minimum", "of no pool", "a node says no", "a light one",
        "no place for its pods", "its pod may not be moved",
    ],
)  # fmt: skip
def test_what_goes_and_what_stays(group: NodeGroup, items: list[Json], tainted: list[str]) -> None:
    assert len(_tainted(_steps(group, items, 0, 100))) == len(tainted)
    if tainted == ["n2"]:
        assert _steps(group, items, 0, 100, 105) == [Evict(LIGHT)]


def test_a_cordoned_node_that_is_empty_goes_too() -> None:
    taint = {"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}
    [patch] = _steps(_group(), [*_busy(), node("n2", unschedulable=True, taints=[taint])], 0, 100)
    assert isinstance(patch, Patch)
    assert [each["key"] for each in patch.merge["spec"]["taints"]] == ["tightship.dev/draining", TO_BE_DELETED]


def test_a_removal_that_takes_too_long_is_given_back() -> None:
    autoscaler = NodeAutoscaler([_group()], RULES)
    items = [*_busy(), node("n2"), LIGHT]
    _step(autoscaler, 0, *items)
    [taint] = _step(autoscaler, 100, *items)
    assert isinstance(taint, Patch)
    items[2] = {**items[2], "spec": taint.merge["spec"]}
    back = _step(autoscaler, 166, *items)[0]
    assert isinstance(back, Patch)
    assert back.merge == {"spec": {"unschedulable": None, "taints": None}}

"""The Cluster Autoscaler by its rules."""

from __future__ import annotations

from lively import Json, node, pod, snapshot, unschedulable, workload

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


def _added(changes: list[Change]) -> list[str]:
    return [
        each.item["metadata"]["labels"]["cloud.google.com/gke-nodepool"] for each in changes if isinstance(each, Create)
    ]


def _tainted(changes: list[Change]) -> list[str]:
    return [each.item["metadata"]["name"] for each in changes if isinstance(each, Patch)]


def test_pods_that_wait_get_as_many_nodes_as_they_fill() -> None:
    waiting = [unschedulable(f"p{number}", "2") for number in range(3)]
    changes = _step(NodeAutoscaler([_group()], RULES), 0, node("n1"), pod("old", "n1", "4"), *waiting)
    assert _added(changes) == ["a", "a"]
    [first, second] = [each.item for each in changes if isinstance(each, Create)]
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["status"]["conditions"][0]["status"] == "False"
    assert BOOTING in first["metadata"]["labels"]
    assert first["spec"]["taints"][0]["key"] == "node.kubernetes.io/not-ready"


def test_nodes_on_their_way_count() -> None:
    coming = node("n2", ready=False, taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    coming["metadata"]["labels"][BOOTING] = "true"
    items = (node("n1"), pod("old", "n1", "4"), coming, unschedulable("p", "4"))
    assert _step(NodeAutoscaler([_group()], RULES), 0, *items) == []


def test_the_pool_is_one_whose_shape_takes_the_pod() -> None:
    groups = [_group("a"), _group("b", cpu="16")]
    assert _added(_step(NodeAutoscaler(groups, RULES), 0, node("n1"), unschedulable("big", "10"))) == ["b"]


def test_the_pool_is_one_that_the_pod_selects() -> None:
    groups = [_group("a"), _group("b")]
    picky = unschedulable("picky", "1", nodeSelector={"cloud.google.com/gke-nodepool": "b"})
    assert _added(_step(NodeAutoscaler(groups, RULES), 0, node("n1"), picky)) == ["b"]


def test_a_pool_does_not_grow_beyond_its_maximum() -> None:
    items = (node("n1"), pod("old", "n1", "4"), *(unschedulable(f"p{number}", "4") for number in range(4)))
    assert _added(_step(NodeAutoscaler([_group(most=3)], RULES), 0, *items)) == ["a", "a"]


def test_no_node_comes_for_a_pod_that_none_could_take() -> None:
    assert _step(NodeAutoscaler([_group()], RULES), 0, node("n1"), unschedulable("huge", "100")) == []


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


def test_nothing_goes_while_pods_wait() -> None:
    autoscaler = NodeAutoscaler([_group(most=2)], RULES)
    items = (node("n1"), pod("old", "n1", "3"), node("n2"), unschedulable("huge", "100"))
    assert [_step(autoscaler, now, *items) for now in (0, 100, 200, 300)] == [[], [], [], []]


def test_a_pool_keeps_its_minimum() -> None:
    autoscaler = NodeAutoscaler([_group(least=2)], RULES)
    items = (node("n1"), node("n2"), node("n3"))
    _step(autoscaler, 0, *items)
    assert len(_tainted(_step(autoscaler, 100, *items))) == 1


def test_a_node_of_no_pool_stays() -> None:
    autoscaler = NodeAutoscaler([_group()], RULES)
    items = (node("n1"), pod("old", "n1", "3"), node("other", pool="b"))
    _step(autoscaler, 0, *items)
    assert _step(autoscaler, 200, *items) == []


def test_a_node_that_says_no_stays() -> None:
    autoscaler = NodeAutoscaler([_group()], RULES)
    kept = node("n2")
    kept["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    items = (node("n1"), pod("old", "n1", "3"), kept)
    _step(autoscaler, 0, *items)
    assert _step(autoscaler, 200, *items) == []


def test_a_cordoned_node_that_is_empty_goes_too() -> None:
    autoscaler = NodeAutoscaler([_group()], RULES)
    taint = {"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}
    items = (node("n1"), pod("old", "n1", "3"), node("n2", unschedulable=True, taints=[taint]))
    _step(autoscaler, 0, *items)
    [patch] = _step(autoscaler, 100, *items)
    assert isinstance(patch, Patch)
    assert [each["key"] for each in patch.merge["spec"]["taints"]] == ["tightship.dev/draining", TO_BE_DELETED]


def test_a_light_node_is_emptied_by_evictions_where_its_pods_have_a_place() -> None:
    autoscaler = NodeAutoscaler([_group()], RULES)
    light = pod("light", "n2", "1", owner=OWNER)
    items = (node("n1"), pod("old", "n1", "3", owner=OWNER), node("n2"), light)
    _step(autoscaler, 0, *items)
    assert _tainted(_step(autoscaler, 100, *items)) == ["n2"]
    assert _step(autoscaler, 105, *items) == [Evict(light)]


def test_a_light_node_stays_where_its_pods_have_no_place() -> None:
    autoscaler = NodeAutoscaler([_group()], RULES)
    items = (node("n1"), pod("old", "n1", "4", owner=OWNER), node("n2"), pod("light", "n2", "1", owner=OWNER))
    _step(autoscaler, 0, *items)
    assert _step(autoscaler, 200, *items) == []


def test_a_light_node_stays_whose_pod_may_not_be_moved() -> None:
    autoscaler = NodeAutoscaler([_group()], RULES)
    bare = pod("bare", "n2", "1")
    items = (node("n1"), pod("old", "n1", "2", owner=OWNER), node("n2"), bare)
    _step(autoscaler, 0, *items)
    assert _step(autoscaler, 200, *items) == []


def test_a_removal_that_takes_too_long_is_given_back() -> None:
    autoscaler = NodeAutoscaler([_group()], RULES)
    items = [node("n1"), pod("old", "n1", "3", owner=OWNER), node("n2"), pod("light", "n2", "1", owner=OWNER)]
    _step(autoscaler, 0, *items)
    [taint] = _step(autoscaler, 100, *items)
    assert isinstance(taint, Patch)
    items[2] = {**items[2], "spec": taint.merge["spec"]}
    back = _step(autoscaler, 166, *items)[0]
    assert isinstance(back, Patch)
    assert back.merge == {"spec": {"unschedulable": None, "taints": None}}

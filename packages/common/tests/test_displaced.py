"""Nodes whose pods others will move, and the room that a plan keeps for these pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from cluster_builder import node, one, pod, snapshot

from tightship.cluster import Snapshot
from tightship.documents.warnings import warnings_of
from tightship.drain.assessment import Assessment
from tightship.drain.machine import DrainRules
from tightship.objects import Node
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan import Candidate, Planner
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.evictability import EvictionRules
from tightship.rules.nodes import displaced_since, displaces, with_abandoned

Json = dict[str, Any]
NOW = 1_790_000_000.0
HOUR = 3600.0
CORDON = "node.kubernetes.io/unschedulable"
LIFECYCLE = "the condition DrainInProgress is True: somebody else drains or maintains the node"


def when(ago: float) -> str:
    return datetime.fromtimestamp(NOW - ago, UTC).isoformat().replace("+00:00", "Z")


def owner(manager: str, ago: float | None = None, field: str = "f:unschedulable") -> Json:
    """An entry of managedFields."""
    time = {} if ago is None else {"time": when(ago)}
    return {"manager": manager, "operation": "Update", **time, "fieldsV1": {"f:spec": {field: {}}}}


def cordoned(name: str = "old", *owners: Json, tainted: float | None = None, **more: Any) -> Json:
    taint = {"key": CORDON, "effect": "NoSchedule"}
    taints = [taint if tainted is None else taint | {"timeAdded": when(tainted)}, *more.pop("taints", [])]
    made = node(name, unschedulable=True, taints=taints, **more)
    made["metadata"]["managedFields"] = list(owners)
    return made


def unready(name: str = "old", status: str = "Unknown", ago: float | None = None, **more: Any) -> Json:
    made = node(name, **more)
    condition = {"type": "Ready", "status": status}
    made["status"]["conditions"] = [condition if ago is None else condition | {"lastTransitionTime": when(ago)}]
    return made


def tainted(key: str, effect: str = "NoSchedule", name: str = "old") -> Json:
    return node(name, taints=[{"key": key, "effect": effect}])


def condition(kind: str) -> Json:
    made = node("old")
    made["status"]["conditions"].append({"type": kind, "status": "True"})
    return made


def deleted() -> Json:
    made = node("old")
    made["metadata"] |= {"deletionTimestamp": when(60), "finalizers": ["example.com/x"]}
    return made


def decoded(raw: Json) -> Node:
    found = one(raw)
    assert isinstance(found, Node)
    return found


@pytest.mark.parametrize(
    ("raw", "who"),
    [
        (node("old"), ""),
        (cordoned(), "someone else cordoned the node"),
        (cordoned("old", owner("kubectl-drain", 60)), "kubectl-drain cordoned the node"),
        (cordoned("old", owner("kubectl-edit"), owner("kured")), "kubectl-edit, kured cordoned the node"),
        (cordoned("old", owner("kube-controller-manager", 60, "f:taints")), "someone else cordoned the node"),
        (unready(status="False"), "the node is not Ready"),
        (unready(status="Unknown"), "the node is not Ready"),
        (tainted("ToBeDeletedByClusterAutoscaler"), "Cluster Autoscaler is deleting the node"),
        (tainted("karpenter.sh/disrupted"), "Karpenter is disrupting the node"),
        (tainted("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"), ""),
        (tainted("dedicated"), ""),
        (deleted(), "the Node object is being deleted"),
        (
            condition("DrainInProgress"),
            "the condition DrainInProgress is True: somebody else drains or maintains the node",
        ),
        (condition("MaintenancePlanned"), ""),
    ],
)
def test_who_moves_the_pods_of_a_node(raw: Json, who: str) -> None:
    assert displaces(decoded(raw)) == who


@pytest.mark.parametrize(
    ("raw", "ago"),
    [
        (cordoned(), None),
        (cordoned("old", owner("kubectl-drain")), None),
        (cordoned("old", owner("kubectl-drain", 2 * HOUR)), 2 * HOUR),
        (cordoned(tainted=3 * HOUR), 3 * HOUR),
        # A manager renews its time whenever it changes any field of its own; the taint keeps its time.
        (cordoned("old", owner("rancher", 60), tainted=40 * HOUR), 40 * HOUR),
        (cordoned("old", owner("kubectl-drain", 40 * HOUR), tainted=HOUR), 40 * HOUR),
        (cordoned("old", owner("a", 9 * HOUR), owner("b", 5 * HOUR)), 5 * HOUR),
        (cordoned("old", owner("kube-controller-manager", 60, "f:taints")), None),
        (unready(), None),
        (unready(ago=7 * HOUR), 7 * HOUR),
        (node("old"), None),
    ],
)
def test_since_when_pods_of_a_node_have_to_move(raw: Json, ago: float | None) -> None:
    assert displaced_since(decoded(raw)) == (None if ago is None else NOW - ago)


def test_a_node_that_fails_after_its_cordon_has_just_failed() -> None:
    both = cordoned(tainted=90 * HOUR)
    both["status"]["conditions"] = unready(ago=HOUR)["status"]["conditions"]
    assert displaced_since(decoded(both)) == NOW - HOUR
    del both["status"]["conditions"][0]["lastTransitionTime"]
    assert displaced_since(decoded(both)) is None


@pytest.mark.parametrize(
    ("raw", "kept_for", "is_abandoned"),
    [
        (cordoned(tainted=25 * HOUR), 24 * HOUR, True),
        (cordoned(tainted=23 * HOUR), 24 * HOUR, False),
        (cordoned(tainted=23 * HOUR), 22 * HOUR, True),
        (cordoned("old", owner("kured", 25 * HOUR)), 24 * HOUR, True),
        (cordoned(), 24 * HOUR, False),
        (cordoned(), 0, True),
        (unready(ago=25 * HOUR), 24 * HOUR, True),
        (unready(), 0, True),
        (cordoned(tainted=-60), 24 * HOUR, False),  # a clock that is ahead
        (tainted("ToBeDeletedByClusterAutoscaler"), 0, False),
        (node("old"), 0, False),
    ],
)
def test_a_node_is_abandoned_once_it_has_been_so_for_long(raw: Json, kept_for: float, is_abandoned: bool) -> None:
    seen = snapshot([raw, node("new")])
    found = with_abandoned(seen, kept_for, NOW)
    assert found.abandoned == ({"old"} if is_abandoned else set())
    assert (found is seen) is not is_abandoned, "a plan is made anew only if something has changed"
    assert with_abandoned(found, kept_for, NOW + 1) is found


def holders(old: Json, *pods: Json, seen: Snapshot | None = None) -> list[str]:
    """Return the pods of node old for which a plan keeps room on node new."""
    seen = seen or snapshot([old, node("new", "8"), *pods])
    planner = Planner(seen, DisruptionLedger(seen), (), "likely")
    return sorted(guest.pod.name for guests in planner.waiting.values() for guest in guests)


DAEMON, MIRROR = "DaemonSet/agent", {"owner": "Node/old", "annotations": {"kubernetes.io/config.mirror": "x"}}
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("more", "holds"),
    [
        ({}, True),
        ({"owner": ""}, True),
        ({"owner": "StatefulSet/db"}, True),
        ({"owner": "Job/batch"}, True),
        ({"annotations": {"tightship.dev/do-not-drain": "true"}}, True),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, True),
        ({"volumes": [{"name": "data", "emptyDir": {}}]}, True),
        ({"ready": False}, True),
        ({"owner": "StatefulSet/db", **GOING}, True),
        (GOING, False),
        ({"owner": DAEMON}, False),
        (MIRROR, False),
        ({"phase": "Succeeded"}, False),
        ({"priority": -11}, False),
        ({"nodeSelector": {"pool": "blue"}}, False),
        ({"cpu": "9"}, False),
    ],
)
@pytest.mark.parametrize("old", [cordoned(), unready(), deleted()], ids=["cordoned", "not Ready", "deleted"])
def test_each_pod_that_will_be_made_anew_elsewhere_holds_room(old: Json, more: Json, holds: bool) -> None:
    assert holders(old, pod("web", "old", **more)) == ["web"] * holds


def test_no_room_is_kept_for_an_abandoned_node() -> None:
    seen = snapshot([cordoned(tainted=25 * HOUR), node("new"), pod("web", "old")])
    assert holders(node(""), seen=seen) == ["web"]
    assert holders(node(""), seen=with_abandoned(seen, 24 * HOUR, NOW)) == []


def refused(things: list[Json], *names: str, evict: int = 0, **more: Any) -> dict[str, list[Refusal]]:
    """Return why nodes *names*, each with its pods, don't go, tried one after another."""
    seen = snapshot(things)
    candidates = [Candidate(name, "", 0.0, seen.nodes[name].pods, evict) for name in names]
    planner = Planner(seen, DisruptionLedger(seen), candidates, more.get("placement", "likely"))
    return {each.name: planner.attempt(each) for each in candidates}


def blue_green(old: Any, many: int = 5, each: int = 5) -> tuple[list[Json], list[str]]:
    greens = [f"green{n}" for n in range(many)]
    pods = [pod(f"p{n}-{k}", f"blue{n}", "700m") for n in range(many) for k in range(each)]
    return [*(old(f"blue{n}") for n in range(many)), *map(node, greens), *pods], greens


@pytest.mark.parametrize("placement", ["possible", "likely"])
@pytest.mark.parametrize("old", [cordoned, unready, lambda name: tainted("karpenter.sh/disrupted", name=name)])
def test_no_node_of_a_new_pool_goes_before_the_old_one_is_empty(old: Any, placement: str) -> None:
    things, greens = blue_green(old)
    for refusals in refused(things, *greens, placement=placement).values():
        assert [each.reason for each in refusals] == [Reason.OTHER_DRAIN_NEEDS_NODE]
        assert "pods of nodes blue0 (" in refusals[0].detail
        assert "and 2 more will have to move" in refusals[0].detail
    empty = [each for each in things if each["kind"] == "Node"]
    assert set(map(len, refused(empty, *greens, placement=placement).values())) == {0}


def test_a_new_pool_that_is_too_small_yet_is_kept_whole() -> None:
    things, _ = blue_green(cordoned)
    things = [each for each in things if each["metadata"]["name"] not in ("green3", "green4")]
    found = refused(things, "green0", "green1", "green2")
    assert [[each.reason for each in found[name]] for name in found] == [[Reason.OTHER_DRAIN_NEEDS_NODE]] * 3


def test_more_nodes_than_the_pods_of_the_old_pool_need_may_go() -> None:
    things, greens = blue_green(cordoned, each=2)
    assert sorted(map(len, refused(things, *greens).values())) == [0, 0, 0, 1, 1]


def test_pods_that_fit_nowhere_keep_no_node() -> None:
    """They may come back to their own pool, or never run again: draining another node makes nothing worse for them."""
    pods = [pod("big", "old", "5"), pod("picky", "old", nodeSelector={"pool": "blue"})]
    assert refused([cordoned(), node("a"), node("b"), *pods], "a", "b") == {"a": [], "b": []}


def test_a_pod_whose_place_is_taken_by_pods_to_come_names_their_node() -> None:
    """The 1.5 cores of old leave 2 and 3 cores of which no node has room for the pods of the other any more."""
    pods = [pod("a", "old", "1500m"), pod("b", "n2", "2"), pod("c", "n3", "1")]
    things = [cordoned("old", owner("kured", 60)), node("n2"), node("n3"), *pods]
    for name in ("n2", "n3"):
        [refusal] = refused(things, name)[name]
        assert refusal.reason is Reason.OTHER_DRAIN_NEEDS_NODE
        assert "pods of node old (kured cordoned the node) will have to move" in refusal.detail
        assert refusal.fix == "wait until no pod is left on old"


def test_other_reasons_stay_what_they_are() -> None:
    pods = [pod("a", "old", "1500m"), pod("b", "n2", "3500m"), pod("c", "n3", "3"), pod("d", "n3", "1")]
    found = refused([cordoned(), node("n2"), node("n3"), node("n4", "2"), *pods], "n2")["n2"]
    assert [each.reason for each in found] == [Reason.NO_PLACE], "it would not fit without the cordon either"


def test_a_drain_of_ours_gives_its_node_back_for_the_pods_of_a_node_that_others_cordon() -> None:
    pods = [pod("mine", "ours", "2"), pod("theirs", "old", "3")]
    eviction = EvictionRules(disabled=frozenset({Reason.NOT_REPLICATED}))

    def rest(old: Json) -> list[Reason]:
        seen = snapshot([node("ours", unschedulable=True, taints=DRAINING), node("new"), old, *pods])
        return [each.reason for each in Assessment(seen, "ours", NOW, DrainRules(), eviction).rest("likely")]

    assert rest(node("old")) == []
    assert rest(cordoned(tainted=HOUR)) == [Reason.OTHER_DRAIN_NEEDS_NODE]
    assert rest(cordoned(tainted=25 * HOUR)) == []


DRAINING = [{"key": "tightship.dev/draining", "effect": "NoSchedule", "value": "op"}]


def test_the_plan_says_for_which_pods_no_room_is_kept_any_more() -> None:
    old = [cordoned(f"old{n}", owner("kubectl-cordon", 25 * HOUR)) for n in range(5)]
    pods = [pod(f"p{n}", f"old{n}") for n in range(4)]
    seen = with_abandoned(snapshot([*old, node("new"), *pods, pod("agent", "old4", owner=DAEMON)]), 24 * HOUR, NOW)
    [reported] = [each for each in warnings_of(seen) if "no room" in each]
    assert reported.startswith("no room is kept for the pods of nodes old0 (kubectl-cordon cordoned the node), old1 (")
    assert reported.endswith("and 1 more: that was longer ago than cordonRoomTimeout"), "old4 has nothing to move"
    assert not any("no room" in each for each in warnings_of(snapshot([*old, node("new"), *pods])))

"""Pods of a gang go all together or not at all: who names a gang, what says that its pods can go one by one."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.cluster import Snapshot
from tightship.documents.warnings import warnings_of
from tightship.objects import ObjectError
from tightship.objects.reasons import Reason
from tightship.planning.facts import FactRules, gather
from tightship.rules.evictability import EvictionRules
from tightship_testkit.builders import NOW, controller, decoded, node, pod, state_of, workload

Json = dict[str, Any]

ALL, SINGLE = {"all": {}}, {"single": {}}
IN_GROUP = {"schedulingGroup": {"podGroupName": "train"}}
OF_SET = {"leaderworkerset.sigs.k8s.io/name": "llm", "leaderworkerset.sigs.k8s.io/group-index": "0"}
OF_JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "bert"}
OF_KUEUE = {"kueue.x-k8s.io/pod-group-name": "bert"}
OF_VOLCANO = {"scheduling.volcano.sh/group-name": "pg", "scheduling.volcano.sh/group-min-member": "2"}
TOGETHER = {"tightship.dev/evict-together": "true"}
NODES = (node("n1"), node("n2"), workload())


def group(kind: str = "PodGroup", name: str = "train", **spec: Any) -> Json:
    return {"kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def leaders(policy: str) -> Json:
    return group("LeaderWorkerSet", "llm", leaderWorkerTemplate={"restartPolicy": policy})


def of(*things: Json, missing: str = "") -> Snapshot:
    state = state_of(*NODES, *things)
    if missing:
        state.mark_missing(missing, "forbidden")
    return state.snapshot()


def refusals(seen: Snapshot, name: str = "n1", **rules: Any) -> list[Any]:
    return list(gather(seen, FactRules(eviction=EvictionRules(**rules)), NOW)[name].refusals)


def two(other: str = "n2", **given: Any) -> tuple[Json, Json]:
    return pod("a", on="n1", **given), pod("b", on=other, **given)


@pytest.mark.parametrize(
    ("given", "objects", "named"),
    [
        (IN_GROUP, [group(disruptionMode=ALL)], "PodGroup shop/train (disruptionMode all)"),
        (IN_GROUP, [group(schedulingConstraints={"topology": []})], "PodGroup shop/train (schedulingConstraints, by"),
        (IN_GROUP, [group(parentCompositePodGroupName="top")], "PodGroup shop/train (parentCompositePodGroupName top)"),
        (IN_GROUP, [group(disruptionMode="All")], "can't be read: spec.disruptionMode: '\"All\"' is not a mapping)"),
        ({"labels": OF_SET}, [leaders("RecreateGroupOnPodRestart")], "LeaderWorkerSet shop/llm, group 0 (rest"),
        ({"labels": OF_SET}, [leaders("RecreateGroupAfterStart")], "(restartPolicy RecreateGroupAfterStart)"),
        ({"labels": OF_SET}, [group("LeaderWorkerSet", "llm")], "(restartPolicy RecreateGroupOnPodRestart)"),
        ({"labels": OF_JOB_SET}, [], "JobSet shop/bert (all or none of them run)"),
        ({"labels": OF_KUEUE}, [], "Kueue pod group shop/bert (all"),
        ({"notes": OF_VOLCANO}, [], "Volcano pod group shop/pg (all"),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "pg"}}, [], "pod group shop/pg (all"),
        ({"labels": {"pod-group.scheduling.sigs.k8s.io": "pg"}}, [], "pod group shop/pg (all"),
        ({"labels": {"pod-group.scheduling.sigs.k8s.io/name": "pg"}}, [], "pod group shop/pg (all"),
        ({"notes": {"scheduling.k8s.io/group-name": "pg", "volcano.sh/job-name": "j"}}, [], "shop/pg (all"),
    ],
)  # fmt: skip
def test_no_pod_of_a_gang_leaves_the_others(given: Json, objects: list[Json], named: str) -> None:
    for other, where in (
        ("n2", "also on 1 other node: n2"),
        ("n1", "all on this node"),
        ("", "also on 1 other node: none yet"),
    ):
        first = next(each for each in refusals(of(*two(other, **given), *objects)) if each.subject == "shop/a")
        assert first.reason is Reason.GANG_WOULD_BREAK
        assert "runs together with 1 other pod of " in first.detail
        assert named in first.detail
        assert first.detail.endswith(where)
        assert first.fix
    assert refusals(of(*two(**given), *objects), disabled=frozenset({Reason.GANG_WOULD_BREAK})) == []


@pytest.mark.parametrize(
    ("given", "objects", "missing"),
    [
        (IN_GROUP, [group(disruptionMode=SINGLE)], ""),
        (IN_GROUP, [group(schedulingPolicy={"gang": {"minCount": 2}})], ""),  # single is the default
        (IN_GROUP, [], ""),
        (IN_GROUP, [], "PodGroup"),
        ({"labels": OF_SET}, [leaders("None")], ""),
        ({"labels": OF_SET}, [leaders("Default")], ""),
        ({"labels": OF_SET}, [], "LeaderWorkerSet"),
        ({"labels": OF_KUEUE, "notes": {"kueue.x-k8s.io/pod-group-serving": "true"}}, [], ""),
        ({"notes": OF_VOLCANO | {"scheduling.volcano.sh/group-min-member": "1"}}, [], ""),
        ({"notes": {"scheduling.k8s.io/group-name": "pg"}}, [], ""),
    ],
)  # fmt: skip
def test_pods_that_can_go_one_by_one_are_no_gang(given: Json, objects: list[Json], missing: str) -> None:
    seen = of(*two(**given), *objects, missing=missing)
    assert refusals(seen) == []
    reported = [each for each in warnings_of(seen) if "of their groups" in each]
    assert reported == [
        f"{missing}s are forbidden: whether pods of their groups can go one by one is not checked"
    ] * bool(missing)


def test_groups_are_told_apart_and_a_single_pod_is_none() -> None:
    other = {**OF_SET, "leaderworkerset.sigs.k8s.io/group-index": "1"}
    pods = pod("a", labels=OF_SET), pod("b", on="n2", labels=other), pod("c", namespace="else", on="n2", labels=OF_SET)
    assert refusals(of(*pods, leaders("RecreateGroupOnPodRestart"), workload(namespace="else"))) == []


def test_an_unreadable_group_keeps_its_own_pods_and_no_others() -> None:
    bad = group(name="broken", disruptionMode=[])
    theirs = (
        pod("a", schedulingGroup={"podGroupName": "broken"}),
        pod("b", on="n2", schedulingGroup={"podGroupName": "broken"}),
    )
    ours = pod("c", on="n2", **IN_GROUP)
    seen = of(*theirs, ours, bad, group())
    assert [each.subject for each in refusals(seen)] == ["shop/a"]
    assert [each.subject for each in refusals(seen, "n2")] == ["shop/b"]
    assert "PodGroup shop/broken (which can't be read: spec.disruptionMode: " in refusals(seen)[0].detail
    assert refusals(seen)[0].fix == "fix PodGroup shop/broken"


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "kept"),
    [
        ("PodGroup", "shop", "train", ["shop/a"]),
        ("PodGroup", "shop", "other", []),
        ("PodGroup", "else", "train", []),
        ("LeaderWorkerSet", "shop", "train", []),
    ],
)
def test_a_group_of_which_nothing_could_be_read_keeps_its_own_pods_and_no_others(
    kind: str, namespace: str, name: str, kept: list[str]
) -> None:
    state = state_of(*NODES, *two(**IN_GROUP))
    state.mark_unreadable(ObjectError(kind, namespace, name, "spec: 7 is not a mapping"))
    found = refusals(state.snapshot())
    assert [each.subject for each in found] == kept
    assert all("(which can't be read: spec: 7 is not a mapping)" in each.detail for each in found)


def test_a_gang_that_runs_on_one_node_goes_as_a_whole_if_its_owner_lets_it() -> None:
    spread, here = two(labels=OF_JOB_SET, notes=TOGETHER), two("n1", labels=OF_JOB_SET, notes=TOGETHER)
    assert refusals(of(*here)) == []
    assert [each.subject for each in refusals(of(*spread))] == ["shop/a"], "the others would not go"
    half = (here[0], pod("b", labels=OF_JOB_SET))
    assert {each.subject for each in refusals(of(*half))} == {"shop/a", "shop/b"}, "all of them have to agree"
    [first, _] = refusals(of(*half))
    assert first.fix.endswith("tightship.dev/evict-together=true --overwrite")


def test_a_drain_that_evicts_a_whole_gang_does_not_stop_halfway() -> None:
    left = pod("a", labels=OF_JOB_SET, notes=TOGETHER), pod("b", on="n2", labels=OF_JOB_SET, notes=TOGETHER)
    for phase, stops in (("Claimed", True), ("Evicting", False)):
        drain = {"tightship.dev/drain": f'{{"v":1,"op":"x","controller":"node-compactor","phase":"{phase}"}}'}
        found = [each.reason for each in refusals(of(node("n1", notes=drain), *left))]
        assert (Reason.GANG_WOULD_BREAK in found) is stops


def test_what_happens_elsewhere_reaches_the_facts_of_a_gang() -> None:
    rules = FactRules()
    first, second = two("n1", labels=OF_JOB_SET, notes=TOGETHER)
    state = state_of(*NODES, first, second)
    assert gather(state.snapshot(), rules, NOW)["n1"].refusals == ()
    state.upsert("Pod", decoded(pod("c", on="n2", labels=OF_JOB_SET, notes=TOGETHER)))
    assert {each.reason for each in gather(state.snapshot(), rules, NOW)["n1"].refusals} == {Reason.GANG_WOULD_BREAK}


def test_fixes_name_what_to_change() -> None:
    [set_] = refusals(of(*two(labels=OF_SET), leaders("RecreateGroupOnPodRestart")))
    assert set_.fix.startswith("kubectl -n shop patch leaderworkerset llm --type merge -p '{")
    [grouped] = refusals(of(*two(owner=controller("ReplicaSet", "web"), **IN_GROUP), group(disruptionMode=ALL)))
    assert grouped.fix == "create PodGroup shop/train anew with disruptionMode single, if its pods can go one by one"

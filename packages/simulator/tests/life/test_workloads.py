"""What keeps workloads at their number of pods."""

from __future__ import annotations

import random

from lively import AT, Json, node, pod, workload

from tightship_simulator.life.changes import Change, Create, Delete, Patch
from tightship_simulator.life.index import Index
from tightship_simulator.life.workloads import Workloads, deploy, hash_of, orphans


def _workloads() -> Workloads:
    return Workloads(random.Random(1))


def _made(changes: list[Change]) -> list[Json]:
    return [each.item for each in changes if isinstance(each, Create)]


def _deleted(changes: list[Change]) -> list[str]:
    return [each.item["metadata"]["name"] for each in changes if isinstance(each, Delete)]


def test_a_replica_set_replaces_pods_that_are_gone_or_going() -> None:
    owner = workload("ReplicaSet", "web", 3)
    going = pod("going", "n1", owner=owner)
    going["metadata"]["deletionTimestamp"] = AT
    made = _made(_workloads().replicate(owner, [pod("here", "n1", owner=owner), going]))
    assert len(made) == 2
    assert {each["metadata"]["ownerReferences"][0]["uid"] for each in made} == {owner["metadata"]["uid"]}
    assert made[0]["metadata"]["name"] != made[1]["metadata"]["name"]


def test_a_finished_pod_is_replaced() -> None:
    owner = workload("ReplicaSet", "web", 1)
    done = pod("done", "n1", owner=owner)
    done["status"]["phase"] = "Failed"
    assert len(_made(_workloads().replicate(owner, [done]))) == 1


def test_scaling_down_takes_pending_pods_first_then_crowded_ones() -> None:
    owner = workload("ReplicaSet", "web", 2)
    pods = [
        pod("alone", "n1", owner=owner),
        pod("b", "n2", owner=owner),
        pod("c", "n2", owner=owner),
        pod("waits", owner=owner),
    ]
    gone = _deleted(_workloads().replicate(owner, pods))
    assert gone[0] == "waits"
    assert gone[1] in ("b", "c")
    assert len(gone) == 2


def test_the_status_counts_pods_that_are_ready_and_is_written_only_when_it_changes() -> None:
    owner = workload("ReplicaSet", "web", 2)
    pods = [pod("a", "n1", owner=owner), pod("b", owner=owner)]
    [change] = _workloads().replicate(owner, pods)
    assert isinstance(change, Patch)
    assert change.status
    assert (change.merge["status"]["replicas"], change.merge["status"]["readyReplicas"]) == (2, 1)
    owner["status"] = change.merge["status"]
    assert _workloads().replicate(owner, pods) == []


def test_a_deployment_makes_the_replica_set_of_its_template() -> None:
    deployment = workload("Deployment", "web", 3)
    made = deploy(deployment, [])[0]
    assert isinstance(made, Create)
    digest = hash_of(deployment["spec"]["template"])
    assert made.item["metadata"]["name"] == f"web-{digest}"
    assert made.item["spec"]["replicas"] == 3
    assert made.item["spec"]["selector"]["matchLabels"]["pod-template-hash"] == digest


def _set_of(deployment: Json, name: str, digest: str, replicas: int, ready: int) -> Json:
    found = workload("ReplicaSet", name, replicas, owner=deployment)
    found["metadata"]["labels"] = {"pod-template-hash": digest}
    found["status"] = {"replicas": replicas, "readyReplicas": ready}
    return found


def _replicas(changes: list[Change]) -> dict[str, int]:
    return {
        each.item["metadata"]["name"]: each.merge["spec"]["replicas"]
        for each in changes
        if isinstance(each, Patch) and "spec" in each.merge
    }


def test_a_deployment_scales_its_replica_set() -> None:
    deployment = workload("Deployment", "web", 5)
    current = _set_of(deployment, "new", hash_of(deployment["spec"]["template"]), 3, 3)
    assert _replicas(deploy(deployment, [current])) == {"new": 5}


def test_a_rollout_keeps_as_many_pods_ready_as_are_wanted() -> None:
    deployment = workload("Deployment", "web", 4)
    digest = hash_of(deployment["spec"]["template"])
    old, new = _set_of(deployment, "old", "other", 4, 4), _set_of(deployment, "new", digest, 1, 0)
    assert _replicas(deploy(deployment, [old, new])) == {}  # one more than wanted: wait for it
    new["status"]["readyReplicas"] = 1
    assert _replicas(deploy(deployment, [old, new])) == {"old": 3}
    old["spec"]["replicas"] = 3
    assert _replicas(deploy(deployment, [old, new])) == {"new": 2}


def test_the_replica_set_of_an_older_template_goes_when_it_is_empty() -> None:
    deployment = workload("Deployment", "web", 2)
    new = _set_of(deployment, "new", hash_of(deployment["spec"]["template"]), 2, 2)
    assert _deleted(deploy(deployment, [_set_of(deployment, "old", "other", 0, 0), new])) == ["old"]


def test_a_daemon_set_has_a_pod_on_every_node_that_its_selector_allows() -> None:
    owner = workload("DaemonSet", "agent")
    owner["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n2"}
    made = _made(_workloads().daemons(owner, [], [node("n1"), node("n2")]))
    assert [each["spec"]["nodeName"] for each in made] == ["n2"]
    assert _made(_workloads().daemons(owner, made, [node("n1"), node("n2")])) == []


def test_what_belonged_to_a_workload_that_is_gone_is_collected() -> None:
    gone, here = workload("Deployment", "gone"), workload("Deployment", "here")
    mine, other = workload("ReplicaSet", "mine", 1, owner=gone), workload("ReplicaSet", "other", 1, owner=here)
    custom = pod("custom", "n1", owner={**workload("Sandbox", "unknown"), "apiVersion": "example.com/v1"})
    index = Index([here, mine, other, pod("a", "n1", owner=workload("ReplicaSet", "older")), pod("bare", "n1"), custom])
    assert [each["metadata"]["name"] for each in orphans(index)] == ["a", "mine"]


def test_pods_belong_to_the_owner_of_their_reference_and_to_no_other() -> None:
    mine, other = workload("ReplicaSet", "mine", 1), workload("ReplicaSet", "other", 1)
    changes = _workloads().step(Index([mine, other, pod("a", "n1", owner=mine)]))
    assert [each["metadata"]["ownerReferences"][0]["name"] for each in _made(changes)] == ["other"]


def _stateful(replicas: int, **spec: str) -> Json:
    return workload("StatefulSet", "db", replicas, **spec)


def _unready(name: str, owner: Json) -> Json:
    found = pod(name, "n1", owner=owner)
    found["status"]["conditions"][0]["status"] = "False"
    return found


def test_a_stateful_set_makes_its_pods_one_after_the_other() -> None:
    owner = _stateful(3)
    assert [each["metadata"]["name"] for each in _made(_workloads().ordered(owner, []))] == ["db-0"]
    assert _made(_workloads().ordered(owner, [_unready("db-0", owner)])) == []
    made = _made(_workloads().ordered(owner, [pod("db-0", "n1", owner=owner)]))
    assert [each["metadata"]["name"] for each in made] == ["db-1"]
    assert made[0]["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-1"


def test_a_parallel_stateful_set_makes_all_its_pods_at_once() -> None:
    made = _made(_workloads().ordered(_stateful(3, podManagementPolicy="Parallel"), []))
    assert [each["metadata"]["name"] for each in made] == ["db-0", "db-1", "db-2"]


def test_a_name_of_a_stateful_set_comes_back_only_when_it_is_free() -> None:
    owner = _stateful(1)
    going = pod("db-0", "n1", owner=owner)
    going["metadata"]["deletionTimestamp"] = AT
    assert _made(_workloads().ordered(owner, [going])) == []
    assert len(_made(_workloads().ordered(owner, []))) == 1


def test_a_stateful_set_is_scaled_down_from_the_last_on() -> None:
    owner = _stateful(1)
    pods = [pod(f"db-{number}", "n1", owner=owner) for number in range(3)]
    assert _deleted(_workloads().ordered(owner, pods)) == ["db-2"]


def test_finalizers_of_the_template_are_on_the_pods() -> None:
    owner = workload("ReplicaSet", "web", 1)
    owner["spec"]["template"]["metadata"]["finalizers"] = ["example.com/held"]
    [made] = _made(_workloads().replicate(owner, []))
    assert made["metadata"]["finalizers"] == ["example.com/held"]

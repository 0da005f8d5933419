"""What keeps workloads at their number of pods."""

from __future__ import annotations

import random

import pytest
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


def test_a_replica_set_replaces_pods_that_are_gone_or_going_or_finished() -> None:
    owner = workload("ReplicaSet", "web", 3)
    going = pod("going", "n1", owner=owner)
    going["metadata"]["deletionTimestamp"] = AT
    done = pod("done", "n1", owner=owner)
    done["status"]["phase"] = "Failed"
    owner["spec"]["template"]["metadata"]["finalizers"] = ["example.com/held"]
    made = _made(_workloads().replicate(owner, [pod("here", "n1", owner=owner), going, done]))
    assert [each["metadata"]["finalizers"] for each in made] == [["example.com/held"]] * 2
    assert {each["metadata"]["ownerReferences"][0]["uid"] for each in made} == {owner["metadata"]["uid"]}
    assert made[0]["metadata"]["name"] != made[1]["metadata"]["name"]


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


def test_scaling_down_takes_cheap_pods_before_crowded_ones_and_none_before_those_that_are_not_ready() -> None:
    """``ActivePodsWithRanks``; a cost that is no whole number of 32 bits counts as 0."""
    owner = workload("ReplicaSet", "web", 3)

    def costs(name: str, node: str, cost: str) -> Json:
        made = pod(name, node, owner=owner)
        made["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
        return made

    odd = [costs("odd", "n2", "-99999999999"), costs("odder", "n2", "-1.5"), costs("plus", "n3", "+5")]
    pods = [costs("cheap", "n1", "-2"), costs("cheaper", "n1", "-2147483647"), pod("waits", owner=owner), *odd]
    assert _deleted(_workloads().replicate(owner, pods)) == ["waits", "cheaper", "cheap"]


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


def test_a_rollout_keeps_as_many_pods_ready_as_are_wanted() -> None:
    deployment = workload("Deployment", "web", 4)
    digest = hash_of(deployment["spec"]["template"])
    old, new = _set_of(deployment, "old", "other", 4, 4), _set_of(deployment, "new", digest, 1, 0)
    assert _replicas(deploy(deployment, [old, new])) == {}  # one more than wanted: wait for it
    new["status"]["readyReplicas"] = 1
    assert _replicas(deploy(deployment, [old, new])) == {"old": 3}
    old["spec"]["replicas"] = 3
    assert _replicas(deploy(deployment, [old, new])) == {"new": 2}
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


def _part(number: int, owner: Json, *, ready: bool = True, going: bool = False) -> Json:
    """Return a pod of a StatefulSet."""
    found = pod(f"db-{number}", "n1", owner=owner)
    found["status"]["conditions"][0]["status"] = str(ready)
    if going:
        found["metadata"]["deletionTimestamp"] = AT
    return found


ORDERED, AT_ONCE = workload("StatefulSet", "db", 3), workload("StatefulSet", "db", 3, podManagementPolicy="Parallel")
ONE = workload("StatefulSet", "db", 1)


@pytest.mark.parametrize(
    ("owner", "there", "made", "deleted"),
    [
        (ORDERED, [], ["db-0"], []),
        (ORDERED, [_part(0, ORDERED, ready=False)], [], []),
        (ORDERED, [_part(0, ORDERED)], ["db-1"], []),
        (AT_ONCE, [], ["db-0", "db-1", "db-2"], []),
        (ONE, [_part(0, ONE, going=True)], [], []),
        (ONE, [_part(number, ONE) for number in range(3)], [], ["db-2"]),
    ],
    ids=["the first", "which is not ready", "then the next", "all in parallel", "its name is taken", "the last goes"],
)
def test_a_stateful_set_has_its_pods_in_order(
    owner: Json, there: list[Json], made: list[str], deleted: list[str]
) -> None:
    changes = _workloads().ordered(owner, there)
    assert [each["metadata"]["name"] for each in _made(changes)] == made
    assert all(
        each["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == each["metadata"]["name"]
        for each in _made(changes)
    )
    assert _deleted(changes) == deleted

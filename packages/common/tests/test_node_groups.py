"""Node groups at their minimum size: read from both forms of the status, matched to nodes, and kept."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec
import pytest

from tightship.cluster import Snapshot
from tightship.cluster.pools import KNOWN_POOL_LABELS
from tightship.documents.warnings import warnings_of
from tightship.objects import NodeGroup
from tightship.objects.reasons import Check, Reason, refusals
from tightship.planning.facts import FactRules, NodeFacts, count_at_claim, count_before_plan, gather, not_autoscaled
from tightship.rules.limits import Count, count_in_drain, group_kind, group_minimum
from tightship.rules.node_groups import MINIMUM_SIZE, NodeGroups, with_current_statuses
from tightship.rules.nodes import NodeRules
from tightship_testkit.builders import NOW, node, snapshot

Json = dict[str, Any]

OLD = """Cluster-autoscaler status at 2023-11-24 04:28:19.546750398 +0000 UTC:
Cluster-wide:
  Health:      Healthy (ready=4 unready=0 notStarted=0 longNotStarted=0 registered=4 longUnregistered=0)
               LastProbeTime:      2023-11-24 04:28:19.546750398 +0000 UTC m=+3600.123456789
  ScaleUp:     NoActivity (ready=4 registered=4)

NodeGroups:
  Name:        MachineSet/openshift-machine-api/memory
  Health:      Healthy (ready=1 unready=0 (resourceUnready=0) registered=1 cloudProviderTarget=3 (minSize=1, maxSize=3))
               LastProbeTime:      2021-10-06 20:30:11.009025266 +0000 UTC m=+571.771061426
  ScaleUp:     InProgress (ready=1 cloudProviderTarget=3)

  Name:        small
  Health:      Healthy (ready=2 unready=0 registered=2 longUnregistered=0 cloudProviderTarget=2 (minSize=2, maxSize=9))
  ScaleDown:   CandidatesPresent (candidates=1)
"""

NEW = """time: 2025-12-11 14:40:54.65491129 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 5
  scaleUp:
    status: NoActivity
nodeGroups:
- name: MachineSet/openshift-machine-api/memory
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 1
        unready:
          total: 0
      longUnregistered: 0
    cloudProviderTarget: 3
    minSize: 1
    maxSize: 3
    lastProbeTime: "2025-12-11T14:40:54.65491129Z"
  scaleUp:
    status: Backoff
    backoffInfo:
      errorCode: QUOTA_EXCEEDED
      errorMessage: "minSize: 99"
- health:
    maxSize: 9
    minSize: 2
    status: Healthy
  name: small
"""


def status(text: str, namespace: str = "kube-system", name: str = "cluster-autoscaler-status") -> Json:
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {"status": text}}


def groups_in(text: str) -> list[tuple[str, int]]:
    [found] = snapshot(node(), status(text)).autoscaler_statuses.values()
    assert found.problem == ""
    return [(each.name, each.minimum) for each in found.groups]


HEAD, GROUPS = NEW.split("nodeGroups:\n")
INDENTED = f"{HEAD}nodeGroups:\n{textwrap.indent(GROUPS, '  ')}"


@pytest.mark.parametrize("text", [OLD, NEW, INDENTED], ids=["text", "YAML", "indented YAML"])
def test_both_forms_of_the_status_give_the_least_sizes(text: str) -> None:
    assert groups_in(text) == [("MachineSet/openshift-machine-api/memory", 1), ("small", 2)]


@pytest.mark.parametrize("text", ["autoscalerStatus: Initializing\nnodeGroups: []\n", "Initializing"])
def test_a_status_without_groups_is_no_problem(text: str) -> None:
    assert groups_in(text) == []


def test_times_in_the_status_are_no_change() -> None:
    def read(text: str) -> object:
        return snapshot(node(), status(text)).autoscaler_statuses

    assert read(NEW) == read(NEW.replace("14:40:54", "14:41:04").replace("cloudProviderTarget: 3", "total: 4"))


WRITTEN = "cluster-autoscaler.kubernetes.io/last-updated"
STALE: list[tuple[str, str, str, bool]] = [
    ("left behind by a removed autoscaler", OLD, "2023-11-24 04:28:19.546750398 +0000 UTC", True),
    ("the same without the annotation", OLD, "", True),
    ("YAML, left behind", NEW, "2025-12-11 14:40:54.65491129 +0000 UTC", True),
    ("YAML, the same without the annotation", NEW, "", True),
    ("two days old", NEW, "2026-09-19 14:13:20.1 +0000 UTC", True),
    ("twenty hours old", NEW, "2026-09-20 18:13:20.1 +0000 UTC", False),
    ("just written, in another zone", OLD, "2026-09-21 16:13:20 +0200 CEST", False),
    ("with the clock that Go adds", NEW, "2026-09-21 14:13:11.123 +0000 UTC m=+0.12", False),
    ("a day ahead", NEW, "2026-09-22 14:13:11.123 +0000 UTC", False),
    ("no time", NEW.replace("2025-12-11", "someday"), "", False),
    ("no such day", NEW, "2026-02-31 14:13:11 +0000 UTC", False),
]


@pytest.mark.parametrize(("text", "written", "stale"), [row[1:] for row in STALE], ids=[row[0] for row in STALE])
def test_a_status_that_nobody_updates_keeps_no_node(text: str, written: str, *, stale: bool) -> None:
    raw = status(text)
    raw["metadata"]["annotations"] = {WRITTEN: written} if written else {}
    found = with_current_statuses(snapshot(*pool("a b"), raw), NOW)
    [fact] = [fact for name, fact in gather(found, FactRules(), NOW).items() if name == "a"]
    assert (fact.group is None) is stale
    said = [
        each for each in warnings_of(found) if "ConfigMap kube-system/cluster-autoscaler-status was last upda" in each
    ]
    assert len(said) == stale
    assert with_current_statuses(found, NOW) is found


UUID = "2c1f9d3b-a8e2-4f11-9c3e-8b7a6d5e4f30"
GCE = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups"
MATCHES: list[tuple[str, str, Json]] = [
    ("EKS", f"eks-blue-{UUID}", {"labels": {"eks.amazonaws.com/nodegroup": "blue"}}),
    (
        "eksctl",
        "eksctl-main-nodegroup-ng-1-NodeGroup-1ABCD",
        {"labels": {"alpha.eksctl.io/cluster-name": "main", "alpha.eksctl.io/nodegroup-name": "ng-1"}},
    ),
    ("kops", "nodes-a.cluster.example.com", {"labels": {"kops.k8s.io/instancegroup": "nodes-a"}}),
    ("GKE", f"{GCE}/gke-main-pool-1-8f0b2b1c-grp", {"name": "gke-main-pool-1-8f0b2b1c-x1z9"}),
    ("AKS", "aks-nodepool1-12345678-vmss", {"name": "aks-nodepool1-12345678-vmss00000b"}),
    ("AKS by label", "nodepool1", {"labels": {"kubernetes.azure.com/agentpool": "nodepool1"}}),
    (
        "Gardener",
        "shoot--p--c-worker-z1",
        {"name": "shoot--p--c-worker-z1-6b8c9-x7k2m", "labels": {"worker.gardener.cloud/pool": "worker"}},
    ),
    (
        "Cluster API",
        "MachineDeployment/default/md-0",
        {"notes": {"cluster.x-k8s.io/owner-kind": "MachineSet", "cluster.x-k8s.io/owner-name": "md-0-7d9f"}},
    ),
    (
        "Cluster API's pools",
        "MachinePool/default/mp-0",
        {"notes": {"cluster.x-k8s.io/owner-kind": "MachinePool", "cluster.x-k8s.io/owner-name": "mp-0"}},
    ),
    (
        "OpenShift",
        "MachineSet/openshift-machine-api/memory",
        {"notes": {"machine.openshift.io/machine": "openshift-machine-api/memory-abcde"}},
    ),
]


def group_of(given: Json, *names: str) -> NodeGroup | None:
    text = "nodeGroups:\n" + "".join(f"- name: {name}\n  health:\n    minSize: 3\n" for name in names)
    found = snapshot(node(**given), status(text))
    [view] = found.nodes.values()
    return NodeGroups(found.autoscaler_statuses).of(view.node)


@pytest.mark.parametrize(("name", "given"), [row[1:] for row in MATCHES], ids=[row[0] for row in MATCHES])
def test_a_node_is_matched_to_its_group_by_the_rules_of_its_cloud(name: str, given: Json) -> None:
    assert group_of(given, "other", name, "another") == NodeGroup(name, 3)
    assert group_of({"name": "elsewhere"}, name) is None


def test_a_node_that_fits_two_groups_is_of_none() -> None:
    labels = {"eks.amazonaws.com/nodegroup": "blue"}
    assert group_of({"labels": labels}, f"eks-blue-{UUID}", f"eks-blue-{UUID[:-1]}1") is None


def test_groups_with_a_common_beginning_are_told_apart() -> None:
    labels = {"eks.amazonaws.com/nodegroup": "blue-2"}
    found = group_of({"labels": labels}, f"eks-blue-{UUID}", f"eks-blue-2-{UUID}")
    assert found is not None
    assert found.name == f"eks-blue-2-{UUID}"


@pytest.mark.parametrize(
    "key", ["tightship.dev/node-group-min-size", "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"]
)
def test_an_annotation_of_the_node_counts_first(key: str) -> None:
    given = {"labels": {"agentpool": "a"}, "notes": {key: "5"}}
    assert group_of(given, "a") == NodeGroup("of pool a", 5)


GCE = "https://x/zones/z/instanceGroups/gke-c-a-1a2b3c4d-grp"

LEFT_OUT = [
    ("EKS", f"eks-other-{UUID}", {"labels": {"eks.amazonaws.com/nodegroup": "blue"}}, "blue"),
    ("GKE", GCE, {"name": "gke-c-b-9f8e7d6c-wxyz"}, "gke-c-b-9f8e7d6c"),
    ("AKS", "aks-a-1-vmss", {"name": "aks-b-2-vmss000001"}, "aks-b-2-vmss"),
    ("kOps", "nodes-a.example.com", {"labels": {"kops.k8s.io/instancegroup": "nodes-b"}}, "nodes-b"),
    (
        "OpenShift",
        "MachineSet/openshift-machine-api/a",
        {"notes": {"machine.openshift.io/machine": "openshift-machine-api/b-abcde"}},
        "b",
    ),
]


@pytest.mark.parametrize(("group", "given", "name"), [row[1:] for row in LEFT_OUT], ids=[row[0] for row in LEFT_OUT])
def test_a_node_whose_group_the_autoscaler_does_not_have_is_kept_by_name(group: str, given: Json, name: str) -> None:
    text = f"nodeGroups:\n- name: {group}\n  health:\n    minSize: 0\n"
    found = snapshot(node(**given), status(text))
    [view] = found.nodes.values()
    for rules, kept in ((NodeRules(), True), (NodeRules(frozenset({Reason.NOT_AUTOSCALED})), False)):
        [fact] = gather(found, FactRules(nodes=rules), NOW).values()
        groups = NodeGroups(found.autoscaler_statuses, KNOWN_POOL_LABELS)
        for said in (list(fact.refusals), not_autoscaled(view.node, groups, rules)):
            assert [each.reason for each in said] == [Reason.NOT_AUTOSCALED] * kept
            assert not kept or f" node group {name}," in said[0].detail


BLUE = {"eks.amazonaws.com/nodegroup": "blue"}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"labels": {"agentpool": "blue"}}, ["red"]),  # a group may have any name
        ({"name": "worker"}, [f"eks-other-{UUID}"]),
        ({"labels": BLUE}, []),
        ({"labels": BLUE}, [f"eks-blue-{UUID}", f"eks-blue-{UUID[:-1]}1"]),
        ({"labels": BLUE, "notes": {MINIMUM_SIZE[0]: "0"}}, [f"eks-red-{UUID}"]),
    ],
)
def test_a_node_of_an_unknown_group_is_not_said_to_be_of_none(given: Json, names: list[str]) -> None:
    text = "nodeGroups:\n" + "".join(f"- name: {name}\n  health:\n    minSize: 0\n" for name in names)
    [fact] = gather(snapshot(node(**given), status(text)), FactRules(), NOW).values()
    assert fact.refusals == ()


def pool(names: str, group: str = "small", **more: Any) -> list[Json]:
    return [node(name, labels={"agentpool": group}, **more) for name in names.split()]


def facts_of(found: Snapshot) -> dict[str, NodeFacts]:
    return gather(found, FactRules(), NOW)


def size(facts: dict[str, NodeFacts], count: Count | None = None) -> Check | None:
    """Ask about node a in a plan, or at the moment of *count*."""
    limits = group_minimum(facts["a"].group)
    return next((each.check(count or count_before_plan(facts, kinds_of), "a") for each in limits), None)


def kinds_of(fact: NodeFacts) -> tuple[str, ...]:
    return group_kind(fact.group)


def test_a_node_may_go_while_its_group_is_above_its_least_size() -> None:
    three, two = (facts_of(snapshot(*pool(names), status(NEW))) for names in ("a b c", "a b"))
    assert size(three).open  # type: ignore[union-attr]
    closed = size(two)
    assert closed is not None
    assert (closed.open, closed.reason) == (False, Reason.NODE_GROUP_MIN_SIZE)
    assert closed.detail == "node group small would keep 1 node, its minimum size is 2"


def test_nodes_in_drain_and_nodes_that_others_take_are_gone_already() -> None:
    going = {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}
    facts = facts_of(snapshot(*pool("a b"), *pool("c", **going), status(NEW)))
    check = size(facts)
    assert check is not None
    assert not check.open


def test_a_claim_counts_what_was_claimed_since_the_plan() -> None:
    facts = facts_of(snapshot(*pool("a b c d"), status(NEW)))
    one, two = (size(facts, count_at_claim("a", facts, claimed, kinds_of)) for claimed in ({"b"}, {"b", "c"}))
    assert one is not None
    assert two is not None
    assert (one.open, two.open, two.reason) == (True, False, Reason.NODE_GROUP_MIN_SIZE)


def test_a_drain_ends_where_its_group_has_shrunk_meanwhile() -> None:
    for names, kept in (("a b c", False), ("a b", True)):
        found = snapshot(*pool(names), status(NEW))
        a, groups = found.nodes["a"].node, NodeGroups(found.autoscaler_statuses)
        limits = group_minimum(groups.of(a))
        count = count_in_drain(found, a, limits, lambda each, groups=groups: group_kind(groups.of(each)))  # type: ignore[misc]
        closed = refusals((each.check(count, "a") for each in limits), "a")
        assert [each.reason for each in closed] == [Reason.NODE_GROUP_MIN_SIZE] * kept


def test_nodes_of_a_group_whose_size_is_unreadable_stay_and_the_others_do_not() -> None:
    found = snapshot(*pool("a b c"), *pool("d e", group="other"), status(NEW.replace("minSize: 2", "minSize: few")))
    facts = facts_of(found)
    check = size(facts)
    assert check is not None
    assert not check.open
    assert group_minimum(facts["d"].group) == ()
    [warning] = warnings_of(found)
    assert warning == ("node group small can't be read, so its nodes stay: minSize is few; allowed is a whole number")


def test_a_size_of_thousands_of_digits_keeps_its_own_nodes_and_floods_nothing() -> None:
    huge = "9" * 5000
    reported = {"tightship.dev/node-group-min-size": huge}
    for found in (
        snapshot(*pool("a", notes=reported)),
        snapshot(*pool("a"), status(NEW.replace("minSize: 2", f"minSize: {huge}"))),
    ):
        check = size(facts_of(found))
        assert check is not None
        assert not check.open
        assert "allowed is a whole number" in check.detail
        assert len(check.detail) < 500


def test_a_status_that_is_none_is_named_and_blocks_nothing() -> None:
    found = snapshot(*pool("a"), status("hello"))
    assert size(facts_of(found)) is None
    [warning] = warnings_of(found)
    assert warning.startswith("ConfigMap kube-system/cluster-autoscaler-status can't be read: ")


def test_facts_follow_the_status() -> None:
    def minimum(text: str) -> int:
        group = gather(snapshot(*pool("a"), status(text)), FactRules(), NOW)["a"].group
        assert group is not None
        return group.minimum

    assert minimum(NEW) == 2
    assert minimum(NEW.replace("minSize: 2", "minSize: 4")) == 4


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("forbidden", "allow reading ConfigMap"),
        ("not in the file", "add the file of kubectl get configmap"),
        ("", "has no group"),
    ],
)
def test_an_unknown_least_size_is_one_warning_that_says_how_to_tell(missing: str, words: str) -> None:
    found = snapshot(*pool("a"))
    found = msgspec.structs.replace(found, missing={"ConfigMap": missing} if missing else {})
    assert warnings_of(found) == ()
    [warning] = warnings_of(found, ["a", "b", "c", "d", "e"])
    assert "pools a, b, c, d and 1 more" in warning
    assert words in warning
    assert "set the pool's minimumNodeCount" in warning


def tpu(topology: str, count: str | None = "4", chips: int | None = None) -> Json:
    counted = {} if count is None else {"cloud.google.com/gke-accelerator-count": count}
    room = {"cpu": "24", "memory": "40Gi", "pods": "110", **({} if chips is None else {"google.com/tpu": str(chips)})}
    return node(labels={"cloud.google.com/gke-tpu-topology": topology, **counted}, allocatable=room)


@pytest.mark.parametrize(
    ("given", "stays"),
    [
        # GKE docs, "About TPUs in GKE": nodes of a slice of several hosts are one unit.
        (tpu("4x4"), True),
        (tpu("2x4"), True),
        (tpu("2x2x2"), True),
        (tpu("2x2x4", None, 4), True),
        (tpu("16x16", "4", 4), True),
        (tpu("2x4", "8"), False),  # one host with all chips
        (tpu("2x2x1"), False),
        (tpu("1x1", "1"), False),
        (tpu("2x4", None, 8), False),
        (tpu("2x4", None), False),  # nothing tells how many chips are here
        (tpu("auto"), False),
        (node(labels={"cloud.google.com/gke-accelerator": "nvidia-l4"}), False),
        (node(), False),
    ],
)
def test_one_host_of_a_tpu_slice_stays_since_gke_scales_the_whole(given: Json, stays: bool) -> None:
    seen = snapshot(given)
    found = [each.reason for each in gather(seen, FactRules(), NOW)["n1"].refusals]
    assert found == [Reason.NOT_AUTOSCALED] * stays
    off = FactRules(nodes=NodeRules(frozenset({Reason.NOT_AUTOSCALED})))
    assert gather(seen, off, NOW)["n1"].refusals == ()

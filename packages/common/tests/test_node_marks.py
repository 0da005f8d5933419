"""By what nodes of every distribution and cloud show that they are not for the taking: one row for each mark."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.objects.reasons import Reason
from tightship.planning.facts import FactRules, gather
from tightship.rules.limits import left_without
from tightship.rules.nodes import NodeRules, emptied_by_others, judge_node, opt_outs, owner_elsewhere
from tightship.scheduler.space import Space
from tightship_testkit.builders import NOW, node, pod, snapshot

Json = dict[str, Any]

ROLE = "node-role.kubernetes.io/"


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Json:
    return {"taints": [{"key": key, "value": value, "effect": effect}]}


def label(key: str, value: str = "") -> Json:
    return {"labels": {key: value}}


def note(key: str, value: str = "") -> Json:
    return {"notes": {key: value}}


def static(name: str, namespace: str = "kube-system", of: str = "Node", **more: Any) -> Json:
    """Return the mirror of a static pod on n1, or what has the name of one."""
    owner = {"kind": of, "name": "n1", "uid": "u1", "controller": True}
    notes = {"kubernetes.io/config.mirror": "0123"} if of == "Node" else {}
    return pod(name, namespace=namespace, owner=owner, notes=notes, **more)


def reasons(given: Json, *pods: Json, rules: NodeRules = NodeRules()) -> list[Reason]:
    [view] = snapshot(node(**given), *pods).nodes.values()
    return sorted({refusal.reason for refusal in judge_node(view, NOW, rules)})


CONTROL_PLANE: list[tuple[str, Json]] = [
    ("kubeadm, Talos, Gardener, EKS Anywhere, Tanzu", label(f"{ROLE}control-plane")),
    ("k0s", label(f"{ROLE}control-plane", "true")),
    ("kubeadm before 1.24, OpenShift", label(f"{ROLE}master")),
    ("RKE", label(f"{ROLE}controlplane", "true")),
    ("RKE, k3s and RKE2 with etcd alone", label(f"{ROLE}etcd", "true")),
    ("kOps with an API server alone", label(f"{ROLE}api-server")),
    ("kOps with a scheduler alone", label(f"{ROLE}scheduler")),
    ("OpenShift's arbiter of etcd", label(f"{ROLE}arbiter")),
    ("a role is its key, as for kubectl", label(f"{ROLE}control-plane", "false")),
    ("kOps and kube-up, older", label("kubernetes.io/role", "master")),
    ("kOps with an API server alone, older", label("kubernetes.io/role", "api-server")),
    ("AKS engine", label("kubernetes.azure.com/role", "master")),
    ("MicroK8s", label("node.kubernetes.io/microk8s-controlplane", "microk8s-controlplane")),
    ("Canonical Kubernetes", label("k8sd.io/role", "control-plane")),
    ("k0s, its own", label("node.k0sproject.io/role", "control-plane")),
    ("Typhoon", label("node.kubernetes.io/controller", "true")),
    ("Charmed", label("juju-charm", "kubernetes-control-plane")),
    ("Charmed, older", label("juju-application", "kubernetes-master")),
    ("RKE by taint", taint(f"{ROLE}etcd", "true", "NoExecute")),
    ("RKE by its other taint", taint(f"{ROLE}controlplane", "true")),
    ("Typhoon by taint", taint(f"{ROLE}controller")),
    ("kubeadm by a soft taint", taint(f"{ROLE}control-plane", effect="PreferNoSchedule")),
]


@pytest.mark.parametrize("given", [row[1] for row in CONTROL_PLANE], ids=[row[0] for row in CONTROL_PLANE])
def test_a_node_that_a_distribution_marks_as_holding_the_cluster_up_stays(given: Json) -> None:
    assert reasons(given) == [Reason.CONTROL_PLANE]
    assert reasons(given, rules=NodeRules(frozenset(Reason))) == [Reason.CONTROL_PLANE]


HOLDING: list[tuple[str, Json]] = [
    ("kubeadm's etcd", static("etcd-n1")),
    ("kubeadm's API server", static("kube-apiserver-n1")),
    ("kubeadm's controller manager", static("kube-controller-manager-n1")),
    ("kubeadm's scheduler", static("kube-scheduler-n1")),
    ("by the label of kubeadm and RKE2", static("renamed-n1", labels={"component": "etcd", "tier": "control-plane"})),
    ("OpenShift's etcd", static("etcd-n1", "openshift-etcd")),
    ("OpenShift's API server", static("kube-apiserver-n1", "openshift-kube-apiserver")),
    ("OpenShift's scheduler", static("openshift-kube-scheduler-n1", "openshift-kube-scheduler")),
    ("kOps' etcd", static("etcd-manager-main-n1", labels={"k8s-app": "etcd-manager-main"})),
    ("kOps' etcd for events", static("etcd-manager-events-n1")),
    ("kube-up's etcd", static("etcd-server-events-n1")),
    ("a mirror pod before 1.17", pod("etcd-n1", naked=True, notes={"kubernetes.io/config.mirror": "0123"})),
]


@pytest.mark.parametrize("what", [row[1] for row in HOLDING], ids=[row[0] for row in HOLDING])
def test_a_node_stays_that_runs_a_static_pod_of_the_control_plane(what: Json) -> None:
    assert reasons({}, what, rules=NodeRules(frozenset(Reason))) == [Reason.CONTROL_PLANE]


def test_the_kubelet_writes_the_name_of_a_node_small() -> None:
    [view] = snapshot(node("N1"), static("etcd-n1", on="N1")).nodes.values()
    assert [each.reason for each in opt_outs(view)] == [Reason.CONTROL_PLANE]


WORKERS: list[tuple[str, Json, tuple[Json, ...]]] = [
    ("a worker's role", label(f"{ROLE}worker", "true"), ()),
    ("OpenShift's infra nodes", label(f"{ROLE}infra"), ()),
    ("a virtual machine's agent", label("kubernetes.io/role", "agent"), ()),
    ("a worker of MicroK8s", label("node.kubernetes.io/microk8s-worker", "microk8s-worker"), ()),
    ("a worker of Canonical Kubernetes", label("k8sd.io/role", "worker"), ()),
    ("a worker of Charmed", label("juju-charm", "kubernetes-worker"), ()),
    ("a static proxy of RKE2 and kOps", {}, (static("kube-proxy-n1"),)),
    ("a static way to the API server of HyperShift", {}, (static("kube-apiserver-proxy-n1"),)),
    ("a static balancer of Kubespray", {}, (static("nginx-proxy-n1"),)),
    ("a hosted etcd of HyperShift, Kamaji or vCluster", {}, (static("etcd-0", "tenant", of="StatefulSet"),)),
    ("a hosted API server", {}, (static("kube-apiserver-7d9f-x2k4", "tenant", of="ReplicaSet"),)),
    ("a DaemonSet that is called so", {}, (static("kube-scheduler-n1", of="DaemonSet"),)),
    ("pods with the label of kubeadm", {}, (pod("web", labels={"component": "etcd"}),)),
]


@pytest.mark.parametrize(("given", "pods"), [row[1:] for row in WORKERS], ids=[row[0] for row in WORKERS])
def test_a_node_that_is_like_one_of_those_is_a_worker(given: Json, pods: tuple[Json, ...]) -> None:
    assert reasons(given, *pods) == []


VIRTUAL: list[tuple[str, Json]] = [
    ("virtual-kubelet", label("type", "virtual-kubelet")),
    ("virtual-kubelet by taint: AKS, Alibaba, Baidu", taint("virtual-kubelet.io/provider", "azure")),
    ("ACI before", taint("azure.com/aci")),
    ("Admiralty", label("virtual-kubelet.io/provider", "admiralty")),
    ("Liqo", label("liqo.io/type", "virtual-node")),
    ("Liqo by taint", taint("virtual-node.liqo.io/not-allowed", "true", "NoExecute")),
    ("interLink", taint("virtual-node.interlink/no-schedule", "true")),
    ("Fargate", label("eks.amazonaws.com/compute-type", "fargate")),
    ("Fargate by taint", taint("eks.amazonaws.com/compute-type", "fargate")),
    ("Tencent's super node", label("node.kubernetes.io/instance-type", "eklet")),
    ("Tencent's super node by taint", taint("eks.tke.cloud.tencent.com/eklet")),
    ("Huawei's CCI", label("bursting.cci.io/node-type", "virtual-kubelet")),
    ("Oracle's virtual nodes", label("node-role.kubernetes.io/virtual-node")),
    ("Volcengine's VCI", taint("vci.vke.volcengine.com/node-type", "vci")),
    ("Kosmos", label("kosmos.io/node", "true")),
    ("vCluster", label("vcluster.loft.sh/fake-node", "true")),
    ("GKE Autopilot by name", {"name": "gk3-c-pool-1-1a2b-x3y4", **label("cloud.google.com/gke-nodepool", "pool-1")}),
    ("GKE Autopilot by its machines", label("cloud.google.com/machine-family", "ek")),
]


@pytest.mark.parametrize("given", [row[1] for row in VIRTUAL], ids=[row[0] for row in VIRTUAL])
def test_what_is_no_machine_counts_nowhere_and_never_goes(given: Json) -> None:
    name = given.get("name", "n1")
    found = snapshot(node(**given), node("real"))
    assert Reason.VIRTUAL_NODE in reasons(given, rules=NodeRules(frozenset(Reason)))
    assert list(gather(found, FactRules(), NOW)) == ["real"]
    assert [each.name for each in left_without(found, "real")] == []
    assert name in found.nodes


MACHINES: list[tuple[str, Json]] = [
    ("EKS Auto Mode", label("eks.amazonaws.com/compute-type", "auto")),
    ("EKS hybrid nodes", label("eks.amazonaws.com/compute-type", "hybrid")),
    ("EKS hybrid nodes by taint", taint("eks.amazonaws.com/compute-type", "hybrid")),
    ("a pool of GKE", {"name": "gke-c-pool-1-1a2b-x3y4", **label("cloud.google.com/gke-nodepool", "pool-1")}),
    ("a machine with an Autopilot-like name", {"name": "gk3-server"}),
    ("kwok", label("type", "kwok")),
    ("KubeEdge", label("node-role.kubernetes.io/edge")),
]


@pytest.mark.parametrize("given", [row[1] for row in MACHINES], ids=[row[0] for row in MACHINES])
def test_a_machine_is_a_machine(given: Json) -> None:
    assert reasons(given) == []


ACI = {"labels": {"type": "virtual-kubelet"}, **taint("virtual-kubelet.io/provider", "azure")}
BARE = {"labels": {"type": "virtual-kubelet"}}
FARGATE = {
    "labels": {"eks.amazonaws.com/compute-type": "fargate"},
    **taint("eks.amazonaws.com/compute-type", "fargate"),
}


def affinity(operator: str) -> Json:
    values = {"values": ["virtual-kubelet"]} if operator in ("In", "NotIn") else {}
    terms = [{"matchExpressions": [{"key": "type", "operator": operator, **values}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def tolerates(key: str | None) -> Json:
    return {"tolerations": [{"operator": "Exists"} if key is None else {"key": key, "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("given", "spec", "there"),
    [
        (ACI, {}, False),
        (ACI, tolerates(None), False),
        (ACI, tolerates("virtual-kubelet.io/provider"), True),
        (BARE, {}, False),
        (BARE, {"affinity": affinity("In")}, True),
        (BARE, {"affinity": affinity("Exists")}, True),
        (BARE, {"affinity": affinity("NotIn")}, False),
        (BARE, {"nodeSelector": {"type": "virtual-kubelet"}}, True),
        (FARGATE, tolerates("eks.amazonaws.com/compute-type"), False),
    ],
)
def test_a_virtual_node_takes_the_pods_that_ask_for_it(given: Json, spec: Json, there: bool) -> None:
    found = snapshot(node("virtual", **given), node("n1"), pod(**spec))
    space = Space(found)
    [guest] = found.nodes["n1"].pods
    assert bool(space.feasible(space.demand_of(guest))[space.index["virtual"]]) is there


FLATCAR = "flatcar-linux-update.v1.flatcar-linux.net"
MCO = "machineconfiguration.openshift.io"

TAKEN: list[tuple[str, Json, bool]] = [
    ("NTH, a spot interruption", taint("aws-node-termination-handler/spot-itn", "1"), True),
    ("NTH, a lifecycle hook", taint("aws-node-termination-handler/asg-lifecycle-termination"), True),
    ("NTH, a rebalance", taint("aws-node-termination-handler/rebalance-recommendation"), True),
    ("NTH, maintenance", taint("aws-node-termination-handler/scheduled-maintenance"), True),
    ("NTH, uncordons after a reboot", label("aws-node-termination-handler/action", "UncordonAfterReboot"), True),
    ("NTH, its event", label("aws-node-termination-handler/event-id", "i-0"), True),
    ("GKE takes a machine back", taint("cloud.google.com/impending-node-termination"), True),
    ("GKE maintains a machine", label("cloud.google.com/active-node-maintenance", "ONGOING"), True),
    ("AKS repairs or drains", taint("remediator.kubernetes.azure.com/unschedulable"), True),
    ("AKS, older", taint("remediator.aks.microsoft.com/unschedulable"), True),
    ("Oracle", taint("ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination"), True),
    ("CAST AI", label("autoscaling.cast.ai/draining", "rebalancing"), True),
    ("CAST AI by taint", taint("autoscaling.cast.ai/draining", "true"), True),
    ("Gardener deletes", note("node.machine.sapcloud.io/trigger-deletion-by-mcm", "true"), True),
    ("Gardener updates in place", label("node.machine.sapcloud.io/selected-for-update", "true"), True),
    ("Harvester will drain", note("harvesterhci.io/drain-requested", "true"), True),
    ("Harvester maintains", note("harvesterhci.io/maintain-status", "completed"), True),
    ("SR-IOV will drain", note("sriovnetwork.openshift.io/state", "Drain_Required"), True),
    ("Deckhouse", note("update.node.deckhouse.io/draining"), True),
    ("Escalator", taint("atlassian.com/escalator", "1790000000"), True),
    ("HyperPod checks", taint("sagemaker.amazonaws.com/node-health-status", "Unschedulable"), True),
    ("HyperPod repairs", label("sagemaker.amazonaws.com/node-health-status", "UnschedulablePendingReboot"), True),
    ("MIG is set up", label("nvidia.com/mig.config.state", "pending"), False),
    ("out of service", taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute"), True),
    ("shut down", taint("node.cloudprovider.kubernetes.io/shutdown"), False),
    ("Medik8s' maintenance", taint("medik8s.io/drain"), True),
    ("Medik8s' remediation", taint("medik8s.io/remediation", "self-node-remediation", "NoExecute"), True),
    ("KubeVirt and Harvester", taint("kubevirt.io/drain", "draining"), True),
    ("kured", note("weave.works/kured-reboot-in-progress", "2026-11-01T00:00:00Z"), True),
    ("Flatcar reboots", note(f"{FLATCAR}/reboot-in-progress", "true"), True),
    ("Flatcar may reboot", note(f"{FLATCAR}/reboot-ok", "true"), True),
    ("Flatcar's checks before a reboot", label(f"{FLATCAR}/before-reboot", "true"), True),
    ("Container Linux", note("container-linux-update.v1.coreos.com/reboot-in-progress", "true"), True),
    ("Talos", note("talos.dev/cordoned", "true"), True),
    ("MCO works", note(f"{MCO}/state", "Working"), True),
    ("MCO reboots", note(f"{MCO}/state", "Rebooting"), True),
    ("MCO drains", note(f"{MCO}/desiredDrain", "drain-rendered-worker-1"), True),
    ("MCO wants another", {"notes": {f"{MCO}/currentConfig": "a", f"{MCO}/desiredConfig": "b"}}, True),
    ("MCO wants another image", {"notes": {f"{MCO}/currentImage": "a", f"{MCO}/desiredImage": "b"}}, True),
    ("a cloud's controller", taint("node.cloudprovider.kubernetes.io/uninitialized", "true"), False),
    ("Cluster API", taint("node.cluster.x-k8s.io/uninitialized"), False),
    ("Karpenter registers", taint("karpenter.sh/unregistered", effect="NoExecute"), False),
    ("Cilium", taint("node.cilium.io/agent-not-ready", "true"), False),
    ("the EBS driver", taint("ebs.csi.aws.com/agent-not-ready", effect="NoExecute"), False),
    ("Gardener", taint("node.gardener.cloud/critical-components-not-ready"), False),
    ("a start-up taint of CA", taint("startup-taint.cluster-autoscaler.kubernetes.io/gpu"), False),
    ("an ignored taint of CA", taint("ignore-taint.cluster-autoscaler.kubernetes.io/gpu"), False),
    ("a readiness rule", taint("readiness.k8s.io/NetworkReady", "pending"), False),
]


@pytest.mark.parametrize(("given", "drains"), [row[1:] for row in TAKEN], ids=[row[0] for row in TAKEN])
def test_a_node_is_left_to_who_marked_it_while_the_mark_is_there(given: Json, drains: bool) -> None:
    assert reasons(given, rules=NodeRules(frozenset(Reason))) == [Reason.NODE_LIFECYCLE]
    [view] = snapshot(node(**given)).nodes.values()
    refusal = owner_elsewhere(view.node)
    assert refusal is not None
    key = next(iter(given.get("notes") or given.get("labels") or {given["taints"][0]["key"]: ""}))
    assert key.removesuffix("currentConfig").removesuffix("currentImage") in refusal.detail
    assert emptied_by_others(view.node) is drains


OURS: list[tuple[str, Json]] = [
    ("HyperPod is content", label("sagemaker.amazonaws.com/node-health-status", "Schedulable")),
    ("SR-IOV at rest", note("sriovnetwork.openshift.io/state", "Idle")),
    ("MIG is set up already", label("nvidia.com/mig.config.state", "success")),
    ("kured, the last time", note("weave.works/kured-most-recent-reboot-needed", "2026-10-01T00:00:00Z")),
    ("Flatcar after a reboot", note(f"{FLATCAR}/reboot-in-progress", "false")),
    ("MCO at rest", {"notes": {f"{MCO}/state": "Done", f"{MCO}/desiredDrain": "uncordon-rendered-worker-1"}}),
    ("MCO has what it wants", {"notes": {f"{MCO}/currentConfig": "a", f"{MCO}/desiredConfig": "a"}}),
    ("MCO's new node", note(f"{MCO}/desiredConfig", "a")),
    ("GKE's maintenance to come", label("cloud.google.com/active-node-maintenance", "PENDING")),
    (
        "an outdated revision of Cluster API",
        taint("node.cluster.x-k8s.io/outdated-revision", effect="PreferNoSchedule"),
    ),
    ("a status taint of CA", taint("status-taint.cluster-autoscaler.kubernetes.io/x")),
    ("a preemptible machine of Oracle", taint("oci.oraclecloud.com/oke-is-preemptible", "present")),
    ("AKS' spot machines", taint("kubernetes.azure.com/scalesetpriority", "spot")),
    ("OpenShift's nodes to come", taint("UpdateInProgress", effect="PreferNoSchedule")),
]


@pytest.mark.parametrize("given", [row[1] for row in OURS], ids=[row[0] for row in OURS])
def test_what_says_nothing_of_now_leaves_a_node_to_us(given: Json) -> None:
    assert reasons(given) == []
    [view] = snapshot(node(**given)).nodes.values()
    assert owner_elsewhere(view.node) is None
    assert not emptied_by_others(view.node)


def test_older_releases_of_karpenter_name_their_taint_otherwise() -> None:
    given = taint("karpenter.sh/disruption", "disrupting")
    assert reasons(given) == [Reason.KARPENTER_DISRUPTED]
    [view] = snapshot(node(**given)).nodes.values()
    assert emptied_by_others(view.node)


@pytest.mark.parametrize(("value", "starts"), [("true", True), ("other", False)])
def test_a_startup_taint_of_a_node_pool_keeps_the_node_until_it_is_gone(value: str, starts: bool) -> None:
    startup = [{"key": "example.com/gpu-driver", "value": "true", "effect": "NoSchedule"}]
    made = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {"startupTaints": startup}},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"},
        },
    }
    given = {"labels": {"karpenter.sh/nodepool": "default"}, **taint("example.com/gpu-driver", value)}
    found = snapshot(node(**given), made)
    [view] = found.nodes.values()
    said = [each.reason for each in judge_node(view, NOW, pools=found.node_pools)]
    assert said == ([Reason.NODE_LIFECYCLE] if starts else [])

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
    ("k3s with etcd and API server", {"labels": {f"{ROLE}control-plane": "true", f"{ROLE}etcd": "true"}}),  # k3s#3513
    ("k0s' controller that is a worker too", label(f"{ROLE}control-plane", "true")),  # k0s, --enable-worker
    ("an OpenShift of three nodes", {"labels": {f"{ROLE}master": "", f"{ROLE}worker": ""}}),  # compact clusters
    ("RKE's node with all roles", {"labels": {f"{ROLE}{each}": "true" for each in ("controlplane", "etcd", "worker")}}),
    ("Magnum", label("magnum.openstack.org/role", "master")),  # magnum, docs/user/node-groups.rst
    ("Magnum beside its role", {"labels": {"magnum.openstack.org/role": "master", f"{ROLE}master": ""}}),
    ("kOps' control plane", label("kops.k8s.io/kops-controller-pki")),  # kops, pkg/nodelabels/builder.go
    ("Mirantis' manager", taint("com.docker.ucp.manager")),  # docs of Docker Enterprise, "Restrict services to workers"
    ("Mirantis' manager by a hard taint", taint("com.docker.ucp.manager", effect="NoExecute")),
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
    ("Talos' API server", static("kube-apiserver-n1", labels={"k8s-app": "kube-apiserver"})),  # talos, k8s templates
    ("RKE2's etcd", static("etcd-n1", labels={"component": "etcd"})),  # rke2, pkg/podtemplate
    ("bootkube's etcd", static("etcd-member-n1")),
    ("kOps' etcd of Cilium", static("etcd-manager-cilium-n1")),
    ("kOps' API server", static("kube-apiserver-n1", labels={"k8s-app": "kube-apiserver"})),
    ("a control plane beside an ordinary proxy", static("kube-scheduler-n1", labels={"tier": "control-plane"})),
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
    ("a worker of Magnum", label("magnum.openstack.org/role", "worker"), ()),
    (
        "a pool of Magnum",
        {"labels": {"magnum.openstack.org/role": "worker", "magnum.openstack.org/nodegroup": "a"}},
        (),
    ),
    ("a worker of kOps", {"labels": {"kops.k8s.io/instancegroup": "nodes-a", f"{ROLE}node": ""}}, ()),
    ("an ingress node", label(f"{ROLE}ingress", "true"), ()),
    ("a node of Rancher's workers", label(f"{ROLE}worker", "true"), ()),
    ("a system pool of AKS", label("kubernetes.azure.com/mode", "system"), ()),
    ("a node of HyperShift's control planes", label("hypershift.openshift.io/control-plane", "true"), ()),
    ("a seed of Gardener", label("worker.gardener.cloud/pool", "seed"), ()),
    ("an edge node of OpenYurt", label("openyurt.io/is-edge-worker", "true"), ()),
    ("a node that balancers leave out", label("node.kubernetes.io/exclude-from-external-load-balancers"), ()),
    ("a static kube-vip of a worker", {}, (static("kube-vip-n1"),)),
    ("a static keepalived of OpenShift's workers", {}, (static("keepalived-n1", "openshift-kni-infra"),)),
    ("a static CoreDNS of OpenShift's workers", {}, (static("coredns-n1", "openshift-kni-infra"),)),
    ("a static HAProxy of kubeadm's workers", {}, (static("haproxy-n1"),)),
    ("a hosted API server of Kamaji", {}, (static("tenant-5c9f-abcde", "kamaji", of="ReplicaSet"),)),
    ("a hosted etcd of Gardener", {}, (static("etcd-main-0", "shoot--a--b", of="StatefulSet"),)),
    ("a k3s of vCluster", {}, (static("vcluster-0", "vcluster-a", of="StatefulSet"),)),
    ("an etcd of Cilium", {}, (static("clustermesh-apiserver-6d-x", of="ReplicaSet"),)),
    ("a Patroni with the word etcd", {}, (pod("etcd-0", labels={"app": "etcd"}),)),
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
    ("tensile-kube, older Liqo", label("type", "virtual-node")),
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
    ("AKS' own handler", taint("aks-node-termination-handler/preempt", "id"), True),
    ("AKS' own handler, a redeploy", taint("aks-node-termination-handler/redeploy", "id", "PreferNoSchedule"), True),
    ("AKS' own handler at the end", taint("aks-node-termination-handler/terminate", "id", "NoExecute"), True),
    ("Zalando drains", label("lifecycle-status", "draining"), True),
    ("Zalando will drain", label("lifecycle-status", "decommission-pending"), True),
    ("Zalando by taint", taint("decommission-pending", "rolling-upgrade"), True),
    ("Zalando replaces a spot machine", taint("decommission-pending", "spot-replacement"), True),
    ("Keiko takes a machine", note("lifecycle-manager.keikoproj.io/in-progress", '{"LifecycleHookName":"x"}'), True),
    ("somebody asks Google for maintenance", label("cloud.google.com/perform-maintenance", "true"), True),
    ("Google's maintenance begins", taint("cloud.google.com/maintenance-window-started", "true"), True),
    ("Deckhouse may update", note("update.node.deckhouse.io/approved"), True),
    ("Deckhouse may disturb", note("update.node.deckhouse.io/disruption-approved"), True),
    *(
        (f"NVIDIA's driver: {each}", label("nvidia.com/gpu-driver-upgrade-state", f"{each}-required"), True)
        for each in ("cordon", "wait-for-jobs", "pod-deletion", "drain", "node-maintenance", "post-maintenance")
    ),
    *(
        (f"NVIDIA's driver: {each}", label("nvidia.com/gpu-driver-upgrade-state", f"{each}-required"), True)
        for each in ("pod-restart", "validation", "uncordon")
    ),
    ("NVIDIA's network driver", label("nvidia.com/ofed-driver-upgrade-state", "drain-required"), True),
    ("NVIDIA's network driver, after", label("nvidia.com/ofed-driver-upgrade-state", "uncordon-required"), True),
    *(
        (f"NVSentinel: {each}", label("dgxc.nvidia.com/nvsentinel-state", each), True)
        for each in ("quarantined", "draining", "drain-succeeded", "drain-failed", "remediating", "remediation-failed")
    ),
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
    ("kOps will replace it one day", taint("kops.k8s.io/scheduled-for-update", effect="PreferNoSchedule")),
    ("a status taint of CA", taint("status-taint.cluster-autoscaler.kubernetes.io/x")),
    ("a preemptible machine of Oracle", taint("oci.oraclecloud.com/oke-is-preemptible", "present")),
    ("NVIDIA's driver is new", label("nvidia.com/gpu-driver-upgrade-state", "upgrade-done")),
    ("NVIDIA's driver will be replaced", label("nvidia.com/gpu-driver-upgrade-state", "upgrade-required")),
    ("NVIDIA's driver is unknown", label("nvidia.com/gpu-driver-upgrade-state", "")),
    ("NVIDIA's driver is left alone", label("nvidia.com/gpu-driver-upgrade.skip", "true")),
    ("NVIDIA's network driver is new", label("nvidia.com/ofed-driver-upgrade-state", "upgrade-done")),
    ("Zalando's node at work", label("lifecycle-status", "ready")),
    ("a company's label of the same name", label("lifecycle-status", "production")),
    ("GKE's maintenance in a week", label("cloud.google.com/scheduled-maintenance-time", "1790000000")),
    ("Deckhouse waits for somebody", note("update.node.deckhouse.io/waiting-for-approval")),
    ("Deckhouse wants to disturb", note("update.node.deckhouse.io/disruption-required")),
    ("Gardener's node that is kept on failure", note("node.machine.sapcloud.io/preserve", "when-failed")),
    ("AKS' image of a node", label("kubernetes.azure.com/node-image-version", "AKSUbuntu-2204")),
    ("GPU machines", taint("nvidia.com/gpu", "present")),
    ("a machine under pressure", taint("node.kubernetes.io/memory-pressure")),
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


STORAGE: list[tuple[str, Json]] = [
    # openebs/mayastor#1898, openebs/website#480: with the only replica the volume is gone.
    ("Mayastor", label("openebs.io/engine", "mayastor")),
    ("LINSTOR", label("linbit.com/sp-pool1", "true")),  # linstor-csi, pkg/topology/topology.go
    ("LINSTOR with two pools", {"labels": {"linbit.com/sp-ssd": "true", "linbit.com/sp-DfltDisklessStorPool": "true"}}),
    ("Deckhouse's LINSTOR", label("storage.deckhouse.io/sds-replicated-volume-sp-data", "true")),
    ("Simplyblock", label("io.simplyblock.node-type", "simplyblock-storage-plane")),
    ("Simplyblock's operator", label("io.simplyblock.node-type", "simplyblock-storage-plane-cluster-a")),
    ("CubeFS' data", label("component.cubefs.io/datanode", "enabled")),
    ("CubeFS' metadata", label("component.cubefs.io/metanode", "enabled")),
    ("GlusterFS", label("storagenode", "glusterfs")),
]


@pytest.mark.parametrize("given", [row[1] for row in STORAGE], ids=[row[0] for row in STORAGE])
def test_a_node_whose_disks_hold_replicas_of_volumes_stays_until_somebody_has_moved_them(given: Json) -> None:
    agent = static("io-engine-x2", "storage", of="DaemonSet")
    assert reasons(given, agent) == [Reason.NODE_DO_NOT_DISRUPT]
    assert reasons(given, agent, rules=NodeRules(frozenset({Reason.NODE_DO_NOT_DISRUPT}))) == []
    # Many switch off what keeps pods with an emptyDir.
    assert reasons(given, agent, rules=NodeRules(frozenset({Reason.LOCAL_STORAGE}))) == [Reason.NODE_DO_NOT_DISRUPT]
    [view] = snapshot(node(**given)).nodes.values()
    [refusal] = opt_outs(view)
    assert "keeps replicas of volumes on the disks of this node (label " in refusal.detail
    assert refusal.fix.startswith("move the replicas to other nodes")


STORES_NOTHING: list[tuple[str, Json]] = [
    ("a node of LINSTOR without disks", label("linbit.com/sp-DfltDisklessStorPool", "true")),
    ("a node of LINSTOR without a pool", label("linbit.com/hostname", "n1")),
    ("another engine of OpenEBS", label("openebs.io/engine", "none")),
    ("a node of OpenEBS' local volumes", label("openebs.io/nodename", "n1")),
    ("a client of CubeFS", label("component.cubefs.io/csi", "enabled")),
    ("a node that lost its CubeFS", label("component.cubefs.io/datanode", "disabled")),
    ("a management node of Simplyblock", label("io.simplyblock.node-type", "simplyblock-mgmt-plane")),
    ("a node of OpenShift Data Foundation: its OSDs tell", label("cluster.ocs.openshift.io/openshift-storage")),
    ("a node of Longhorn: its instance manager tells", label("node.longhorn.io/create-default-disk", "true")),
    ("a node of Portworx: its pods tell", label("px/enabled", "true")),
]


@pytest.mark.parametrize("given", [row[1] for row in STORES_NOTHING], ids=[row[0] for row in STORES_NOTHING])
def test_a_node_that_uses_such_storage_goes(given: Json) -> None:
    assert reasons(given) == []


ROUTES: list[tuple[str, Json, bool]] = [
    ("Submariner's gateway", label("submariner.io/gateway", "true"), True),
    ("no gateway any more", label("submariner.io/gateway", "false"), False),
    ("Calico's route reflector", note("projectcalico.org/RouteReflectorClusterID", "244.0.0.1"), True),
    ("a node of Calico", note("projectcalico.org/IPv4Address", "10.0.0.1/24"), False),
    ("a node that OVN may take for egress", label("k8s.ovn.org/egress-assignable"), False),  # it moves the address
    ("a node of Kube-OVN's gateway", label("ovn.kubernetes.io/external-gw", "true"), False),  # often on all nodes
    ("a node of k3s' balancer", label("svccontroller.k3s.cattle.io/enablelb", "true"), False),  # often on all nodes
]


@pytest.mark.parametrize(("given", "stays"), [row[1:] for row in ROUTES], ids=[row[0] for row in ROUTES])
def test_a_node_that_a_person_gave_a_role_in_the_network_stays(given: Json, stays: bool) -> None:
    assert reasons(given) == [Reason.NODE_DO_NOT_DISRUPT] * stays
    assert reasons(given, rules=NodeRules(frozenset({Reason.NODE_DO_NOT_DISRUPT}))) == []


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        # AKS, node-problem-detector: Azure's scheduled events; a spot machine has half a minute left.
        ("PreemptScheduled", True),
        ("TerminateScheduled", True),
        ("RedeployScheduled", True),
        ("RebootScheduled", True),
        ("FreezeScheduled", False),
        ("VMEventScheduled", False),
        ("KernelDeadlock", False),
        ("FilesystemCorruptionProblem", False),
        ("MemoryPressure", False),
    ],
)
def test_a_machine_that_the_cloud_takes_in_minutes_is_no_candidate_and_takes_no_pod(
    condition: str, taken: bool
) -> None:
    found = snapshot(node("n1", true=(condition,)), node("n2"), pod(on="n2"))
    view = found.nodes["n1"]
    assert [each.reason for each in judge_node(view, NOW)] == [Reason.NODE_LIFECYCLE] * taken
    assert emptied_by_others(view.node) is taken
    space = Space(found)
    [guest] = found.nodes["n2"].pods
    assert bool(space.feasible(space.demand_of(guest))[space.index["n1"]]) is not taken

"""By what a node shows that it holds the cluster up, that it is no machine, or that it is somebody else's just now.

Tables of labels, taints and annotations, as the distributions, clouds and tools write them, and of what runs on a node.
Pure. Each row names the file that writes the mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from tightship.objects import Node, Pod, PodSpec
from tightship.objects.pod import MIRROR_ANNOTATION
from tightship.objects.selectors import Taint

# What holds a cluster up.

ROLE = "node-role.kubernetes.io/"

CONTROL_PLANE_ROLES = frozenset(
    {
        "control-plane",  # kubeadm, and whatever builds on it; k3s, RKE2, k0s, Talos, kOps, Gardener, OpenShift
        "master",  # the same before 1.24; OpenShift (machine-config-operator, templates/master)
        "controlplane",  # RKE (cluster/hosts.go)
        "controller",  # Typhoon, as a taint (docs/architecture/concepts.md)
        "etcd",  # RKE (cluster/hosts.go), k3s and RKE2 (pkg/cluster, label of etcd-only servers), Harvester's witness
        "api-server",  # kOps' nodes with an API server only (pkg/nodelabels/builder.go)
        "apiserver",
        "scheduler",  # kOps (pkg/nodelabels/builder.go)
        "kube-controller-manager",  # the same
        "arbiter",  # OpenShift with two nodes: the third member of etcd (enhancements, two-node-with-arbiter)
    }
)
"""Roles after :data:`ROLE`, as a label or as a taint. Kubernetes reads the key alone, and so do we: kubectl shows the
role for any value, ``false`` too (``findNodeRoles`` in pkg/printers/internalversion)."""

_ROLE_KEYS = frozenset(
    {
        *(ROLE + role for role in CONTROL_PLANE_ROLES),
        "com.docker.ucp.manager",  # Mirantis Kubernetes Engine, as a taint (docs of its Sonobuoy runs)
        "kops.k8s.io/kops-controller-pki",  # kOps' control planes (pkg/nodelabels/builder.go)
    }
)

CONTROL_PLANE_LABELS: tuple[tuple[str, frozenset[str]], ...] = (
    # kOps and kube-up before node-role labels, kubeasz, AKS engine
    ("kubernetes.io/role", CONTROL_PLANE_ROLES),
    ("kubernetes.azure.com/role", frozenset({"master"})),  # AKS engine (pkg/api/vlabs)
    ("node.kubernetes.io/microk8s-controlplane", frozenset()),  # MicroK8s (microk8s-resources/default-args/kubelet)
    ("k8sd.io/role", frozenset({"control-plane"})),  # Canonical Kubernetes
    ("node.k0sproject.io/role", frozenset({"control-plane"})),  # k0s (docs/worker-node-config.md)
    ("node.kubernetes.io/controller", frozenset()),  # Typhoon (docs/architecture/concepts.md)
    ("node.kubernetes.io/master", frozenset()),  # Typhoon before 1.16, Lokomotive
    ("magnum.openstack.org/role", frozenset({"master"})),  # OpenStack Magnum (docs/user/node-groups.rst)
    # Charmed Kubernetes (charm-kubernetes-control-plane, its older name)
    ("juju-charm", frozenset({"kubernetes-control-plane", "kubernetes-master"})),
    ("juju-application", frozenset({"kubernetes-control-plane", "kubernetes-master"})),
)
"""Other labels of such nodes, each with its values; any value if there are none."""

CONTROL_PLANE_PODS = frozenset(
    {
        "etcd",  # kubeadm, RKE2, OpenShift
        "etcd-manager-main",  # kOps (pkg/model/components/etcdmanager)
        "etcd-manager-events",
        "etcd-manager-cilium",
        "etcd-server",  # kube-up (cluster/gce/manifests/etcd.manifest)
        "etcd-server-events",
        "etcd-member",  # bootkube, Tectonic
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "openshift-kube-scheduler",  # OpenShift (cluster-kube-scheduler-operator, bindata/assets)
    }
)
"""Names of static pods without the name of the node that follows, and values of the labels below. Others have names
that only begin alike: ``kube-apiserver-proxy`` runs on each worker of HyperShift."""

_COMPONENT_LABELS = ("component", "k8s-app")
"""Labels by which kubeadm and RKE2, and kOps, say what a static pod is."""


def control_plane(node: Node, pods: Iterable[Pod]) -> str | None:
    """Return what shows that *node*, on which *pods* run, holds the cluster up: etcd, an API server, a controller
    manager or a scheduler of this cluster. ``None`` if nothing does.

    Of pods only static ones count, by their mirrors: a DaemonSet, or a hosted control plane in a StatefulSet, moves.
    """
    labels = node.labels
    for key in _ROLE_KEYS:
        if key in labels:
            return f"carries the label {key}"
    for key, values in CONTROL_PLANE_LABELS:
        if key in labels and (not values or labels[key] in values):
            return f"carries the label {key}={labels[key]}"
    for taint in node.taints:
        if taint.key in _ROLE_KEYS:
            return f"carries the taint {taint}"
    for pod in pods:
        if pod.annotations and MIRROR_ANNOTATION in pod.annotations and _component(pod):
            return f"runs the static pod {pod.key}"
    return None


def _component(pod: Pod) -> bool:
    # Kubernetes before 1.17 gives a mirror pod no owner. Nobody makes a mirror for a controller.
    if pod.owner is not None and pod.owner.kind != "Node":
        return False
    labels = pod.template.labels
    if any(labels.get(key) in CONTROL_PLANE_PODS for key in _COMPONENT_LABELS):
        return True
    # The kubelet names a static pod NAME-NODE, the node in small letters (pkg/kubelet/config/common.go).
    return pod.name.removesuffix(f"-{pod.node.lower()}") in CONTROL_PLANE_PODS


# What is no machine.

_FARGATE = "eks.amazonaws.com/compute-type"

VIRTUAL_LABELS: tuple[tuple[str, frozenset[str], str], ...] = (
    # virtual-kubelet (node/nodeutil/controller.go): AKS virtual nodes, Alibaba ECI, Huawei CCI, Baidu BCI and others
    # virtual-node: tensile-kube and Liqo's first releases
    ("type", frozenset({"virtual-kubelet", "virtual-node"}), "a virtual kubelet"),
    ("virtual-kubelet.io/provider", frozenset(), "a virtual kubelet"),  # Admiralty (pkg/common/constants.go)
    ("liqo.io/type", frozenset({"virtual-node"}), "another cluster, by Liqo"),  # Liqo (pkg/consts)
    ("virtual-node.interlink/type", frozenset({"virtual-kubelet"}), "a virtual kubelet, by interLink"),
    ("bursting.cci.io/node-type", frozenset({"virtual-kubelet"}), "Huawei's CCI"),
    (_FARGATE, frozenset({"fargate"}), "AWS Fargate"),  # "auto" and "hybrid" are machines
    ("node.kubernetes.io/instance-type", frozenset({"eklet"}), "a super node of Tencent"),
    ("node-role.kubernetes.io/virtual-node", frozenset(), "a virtual node of Oracle"),
    ("vci.vke.volcengine.com/node-type", frozenset({"vci"}), "Volcengine's VCI"),
    ("kosmos.io/node", frozenset({"true"}), "another cluster, by Kosmos"),
    ("vcluster.loft.sh/fake-node", frozenset({"true"}), "a node of the host cluster, by vCluster"),
    ("cloud.google.com/gke-autopilot", frozenset({"true"}), "GKE Autopilot"),
    ("cloud.google.com/machine-family", frozenset({"ek"}), "GKE Autopilot"),  # a family that only Autopilot uses
)
"""Labels of nodes behind which is no machine that goes when the node is empty: (key, values, what is behind them)."""

VIRTUAL_TAINTS: tuple[tuple[str, frozenset[str], str], ...] = (
    # The default of virtual-kubelet, cmd/virtual-kubelet/internal/commands/root/opts.go.
    ("virtual-kubelet.io/provider", frozenset(), "a virtual kubelet"),
    ("azure.com/aci", frozenset(), "Azure Container Instances"),  # the same, in its first releases
    ("virtual-node.liqo.io/not-allowed", frozenset(), "another cluster, by Liqo"),  # Liqo (pkg/consts)
    ("virtual-node.interlink/no-schedule", frozenset(), "a virtual kubelet, by interLink"),
    (_FARGATE, frozenset({"fargate"}), "AWS Fargate"),
    ("eks.tke.cloud.tencent.com/eklet", frozenset(), "a super node of Tencent"),
    ("vci.vke.volcengine.com/node-type", frozenset({"vci"}), "Volcengine's VCI"),
    ("kosmos.io/node", frozenset({"true"}), "another cluster, by Kosmos"),
)
"""The taints of such nodes, likewise."""

_VIRTUAL_KEYS = frozenset(key for key, _, _ in (*VIRTUAL_LABELS, *VIRTUAL_TAINTS))

AUTOPILOT_NAMES = "gk3-"
"""How GKE begins the names of Autopilot's nodes; those of node pools begin with ``gke-``."""


def virtual(node: Node) -> str | None:
    """Return what is behind *node* if that is no machine that somebody saves once the node is empty, else ``None``.

    A node of GKE Autopilot counts as such: Google bills its pods, and removes the node itself.
    """
    labels = node.labels
    for key, values, what in VIRTUAL_LABELS:
        if key in labels and (not values or labels[key] in values):
            return what
    for taint in node.taints:
        for key, values, what in VIRTUAL_TAINTS:
            if taint.key == key and (not values or taint.value in values):
                return what
    if node.name.startswith(AUTOPILOT_NAMES) and "cloud.google.com/gke-nodepool" in labels:
        return "GKE Autopilot"
    return None


def fargate(node: Node) -> bool:
    """Whether *node* is one pod of AWS Fargate."""
    return node.labels.get(_FARGATE) == "fargate"


def asks_for_virtual(spec: PodSpec) -> bool:
    """Whether a pod asks for a virtual node: by a toleration that names its taint, or by a label that it selects.

    A toleration of every taint asks for nothing in particular.
    """
    if any(each.key in _VIRTUAL_KEYS for each in spec.tolerations):
        return True
    terms = () if spec.node_affinity is None else spec.node_affinity.node_selector_terms
    wanted = {
        each.key
        for term in terms
        for each in term.match_expressions or ()
        if each.operator in ("In", "Exists")  # most who name such a label want to stay away
    }
    return not _VIRTUAL_KEYS.isdisjoint({*spec.node_selector, *wanted})


# What is somebody else's.

Kind = Literal["taint", "label", "annotation"]


class NodeMark(Struct, frozen=True):
    """What somebody writes on a node of theirs: a *key*, or the beginning of keys if it ends with a slash.

    Without *values* any counts but ``false``; a value that ends with a hyphen is the beginning of one. *says* is what
    they do. *drains* is whether the node's pods will move: then their room is kept.
    """

    kind: Kind
    key: str
    says: str
    values: tuple[str, ...] = ()
    drains: bool = True

    def holds(self, key: str, value: str | None) -> bool:
        """Whether *key* with *value* is this mark."""
        if not (key.startswith(self.key) if self.key.endswith("/") else key == self.key):
            return False
        text = value or ""
        if not self.values:
            return text != "false"
        return any(text.startswith(each) if each.endswith("-") else text == each for each in self.values)


_NTH = "aws-node-termination-handler takes the node"
_AKS_NTH = "aks-node-termination-handler takes the node"
_GKE = "Google takes the node"
_OKE = "Oracle takes the node"
_AKS = "AKS drains or repairs the node"
_KURED = "kured reboots the node"
_MCO = "OpenShift's machine-config-operator updates the node"
_FLATCAR = "Flatcar's update operator reboots the node"
_MEDIK8S = "Medik8s drains or repairs the node"
_CAST = "CAST AI drains the node"
_HARVESTER = "Harvester maintains the node"
_GARDENER = "Gardener's machine-controller-manager takes or updates the node"
_HYPERPOD = "SageMaker HyperPod repairs the node"
_HYPERPOD_BAD = ("Unschedulable", "UnschedulablePendingReboot", "UnschedulablePendingReplacement")
_MIG = "NVIDIA's MIG manager works on the node"
_DRIVER = "NVIDIA's operator replaces a driver on the node"
_DRIVER_STATES = (
    "cordon-required",
    "wait-for-jobs-required",
    "pod-deletion-required",
    "drain-required",
    "node-maintenance-required",
    "post-maintenance-required",
    "pod-restart-required",
    "validation-required",
    "uncordon-required",
)
"""Between ``upgrade-required``, when nothing has begun, and ``upgrade-done``."""
_ZALANDO = "cluster-lifecycle-manager takes the node"
_SRIOV = ("Drain_Required", "Reboot_Required", "Draining", "DrainComplete")
_STARTS = "has not started on the node yet"

MARKS: tuple[NodeMark, ...] = (
    # Termination.
    NodeMark("taint", "aws-node-termination-handler/", _NTH),  # pkg/node/node.go
    NodeMark("label", "aws-node-termination-handler/action", _NTH),
    NodeMark("label", "aws-node-termination-handler/event-id", _NTH),
    NodeMark("taint", "aks-node-termination-handler/", _AKS_NTH),  # pkg/api/api.go
    # zalando-incubator/cluster-lifecycle-manager, pkg/updatestrategy/node_pool_manager.go
    NodeMark("label", "lifecycle-status", _ZALANDO, ("draining", "decommission-pending")),
    NodeMark("taint", "decommission-pending", _ZALANDO),
    # keikoproj/lifecycle-manager, pkg/service/manager.go
    NodeMark("annotation", "lifecycle-manager.keikoproj.io/in-progress", "lifecycle-manager takes the node"),
    NodeMark("taint", "cloud.google.com/impending-node-termination", _GKE),  # k8s-node-termination-handler, GKE docs
    NodeMark("label", "cloud.google.com/active-node-maintenance", _GKE, ("ONGOING",)),
    # GKE docs ("Manage host maintenance events"): somebody has asked for it, or its time has come
    NodeMark("label", "cloud.google.com/perform-maintenance", _GKE),
    NodeMark("taint", "cloud.google.com/maintenance-window-started", _GKE),
    NodeMark("taint", "remediator.kubernetes.azure.com/unschedulable", _AKS),  # AKS, node auto-drain and auto-repair
    NodeMark("taint", "remediator.aks.microsoft.com/unschedulable", _AKS),  # its older name
    # autoscaler, cloudprovider/oci/nodepools/consts/annotations.go
    NodeMark("taint", "ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination", _OKE),
    NodeMark("taint", "node.kubernetes.io/out-of-service", "somebody has taken the node out of service"),
    NodeMark("taint", "node.cloudprovider.kubernetes.io/shutdown", "the machine is shut down", drains=False),
    NodeMark("taint", "autoscaling.cast.ai/draining", _CAST),  # castai/spot-handler, handler.go
    NodeMark("label", "autoscaling.cast.ai/draining", _CAST),
    # machine-controller-manager, pkg/util/provider/machineutils/utils.go and pkg/apis/machine/v1alpha1 (in-place)
    NodeMark("annotation", "node.machine.sapcloud.io/trigger-deletion-by-mcm", _GARDENER),
    NodeMark("label", "node.machine.sapcloud.io/selected-for-update", _GARDENER),
    NodeMark("taint", "atlassian.com/escalator", "Escalator deletes the node"),  # pkg/k8s/taint.go
    # Repair and maintenance.
    # SageMaker HyperPod, docs of its resilience on EKS
    NodeMark("taint", "sagemaker.amazonaws.com/node-health-status", _HYPERPOD, _HYPERPOD_BAD),
    NodeMark("label", "sagemaker.amazonaws.com/node-health-status", _HYPERPOD, _HYPERPOD_BAD),
    NodeMark("taint", "medik8s.io/", _MEDIK8S),  # node-maintenance-operator, internal/controller/taint.go
    NodeMark("taint", "kubevirt.io/drain", "KubeVirt or Harvester drains the node"),  # kubevirt, node drain
    # deckhouse, modules/040-node-manager/hooks: handle_draining.go, update_approval.go; these are mostly empty
    NodeMark("annotation", "update.node.deckhouse.io/draining", "Deckhouse drains the node"),
    NodeMark("annotation", "update.node.deckhouse.io/approved", "Deckhouse updates the node"),
    NodeMark("annotation", "update.node.deckhouse.io/disruption-approved", "Deckhouse updates the node"),
    # harvester, pkg/controller/master/nodedrain and .../node/maintain_controller.go
    NodeMark("annotation", "harvesterhci.io/drain-requested", _HARVESTER),
    NodeMark("annotation", "harvesterhci.io/maintain-status", _HARVESTER),
    # sriov-network-operator, pkg/consts
    NodeMark("annotation", "sriovnetwork.openshift.io/state", "the SR-IOV operator drains the node", _SRIOV),
    # gpu-operator, docs of the MIG manager
    NodeMark("label", "nvidia.com/mig.config.state", _MIG, ("pending", "rebooting"), drains=False),
    # NVIDIA/k8s-operator-libs, pkg/upgrade/consts.go, as the GPU operator and the network operator use it
    NodeMark("label", "nvidia.com/gpu-driver-upgrade-state", _DRIVER, _DRIVER_STATES),
    NodeMark("label", "nvidia.com/ofed-driver-upgrade-state", _DRIVER, _DRIVER_STATES),
    # NVIDIA/NVSentinel, statemanager.go: from the fault to its repair
    NodeMark("label", "dgxc.nvidia.com/nvsentinel-state", "NVSentinel drains or repairs the node"),
    # Reboots.
    NodeMark("annotation", "weave.works/kured-reboot-in-progress", _KURED),  # kured, cmd/kured/main.go
    NodeMark("annotation", "flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress", _FLATCAR, ("true",)),
    NodeMark("annotation", "flatcar-linux-update.v1.flatcar-linux.net/reboot-ok", _FLATCAR, ("true",)),  # pkg/constants
    NodeMark("label", "flatcar-linux-update.v1.flatcar-linux.net/before-reboot", _FLATCAR, ("true",)),
    NodeMark("annotation", "container-linux-update.v1.coreos.com/reboot-in-progress", _FLATCAR, ("true",)),
    NodeMark("annotation", "container-linux-update.v1.coreos.com/reboot-ok", _FLATCAR, ("true",)),
    NodeMark("annotation", "talos.dev/cordoned", "Talos drains the node"),  # pkg/machinery/constants
    # machine-config-operator, pkg/daemon/constants
    NodeMark("annotation", "machineconfiguration.openshift.io/state", _MCO, ("Working", "Rebooting")),
    NodeMark("annotation", "machineconfiguration.openshift.io/desiredDrain", _MCO, ("drain-",)),
    # Start-up.
    NodeMark("taint", "node.cloudprovider.kubernetes.io/uninitialized", f"the cloud {_STARTS}", drains=False),
    NodeMark("taint", "node.cluster.x-k8s.io/uninitialized", f"Cluster API {_STARTS}", drains=False),
    NodeMark("taint", "karpenter.sh/unregistered", f"Karpenter {_STARTS}", drains=False),  # pkg/apis/v1/taints.go
    # autoscaler, FAQ.md
    NodeMark("taint", "startup-taint.cluster-autoscaler.kubernetes.io/", f"something {_STARTS}", drains=False),
    NodeMark("taint", "ignore-taint.cluster-autoscaler.kubernetes.io/", f"something {_STARTS}", drains=False),
    NodeMark("taint", "readiness.k8s.io/", f"something {_STARTS}", drains=False),  # node-readiness-controller
    NodeMark("taint", "nidhogg.uswitch.com/", f"a DaemonSet {_STARTS}", drains=False),
)
"""What others write. Karpenter's and Cluster Autoscaler's own taints have reasons of their own (``nodes.py``)."""

_NOT_READY = "not-ready"
"""How the keys of most start-up taints end: ``node.cilium.io/agent-not-ready``, ``ebs.csi.aws.com/agent-not-ready``,
``node.gardener.cloud/critical-components-not-ready``. The node lifecycle controller's tells of the node itself."""

_STARTING = "node.kubernetes.io/"

_CONFIGS = tuple(
    (f"machineconfiguration.openshift.io/current{what}", f"machineconfiguration.openshift.io/desired{what}")
    for what in ("Config", "Image")
)

_TAINTS, _LABELS, _NOTES = (
    tuple(each for each in MARKS if each.kind == kind) for kind in ("taint", "label", "annotation")
)


def mark_of(taint: Taint) -> NodeMark | None:
    """Return the mark of somebody else that *taint* is, ``None`` if it is none."""
    mark = next((each for each in _TAINTS if each.holds(taint.key, taint.value)), None)
    if mark is None and taint.key.endswith(_NOT_READY) and not taint.key.startswith(_STARTING):
        mark = NodeMark("taint", taint.key, f"something {_STARTS}", drains=False)
    return mark


def marks_of_others(node: Node) -> Iterator[tuple[NodeMark, str]]:
    """Yield each mark with which somebody else says that *node* is theirs just now, and how it is written there."""
    for taint in node.taints:
        mark = mark_of(taint)
        if mark is not None:
            yield mark, f"taint {taint.key}"
    for marks, written in ((_LABELS, node.labels), (_NOTES, node.annotations)):
        for mark in marks if written else ():
            if mark.key in written and mark.holds(mark.key, written[mark.key]):
                yield mark, f"{mark.kind} {mark.key}={written[mark.key]}"
    for current, desired in _CONFIGS:
        wanted = node.annotations.get(desired, "")
        # A new node has no current configuration.
        if wanted and node.annotations.get(current, wanted) != wanted:
            yield NodeMark("annotation", desired, _MCO), f"annotation {desired}={wanted}"


# What a replacement would lack.

_STORING: tuple[tuple[str, str, str], ...] = (
    ("openebs.io/engine", "mayastor", "OpenEBS Mayastor"),  # mayastor-extensions, chart/values.yaml (io_engine)
    ("linbit.com/sp-", "true", "LINSTOR"),  # linstor-csi, pkg/topology/topology.go: one label for each pool
    ("storage.deckhouse.io/sds-replicated-volume-sp-", "true", "LINSTOR"),  # the same, as Deckhouse builds it
    ("io.simplyblock.node-type", "simplyblock-storage-plane", "Simplyblock"),  # simplyblock-csi; a suffix may follow
    ("component.cubefs.io/datanode", "enabled", "CubeFS"),  # cubefs-helm, README.md
    ("component.cubefs.io/metanode", "enabled", "CubeFS"),
    ("storagenode", "glusterfs", "GlusterFS"),  # gluster-kubernetes, deploy/kube-templates/glusterfs-daemonset.yaml
)
"""How label and value begin, and whose DaemonSet then keeps replicas of volumes on the node's disks.

Other storage shows by its pods: OSDs of Rook and replicas of cStor are pinned, those of Longhorn and Portworx have
owners of their own.
"""

_STORING_KEYS = tuple(key for key, _, _ in _STORING)
_DISKLESS = "DfltDisklessStorPool"
"""The pool that every node of LINSTOR has."""

_ROUTING: tuple[tuple[Kind, str, str], ...] = (
    (
        "label",
        "submariner.io/gateway",
        "Submariner's traffic between clusters goes through the node",
    ),  # getting started
    ("annotation", "projectcalico.org/RouteReflectorClusterID", "the node is a route reflector of Calico"),  # bgp.md
)


def keeps_volumes(node: Node) -> tuple[str, str] | None:
    """Return the label by which *node* keeps replicas of volumes on its disks, and for whom; ``None`` if none says so.

    No PersistentVolume tells: any node reaches such a volume, while its data are on some nodes.
    """
    for key, text in node.labels.items():
        if key.startswith(_STORING_KEYS) and not key.endswith(_DISKLESS):
            for begins, value, who in _STORING:
                if key.startswith(begins) and text.startswith(value):
                    return f"{key}={text}", who
    return None


def routes(node: Node) -> Iterator[tuple[Kind, str, str]]:
    """Yield each mark by which a person made *node* one that the network needs: kind, key, and what goes through it.

    The node that an autoscaler adds in its place would not have the mark.
    """
    for kind, key, says in _ROUTING:
        text = (node.labels if kind == "label" else node.annotations).get(key, "false")
        if text != "false":
            yield kind, key, says

"""Pods, stored so that replicas share what they have in common.

A fleet of 150,000 pods has a few thousand templates. :class:`PodSpec` and :class:`PodTemplate` are interned (see
:mod:`~tightship.objects.pod_wire`): two pods whose specs decode alike hold the same object. So code judges a spec
once, and a pod costs little more than its names.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tightship.objects.meta import Owner
from tightship.objects.resources import PodResources, Resources
from tightship.objects.selectors import Labels, LabelSelector, NodeSelector, NodeSelectorTerm, Taint, Toleration
from tightship.objects.volume import Volume

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
DAEMON_ANNOTATION = "cluster-autoscaler.kubernetes.io/daemonset-pod"
"""``true`` on a pod that goes with its node as a DaemonSet's does (utils/pod/pod.go of Cluster Autoscaler)."""

_DAEMON_SETS = ("DaemonSet.", "ExtendedDaemonSetReplicaSet.")
"""How the kinds of DaemonSets of other groups begin: OpenKruise's and, in Cluster Autoscaler too, any; Datadog's."""
DEFAULT_SCHEDULER = "default-scheduler"

EXPENDABLE = -10
"""Cluster Autoscaler neither adds nor keeps a node for a pod below this priority, and lets the pod go with its node:
the default of its ``--expendable-pods-priority-cutoff``."""

CORDON = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
"""The taint as which kube-scheduler treats a cordon."""

DRAINING = Taint("tightship.dev/draining", "NoSchedule", "any")
"""The taint of a drain; its value is the drain's id."""

HostPort = tuple[str, str, int]
"""(host IP, protocol, port); an empty host IP stands for every address."""


class PodAffinityTerm(Struct, frozen=True, rename="camel", gc=False):
    """A required inter-pod affinity or anti-affinity term.

    ``matchLabelKeys`` need no code here: the API server merges them into the selector when it creates the pod.
    """

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None


class PreferredNodeTerm(Struct, frozen=True, gc=False):
    """A preferred node affinity term; it only raises a node's score."""

    weight: int
    preference: NodeSelectorTerm


class TopologySpreadConstraint(Struct, frozen=True, rename="camel", gc=False):
    """A topology spread constraint (KEP-895, with KEP-3022, KEP-3094 and KEP-3243)."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


class PodClaim(Struct, frozen=True, rename="camel", gc=False):
    """A resource claim of a pod: *claim* is its name, empty if the claim is made for the pod from a template."""

    name: str = ""
    claim: str = msgspec.field(default="", name="resourceClaimName")


class PodSpec(Struct, frozen=True, eq=False, weakref=True):
    """The interned part of a pod that decides where it can run. Identity is equality.

    *requests* are :func:`~tightship.objects.resources.effective_requests` without a resize. *scoring* is (milli-CPU,
    bytes) as kube-scheduler's scoring assumes. A pod that *tolerates_drain* tolerates both the cordon and our drain
    taint, so its replacement could land on the drained node. *grace* is in seconds. *pod_group* is the PodGroup that
    the pod names (KEP-4671), if any. *features* are those that a node must declare (KEP-5328). *devices_unknown* says
    why what the pod wants of devices can't be judged. *os* is the operating system that the pod names
    (KEP-2802), if any.
    """

    requests: Resources
    scoring: tuple[int, int]
    tolerates_drain: bool
    node_selector: Labels
    node_affinity: NodeSelector | None
    preferred_nodes: tuple[PreferredNodeTerm, ...]
    affinity: tuple[PodAffinityTerm, ...]
    anti_affinity: tuple[PodAffinityTerm, ...]
    spread: tuple[TopologySpreadConstraint, ...]
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]
    volumes: tuple[Volume, ...]
    priority: int
    scheduler: str
    restart_policy: str
    grace: int
    claims_devices: bool
    resources: PodResources
    pod_group: str = ""
    features: tuple[str, ...] = ()
    claims: tuple[PodClaim, ...] = ()
    devices_unknown: str = ""
    os: str = ""


class PodTemplate(Struct, frozen=True, eq=False, weakref=True):
    """What replicas of one workload share: namespace, labels, spec and controller. Identity is equality."""

    namespace: str
    labels: Labels
    spec: PodSpec
    owner: Owner | None


class Pod(Struct, frozen=True, gc=False):
    """A pod, reduced to what decisions need; times are seconds since 1970.

    *node* is empty while the pod is unscheduled. *requests* differ from ``template.spec.requests`` only during a
    resize. *deletion* is when the pod's grace period ends (the API's ``deletionTimestamp``), or ``None``. *gates* are
    the names of its scheduling gates, *claims* the resource claims made for it: (name in the spec, name of the claim).
    *finalizers* are those that hold a terminating pod. *unschedulable* says that kube-scheduler has found no node.
    """

    name: str
    uid: str
    template: PodTemplate
    node: str
    phase: str
    ready: bool
    created: int
    started: int | None
    deletion: int | None
    annotations: Labels
    requests: Resources
    nominated_node: str
    gates: tuple[str, ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    finalizers: tuple[str, ...] = ()
    unschedulable: bool = False

    @property
    def gated(self) -> bool:
        """Whether a scheduling gate keeps the scheduler away."""
        return bool(self.gates)

    @property
    def namespace(self) -> str:
        return self.template.namespace

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.template.namespace}/{self.name}"

    @property
    def owner(self) -> Owner | None:
        return self.template.owner

    @property
    def spec(self) -> PodSpec:
        return self.template.spec

    @property
    def mirror(self) -> bool:
        """Whether the pod mirrors a static pod: it has the annotation, and its Node or (kubelets before 1.17) nothing
        as controller.
        """
        owner = self.template.owner
        return MIRROR_ANNOTATION in self.annotations and (owner is None or owner.kind == "Node")

    @property
    def daemon(self) -> bool:
        """Whether a DaemonSet of any group controls the pod, or the pod says that it goes with its node likewise."""
        owner = self.template.owner
        if owner is not None and (owner.kind == "DaemonSet" or owner.kind.startswith(_DAEMON_SETS)):
            return True
        return bool(self.annotations) and self.annotations.get(DAEMON_ANNOTATION) == "true"

    @property
    def expendable(self) -> bool:
        """Whether no node is kept for the pod; see :data:`EXPENDABLE`."""
        return self.template.spec.priority < EXPENDABLE

    @property
    def finished(self) -> bool:
        """Whether the pod has run to its end and holds no resources."""
        return self.phase in ("Succeeded", "Failed")

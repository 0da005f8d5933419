"""Pods, stored so that replicas share what they have in common.

A fleet of 150,000 pods has a few thousand templates. :class:`PodSpec` and :class:`PodTemplate` are interned: two pods
whose specs decode alike hold the same object. So code judges a spec once, and a pod costs little more than its names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from tightship.objects.meta import EMPTY, Metadata, Owner, seconds
from tightship.objects.resources import (
    Container,
    ContainerStatus,
    PodResources,
    ResizeState,
    Resources,
    effective_requests,
    scoring_requests,
)
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
    *ready_since* is when a Ready pod became so, or ``None``.
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
    ready_since: int | None = None

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


class _RequiredTerms(Struct, frozen=True, gc=False):
    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class _NodeAffinity(Struct, frozen=True, gc=False):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNodeTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(Struct, frozen=True, rename="camel", gc=False):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _RequiredTerms | None = None
    pod_anti_affinity: _RequiredTerms | None = None


class _PodLevel(Struct, frozen=True, gc=False):
    requests: dict[str, str] | None = None


class _SchedulingGroup(Struct, frozen=True, gc=False, rename="camel"):
    pod_group_name: str | None = None


class _SchedulingGate(Struct, frozen=True, gc=False):
    name: str = ""


class _System(Struct, frozen=True, gc=False):
    name: str = ""


class SpecWire(Struct, rename="camel", gc=False, omit_defaults=True):
    """``spec`` on the wire. Mutable only so that interning can blank what differs between replicas."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    priority: int = 0
    scheduler_name: str = DEFAULT_SCHEDULER
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    overhead: dict[str, str] | None = None
    resources: _PodLevel | None = None
    resource_claims: tuple[PodClaim, ...] | None = None
    host_network: bool = False
    host_users: bool | None = None
    scheduling_gates: tuple[_SchedulingGate, ...] | None = None
    scheduling_group: _SchedulingGroup | None = None
    os: _System | None = None


class _ClaimStatus(Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    resource_claim_name: str = ""


class _Condition(Struct, frozen=True, rename="camel", gc=False):
    type: str
    status: str
    reason: str = ""
    last_transition_time: datetime | None = None


class _PodStatus(Struct, frozen=True, rename="camel", gc=False):
    phase: str = "Pending"
    start_time: datetime | None = None
    conditions: tuple[_Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    nominated_node_name: str = ""
    allocated_resources: dict[str, str] | None = None
    resources: _PodLevel | None = None
    resource_claim_statuses: tuple[_ClaimStatus, ...] | None = None


class PodWire(Struct, frozen=True, gc=False):
    """A pod on the wire."""

    metadata: Metadata
    spec: SpecWire
    status: _PodStatus = _PodStatus()

    def pod(self) -> Pod:
        """Return the decoded, interned pod. Raises ``QuantityError`` for a bad amount."""
        meta, spec, status = self.metadata, self.spec, self.status
        node_name, spec.node_name = spec.node_name, ""
        gates = tuple(sys.intern(each.name) for each in spec.scheduling_gates or ())
        spec.scheduling_gates = None
        if spec.volumes:
            spec.volumes = tuple(volume for volume in spec.volumes if volume.matters) or None
        interned = _intern_spec(spec)
        template = _intern_template(meta.namespace, meta.labels, interned, meta.controller)
        ready, ready_since = False, None
        infeasible = unschedulable = False
        for condition in status.conditions or ():
            if condition.type == "Ready":
                ready = condition.status == "True"
                ready_since = seconds(condition.last_transition_time) if ready else None
            elif condition.type == "PodScheduled":
                unschedulable = condition.status == "False" and condition.reason == "Unschedulable"
            elif condition.type == "PodResizePending":
                infeasible = condition.reason == "Infeasible"
        return Pod(
            name=meta.name,
            uid=meta.uid,
            template=template,
            node=sys.intern(node_name),
            phase=sys.intern(status.phase),
            ready=ready,
            created=meta.created,
            started=seconds(status.start_time),
            deletion=seconds(meta.deletion_timestamp),
            annotations=_intern_map(meta.kept_annotations),
            requests=_resized(interned, status, infeasible=infeasible),
            nominated_node=status.nominated_node_name,
            gates=gates,
            claims=tuple((each.name, each.resource_claim_name) for each in status.resource_claim_statuses or ()),
            finalizers=(meta.finalizers or ()) if meta.deletion_timestamp is not None else (),
            unschedulable=unschedulable,
            ready_since=ready_since,
        )


_encoder = msgspec.json.Encoder(order="deterministic")
_specs: WeakValueDictionary[bytes, PodSpec] = WeakValueDictionary()
_templates: WeakValueDictionary[tuple[object, ...], PodTemplate] = WeakValueDictionary()
_maps: dict[tuple[tuple[str, str], ...], Labels] = {}
_MAPS_KEPT = 100_000


def _intern_spec(wire: SpecWire) -> PodSpec:
    # A fleet has tens of thousands of specs, each of which would keep its text.
    key = blake2b(_encoder.encode(wire), digest_size=16).digest()
    found = _specs.get(key)
    if found is None:
        found = _specs[key] = _judged_spec(wire)
    return found


def _judged_spec(wire: SpecWire) -> PodSpec:
    affinity = wire.affinity or _Affinity()
    node_affinity = affinity.node_affinity or _NodeAffinity()
    asked = PodResources(
        containers=wire.containers,
        init_containers=wire.init_containers or (),
        pod_level=wire.resources.requests if wire.resources else None,
        overhead=wire.overhead,
    )
    return PodSpec(
        requests=effective_requests(asked),
        scoring=scoring_requests(asked),
        tolerates_drain=all(
            any(toleration.tolerates(taint) for toleration in wire.tolerations or ()) for taint in (CORDON, DRAINING)
        ),
        node_selector=wire.node_selector or EMPTY,
        node_affinity=node_affinity.required,
        preferred_nodes=node_affinity.preferred or (),
        affinity=(affinity.pod_affinity and affinity.pod_affinity.required) or (),
        anti_affinity=(affinity.pod_anti_affinity and affinity.pod_anti_affinity.required) or (),
        spread=tuple(
            each for each in wire.topology_spread_constraints or () if each.when_unsatisfiable == "DoNotSchedule"
        ),
        tolerations=wire.tolerations or (),
        host_ports=tuple(
            ("" if port.host_ip == "0.0.0.0" else port.host_ip, port.protocol, port.host_port)  # noqa: S104
            for container in (*wire.containers, *(each for each in wire.init_containers or () if each.sidecar))
            for port in container.ports or ()
            if port.host_port
        ),
        volumes=wire.volumes or (),
        priority=wire.priority,
        scheduler=wire.scheduler_name or DEFAULT_SCHEDULER,
        restart_policy=sys.intern(wire.restart_policy),
        grace=wire.termination_grace_period_seconds,
        claims_devices=bool(wire.resource_claims),
        resources=asked,
        pod_group=(wire.scheduling_group and wire.scheduling_group.pod_group_name) or "",
        features=tuple(sorted(_features(wire))),
        claims=wire.resource_claims or (),
        os=wire.os.name if wire.os is not None else "",
    )


def _features(wire: SpecWire) -> Iterator[str]:
    """Yield the features that kube-scheduler 1.37 finds a pod to need (component-helpers/nodedeclaredfeatures)."""
    containers = (*wire.containers, *(wire.init_containers or ()))
    if any(rule.action == "RestartAllContainers" for each in containers for rule in each.restart_policy_rules or ()):
        yield "RestartAllContainersOnContainerExits"
    if wire.host_network and wire.host_users is False:
        yield "UserNamespacesHostNetworkSupport"
    if any(mount.bind_mount_options for each in containers for mount in each.volume_mounts or ()):
        yield "VolumeBindMountOptions"


def _intern_template(namespace: str, labels: dict[str, str] | None, spec: PodSpec, owner: Owner | None) -> PodTemplate:
    shared = {sys.intern(name): sys.intern(text) for name, text in sorted((labels or EMPTY).items())}
    key = (namespace, *shared, *shared.values(), id(spec), owner)
    found = _templates.get(key)
    # The id of a collected spec may be reused, so the entry counts only while it holds that very spec.
    if found is None or found.spec is not spec:
        found = _templates[key] = PodTemplate(sys.intern(namespace), shared or EMPTY, spec, owner)
    return found


def _intern_map(mapping: Labels) -> Labels:
    if not mapping:
        return EMPTY
    if len(_maps) > _MAPS_KEPT:
        _maps.clear()
    return _maps.setdefault(tuple(sorted(mapping.items())), mapping)


def _resized(spec: PodSpec, status: _PodStatus, *, infeasible: bool) -> Resources:
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    if status.allocated_resources is None and not any(_differs(spec, each) for each in statuses):
        return spec.requests
    resize = ResizeState(
        containers=statuses,
        pod_allocated=status.allocated_resources,
        pod_actuated=status.resources.requests if status.resources else None,
        infeasible=infeasible,
    )
    requests = effective_requests(spec.resources, resize)
    return spec.requests if requests == spec.requests else requests


def _differs(spec: PodSpec, status: ContainerStatus) -> bool:
    """Whether the kubelet reports other amounts than the spec requests. Only then is the long computation needed."""
    if status.allocated_resources is None and status.resources is None:
        return False
    asked: dict[str, str] = {}
    for container in (*spec.resources.containers, *spec.resources.init_containers):
        if container.name == status.name:
            asked = (container.resources and container.resources.requests) or {}
            break
    actuated = status.resources.requests if status.resources else None
    return (status.allocated_resources or asked) != asked or (actuated or asked) != asked

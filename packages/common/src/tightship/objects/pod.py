"""Pods, held so that replicas share what they have in common.

A fleet of 150,000 pods has a few thousand templates. :class:`PodSpec` and :class:`PodTemplate` are interned: two pods
whose specs decode alike hold the same object, so that a judgement about a spec is made once, and a pod costs little
more than its names.
"""

from __future__ import annotations

import sys
from datetime import datetime
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from tightship.objects.meta import EMPTY, Metadata, Owner, seconds
from tightship.objects.node import Condition
from tightship.resources import (
    Container,
    ContainerStatus,
    PodResources,
    ResizeState,
    Resources,
    effective_requests,
    scoring_requests,
)
from tightship.selectors import Labels, LabelSelector, NodeSelector, NodeSelectorTerm, Taint, Toleration

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
DEFAULT_SCHEDULER = "default-scheduler"

CORDON = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
"""What a cordon means to kube-scheduler."""

DRAINING = Taint("tightship.dev/draining", "NoSchedule", "any")
"""The taint of a drain, whose value is the drain's id."""

HostPort = tuple[str, str, int]
"""(host IP, protocol, port); an empty host IP stands for every address."""


class PodAffinityTerm(Struct, frozen=True, rename="camel", gc=False):
    """A required inter-pod affinity or anti-affinity term.

    ``matchLabelKeys`` need no attention: the API server merges them into the selector when the pod is created.
    """

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None


class _RequiredTerms(Struct, frozen=True, gc=False):
    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class PreferredNodeTerm(Struct, frozen=True, gc=False):
    """A preferred node affinity term; it only raises a node's score."""

    weight: int
    preference: NodeSelectorTerm


class _NodeAffinity(Struct, frozen=True, gc=False):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNodeTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(Struct, frozen=True, rename="camel", gc=False):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _RequiredTerms | None = None
    pod_anti_affinity: _RequiredTerms | None = None


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


class _Claim(Struct, frozen=True, rename="camel", gc=False):
    claim_name: str = ""


class _EmptyDir(Struct, frozen=True, gc=False):
    medium: str = ""


class _ClaimTemplateSpec(Struct, frozen=True, rename="camel", gc=False):
    storage_class_name: str | None = None


class _ClaimTemplate(Struct, frozen=True, gc=False):
    spec: _ClaimTemplateSpec = _ClaimTemplateSpec()


class _Ephemeral(Struct, frozen=True, rename="camel", gc=False):
    volume_claim_template: _ClaimTemplate | None = None


class _Present(Struct, frozen=True, gc=False):
    """A source of which only the presence matters."""


class Volume(Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """A pod volume; of sources that exist on every node (ConfigMap, Secret, projected, NFS, ...) nothing is kept."""

    name: str
    persistent_volume_claim: _Claim | None = None
    empty_dir: _EmptyDir | None = None
    host_path: _Present | None = None
    ephemeral: _Ephemeral | None = None
    aws_elastic_block_store: _Present | None = None
    gce_persistent_disk: _Present | None = None
    azure_disk: _Present | None = None
    cinder: _Present | None = None
    rbd: _Present | None = None
    iscsi: _Present | None = None

    @property
    def matters(self) -> bool:
        """Whether placement or evictability looks at this volume at all."""
        return any(getattr(self, field) is not None for field in self.__struct_fields__ if field != "name")

    @property
    def local(self) -> bool:
        """Whether its data is lost with the node: ``hostPath``, or ``emptyDir`` on disk (CA's rule)."""
        return self.host_path is not None or (self.empty_dir is not None and self.empty_dir.medium != "Memory")

    @property
    def attached_directly(self) -> str:
        """The name of a disk source the pod names without a claim, whose conflicts can't be judged; else empty."""
        direct = ("aws_elastic_block_store", "gce_persistent_disk", "azure_disk", "cinder", "rbd", "iscsi")
        return next((field for field in direct if getattr(self, field) is not None), "")


class _PodLevel(Struct, frozen=True, gc=False):
    requests: dict[str, str] | None = None


class _SpecWire(Struct, rename="camel", gc=False, omit_defaults=True):
    """``spec`` on the wire. Mutable only so that what differs between replicas can be blanked before interning."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    priority: int = 0
    priority_class_name: str = ""
    scheduler_name: str = DEFAULT_SCHEDULER
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    overhead: dict[str, str] | None = None
    resources: _PodLevel | None = None
    resource_claims: tuple[_Present, ...] | None = None
    scheduling_gates: tuple[_Present, ...] | None = None
    host_network: bool = False


class PodSpec(Struct, frozen=True, eq=False, weakref=True):
    """The interned part of a pod that decides where it can run. Identity is equality.

    *requests* are :func:`~tightship.resources.effective_requests` without a resize; *scoring* is (milli-CPU, bytes) as
    kube-scheduler's scoring assumes; *tolerates_drain* is whether it tolerates both the cordon and our drain taint, and
    so could come back to the node it was evicted from; *grace* is in seconds.
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
    priority_class: str
    scheduler: str
    restart_policy: str
    grace: int
    claims_devices: bool
    resources: PodResources


class PodTemplate(Struct, frozen=True, eq=False, weakref=True):
    """What replicas of one workload share: namespace, labels, spec and controller. Identity is equality."""

    namespace: str
    labels: Labels
    spec: PodSpec
    owner: Owner | None


class Pod(Struct, frozen=True, gc=False):
    """A pod as the judgement sees it; times are seconds since 1970.

    *node* is empty while it is unscheduled. *requests* differ from ``template.spec.requests`` only during a resize.
    *deletion* is the time at which its grace period ends (the API's ``deletionTimestamp``), or ``None``.
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
    gated: bool

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
        """Whether it stands for a static pod: the annotation **and** a Node as controller."""
        owner = self.template.owner
        return MIRROR_ANNOTATION in self.annotations and owner is not None and owner.kind == "Node"

    @property
    def daemon(self) -> bool:
        """Whether a DaemonSet controls it."""
        owner = self.template.owner
        return owner is not None and owner.kind == "DaemonSet"

    @property
    def finished(self) -> bool:
        """Whether it has run to its end and holds nothing any more."""
        return self.phase in ("Succeeded", "Failed")


class _PodStatus(Struct, frozen=True, rename="camel", gc=False):
    phase: str = "Pending"
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    nominated_node_name: str = ""
    allocated_resources: dict[str, str] | None = None
    resources: _PodLevel | None = None


class PodWire(Struct, frozen=True, gc=False):
    """A pod on the wire."""

    metadata: Metadata
    spec: _SpecWire
    status: _PodStatus = _PodStatus()

    def pod(self) -> Pod:
        """Return the judged, interned form. Raises :class:`~tightship.quantity.QuantityError` for a bad amount."""
        meta, spec, status = self.metadata, self.spec, self.status
        node_name, spec.node_name = spec.node_name, ""
        gated, spec.scheduling_gates = bool(spec.scheduling_gates), None
        if spec.volumes:
            spec.volumes = tuple(volume for volume in spec.volumes if volume.matters) or None
        interned = _intern_spec(spec)
        template = _intern_template(meta.namespace, meta.labels, interned, meta.controller)
        ready = False
        infeasible = False
        for condition in status.conditions or ():
            if condition.type == "Ready":
                ready = condition.status == "True"
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
            gated=gated,
        )


_encoder = msgspec.json.Encoder(order="deterministic")
_specs: WeakValueDictionary[bytes, PodSpec] = WeakValueDictionary()
_templates: WeakValueDictionary[tuple[object, ...], PodTemplate] = WeakValueDictionary()
_maps: dict[tuple[tuple[str, str], ...], Labels] = {}
_MAPS_KEPT = 100_000


def _intern_spec(wire: _SpecWire) -> PodSpec:
    key = _encoder.encode(wire)
    found = _specs.get(key)
    if found is None:
        found = _specs[key] = _judged_spec(wire)
    return found


def _judged_spec(wire: _SpecWire) -> PodSpec:
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
        priority_class=wire.priority_class_name,
        scheduler=wire.scheduler_name or DEFAULT_SCHEDULER,
        restart_policy=wire.restart_policy,
        grace=wire.termination_grace_period_seconds,
        claims_devices=bool(wire.resource_claims),
        resources=asked,
    )


def _intern_template(namespace: str, labels: dict[str, str] | None, spec: PodSpec, owner: Owner | None) -> PodTemplate:
    items = tuple(sorted(labels.items())) if labels else ()
    key = (namespace, items, id(spec), owner)
    found = _templates.get(key)
    # The id of a collected spec may be reused, so the entry counts only while it holds that very spec.
    if found is None or found.spec is not spec:
        found = _templates[key] = PodTemplate(namespace, labels or EMPTY, spec, owner)
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
    """Whether the kubelet reports other amounts than the spec asks: only then is the long computation needed."""
    if status.allocated_resources is None and status.resources is None:
        return False
    asked: dict[str, str] = {}
    for container in (*spec.resources.containers, *spec.resources.init_containers):
        if container.name == status.name:
            asked = (container.resources and container.resources.requests) or {}
            break
    actuated = status.resources.requests if status.resources else None
    return (status.allocated_resources or asked) != asked or (actuated or asked) != asked

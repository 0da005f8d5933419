"""Pods on the wire, and the interning that makes equal specs and templates one object."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from tightship.objects.meta import EMPTY, Metadata, Owner, seconds
from tightship.objects.node import Condition
from tightship.objects.pod import (
    CORDON,
    DEFAULT_SCHEDULER,
    DRAINING,
    Pod,
    PodAffinityTerm,
    PodClaim,
    PodSpec,
    PodTemplate,
    PreferredNodeTerm,
    TopologySpreadConstraint,
)
from tightship.objects.resources import (
    Container,
    ContainerStatus,
    PodResources,
    ResizeState,
    Resources,
    effective_requests,
    scoring_requests,
)
from tightship.objects.selectors import Labels, NodeSelector, Toleration
from tightship.objects.volume import Volume


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


class _PodStatus(Struct, frozen=True, rename="camel", gc=False):
    phase: str = "Pending"
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None
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
        ready = False
        infeasible = unschedulable = False
        for condition in status.conditions or ():
            if condition.type == "Ready":
                ready = condition.status == "True"
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
        )


_encoder = msgspec.json.Encoder(order="deterministic")
_specs: WeakValueDictionary[bytes, PodSpec] = WeakValueDictionary()
_templates: WeakValueDictionary[tuple[object, ...], PodTemplate] = WeakValueDictionary()
_maps: dict[tuple[tuple[str, str], ...], Labels] = {}
_MAPS_KEPT = 100_000


def _intern_spec(wire: SpecWire) -> PodSpec:
    key = _encoder.encode(wire)
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
        restart_policy=wire.restart_policy,
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

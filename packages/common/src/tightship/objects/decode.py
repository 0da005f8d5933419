"""Decodes the bytes of one API object, or raises an error that names the object and the field."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any, TypeAlias, TypeVar

import msgspec

from tightship.objects.autoscaler_status import MACHINE_KINDS, AutoscalerStatus, ConfigMapWire, MachinesWire
from tightship.objects.autoscaling import (
    SCALE_TARGET_KINDS,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerWire,
    ScaleTarget,
    ScaleTargetWire,
)
from tightship.objects.buffers import CapacityBuffer, CapacityBufferWire, StoredTemplate, StoredTemplateWire
from tightship.objects.devices import (
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    DeviceClass,
    DeviceClassWire,
    ResourceClaim,
    ResourceClaimWire,
    ResourceSlice,
    ResourceSliceWire,
)
from tightship.objects.groups import GroupRule, LeaderWorkerSetWire, PodGroupWire
from tightship.objects.karpenter import NodePool, NodePoolWire
from tightship.objects.mistyped import explained, located, mended
from tightship.objects.mistyped import tree as _tree
from tightship.objects.node import Node, NodeWire
from tightship.objects.pod import Pod, PodWire
from tightship.objects.quantity import QuantityError
from tightship.objects.storage import (
    CSI_DRIVER,
    STORAGE_CAPACITY,
    VOLUME_ATTACHMENT,
    CSIDriver,
    CSIDriverWire,
    CSINode,
    CSINodeWire,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimWire,
    PersistentVolumeWire,
    StorageCapacity,
    StorageCapacityWire,
    StorageClass,
    StorageClassWire,
    VolumeAttachment,
    VolumeAttachmentWire,
)
from tightship.objects.unreadable import UNREADABLE
from tightship.objects.vertical import VerticalPodAutoscaler, VerticalPodAutoscalerWire
from tightship.objects.workloads import (
    WORKLOAD_KINDS,
    Deployment,
    DeploymentWire,
    Namespace,
    NamespaceWire,
    PodDisruptionBudget,
    PodDisruptionBudgetWire,
    Workload,
    WorkloadWire,
)

ApiObject: TypeAlias = (
    Node
    | Pod
    | PodDisruptionBudget
    | PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | CSIDriver
    | StorageCapacity
    | VolumeAttachment
    | Namespace
    | Workload
    | Deployment
    | HorizontalPodAutoscaler
    | CapacityBuffer
    | StoredTemplate
    | NodePool
    | AutoscalerStatus
    | GroupRule
    | VerticalPodAutoscaler
    | ResourceSlice
    | DeviceClass
    | ResourceClaim
)
"""Any object that decisions use."""


class ObjectError(ValueError):
    """An API object is unreadable. *namespace* and *name* are empty if they are unreadable too."""

    def __init__(self, kind: str, namespace: str, name: str, problem: str) -> None:
        where = "/".join(part for part in (namespace, name) if part) or "(no name)"
        super().__init__(f"{kind} {where}: {problem}")
        self.kind = kind
        self.namespace = namespace
        self.name = name
        self.problem = problem


AUTOSCALER = "HorizontalPodAutoscaler"
CAPACITY_BUFFER = "CapacityBuffer"
DEPLOYMENT = "Deployment"
POD_TEMPLATE = "PodTemplate"
NODE_POOL = "NodePool"
CONFIG_MAP = "ConfigMap"
POD_GROUP = "PodGroup"
LEADER_WORKER_SET = "LeaderWorkerSet"
VERTICAL = "VerticalPodAutoscaler"

_T = TypeVar("_T")
_JSON = bytes | bytearray | memoryview | msgspec.Raw

_WIRES: dict[str, tuple[type[Any], Callable[[Any], ApiObject]]] = {
    "Node": (NodeWire, NodeWire.node),
    "Pod": (PodWire, PodWire.pod),
    "PodDisruptionBudget": (PodDisruptionBudgetWire, PodDisruptionBudgetWire.budget),
    "PersistentVolumeClaim": (PersistentVolumeClaimWire, PersistentVolumeClaimWire.claim),
    "PersistentVolume": (PersistentVolumeWire, PersistentVolumeWire.volume),
    "StorageClass": (StorageClassWire, StorageClassWire.storage_class),
    "CSINode": (CSINodeWire, CSINodeWire.csi_node),
    CSI_DRIVER: (CSIDriverWire, CSIDriverWire.driver),
    STORAGE_CAPACITY: (StorageCapacityWire, StorageCapacityWire.storage_capacity),
    VOLUME_ATTACHMENT: (VolumeAttachmentWire, VolumeAttachmentWire.attachment),
    "Namespace": (NamespaceWire, NamespaceWire.namespace),
    AUTOSCALER: (HorizontalPodAutoscalerWire, HorizontalPodAutoscalerWire.autoscaler),
    DEPLOYMENT: (DeploymentWire, DeploymentWire.deployment),
    CAPACITY_BUFFER: (CapacityBufferWire, CapacityBufferWire.buffer),
    POD_TEMPLATE: (StoredTemplateWire, StoredTemplateWire.stored),
    NODE_POOL: (NodePoolWire, NodePoolWire.pool),
    CONFIG_MAP: (ConfigMapWire, ConfigMapWire.status),
    POD_GROUP: (PodGroupWire, PodGroupWire.rule),
    LEADER_WORKER_SET: (LeaderWorkerSetWire, LeaderWorkerSetWire.rule),
    VERTICAL: (VerticalPodAutoscalerWire, VerticalPodAutoscalerWire.autoscaler),
    RESOURCE_SLICE: (ResourceSliceWire, ResourceSliceWire.slice),
    DEVICE_CLASS: (DeviceClassWire, DeviceClassWire.device_class),
    RESOURCE_CLAIM: (ResourceClaimWire, ResourceClaimWire.claim),
    **{kind: (WorkloadWire, methodcaller("workload", kind)) for kind in sorted(WORKLOAD_KINDS)},
    **{kind: (MachinesWire, methodcaller("status", kind)) for kind in MACHINE_KINDS},
}
"""The type of each kind on the wire, and what makes the object of it."""


def _decoder(wire: type[Any], judged: Callable[[Any], ApiObject]) -> Callable[[_JSON], ApiObject]:
    decode_wire = msgspec.json.Decoder(wire).decode
    return lambda raw: judged(decode_wire(raw))


_DECODERS = {kind: _decoder(*each) for kind, each in _WIRES.items()}

KINDS = frozenset(_WIRES).difference(MACHINE_KINDS)
"""The kinds in a cluster's snapshot. Readers of files pass over all other kinds but :data:`MACHINE_KINDS`."""

_targets = msgspec.json.Decoder(ScaleTargetWire)


def decode(kind: str, raw: _JSON) -> ApiObject:
    """Return the object of *kind* in *raw* (JSON bytes), decoded.

    Decoding skips unknown fields. Raises :class:`ObjectError` if a known field has an impossible value.
    """
    return _read(kind, raw, _DECODERS[kind])


def wire_of(kind: str) -> type[Any]:
    """Return the type of *kind* on the wire: its fields are those that :func:`decode` reads."""
    return _WIRES[kind][0]


def decode_scale_target(kind: str, raw: _JSON) -> ScaleTarget:
    """Return the rollout of the object of *kind*, one of :data:`SCALE_TARGET_KINDS`.

    Raises :class:`ObjectError` like :func:`decode`.
    """
    if kind not in SCALE_TARGET_KINDS:
        raise KeyError(kind)
    return _read(kind, raw, lambda given: _targets.decode(given).target(kind))


def _read(kind: str, raw: _JSON, decoder: Callable[[_JSON], _T]) -> _T:
    try:
        thing = decoder(raw)
    except (*UNREADABLE, QuantityError) as error:
        written = raw if isinstance(error, UnicodeDecodeError) else mended(raw)
        if written is not raw and isinstance(error, msgspec.ValidationError):
            return _read(kind, written, decoder)
        namespace, name = identity(raw)
        problem = located(raw, error) if isinstance(error, QuantityError) else explained(raw, str(error))
        raise ObjectError(kind, namespace, name, problem) from error
    if not getattr(thing, "name", ""):
        raise ObjectError(kind, getattr(thing, "namespace", ""), "", "metadata.name is empty")
    return thing


def identity(raw: _JSON) -> tuple[str, str]:
    """Return (namespace, name) of a possibly malformed object, each empty if unreadable."""
    found = _tree(raw)
    meta = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(meta, dict):
        return "", ""
    namespace, name = meta.get("namespace"), meta.get("name")
    return namespace if isinstance(namespace, str) else "", name if isinstance(name, str) else ""

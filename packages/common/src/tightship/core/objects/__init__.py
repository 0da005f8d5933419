"""API objects as slim, immutable structs, decoded straight from JSON bytes."""

from tightship.core.objects.autoscaling import SCALE_TARGET_KINDS, HorizontalPodAutoscaler, ScaleTarget
from tightship.core.objects.buffers import CapacityBuffer, StoredTemplate
from tightship.core.objects.decode import (
    AUTOSCALER,
    CAPACITY_BUFFER,
    KINDS,
    POD_TEMPLATE,
    ApiObject,
    ObjectError,
    decode,
    decode_scale_target,
    identity,
)
from tightship.core.objects.disruption import PodDisruptionBudget
from tightship.core.objects.meta import EMPTY, Owner
from tightship.core.objects.node import Node
from tightship.core.objects.pod import (
    Pod,
    PodAffinityTerm,
    PodSpec,
    PodTemplate,
    TopologySpreadConstraint,
)
from tightship.core.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from tightship.core.objects.volume import Volume
from tightship.core.objects.workloads import WORKLOAD_KINDS, Namespace, Workload

__all__ = [
    "AUTOSCALER",
    "CAPACITY_BUFFER",
    "EMPTY",
    "KINDS",
    "POD_TEMPLATE",
    "SCALE_TARGET_KINDS",
    "WORKLOAD_KINDS",
    "ApiObject",
    "CSINode",
    "CapacityBuffer",
    "HorizontalPodAutoscaler",
    "Namespace",
    "Node",
    "ObjectError",
    "Owner",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodAffinityTerm",
    "PodDisruptionBudget",
    "PodSpec",
    "PodTemplate",
    "ScaleTarget",
    "StorageClass",
    "StoredTemplate",
    "TopologySpreadConstraint",
    "Volume",
    "Workload",
    "decode",
    "decode_scale_target",
    "identity",
]

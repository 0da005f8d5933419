"""API objects as slim, immutable structs, decoded straight from JSON bytes."""

from tightship.objects.autoscaling import SCALE_TARGET_KINDS, HorizontalPodAutoscaler, ScaleTarget
from tightship.objects.buffers import CapacityBuffer, StoredTemplate
from tightship.objects.decode import (
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
from tightship.objects.disruption import PodDisruptionBudget
from tightship.objects.meta import EMPTY, Owner
from tightship.objects.node import Node
from tightship.objects.pod import (
    Pod,
    PodAffinityTerm,
    PodSpec,
    PodTemplate,
    TopologySpreadConstraint,
)
from tightship.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from tightship.objects.volume import Volume
from tightship.objects.workloads import WORKLOAD_KINDS, Namespace, Workload

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

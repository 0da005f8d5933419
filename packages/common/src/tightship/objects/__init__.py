"""API objects as slim, immutable structs, decoded straight from JSON bytes."""

from tightship.objects.autoscaling import SCALE_TARGET_KINDS, HorizontalPodAutoscaler, ScaleTarget
from tightship.objects.decode import (
    AUTOSCALER,
    KINDS,
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
    "EMPTY",
    "KINDS",
    "SCALE_TARGET_KINDS",
    "WORKLOAD_KINDS",
    "ApiObject",
    "CSINode",
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
    "TopologySpreadConstraint",
    "Volume",
    "Workload",
    "decode",
    "decode_scale_target",
    "identity",
]

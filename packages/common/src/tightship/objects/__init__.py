"""API objects as slim, immutable structs, decoded straight from JSON bytes."""

from tightship.objects.decode import KINDS, ApiObject, ObjectError, decode, identity
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
    "EMPTY",
    "KINDS",
    "WORKLOAD_KINDS",
    "ApiObject",
    "CSINode",
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
    "StorageClass",
    "TopologySpreadConstraint",
    "Volume",
    "Workload",
    "decode",
    "identity",
]

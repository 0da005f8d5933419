"""The kinds that are read, where the API serves them, and which of them a judgement can do without."""

from __future__ import annotations

from msgspec import Struct

from tightship.objects import KINDS

UNFINISHED_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Finished pods hold nothing: the server leaves them out, and a watch tells one that finishes as deleted."""


class Resource(Struct, frozen=True):
    """A kind as the API serves it: *group* is empty for the core group; *name* is the plural of its path."""

    kind: str
    group: str
    version: str
    name: str
    required: bool = False
    field_selector: str = ""

    @property
    def path(self) -> str:
        """The path under which all namespaces' objects are listed."""
        root = f"/apis/{self.group}" if self.group else "/api"
        return f"{root}/{self.version}/{self.name}"

    @property
    def qualified(self) -> str:
        """The name as ``kubectl auth can-i`` takes it, such as ``replicasets.apps``."""
        return f"{self.name}.{self.group}" if self.group else self.name


RESOURCES = (
    Resource("Node", "", "v1", "nodes", required=True),
    Resource("Pod", "", "v1", "pods", required=True, field_selector=UNFINISHED_PODS),
    Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", required=True),
    Resource("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"),
    Resource("PersistentVolume", "", "v1", "persistentvolumes"),
    Resource("StorageClass", "storage.k8s.io", "v1", "storageclasses"),
    Resource("CSINode", "storage.k8s.io", "v1", "csinodes"),
    Resource("Namespace", "", "v1", "namespaces"),
    Resource("ReplicaSet", "apps", "v1", "replicasets"),
    Resource("ReplicationController", "", "v1", "replicationcontrollers"),
    Resource("StatefulSet", "apps", "v1", "statefulsets"),
    Resource("DaemonSet", "apps", "v1", "daemonsets"),
    Resource("Job", "batch", "v1", "jobs"),
)
"""Every kind a :class:`~tightship.cluster.Snapshot` is made of."""

BY_KIND = {resource.kind: resource for resource in RESOURCES}

_unlisted = KINDS ^ set(BY_KIND)
if _unlisted:  # pragma: no cover - a kind was added to one table only
    raise AssertionError(f"kinds known to one of tightship.objects and tightship.kube.resources only: {_unlisted}")

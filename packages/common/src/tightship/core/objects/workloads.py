"""The controllers of pods, and namespaces: enough to know that they exist and who owns them."""

from __future__ import annotations

from msgspec import Struct

from tightship.core.objects.meta import EMPTY, Metadata, Owner
from tightship.core.selectors import Labels

WORKLOAD_KINDS = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"})
"""Controllers that recreate their pods elsewhere (DaemonSet: on every node), as Cluster Autoscaler has them."""


class Workload(Struct, frozen=True, gc=False):
    """A controller of pods; *owner* is, for example, the Deployment above a ReplicaSet.

    *pinned* is the node that the pod template names (``spec.nodeName``), which bypasses any scheduler; mostly empty.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    replicas: int | None
    owner: Owner | None
    pinned: str = ""


class Namespace(Struct, frozen=True, gc=False):
    """A namespace: its labels serve ``namespaceSelector``."""

    name: str
    labels: Labels


class _PodSpec(Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class _Template(Struct, frozen=True, gc=False):
    spec: _PodSpec | None = None


class _WorkloadSpec(Struct, frozen=True, gc=False):
    replicas: int | None = None
    template: _Template | None = None

    @property
    def pinned(self) -> str:
        """The node that the template names."""
        return self.template.spec.node_name if self.template is not None and self.template.spec is not None else ""


class WorkloadWire(Struct, frozen=True, gc=False):
    """A workload on the wire. The request or the file names its kind."""

    metadata: Metadata
    spec: _WorkloadSpec = _WorkloadSpec()

    def workload(self, kind: str) -> Workload:
        meta = self.metadata
        spec = self.spec
        return Workload(kind, meta.namespace, meta.name, meta.uid, spec.replicas, meta.controller, spec.pinned)


class NamespaceWire(Struct, frozen=True, gc=False):
    """A namespace on the wire."""

    metadata: Metadata

    def namespace(self) -> Namespace:
        return Namespace(self.metadata.name, self.metadata.labels or EMPTY)

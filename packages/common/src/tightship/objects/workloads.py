"""The controllers of pods, and namespaces: enough to know that they exist and who stands above them."""

from __future__ import annotations

from msgspec import Struct

from tightship.objects.meta import EMPTY, Metadata, Owner
from tightship.selectors import Labels

WORKLOAD_KINDS = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"})
"""Controllers whose pods are recreated elsewhere (DaemonSet: on every node), as CA and the seed know them."""


class Workload(Struct, frozen=True, gc=False):
    """A controller of pods; *owner* is, for example, the Deployment above a ReplicaSet."""

    kind: str
    namespace: str
    name: str
    uid: str
    replicas: int | None
    owner: Owner | None


class Namespace(Struct, frozen=True, gc=False):
    """A namespace: its labels serve ``namespaceSelector``."""

    name: str
    labels: Labels


class _WorkloadSpec(Struct, frozen=True, gc=False):
    replicas: int | None = None


class WorkloadWire(Struct, frozen=True, gc=False):
    """A workload on the wire; the kind is known from the request or the file."""

    metadata: Metadata
    spec: _WorkloadSpec = _WorkloadSpec()

    def workload(self, kind: str) -> Workload:
        """Return the judged form."""
        meta = self.metadata
        return Workload(kind, meta.namespace, meta.name, meta.uid, self.spec.replicas, meta.controller)


class NamespaceWire(Struct, frozen=True, gc=False):
    """A namespace on the wire."""

    metadata: Metadata

    def namespace(self) -> Namespace:
        """Return the judged form."""
        return Namespace(self.metadata.name, self.metadata.labels or EMPTY)

"""The controllers of pods, and namespaces: enough to know that they exist and who owns them."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tightship.objects.meta import (
    EMPTY,
    NOBODY,
    ManagedBy,
    Metadata,
    Owner,
    Present,
    kept_annotations,
    managed_by,
    seconds,
)
from tightship.objects.selectors import Labels

WORKLOAD_KINDS = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"})
"""Controllers that recreate their pods elsewhere (DaemonSet: on every node), as Cluster Autoscaler has them."""

SAME_NAME = frozenset(
    {"StatefulSet", "StatefulSet.apps.kruise.io", "StrimziPodSet.core.strimzi.io", "Cluster.postgresql.cnpg.io"}
)
"""Controllers that give a replacement the name of the pod before, so that it comes once that has gone."""

_AFTERWARDS = frozenset({"Failed", "TerminationComplete"})
"""Values of ``podReplacementPolicy``, of Jobs (KEP-3939) and by KEP-5882, with which replacements wait for the end."""


class Workload(Struct, frozen=True, gc=False):
    """A controller of pods; *owner* is, for example, the Deployment above a ReplicaSet.

    *pinned* is the node that the pod template names (``spec.nodeName``), which bypasses any scheduler; mostly empty.
    *annotations* are those of the pod template that some rule reads, ``None`` without a template. With *afterwards*
    the controller replaces a terminating pod only once it has gone. *managed* tells who deploys the object; a
    ReplicaSet has the annotations of its Deployment. *since* (seconds since 1970) is when the object was created or,
    with 0 replicas, when its spec was last written, as far as that is known.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    replicas: int | None
    owner: Owner | None
    pinned: str = ""
    annotations: Labels | None = None
    afterwards: bool = False
    managed: ManagedBy = NOBODY
    since: int = 0


class Namespace(Struct, frozen=True, gc=False):
    """A namespace: its labels serve ``namespaceSelector``."""

    name: str
    labels: Labels


class _PodSpec(Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class _TemplateMetadata(Struct, frozen=True, gc=False):
    annotations: dict[str, str] | None = None


class _Template(Struct, frozen=True, gc=False):
    metadata: _TemplateMetadata | None = None
    spec: _PodSpec | None = None


class _WorkloadSpec(Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = None
    template: _Template | None = None
    pod_replacement_policy: str | None = None
    pod_failure_policy: Present | None = None

    @property
    def afterwards(self) -> bool:
        """Whether the policies ask for replacements only afterwards. The API server defaults a Job's one like this."""
        if self.pod_replacement_policy is None:
            return self.pod_failure_policy is not None
        return self.pod_replacement_policy in _AFTERWARDS

    @property
    def pinned(self) -> str:
        """The node that the template names."""
        return self.template.spec.node_name if self.template is not None and self.template.spec is not None else ""

    @property
    def annotations(self) -> Labels | None:
        """The template's annotations that some rule reads."""
        if self.template is None:
            return None
        return kept_annotations(self.template.metadata.annotations if self.template.metadata is not None else None)


class _Write(Struct, frozen=True, gc=False):
    time: datetime | None = None
    subresource: str = ""


class _Metadata(Metadata, frozen=True, rename="camel", gc=False):
    managed_fields: tuple[_Write, ...] | None = None

    @property
    def written(self) -> int:
        """When anything but a subresource was last written, the creation if nothing tells."""
        times = (seconds(each.time) for each in self.managed_fields or () if not each.subresource)
        return max(self.created, *(each or 0 for each in times), 0)


class WorkloadWire(Struct, frozen=True, gc=False):
    """A workload on the wire. The request or the file names its kind."""

    metadata: _Metadata
    spec: _WorkloadSpec = _WorkloadSpec()

    def workload(self, kind: str) -> Workload:
        meta = self.metadata
        spec = self.spec
        return Workload(
            kind=kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            replicas=spec.replicas,
            owner=meta.controller,
            pinned=spec.pinned,
            annotations=spec.annotations,
            afterwards=kind in SAME_NAME or spec.afterwards,
            managed=managed_by(meta, owned=False),
            since=meta.written if spec.replicas == 0 else meta.created,
        )


class NamespaceWire(Struct, frozen=True, gc=False):
    """A namespace on the wire."""

    metadata: Metadata

    def namespace(self) -> Namespace:
        return Namespace(self.metadata.name, self.metadata.labels or EMPTY)

"""CapacityBuffers (autoscaling.x-k8s.io), and the PodTemplates that say what one unit of a buffer needs."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tightship.core.objects.meta import Metadata, seconds
from tightship.core.objects.pod import Pod
from tightship.core.objects.pod_wire import PodWire, SpecWire
from tightship.core.resources import Container, ResourceRequirements

ACTIVE = "active-capacity"
"""How the strategy ends by which an autoscaler keeps running nodes for a buffer; one of other strategies may not."""


class CapacityBuffer(Struct, frozen=True, gc=False):
    """Room that an autoscaler keeps: of its status *replicas* times what PodTemplate *template* of its namespace asks.

    Both are empty while the autoscaler can't say what the buffer comes to. *strategy* is empty where none is named.
    """

    namespace: str
    name: str
    deletion: int | None
    template: str
    replicas: int
    strategy: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def active(self) -> bool:
        """Whether nodes are kept running for it."""
        return self.deletion is None and (not self.strategy or self.strategy.rpartition("/")[2] == ACTIVE)


class StoredTemplate(Struct, frozen=True, gc=False):
    """A PodTemplate; *pod* stands for each pod made of it."""

    namespace: str
    name: str
    pod: Pod


class _Reference(Struct, frozen=True, gc=False):
    name: str = ""


class _Spec(Struct, frozen=True, rename="camel", gc=False):
    provisioning_strategy: str | None = None


class _Status(Struct, frozen=True, rename="camel", gc=False):
    pod_template_ref: _Reference | None = None
    replicas: int | None = None
    provisioning_strategy: str | None = None


class CapacityBufferWire(Struct, frozen=True, gc=False):
    """A CapacityBuffer on the wire: v1alpha1 and v1beta1 have the same fields."""

    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def buffer(self) -> CapacityBuffer:
        """Return the judged form."""
        meta, status = self.metadata, self.status
        return CapacityBuffer(
            namespace=meta.namespace,
            name=meta.name,
            deletion=seconds(meta.deletion_timestamp),
            template="" if status.pod_template_ref is None else status.pod_template_ref.name,
            replicas=max(0, status.replicas or 0),
            strategy=status.provisioning_strategy or self.spec.provisioning_strategy or "",
        )


class _TemplateMetadata(Struct, frozen=True, gc=False):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(Struct, frozen=True, gc=False):
    spec: SpecWire = msgspec.field(default_factory=SpecWire)
    metadata: _TemplateMetadata | None = None


class StoredTemplateWire(Struct, frozen=True, gc=False):
    """A PodTemplate on the wire."""

    metadata: Metadata
    template: _Template = msgspec.field(default_factory=_Template)

    def stored(self) -> StoredTemplate:
        """Return the judged form. Raises :class:`~tightship.core.quantity.QuantityError` for a bad amount."""
        meta, spec = self.metadata, self.template.spec
        # The API server does so to pods, and not to templates of them.
        spec.containers = tuple(_requested(each) for each in spec.containers)
        spec.init_containers = tuple(_requested(each) for each in spec.init_containers or ()) or None
        labels = self.template.metadata.labels if self.template.metadata is not None else None
        own = Metadata(name=meta.name, namespace=meta.namespace, labels=labels)
        return StoredTemplate(meta.namespace, meta.name, PodWire(own, spec).pod())


def _requested(container: Container) -> Container:
    """Return *container* with its limits as its requests where it has no others."""
    limits = container.resources.limits if container.resources is not None else None
    if container.resources is None or not limits:
        return container
    requests = {**limits, **(container.resources.requests or {})}
    return msgspec.structs.replace(container, resources=ResourceRequirements(requests, limits))

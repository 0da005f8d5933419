"""CapacityBuffers (autoscaling.x-k8s.io), and the PodTemplates that describe one unit of a buffer."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tightship.core.objects.meta import Metadata, Namespaced, seconds
from tightship.core.objects.pod import Pod
from tightship.core.objects.pod_wire import PodWire, SpecWire
from tightship.core.resources import Container, ResourceRequirements

ACTIVE = "active-capacity"
"""The last part of the strategy under which an autoscaler keeps running nodes for a buffer; others may keep none."""


class CapacityBuffer(Namespaced, frozen=True, gc=False):
    """Room that an autoscaler keeps free: for *replicas* pods of PodTemplate *template* of the same namespace.

    Both come from the status, and are empty until the autoscaler has filled it in. *strategy* is empty if the buffer
    names none.
    """

    deletion: int | None
    template: str
    replicas: int
    strategy: str

    @property
    def active(self) -> bool:
        """Whether an autoscaler keeps nodes running for this buffer."""
        return self.deletion is None and (not self.strategy or self.strategy.rpartition("/")[2] == ACTIVE)


class StoredTemplate(Namespaced, frozen=True, gc=False):
    """A PodTemplate; *pod* stands for each pod made of it."""

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


class _Template(Struct, frozen=True, gc=False):
    spec: SpecWire = msgspec.field(default_factory=SpecWire)
    metadata: _TemplateMetadata | None = None


class StoredTemplateWire(Struct, frozen=True, gc=False):
    """A PodTemplate on the wire."""

    metadata: Metadata
    template: _Template = msgspec.field(default_factory=_Template)

    def stored(self) -> StoredTemplate:
        """Return the decoded object. Raises :class:`~tightship.core.quantity.QuantityError` for a bad amount."""
        meta, spec = self.metadata, self.template.spec
        # The API server sets such requests in pods, but not in templates.
        spec.containers = tuple(_requested(each) for each in spec.containers)
        spec.init_containers = tuple(_requested(each) for each in spec.init_containers or ()) or None
        labels = self.template.metadata.labels if self.template.metadata is not None else None
        own = Metadata(name=meta.name, namespace=meta.namespace, labels=labels)
        return StoredTemplate(meta.namespace, meta.name, PodWire(own, spec).pod())


def _requested(container: Container) -> Container:
    """Return *container* with its limits in place of missing requests."""
    limits = container.resources.limits if container.resources is not None else None
    if container.resources is None or not limits:
        return container
    requests = {**limits, **(container.resources.requests or {})}
    return msgspec.structs.replace(container, resources=ResourceRequirements(requests, limits))

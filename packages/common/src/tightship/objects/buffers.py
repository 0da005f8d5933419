"""CapacityBuffers (autoscaling.x-k8s.io), and the PodTemplates that describe one unit of a buffer."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Struct

from tightship.objects.meta import Metadata, Namespaced, qualified, seconds
from tightship.objects.mistyped import located, part_explained
from tightship.objects.pod import Pod, PodWire, SpecWire
from tightship.objects.quantity import QuantityError
from tightship.objects.resources import NOTHING, Container, ResourceRequirements, Resources, parse
from tightship.objects.unreadable import UNREADABLE

ACTIVE = "active-capacity"
"""The last part of the strategy under which an autoscaler keeps running nodes for a buffer; others may keep none."""


class CapacityBuffer(Namespaced, frozen=True, gc=False):
    """Room that an autoscaler keeps free: for *replicas* pods of PodTemplate *template* of the same namespace.

    Both come from the status, and are empty until the autoscaler has filled it in. *strategy* is empty if the buffer
    names none. *quota* says that resource quotas have limited the number. The rest is the spec: the workload (kind,
    name) in whose image the pods are, and what limits their number. *problem* says why the spec is unreadable.
    """

    deletion: int | None
    template: str
    replicas: int
    strategy: str
    scalable: tuple[str, str] | None = None
    most: int | None = None
    percentage: int | None = None
    limits: Resources = NOTHING
    quota: bool = False
    problem: str = ""

    @property
    def active(self) -> bool:
        """Whether an autoscaler keeps nodes running for this buffer."""
        return self.deletion is None and (not self.strategy or self.strategy.rpartition("/")[2] == ACTIVE)

    def wanted(self, existing: int, requests: Resources) -> int:
        """Return how many pods with these *requests* the buffer wants while its workload has *existing* pods.

        That is the number of the status, or more if the spec asks for a percentage of the workload and for more by
        now. The smallest of all limits counts, as in ``getBufferNumberOfPods`` of Cluster Autoscaler
        (cluster-autoscaler/capacitybuffer/translators/replicas.go).
        """
        if self.percentage is None or self.scalable is None or self.quota:
            return self.replicas
        found = [self.percentage * existing // 100]
        found += [] if self.most is None else [self.most]
        found += [self.limits[name] // amount for name, amount in requests.items() if amount and name in self.limits]
        return max(self.replicas, min(found))


class StoredTemplate(Namespaced, frozen=True, gc=False):
    """A PodTemplate; *pod* stands for each pod made of it."""

    pod: Pod


class _Reference(Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    kind: str = ""
    api_group: str = ""


class _Spec(Struct, frozen=True, rename="camel", gc=False):
    provisioning_strategy: str | None = None
    scalable_ref: _Reference | None = None
    replicas: int | None = None
    percentage: int | None = None
    limits: dict[str, str | int | float] | None = None


class _Condition(Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Status(Struct, frozen=True, rename="camel", gc=False):
    pod_template_ref: _Reference | None = None
    replicas: int | None = None
    provisioning_strategy: str | None = None
    conditions: tuple[_Condition, ...] | None = None


class CapacityBufferWire(Struct, frozen=True, gc=False):
    """A CapacityBuffer on the wire: v1alpha1 and v1beta1 have the same fields."""

    metadata: Metadata
    spec: Annotated[msgspec.Raw, _Spec] = msgspec.Raw(b"{}")
    status: _Status = _Status()

    def buffer(self) -> CapacityBuffer:
        """Return the decoded object. A bad spec is a problem of the object, whose status tells of its room alone."""
        meta, status, problem = self.metadata, self.status, ""
        spec, limits = _Spec(), NOTHING
        try:
            spec = _specs.decode(self.spec)
            limits = parse({name: str(amount) for name, amount in (spec.limits or {}).items()})
        except UNREADABLE as error:
            problem = part_explained("spec", self.spec, error)
        except QuantityError as error:
            spec, problem = _Spec(), located(msgspec.json.encode({"spec": self.spec}), error)
        scalable = spec.scalable_ref
        return CapacityBuffer(
            namespace=meta.namespace,
            name=meta.name,
            deletion=seconds(meta.deletion_timestamp),
            template="" if status.pod_template_ref is None else status.pod_template_ref.name,
            replicas=max(0, status.replicas or 0),
            strategy=status.provisioning_strategy or spec.provisioning_strategy or "",
            scalable=None if scalable is None else (qualified(scalable.kind, f"{scalable.api_group}/"), scalable.name),
            most=spec.replicas,
            percentage=spec.percentage,
            limits=limits,
            quota=_Condition("LimitedByQuotas", "True") in (status.conditions or ()),
            problem=problem,
        )


_specs = msgspec.json.Decoder(_Spec)


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
        """Return the decoded object. Raises :class:`~tightship.objects.quantity.QuantityError` for a bad amount."""
        meta, spec = self.metadata, self.template.spec
        # A template that an autoscaler has made in the image of a pod names the pod's node.
        spec.node_name = ""
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

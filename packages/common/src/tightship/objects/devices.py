"""Devices by dynamic resource allocation (``resource.k8s.io``, v1 and v1beta2): what nodes have, and who asks."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tightship.objects.meta import Metadata, Namespaced, Present

RESOURCE_SLICE = "ResourceSlice"
DEVICE_CLASS = "DeviceClass"
RESOURCE_CLAIM = "ResourceClaim"
DEVICE_KINDS = (RESOURCE_SLICE, DEVICE_CLASS, RESOURCE_CLAIM)


class Attribute(Struct, frozen=True, gc=False):
    """An attribute of a device; at most one of the values is set, or none if the type is one that no rule reads."""

    string: str | None = None
    number: int | None = msgspec.field(default=None, name="int")
    truth: bool | None = msgspec.field(default=None, name="bool")


class _Capacity(Struct, frozen=True, gc=False):
    value: str = "0"


class _Taint(Struct, frozen=True, gc=False):
    key: str = ""
    effect: str = ""


class Device(Struct, frozen=True, rename="camel", gc=False):
    """A device. Names of attributes and capacities have a domain before a slash, or none: then the driver's."""

    name: str
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, _Capacity] = {}
    taints: tuple[_Taint, ...] = ()
    consumes_counters: tuple[Present, ...] = ()
    allow_multiple_allocations: bool = False
    node_name: str = ""

    @property
    def shared(self) -> bool:
        """Whether what is allocated of one device changes what is left of it, or of others."""
        return bool(self.consumes_counters) or self.allow_multiple_allocations

    @property
    def tainted(self) -> bool:
        """Whether a taint keeps new claims away. Tolerations of claims are not read."""
        return any(each.effect in ("NoSchedule", "NoExecute") for each in self.taints)


class Pool(Struct, frozen=True, rename="camel", gc=False):
    """The pool of a slice: it is complete while it has *resource_slice_count* slices of the highest *generation*."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSlice(Struct, frozen=True, gc=False):
    """Devices that one driver offers on one node; *node* is empty if they can be used on several."""

    name: str
    driver: str
    pool: Pool
    node: str
    devices: tuple[Device, ...]


class _SliceSpec(Struct, frozen=True, rename="camel", gc=False):
    driver: str = ""
    pool: Pool = Pool()
    node_name: str = ""
    devices: tuple[Device, ...] | None = None


class ResourceSliceWire(Struct, frozen=True, gc=False):
    """A ResourceSlice on the wire."""

    metadata: Metadata
    spec: _SliceSpec = _SliceSpec()

    def slice(self) -> ResourceSlice:
        spec = self.spec
        return ResourceSlice(self.metadata.name, spec.driver, spec.pool, spec.node_name, spec.devices or ())


class _Cel(Struct, frozen=True, gc=False):
    expression: str = ""


class _Selector(Struct, frozen=True, gc=False):
    cel: _Cel = _Cel()


def _expressions(selectors: tuple[_Selector, ...] | None) -> tuple[str, ...]:
    return tuple(each.cel.expression.strip() for each in selectors or ())


class DeviceClass(Struct, frozen=True, gc=False):
    """A class of devices: those that meet all *selectors* (CEL). *extended* is the extended resource they stand for."""

    name: str
    selectors: tuple[str, ...]
    extended: str


class _ClassSpec(Struct, frozen=True, rename="camel", gc=False):
    selectors: tuple[_Selector, ...] | None = None
    extended_resource_name: str = ""


class DeviceClassWire(Struct, frozen=True, gc=False):
    """A DeviceClass on the wire."""

    metadata: Metadata
    spec: _ClassSpec = _ClassSpec()

    def device_class(self) -> DeviceClass:
        spec = self.spec
        return DeviceClass(self.metadata.name, _expressions(spec.selectors), spec.extended_resource_name)


class DeviceRequest(Struct, frozen=True, gc=False):
    """*count* devices of *device_class* that also meet *selectors*. *problem* says what no rule here can judge."""

    device_class: str
    selectors: tuple[str, ...]
    count: int
    problem: str = ""


class Allocated(Struct, frozen=True, gc=False):
    """A device that a claim holds, by its driver, pool and name."""

    driver: str
    pool: str
    device: str


class ResourceClaim(Namespaced, frozen=True, gc=False):
    """Devices that pods ask for, and those that the claim holds already."""

    requests: tuple[DeviceRequest, ...]
    allocated: tuple[Allocated, ...]


class _Exactly(Struct, frozen=True, rename="camel", gc=False):
    device_class_name: str = ""
    selectors: tuple[_Selector, ...] | None = None
    allocation_mode: str = ""
    count: int = 1
    admin_access: bool = False
    capacity: Present | None = None


class _Request(Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    exactly: _Exactly | None = None

    def read(self, constrained: bool) -> DeviceRequest:
        asked = self.exactly
        if asked is None:
            return DeviceRequest("", (), 0, "lists alternatives")
        problem = ""
        if asked.allocation_mode == "All":
            problem = "asks for all devices"
        elif asked.admin_access:
            problem = "asks for administrative access"
        elif asked.capacity is not None:
            problem = "asks for a part of a device"
        elif constrained and asked.count > 1:
            problem = "asks for devices that match each other"
        return DeviceRequest(asked.device_class_name, _expressions(asked.selectors), max(1, asked.count), problem)


class _Devices(Struct, frozen=True, gc=False):
    requests: tuple[_Request, ...] | None = None
    constraints: tuple[Present, ...] | None = None


class _ClaimSpec(Struct, frozen=True, gc=False):
    devices: _Devices = _Devices()


class _Results(Struct, frozen=True, gc=False):
    results: tuple[Allocated, ...] | None = None


class _Allocation(Struct, frozen=True, gc=False):
    devices: _Results = _Results()


class _ClaimStatus(Struct, frozen=True, gc=False):
    allocation: _Allocation | None = None


class ResourceClaimWire(Struct, frozen=True, gc=False):
    """A ResourceClaim on the wire."""

    metadata: Metadata
    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = msgspec.field(default_factory=_ClaimStatus)

    def claim(self) -> ResourceClaim:
        devices, allocation = self.spec.devices, self.status.allocation
        requests = devices.requests or ()
        constrained = bool(devices.constraints)
        several = constrained and len(requests) > 1
        return ResourceClaim(
            namespace=self.metadata.namespace,
            name=self.metadata.name,
            requests=tuple(each.read(constrained) for each in requests)
            + ((DeviceRequest("", (), 0, "asks for devices that match each other"),) if several else ()),
            allocated=() if allocation is None else allocation.devices.results or (),
        )

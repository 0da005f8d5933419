"""What a pod requests from a node, as kube-scheduler counts it.

Amounts are integers: milli-CPU for ``cpu``, bytes for memory-like resources, whole units for everything else.
The rule is ``PodRequests`` of ``k8s.io/component-helpers/resource`` 0.37 with status resources enabled: the sum of
containers and sidecars (KEP-753), but at least the largest init step; pod-level requests replace that sum if they are
set (KEP-2837); overhead is added (KEP-688). During a resize (KEP-1287) the largest of the desired, allocated and actual
amounts counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from tightship.objects import quantity
from tightship.objects.quantity import QuantityError

Resources = Mapping[str, int]
"""Amounts by resource name; an absent resource is zero. Objects share these mappings; never change one."""

NOTHING: Resources = {}
"""The shared empty amounts."""

POD_COUNT = "pods"
"""The resource of which every pod takes one."""

DEFAULT_CPU = 100
"""milli-CPU that kube-scheduler's scoring assumes for a container without a request (``DefaultMilliCPURequest``)."""

DEFAULT_MEMORY = 200 * 1024 * 1024
"""Bytes that kube-scheduler's scoring assumes for a container without a request (``DefaultMemoryRequest``)."""

_POD_LEVEL = ("cpu", "memory", "hugepages-")


class ResourceRequirements(Struct, frozen=True, gc=False):
    """``requests`` and ``limits`` as the API writes them."""

    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


class ContainerPort(Struct, frozen=True, rename={"host_port": "hostPort", "host_ip": "hostIP"}, gc=False):
    """A container port. Placement looks only at ports with a ``hostPort``."""

    host_port: int = 0
    host_ip: str = ""
    protocol: str = "TCP"


class RestartRule(Struct, frozen=True, gc=False):
    """What becomes of a pod when a container exits (KEP-5307)."""

    action: str = ""


class VolumeMount(Struct, frozen=True, rename="camel", gc=False):
    """A volume mount, reduced to what a node must be able to do for it."""

    bind_mount_options: tuple[str, ...] | None = None


class Container(Struct, frozen=True, rename="camel", gc=False):
    """The parts of a container that scheduling looks at."""

    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy_rules: tuple[RestartRule, ...] | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None

    @property
    def sidecar(self) -> bool:
        """Whether an init container keeps running beside the main ones (KEP-753)."""
        return self.restart_policy == "Always"


class ContainerStatus(Struct, frozen=True, rename="camel", gc=False):
    """The resources that the kubelet has allocated to a container, and configured for it."""

    name: str = ""
    allocated_resources: dict[str, str] | None = None
    resources: ResourceRequirements | None = None


class PodResources(Struct, frozen=True, gc=False):
    """Everything :func:`effective_requests` needs of one pod."""

    containers: Sequence[Container]
    init_containers: Sequence[Container] = ()
    pod_level: Mapping[str, str] | None = None
    overhead: Mapping[str, str] | None = None


class ResizeState(Struct, frozen=True, gc=False):
    """What the pod's status says about a resize; by default the kubelet has reported nothing."""

    containers: Sequence[ContainerStatus] = ()
    pod_allocated: Mapping[str, str] | None = None
    pod_actuated: Mapping[str, str] | None = None
    infeasible: bool = False


_Nanos = dict[str, int]
_Pick = Callable[[Container], "Mapping[str, str] | None"]


def effective_requests(pod: PodResources, resize: ResizeState | None = None) -> Resources:
    """Return what the pod takes from a node's allocatable amounts, including one :data:`POD_COUNT`.

    Zero amounts are left out. Raises ``QuantityError`` for a text that is not a quantity
    or is negative.
    """
    if resize is None or not (resize.containers or resize.pod_allocated):
        total = _aggregate(pod, _spec_requests)
    else:
        total = _with_status(pod, resize)
    _apply_pod_level(total, pod.pod_level, resize)
    _add(total, _nanos(pod.overhead))
    return _finished(total) | {POD_COUNT: 1}


def scoring_requests(pod: PodResources) -> tuple[int, int]:
    """Return (milli-CPU, bytes) that kube-scheduler's ``LeastAllocated`` scoring assumes for the pod.

    A container that names no request counts as :data:`DEFAULT_CPU` and :data:`DEFAULT_MEMORY`
    (``NonMissingContainerRequests``).
    """
    defaults = {"cpu": f"{DEFAULT_CPU}m", "memory": str(DEFAULT_MEMORY)}
    total = _aggregate(pod, lambda container: {**defaults, **(_spec_requests(container) or {})})
    _apply_pod_level(total, pod.pod_level, None)
    _add(total, _nanos(pod.overhead))
    finished = _finished(total)
    return finished.get("cpu", 0), finished.get("memory", 0)


def largest(amounts: Iterable[Resources]) -> Resources:
    """Return the largest of *amounts* of each resource."""
    found: dict[str, int] = {}
    for each in amounts:
        for name, amount in each.items():
            found[name] = max(found.get(name, 0), amount)
    return found


def parse(texts: Mapping[str, str] | None) -> Resources:
    """Return the amounts of one resource list, zeros left out.

    Raises :class:`~tightship.objects.quantity.QuantityError`.
    """
    return {name: parsed for name, text in (texts or {}).items() if (parsed := quantity.amount(name, text))}


def _spec_requests(container: Container) -> Mapping[str, str] | None:
    if container.resources is None:
        return None
    requests, limits = container.resources.requests, container.resources.limits
    if limits and any(name not in (requests or {}) for name in limits):
        # The API server sets a missing request to its limit. A file written by hand may never have met an API server.
        return {**limits, **(requests or {})}
    return requests


def _with_status(pod: PodResources, resize: ResizeState) -> _Nanos:
    status = {each.name: each for each in resize.containers}

    def allocated(container: Container) -> Mapping[str, str] | None:
        seen = status.get(container.name)
        if seen is not None and seen.allocated_resources is not None:
            return seen.allocated_resources
        return None if resize.infeasible else _spec_requests(container)

    def actuated(container: Container) -> Mapping[str, str] | None:
        seen = status.get(container.name)
        if seen is not None and seen.resources is not None and seen.resources.requests is not None:
            return seen.resources.requests
        return allocated(container)

    if resize.pod_allocated is not None and resize.pod_actuated is not None:
        candidates = [_nanos(resize.pod_allocated), _nanos(resize.pod_actuated)]
    else:
        candidates = [_aggregate(pod, allocated), _aggregate(pod, actuated)]
    if not resize.infeasible:
        candidates.append(_aggregate(pod, _spec_requests))
    total: _Nanos = {}
    for candidate in candidates:
        _raise_to(total, candidate)
    return total


def _aggregate(pod: PodResources, pick: _Pick) -> _Nanos:
    total: _Nanos = {}
    for container in pod.containers:
        _add(total, _nanos(pick(container)))
    if not pod.init_containers:
        return total
    sidecars: _Nanos = {}
    largest_step: _Nanos = {}
    for container in pod.init_containers:
        step = _nanos(pick(container))
        if container.sidecar:
            _add(total, step)
            _add(sidecars, step)
            step = sidecars
        else:
            step = dict(step)
            _add(step, sidecars)
        _raise_to(largest_step, step)
    _raise_to(total, largest_step)
    return total


def _apply_pod_level(total: _Nanos, pod_level: Mapping[str, str] | None, resize: ResizeState | None) -> None:
    wanted = {name: nanos for name, nanos in _nanos(pod_level).items() if name.startswith(_POD_LEVEL)}
    if not wanted:
        return
    if resize is not None and resize.pod_actuated is not None:
        if resize.infeasible:
            wanted = {}
        _raise_to(wanted, _nanos(resize.pod_actuated))
        _raise_to(wanted, _nanos(resize.pod_allocated))
    total.update((name, nanos) for name, nanos in wanted.items() if name.startswith(_POD_LEVEL))


def _nanos(texts: Mapping[str, str] | None) -> _Nanos:
    parsed: _Nanos = {}
    for name, text in (texts or {}).items():
        nanos = quantity.nano(text)
        if nanos < 0:
            raise QuantityError(text, f"{quantity.ALLOWED_FORMS}, zero or more, for {name}")
        parsed[name] = nanos
    return parsed


def _add(total: _Nanos, more: Mapping[str, int]) -> None:
    for name, nanos in more.items():
        total[name] = total.get(name, 0) + nanos


def _raise_to(total: _Nanos, floor: Mapping[str, int]) -> None:
    for name, nanos in floor.items():
        if nanos > total.get(name, 0):
            total[name] = nanos


def _finished(total: _Nanos) -> dict[str, int]:
    milli = quantity.NANO // 1000
    return {
        name: min(-(-nanos // (milli if name == "cpu" else quantity.NANO)), quantity.MOST)
        for name, nanos in sorted(total.items())
        if nanos and name != POD_COUNT
    }

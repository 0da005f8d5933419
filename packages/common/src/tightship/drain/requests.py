"""EvictionRequests (KEP-4563) of drains: what they are for, what they say, and which nobody wants any more. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tightship.core.drain_record import Phase
from tightship.core.objects import Pod
from tightship.core.objects.eviction_requests import EvictionRequest
from tightship.core.reasons import Reason, Refusal
from tightship.planning.cluster import Snapshot
from tightship.planning.nodes import drain_record

HEEDED_WITHIN = 60.0
"""Seconds within which a controller must have observed a request. After that the drain uses the eviction API."""


def requester(controller: str) -> str:
    """Return the name under which *controller* asks. Requests are told apart by it."""
    return f"tightship.dev/{controller}"


def request_name(pod: Pod) -> str:
    """Return the name of the request for *pod*: the same for every replica, so that a pod has one request of ours."""
    return f"tightship-{pod.uid}"


def request_for(pod: Pod, snapshot: Snapshot) -> EvictionRequest | None:
    """Return the request for *pod* that the cluster holds."""
    found = snapshot.eviction_requests.get(f"{pod.namespace}/{request_name(pod)}")
    return found if found is not None and found.pod_uid == pod.uid else None


def unheeded(request: EvictionRequest, now: float) -> bool:
    """Whether no controller has processed *request* for so long that none will."""
    return not request.observed and now >= request.created + HEEDED_WITHIN


def against(pod: Pod, request: EvictionRequest) -> Refusal | None:
    """Return why *pod* does not go although it was asked to, ``None`` while its responders are at work."""
    if request.failed:
        detail = f"EvictionRequest {request.key} failed: {request.failed}"
    elif request.withdrawn:
        detail = f"somebody has withdrawn EvictionRequest {request.key}"
    else:
        return None
    return Refusal(Reason.EVICTION_FAILED, pod.key, detail)


def overdue(pod: Pod) -> Refusal:
    """Return why a drain gives up that has waited for the responders of *pod* until its deadline."""
    names = ", ".join(pod.spec.responders[:3]) + " and more" * (len(pod.spec.responders) > 3)
    detail = f"the time for the drain is up, and the pod's eviction responders ({names}) have not let it go"
    return Refusal(Reason.RESPONDERS_LATE, pod.key, detail, f"see what {pod.spec.responders[0]} waits for")


def forsaken(snapshot: Snapshot, controller: str, driven: Collection[str]) -> Iterator[EvictionRequest]:
    """Yield the requests of *controller* that no drain stands behind: their pod has gone, or its node is not evicted.

    The drains of the nodes *driven* see to the requests for pods on these nodes.
    """
    if not snapshot.eviction_requests:
        return
    at = {pod.uid: name for name, view in snapshot.nodes.items() for pod in view.pods if pod.spec.responders}
    for request in snapshot.eviction_requests.values():
        if request.requester != requester(controller):
            continue
        name = at.get(request.pod_uid)
        if name in driven:
            continue
        record = drain_record(snapshot.nodes[name].node) if name is not None else None
        if record is None or record.phase is not Phase.EVICTING:
            yield request


__all__ = [
    "HEEDED_WITHIN",
    "against",
    "forsaken",
    "overdue",
    "request_for",
    "request_name",
    "requester",
    "unheeded",
]

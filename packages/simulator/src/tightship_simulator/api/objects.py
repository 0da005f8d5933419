"""What the API server makes of an object that it is given: defaults, the form it is kept in, and what a write
wants of it.

Only what a controller, kubectl or the embedded cluster's own behaviours go by; everything else is kept as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from tightship_simulator.api.errors import BadRequest, conflict
from tightship_simulator.api.kinds import Kind
from tightship_simulator.api.validity import malformed

Json = dict[str, Any]
T = TypeVar("T")

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_VANISHING = ("annotations", "labels", "finalizers", "ownerReferences")
"""What is left out of the metadata where it is empty."""


def timestamp(moment: datetime) -> str:
    """Return a time as ``metav1.Time`` is written: UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def completed(kind: str, thing: Json, priority: int | None) -> Json:
    """Return *thing* with defaults; *priority* is that of a pod's PriorityClass, if it is known. Changes *thing*."""
    spec = thing.get("spec")
    match kind:
        case "Pod" if isinstance(spec, dict):
            spec.setdefault("restartPolicy", "Always")
            spec.setdefault("terminationGracePeriodSeconds", 30)
            spec.setdefault("schedulerName", "default-scheduler")
            named = SYSTEM_PRIORITIES.get(spec.get("priorityClassName", ""))
            spec.setdefault("priority", priority if priority is not None else named or 0)
            for container in spec.get("containers") or []:
                _requests_by_limits(container)
            thing["status"] = {"phase": "Pending", "qosClass": _quality(spec), **(thing.get("status") or {})}
            if spec.get("schedulingGates"):
                others = [each for each in thing["status"].get("conditions") or [] if each["type"] != "PodScheduled"]
                thing["status"]["conditions"] = [*others, dict(_GATED)]
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController" if isinstance(spec, dict):
            spec.setdefault("replicas", 1)
        case "HorizontalPodAutoscaler" if isinstance(spec, dict):
            spec.setdefault("minReplicas", 1)
        case "Namespace":
            thing["status"] = {"phase": "Active", **(thing.get("status") or {})}
            thing["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = thing["metadata"]["name"]
    return thing


def _requests_by_limits(container: Json) -> None:
    resources = container.get("resources") or {}
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _quality(spec: Json) -> str:
    """Return the QoS class of a pod, by its containers."""
    every = [each.get("resources") or {} for each in spec.get("containers") or []]
    if not any(each.get("requests") or each.get("limits") for each in every):
        return "BestEffort"
    for each in every:
        limits, requests = each.get("limits") or {}, each.get("requests") or {}
        if any(limits.get(name) is None or limits[name] != requests.get(name) for name in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"


def normalized(kind: str, thing: Json) -> Json:
    """Return *thing* as it is kept: a ``null`` is no value, and neither is what Go leaves out when it is empty."""
    kept = _without_nulls(thing)
    assert isinstance(kept, dict)
    meta = kept["metadata"]
    for name in _VANISHING:
        if name in meta and not meta[name]:
            del meta[name]
    meta.pop("managedFields", None)
    if kind == "Pod" and not (kept.get("spec") or {}).get("schedulingGates", True):
        del kept["spec"]["schedulingGates"]
    if kind == "Node":
        spec = kept.setdefault("spec", {})
        for name in ("taints", "unschedulable"):
            if name in spec and not spec[name]:
                del spec[name]
    return kept


def attributed(node: Json, old: Json | None, manager: str, now: datetime) -> Json:
    """Return *node* with the one entry of ``managedFields`` that is kept here: who has cordoned it.

    Whoever changes the value owns it from then on; who writes the same again does not.
    """
    if not node["spec"].get("unschedulable"):
        return node
    if old is not None and old["spec"].get("unschedulable"):
        entries = old["metadata"].get("managedFields")
    else:
        fields = {"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
        about = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": timestamp(now)}
        entries = [{**about, **fields}]
    return {**node, "metadata": {**node["metadata"], "managedFields": entries}} if entries else node


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def copy_of(value: T) -> T:
    """Return a copy of what JSON can hold, much faster than :mod:`copy` makes it."""
    if isinstance(value, dict):
        return {key: copy_of(each) for key, each in value.items()}  # type: ignore[return-value]  # as given
    if isinstance(value, list):
        return [copy_of(each) for each in value]  # type: ignore[return-value]
    return value


def check_preconditions(kind: Kind, thing: Json, *, uid: str | None, version: str | None) -> None:
    """Raise :class:`~tightship_simulator.api.errors.Conflict` where *thing* has not the uid or version wanted."""
    meta = thing["metadata"]
    if uid and uid != meta["uid"]:
        raise conflict(kind, meta["name"], uid_differs(uid, meta["uid"]))
    if version and version != meta["resourceVersion"]:
        raise conflict(kind, meta["name"], _MODIFIED)


def uid_differs(wanted: str, found: str) -> str:
    """Return what a conflict says of a uid that is not the one wanted."""
    return f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"


def grace_of(pod: Json, asked: int | None) -> int:
    """Return the seconds a pod has to end: none where no kubelet has it (podStrategy.CheckGracefulDelete)."""
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    own = pod["spec"].get("terminationGracePeriodSeconds", 30)
    return max(0, own if asked is None else asked)


def copied(kind: Kind, thing: Mapping[str, Any]) -> Json:
    """Return a copy of an object that says what it is. Raises :class:`~tightship_simulator.api.errors.BadRequest`."""
    if wrong := malformed(thing):
        raise BadRequest(f"{kind.name} cannot be read: {wrong}")
    made: Json = copy_of(dict(thing))
    return made | {"kind": kind.name, "apiVersion": kind.group_version, "metadata": made.get("metadata") or {}}

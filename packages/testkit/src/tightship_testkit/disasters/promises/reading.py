"""What promises read of objects, all plain JSON: names and words that users see are written out here."""

from __future__ import annotations as _annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from tightship_testkit.disasters.world import Json, drain_of

DRAINING = "tightship.dev/draining"
CANDIDATE = "tightship.dev/candidate"
COST = "controller.kubernetes.io/pod-deletion-cost"
COST_MARK = "tightship.dev/deletion-cost"
"""Says whose a cost is: ``CONTROLLER.INSTALLATION=COST``."""
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
TERMINATION = "aws-node-termination-handler/"
"""How the taints and labels of a node begin that this handler takes."""
OWNING = frozenset({"Claimed", "Evicting", "Drained", "Restoring", "Yielded"})
"""Phases in which a node is cordoned and tainted for a drain."""

_DO_NOT_DRAIN = "tightship.dev/do-not-drain"
_DO_NOT_DISRUPT = ("karpenter.sh/do-not-disrupt", "node-autoscaling.kubernetes.io/do-not-disrupt")
_TAKING = ("DrainInProgress", "Drained", "MaintenanceInProgress", "GracefulNodeShutdownInProgress")
_SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
_SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"


def owned(node: Json) -> Json:
    """Return the drain that has cordoned *node*, empty where there is none."""
    found = drain_of(node)
    return found if found.get("phase") in OWNING else {}


def holder_of(record: Mapping[str, Any]) -> str:
    """Return the process that drives a drain."""
    return str(record.get("holder") or "").rpartition("_")[0]


def annotations(thing: Json) -> Mapping[str, str]:
    """Return the annotations of an object."""
    return thing["metadata"].get("annotations") or {}


def taints(node: Json) -> list[Json]:
    """Return the taints of a node."""
    return node["spec"].get("taints") or []


def has_taint(node: Json, key: str) -> bool:
    """Whether a node has a taint of that key."""
    return any(each["key"] == key for each in taints(node))


def terminating(node: Json) -> bool:
    """Whether a termination handler has its mark on a node."""
    keys = [*(node["metadata"].get("labels") or {}), *(each["key"] for each in taints(node))]
    return any(each.startswith(TERMINATION) for each in keys)


def cordoned(node: Json) -> bool:
    """Whether a node is cordoned."""
    return bool(node["spec"].get("unschedulable"))


def ready(thing: Json) -> bool:
    """Whether a node or a pod is Ready."""
    found = (thing.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in found)


def leaving(thing: Json) -> bool:
    """Whether an object is being deleted."""
    return bool(thing["metadata"].get("deletionTimestamp"))


def created(thing: Json) -> float:
    """Return when an object was made, in seconds since 1970."""
    return datetime.fromisoformat(thing["metadata"]["creationTimestamp"]).timestamp()


def controller(thing: Json) -> Json | None:
    """Return the owner reference of the controller of an object."""
    return next((each for each in thing["metadata"].get("ownerReferences") or [] if each.get("controller")), None)


def daemon(pod: Json) -> bool:
    """Whether a DaemonSet has made the pod."""
    return (controller(pod) or {}).get("kind") == "DaemonSet"


def expendable(pod: Json) -> bool:
    """Whether Cluster Autoscaler deletes a node with this pod on it, by its default cutoff of priorities."""
    return int(pod["spec"].get("priority") or 0) < -10


def node_opts_out(node: Json) -> str:
    """Return the annotation or condition by which a node opts out of drains, empty where none does."""
    for each in (node.get("status") or {}).get("conditions") or []:
        if each["type"] in _TAKING and each["status"] == "True":
            return str(each["type"])
    notes = annotations(node)
    if notes.get(_DO_NOT_DRAIN, "false") != "false":
        return _DO_NOT_DRAIN
    if notes.get(_SCALE_DOWN_DISABLED) == "true":
        return _SCALE_DOWN_DISABLED
    return next((each for each in _DO_NOT_DISRUPT if notes.get(each, "false") != "false"), "")


def pod_opts_out(pod: Json) -> str:
    """Return the annotation by which a pod opts out of evictions, or the field that nobody can judge; else nothing."""
    notes = annotations(pod)
    if notes.get(_DO_NOT_DRAIN, "false") != "false":
        return _DO_NOT_DRAIN
    if notes.get(_SAFE_TO_EVICT) == "false":
        return _SAFE_TO_EVICT
    for each in _DO_NOT_DISRUPT:
        if notes.get(each) == "true":
            return each
    if _PREFER_NO_EVICTION in notes:
        return _PREFER_NO_EVICTION
    return "resourceClaims" if pod["spec"].get("resourceClaims") else ""


_UNITS = {"m": 0.001, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}


@lru_cache(maxsize=1024)
def amount(text: object) -> float:
    """Return a quantity as a number."""
    written = str(text)
    for unit, factor in _UNITS.items():
        if written.endswith(unit):
            return float(written[: -len(unit)]) * factor
    return float(written)


def requests(pod: Json) -> tuple[float, float]:
    """Return the CPU and the memory that a pod's containers request."""
    asked = [(each.get("resources") or {}).get("requests") or {} for each in pod["spec"].get("containers") or []]
    return sum(amount(each.get("cpu", 0)) for each in asked), sum(amount(each.get("memory", 0)) for each in asked)


def room(node: Json) -> tuple[float, float, float]:
    """Return the CPU, the memory and the pods that a node has room for when it is empty."""
    found = (node.get("status") or {}).get("allocatable") or {}
    return amount(found.get("cpu", 0)), amount(found.get("memory", 0)), amount(found.get("pods", 0))


def gang(pod: Json) -> str:
    """Return the group of pods that run together or not at all of which *pod* is one, empty where it is in none."""
    notes, marks = annotations(pod), pod["metadata"].get("labels") or {}
    if "volcano.sh/job-name" in notes and (name := notes.get("scheduling.volcano.sh/group-name", "")):
        return f"Volcano {name}"
    for key in ("jobset.sigs.k8s.io/jobset-name", "kueue.x-k8s.io/pod-group-name"):
        if marks.get(key):
            return f"{key} {marks[key]}"
    if name := marks.get("leaderworkerset.sigs.k8s.io/name", ""):
        return f"LeaderWorkerSet {name} {marks.get('leaderworkerset.sigs.k8s.io/group-index', '')}"
    named = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
    return f"PodGroup {named}" if named else ""


def deletes(settings: Mapping[str, Any]) -> bool:
    """Whether a controller is told to delete pods past their budgets."""
    return settings.get("evictionMethod") == "delete"


def seconds(value: object) -> float:
    """Return a duration of the settings: seconds, or a number with a unit."""
    text = str(value)
    for unit, factor in (("h", 3600.0), ("m", 60.0), ("s", 1.0)):
        if text.endswith(unit):
            return float(text[:-1]) * factor
    return float(text)


def whose(mark: object) -> str:
    """Return the controller that the mark of a deletion cost, or the value of a soft taint, names."""
    return str(mark or "").partition("=")[0].partition(".")[0]


__all__ = [
    "CANDIDATE", "COST", "COST_MARK", "DRAINING", "OWNING", "TERMINATION", "TO_BE_DELETED", "amount", "annotations",
    "controller", "cordoned", "created", "daemon", "deletes", "drain_of", "gang", "has_taint", "holder_of", "leaving",
    "node_opts_out", "owned", "pod_opts_out", "ready", "requests", "room", "seconds", "taints", "terminating", "whose",
]  # fmt: skip

"""What is wrong with an object, as far as a controller may run into it. Everything else is kept as it came."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]
Problems = list[tuple[str, str]]
"""Fields, and what is wrong with each."""

_LISTS = ("containers", "finalizers", "ownerReferences", "schedulingGates", "taints", "tolerations", "volumes")
_INTEGERS = ("leaseDurationSeconds", "maxReplicas", "minReplicas", "replicas", "terminationGracePeriodSeconds")
_SHARE = re.compile(r"[0-9]+%", re.ASCII)
_MOST_NOTES = 256 * 1024
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})


def malformed(thing: Mapping[str, Any]) -> str:
    """Return what keeps *thing* from being an object of the API at all, empty where nothing does."""
    for part in ("metadata", "spec", "status"):
        held = thing.get(part)
        if not _is(held, dict):
            return f"{part} must be an object"
        if wrong := [name for name in _LISTS if not _is((held or {}).get(name), list)]:
            return f"{part}.{wrong[0]} must be a list"
    meta, spec = thing.get("metadata") or {}, thing.get("spec") or {}
    for name in ("labels", "annotations"):
        texts = meta.get(name)
        if not _is(texts, dict) or not all(_is(each, str) for each in (texts or {}).values()):
            return f"metadata.{name} must be an object of texts"
    for name in _INTEGERS:
        if not _is(spec.get(name), int) or isinstance(spec.get(name), bool):
            return f"spec.{name} must be an integer"
    return ""


def _is(value: object, kind: type) -> bool:
    return value is None or isinstance(value, kind)


def problems(kind: str, thing: Json, old: Json | None = None) -> Problems:
    """Return what is wrong with *thing*, which is not :func:`malformed`; *old* is what it replaces."""
    judge = _JUDGES.get(kind)
    found = judge(thing.get("spec") or {}) if judge else []
    notes = thing["metadata"].get("annotations") or {}
    if sum(len(name.encode()) + len(value.encode()) for name, value in notes.items()) > _MOST_NOTES:
        found.append(("metadata.annotations", f"Too long: may not be more than {_MOST_NOTES} bytes"))
    return found + _gates(thing, old) if kind == "Pod" else found


def _autoscaler(spec: Json) -> Problems:
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    found: Problems = []
    if least < 1:
        found.append(("spec.minReplicas", f"Invalid value: {least}: must be greater than or equal to 1"))
    if most < 1:
        found.append(("spec.maxReplicas", f"Invalid value: {most}: must be greater than 0"))
    if most < least:
        detail = f"Invalid value: {most}: must be greater than or equal to `minReplicas`"
        found.append(("spec.maxReplicas", detail))
    return found


def _budget(spec: Json) -> Problems:
    given = {name: spec[name] for name in ("minAvailable", "maxUnavailable") if name in spec}
    found: Problems = []
    if len(given) > 1:
        found.append(("spec", "Invalid value: minAvailable and maxUnavailable cannot be both set"))
    for name, value in given.items():
        good = _SHARE.fullmatch(value) if isinstance(value, str) else isinstance(value, int) and value >= 0
        if not good:
            found.append((f"spec.{name}", f"Invalid value: {value!r}: must be a number of 0 or more, or a percentage"))
    return found


def _lease(spec: Json) -> Problems:
    length = spec.get("leaseDurationSeconds")
    if length is None or length > 0:
        return []
    return [("spec.leaseDurationSeconds", f"Invalid value: {length}: must be greater than 0")]


def _node(spec: Json) -> Problems:
    return [
        (f"spec.taints[{number}].effect", f'Unsupported value: "{taint.get("effect", "")}"')
        for number, taint in enumerate(spec.get("taints") or [])
        if taint.get("effect") not in _EFFECTS
    ]


def _pod(spec: Json) -> Problems:
    return [] if spec.get("containers") else [("spec.containers", "Required value")]


def _gates(pod: Json, old: Json | None) -> Problems:
    """Gates are given when a pod is created, and only ever taken off (``validation.ValidatePodUpdate``)."""
    names = [str(each.get("name", "")) for each in (pod.get("spec") or {}).get("schedulingGates") or []]
    if old is None:
        if names and pod["spec"].get("nodeName"):
            return [("spec.nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared")]
        return [("spec.schedulingGates", "Invalid value: a gate must have a name") for name in names if not name]
    before = {each.get("name") for each in old["spec"].get("schedulingGates") or []}
    return [
        ("spec.schedulingGates", f"Forbidden: only deletion is allowed, but found new scheduling gate '{name}'")
        for name in names
        if name not in before
    ]


_JUDGES: dict[str, Callable[[Json], Problems]] = {
    "HorizontalPodAutoscaler": _autoscaler,
    "PodDisruptionBudget": _budget,
    "Lease": _lease,
    "Node": _node,
    "Pod": _pod,
}

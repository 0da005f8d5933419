"""Events in both forms of the API: kept as ``v1``, read and written as ``events.k8s.io/v1`` too."""

from __future__ import annotations

import re
from typing import Any

Json = dict[str, Any]

_NEW_BY_OLD = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_OLD_BY_NEW = {new: old for old, new in _NEW_BY_OLD.items()}

NEEDED = ("eventTime", "reportingController", "reportingInstance", "action", "reason", "type")
"""What an Event of the newer form must say (``pkg/apis/core/validation/events.go``)."""

_LONGEST = {"note": 1024, "action": 128, "reason": 128, "reportingInstance": 128}
_QUALIFIED = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_OF_CLUSTER_SCOPED = frozenset({"default", "kube-system"})
"""Where Events about what has no namespace may be."""


def as_new(event: Json) -> Json:
    """Return an Event that is kept as ``events.k8s.io/v1`` has it."""
    return {_NEW_BY_OLD.get(key, key): value for key, value in event.items()} | {"apiVersion": "events.k8s.io/v1"}


def as_kept(event: Json) -> Json:
    """Return an ``events.k8s.io/v1`` Event in the form that is kept."""
    return {_OLD_BY_NEW.get(key, key): value for key, value in event.items()} | {"apiVersion": "v1"}


def problems(event: Json) -> list[tuple[str, str]]:
    """Return what is wrong with an Event of the newer form: fields and texts."""
    found = [(name, "Required value") for name in NEEDED if not event.get(name)]
    found += [
        (name, f"Too long: may not be more than {longest} bytes")
        for name, longest in _LONGEST.items()
        if len(str(event.get(name) or "").encode()) > longest
    ]
    if not _QUALIFIED.fullmatch(event.get("reportingController") or "x"):
        found.append(("reportingController", "Invalid value: must be a qualified name"))
    if event.get("type") not in (None, "", "Normal", "Warning"):
        found.append(("type", "Invalid value: must be one of Normal, Warning"))
    namespace = (event.get("metadata") or {}).get("namespace", "default")
    of_cluster = not (event.get("regarding") or {}).get("namespace")
    if of_cluster and namespace not in _OF_CLUSTER_SCOPED:
        found.append(("involvedObject.namespace", 'Invalid value: "": does not match event.namespace'))
    return found

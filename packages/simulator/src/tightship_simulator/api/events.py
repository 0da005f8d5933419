"""Events in both forms of the API: kept as ``v1``, read and written as ``events.k8s.io/v1`` too."""

from __future__ import annotations

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


def as_new(event: Json) -> Json:
    """Return an Event that is kept as ``events.k8s.io/v1`` has it."""
    return {_NEW_BY_OLD.get(key, key): value for key, value in event.items()} | {"apiVersion": "events.k8s.io/v1"}


def as_kept(event: Json) -> Json:
    """Return an ``events.k8s.io/v1`` Event in the form that is kept."""
    return {_OLD_BY_NEW.get(key, key): value for key, value in event.items()} | {"apiVersion": "v1"}


def lacking(event: Json) -> list[tuple[str, str]]:
    """Return what an Event of the newer form lacks: fields and texts."""
    return [(name, "Required value") for name in NEEDED if not event.get(name)]

"""Configurations of tests, with durations in plain seconds and shares in percent, as the controllers read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

_DURATIONS = frozenset(
    [
        "timeout",
        "afterCordonTimeout",
        "awaitCompletionFor",
        "backoff",
        "backoffLimit",
        "blockingSystemPodTimeout",
        "circuitBreakerPause",
        "clusterCoolDownAfterDrain",
        "clusterCoolDownAfterFailure",
        "clusterCoolDownAfterNodeAdded",
        "clusterCoolDownAfterNodeDeleted",
        "coldSourceLimit",
        "contestPause",
        "contestPauseLimit",
        "contestWindow",
        "coolDownAfterFailure",
        "coolDownAfterNodeAdded",
        "coolDownAfterNodeDeleted",
        "cordonRoomTimeout",
        "correlatedDropHold",
        "handOverTimeout",
        "hardStop",
        "holdOff",
        "minStableTime",
        "minimumNodeAge",
        "neededMarkedTimeForRemoval",
        "nodeDrainTimeout",
        "notBefore",
        "notReadyTimeout",
        "pendingAfterDrainTimeout",
        "pendingAfterDrainWindow",
        "pendingTimeout",
        "podEvictionTimeout",
        "queryDeadline",
        "regretLimit",
        "regretWindow",
        "rolloutTimeout",
        "scaleInTimeout",
        "search",
        "settleTime",
        "workloadPause",
    ]
)
_SHARES = frozenset(
    ("maximumNotReadyNodePercentage", "correlatedDropPercentage", "correlatedDropFloorPercentage", "correlatedDropSize")
)


def with_units(settings: Mapping[str, Any]) -> Json:
    """Return *settings* with the unit of each plain number of a duration or a share."""
    return {key: _unit(key, value) for key, value in settings.items()}


def _unit(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return with_units(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return f"{value:g}s" if key in _DURATIONS else f"{value:g}%" if key in _SHARES else value

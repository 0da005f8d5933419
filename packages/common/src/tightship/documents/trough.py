"""Whether a plan shows the fleet at its emptiest: a plan is a moment, and its money for a month is that moment's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tightship.objects.counting import counted
from tightship.objects.times import rfc3339

if TYPE_CHECKING:
    # hpa-scaler uses documents too, and has no numpy, which plans need.
    from tightship.cluster import Snapshot

MOST_AT_MINIMUM = 0.5
"""Part of the HPAs at their minimum from which on a plan says that this may be a trough."""

NIGHT = range(6)
"""Hours, in UTC, at which a plan asks whether it is off-peak, where no HPA tells."""


def trough(snapshot: Snapshot, now: float) -> str:
    """Return what suggests at *now* (seconds since 1970) that more nodes are needed at other hours, or nothing."""
    scaling = [
        each
        for each in snapshot.autoscalers.values()
        if each.deletion is None and each.current_replicas is not None and each.min_replicas < each.max_replicas
    ]
    if scaling:
        least = sum((each.current_replicas or 0) <= each.min_replicas for each in scaling)
        if least < MOST_AT_MINIMUM * len(scaling):
            return ""
        of = counted(len(scaling), "HPA")
        return f"{least:,} of {of} {'is' if least == 1 else 'are'} at the minimum: at a peak, more nodes are needed"
    at = rfc3339(now)[len("2026-01-01T") :][: len("00:00")]
    night = int(at[:2]) in NIGHT
    return f"it is {at} UTC: if that is off-peak, more nodes are needed later" if night else ""

"""When it is worth a write by itself what a floor waits for. Pure.

What a lowering waits for is kept in memory, and written into the state annotation with the next change of the bounds,
and when the process ends in order. A process that was killed is followed by one that waits anew: that costs some pods
for a while, and no write for each wobble of each query. Only what a restart would make forget to the unsafe side is
written down at once: that there was an incident, a gap in the answers, a drop of too many at once, a series that became
several, that somebody has set the bounds back so often that they are left alone, or that a bound is the user's own
again: if they later set it to what the annotation says we had set, it would be taken for ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from hpa_scaler.policy import Decision
from hpa_scaler.reasons import Reason
from hpa_scaler.sending import Ending

Noted: TypeAlias = Mapping[str, frozenset[Reason]]
"""What is written down of HPAs, by uid: their share of :data:`UNSAFE`."""

UNSAFE = frozenset(
    {
        Reason.INCIDENT_HOLD,
        Reason.COLD_SOURCE,
        Reason.CORRELATED_DROP,
        Reason.SERIES_SPLIT,
        Reason.CHANGED_BY_OTHERS,
        Reason.CONTESTED,
    }
)
"""What a process that begins anew can't see for itself; of a source that is cold, that there was a gap."""


def is_due(decision: Decision, noted: Noted) -> bool:
    """Whether what a restart would forget of *decision* is to be written down."""
    if not decision.pending or decision.dry_run:
        return False
    return bool(_unsafe(decision) - noted.get(decision.uid, frozenset()))


def noted_after(decisions: Iterable[Decision], endings: Mapping[str, Ending], noted: Noted) -> Noted:
    """Return what is noted after a cycle of *decisions* whose writes came to *endings*, *noted* being what was before.

    A note that was not written is due again. What is over is noted no more.
    """
    found = {}
    for decision in decisions:
        ending = endings.get(decision.uid)
        unsafe = _unsafe(decision)
        if ending is None:
            unsafe &= noted.get(decision.uid, frozenset())
        elif not (ending == "written" or (ending == "unneeded" and decision.pending)):
            continue
        if unsafe:
            found[decision.uid] = unsafe
    return found


def _unsafe(decision: Decision) -> frozenset[Reason]:
    found = UNSAFE & {cause.reason for cause in decision.causes} - {Reason.COLD_SOURCE}
    # Without a gap that was seen the server says again how old its data are, or can't say it then either.
    return found | {Reason.COLD_SOURCE} if decision.history.recovering else found


__all__ = ["UNSAFE", "Noted", "is_due", "noted_after"]

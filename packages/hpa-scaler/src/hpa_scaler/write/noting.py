"""When the things that a floor waits for deserve a write of their own. Pure.

The controller keeps in memory what a lowering waits for. It writes that into the state annotation with the next change
of the bounds, and on a clean shutdown. After a kill the next process waits from the start: that costs some pods for a
while, but avoids a write for each wobble of each query. Only what would make a restart unsafe if forgotten is written
at once: an incident, a gap in the answers, a correlated drop, a series that became several, a contest, or that a bound
is the user's own again. If the user later set such a bound to the value that the annotation says we set, it would count
as ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from hpa_scaler.decide.policy import Decision
from hpa_scaler.write.sending import Ending
from tightship.core.reasons import Reason

Noted: TypeAlias = Mapping[str, frozenset[Reason]]
"""What is written down of each HPA, by uid: its part of :data:`UNSAFE`."""

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
"""What a new process can't see for itself; for a cold source, that there was a gap."""


def is_due(decision: Decision, noted: Noted) -> bool:
    """Whether to write down now what a restart would forget of *decision*."""
    if not decision.pending or decision.dry_run:
        return False
    return bool(_unsafe(decision) - noted.get(decision.uid, frozenset()))


def noted_after(decisions: Iterable[Decision], endings: Mapping[str, Ending], noted: Noted) -> Noted:
    """Return what is noted after a cycle of *decisions* whose writes came to *endings*; *noted* is what was noted
    before.

    A note that was not written is due again. A note about something that is over is dropped.
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

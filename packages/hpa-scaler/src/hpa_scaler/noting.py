"""When it is worth a write that a floor waits, or that somebody else has set it. Pure.

What a lowering waits for is kept in memory, and written into the state annotation once, so that a restart need not wait
anew. A query that wobbles begins to wait in every other cycle: a note each time would be a write each time, for next to
nothing. Only what a restart would make forget to the unsafe side is worth another: that there was an incident, or a gap
in the answers, or that a bound is the user's own again: if they later set it to what the annotation says we had set, it
would be taken for ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from hpa_scaler.policy import Decision
from hpa_scaler.reasons import Reason
from hpa_scaler.sending import Ending

Noted: TypeAlias = Mapping[str, frozenset[Reason]]
"""HPAs of which that was written down since their bounds changed last, by uid, with their share of :data:`UNSAFE`."""

UNSAFE = frozenset({Reason.INCIDENT_HOLD, Reason.COLD_SOURCE, Reason.CHANGED_BY_OTHERS})
"""What a process that begins anew can't see for itself."""


def is_due(decision: Decision, noted: Noted) -> bool:
    """Whether what a restart would forget of *decision* is to be written down."""
    if not decision.pending or decision.dry_run:
        return False
    known = noted.get(decision.uid)
    return known is None or bool(_unsafe(decision) - known)


def noted_after(decisions: Iterable[Decision], endings: Mapping[str, Ending], noted: Noted) -> Noted:
    """Return what is noted after a cycle of *decisions* whose writes came to *endings*, *noted* being what was before.

    A note that was not written is due again; so is one of an HPA whose bounds changed.
    """
    found = {}
    for decision in decisions:
        ending = endings.get(decision.uid)
        written = decision.pending and ending in ("written", "unneeded")
        if written or (ending is None and decision.uid in noted):
            found[decision.uid] = _unsafe(decision)
    return found


def _unsafe(decision: Decision) -> frozenset[Reason]:
    return UNSAFE & {cause.reason for cause in decision.causes}


__all__ = ["UNSAFE", "Noted", "is_due", "noted_after"]

"""The running controller's record of each HPA from cycle to cycle, by uid, and the part to write down at once.

After a change of leadership the histories are unknown: another replica may have written meanwhile, and its knowledge is
in the HPA's state annotation. :func:`~hpa_scaler.judge.ownership.valid_history` says when an annotation counts
instead of a record.

The state annotation gets the waiting conditions of a lowering with the next change of the bounds, and on a clean
shutdown. After a kill the next process waits from the start: that costs some pods for a while, but avoids a write for
each wobble of each query. Only facts without which a restart would be unsafe are written at once: an incident, a gap in
the answers, a correlated drop, a series that became several, a contest, or a bound that is the user's own again. If the
user later set such a bound to the value that the annotation says we set, it would count as ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.parsing import state_text, states_of
from hpa_scaler.documents.timeline import TimelineLog
from hpa_scaler.judge.decision import FloorDecision
from hpa_scaler.judge.history import FloorHistory
from hpa_scaler.judge.ownership import Ending, Remembered, Restoration, unchanged, valid_history
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.reasons import Reason

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
"""Reasons that a new process can't see for itself; for a cold source, the gap before it."""


class Reported(Struct):
    """The first reason and the target of the last cycle, and the time of the last Event for each reason."""

    reason: Reason
    target: int
    times: dict[Reason, float] = {}


class HpaRecord(Struct):
    """Everything that the controller knows of one HPA.

    *remembered* is the history that its judgements continue, with the annotation that goes with it. *noted* is the part
    of :data:`UNSAFE` that is written down. *reported* is what Events have said, *timeline* what the page shows.
    """

    remembered: Remembered | None = None
    noted: frozenset[Reason] = frozenset()
    reported: Reported | None = None
    timeline: TimelineLog | None = None


class Records:
    """The records of HPAs with annotations of *prefix*, of a process that *writes* or makes a dry run."""

    def __init__(self, prefix: str, *, writes: bool) -> None:
        self._prefix = prefix
        self._writes = writes
        self._records: dict[str, HpaRecord] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether the history of an HPA is known."""
        return uid in self._records and self._records[uid].remembered is not None

    def of(self, uid: str) -> HpaRecord:
        """Return the record of an HPA, which is empty at first."""
        return self._records.setdefault(uid, HpaRecord())

    def timelines(self) -> dict[str, TimelineLog]:
        """Return the timelines of all HPAs by ``namespace/name``."""
        return {each.timeline.key: each.timeline for each in list(self._records.values()) if each.timeline is not None}

    def recall(self, hpa: HorizontalPodAutoscaler) -> FloorHistory | None:
        """Return the history of *hpa*, ``None`` if the caller must read the annotation."""
        record = self._records.get(hpa.uid)
        if record is None or record.remembered is None:
            return None
        return valid_history(hpa, record.remembered, state_text(hpa.annotations, self._prefix), writes=self._writes)

    def recorded(self, hpa: HorizontalPodAutoscaler) -> FloorHistory | None:
        """Return the history as :meth:`recall` does, without a maximum that no state annotation records.

        The charts' admission policy lets nobody go below the present maximum then, which counts as the user's.
        """
        history = self.recall(hpa)
        if history is None or states_of(hpa.annotations, self._prefix):
            return history
        return msgspec.structs.replace(history, original_max=None, applied_max=None)

    def ours(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Whether *hpa* has the bounds that we last set, as far as we set any."""
        record = self._records.get(hpa.uid)
        return record is None or record.remembered is None or all(unchanged(hpa, record.remembered.history))

    def keep(
        self,
        hpa: HorizontalPodAutoscaler,
        history: FloorHistory,
        written: str | None = None,
        returned: Restoration | None = None,
    ) -> None:
        """Remember *history* of *hpa*.

        *written* is the new value of the annotation, if we wrote one; *returned* is a return that may have succeeded.
        """
        seen = state_text(hpa.annotations, self._prefix) if written is None else written
        bounds = None if returned is None else (returned.minimum, returned.maximum)
        self.of(hpa.uid).remembered = Remembered(history, seen, bounds)

    def is_due(self, decision: FloorDecision) -> bool:
        """Whether to write a note about *decision* now, because a restart would forget its reasons."""
        return decision.pending and not decision.dry_run and bool(_unsafe(decision) - self.of(decision.uid).noted)

    def settle(self, decisions: Iterable[FloorDecision], endings: Mapping[str, Ending]) -> None:
        """Record what is noted after a cycle of *decisions*; *endings* says by uid how its writes ended.

        A note that was not written is due again. A note about something that is over is dropped.
        """
        for decision in decisions:
            record, ending, unsafe = self.of(decision.uid), endings.get(decision.uid), _unsafe(decision)
            if ending is None:
                record.noted &= unsafe
            else:
                done = ending == "written" or (ending == "unneeded" and decision.pending)
                record.noted = unsafe if done else frozenset()

    def forget(self, uid: str) -> None:
        """Forget one HPA."""
        self._records.pop(uid, None)

    def retain(self, judged: Collection[str], others: Collection[str] = ()) -> None:
        """Forget all HPAs except those of the uids *judged*, and all but the history of *others*."""
        kept = {uid: record for uid, record in self._records.items() if uid in judged}
        kept |= {uid: HpaRecord(self._records[uid].remembered) for uid in others if uid in self._records}
        self._records = kept

    def begin_term(self) -> None:
        """Forget everything but what Events have said: another replica may have led meanwhile."""
        self._records = {uid: HpaRecord(reported=each.reported) for uid, each in self._records.items() if each.reported}


def _unsafe(decision: FloorDecision) -> frozenset[Reason]:
    found = UNSAFE & {cause.reason for cause in decision.causes} - {Reason.COLD_SOURCE}
    # Unless we saw a gap, a new process learns the data's age from the server, or could not have learnt it before.
    return found | {Reason.COLD_SOURCE} if decision.history.recovering else found

"""The running controller's memory of each HPA from cycle to cycle, by uid, and the part to write down at once.

Pure; not thread-safe. After a change of leadership the memory is empty: another replica may have written meanwhile, and
its knowledge is in the HPA's state annotation. An annotation also counts if it is newer than the one last seen or
written: then a write whose answer was lost did succeed, or a write of the previous leader came late. Otherwise our own
bound would count as the user's from then on. An older annotation, for example from a manifest that somebody kept, does
not count, with one exception: nobody else owns a bound that the annotation says we set, and the HPA has exactly these
bounds. Then etcd has restored our earlier write.

The state annotation gets the waiting conditions of a lowering with the next change of the bounds, and on a clean
shutdown. After a kill the next process waits from the start: that costs some pods for a while, but avoids a write for
each wobble of each query. Only facts without which a restart would be unsafe are written at once: an incident, a gap in
the answers, a correlated drop, a series that became several, a contest, or a bound that is the user's own again. If the
user later set such a bound to the value that the annotation says we set, it would count as ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TypeAlias

import msgspec
from msgspec import Struct

from hpa_scaler.decide.decision import FloorDecision
from hpa_scaler.decide.history import FloorHistory, StateError, decode_state
from hpa_scaler.decide.ownership import MANAGER, Ending, Restoration
from hpa_scaler.spec.annotations import STATE, name_of
from tightship.core.objects import HorizontalPodAutoscaler
from tightship.core.reasons import Reason

Noted: TypeAlias = Mapping[str, frozenset[Reason]]
"""The part of :data:`UNSAFE` that is written down for each HPA, by uid."""

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


class _KnownHpa(Struct, frozen=True):
    """A history; the annotation *seen* or written with it; the bounds after a return that may have succeeded."""

    history: FloorHistory
    seen: str | None
    returned: tuple[int, int] | None = None


class Memory:
    """Histories of HPAs with annotations of *prefix*.

    A process that does not write (a dry run) must expect another writer: its history of an HPA counts as long as the
    state annotation does not change.
    """

    def __init__(self, prefix: str, *, writes: bool) -> None:
        self._name = name_of(prefix, STATE)
        self._writes = writes
        self._entries: dict[str, _KnownHpa] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def recall(self, hpa: HorizontalPodAutoscaler) -> FloorHistory | None:
        """Return the history of *hpa*, ``None`` if the caller must read the annotation."""
        entry, state = self._entries.get(hpa.uid), hpa.annotations.get(self._name)
        if entry is None:
            return None
        if state == entry.seen:
            return entry.history
        if not self._writes:
            return None
        if state is None:
            # Somebody removed the annotation, or we gave the HPA back to its user.
            return None if entry.returned == (hpa.min_replicas, hpa.max_replicas) else entry.history
        then, last = _history_in(state), _history_in(entry.seen)
        if then is None:
            return entry.history
        before = 0.0 if last is None else last.evaluated or 0.0
        newer = then.evaluated is not None and then.evaluated >= before
        return None if newer else _brought_back(hpa, entry.history, then)

    def recorded(self, hpa: HorizontalPodAutoscaler) -> FloorHistory | None:
        """Return the history as :meth:`recall` does, without a maximum that no state annotation records.

        The charts' admission policy lets nobody go below the present maximum then, which counts as the user's.
        """
        history = self.recall(hpa)
        if history is None or self._name in hpa.annotations:
            return history
        return msgspec.structs.replace(history, original_max=None, applied_max=None)

    def ours(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Whether *hpa* has the bounds that we last set, as far as we set any."""
        entry = self._entries.get(hpa.uid)
        if entry is None:
            return True
        history = entry.history
        return history.applied_min in (None, hpa.min_replicas) and history.applied_max in (None, hpa.max_replicas)

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
        seen = hpa.annotations.get(self._name) if written is None else written
        bounds = None if returned is None else (returned.minimum, returned.maximum)
        self._entries[hpa.uid] = _KnownHpa(history, seen, bounds)

    def forget(self, uid: str) -> None:
        """Forget one HPA."""
        self._entries.pop(uid, None)

    def retain(self, uids: Collection[str]) -> None:
        """Forget all HPAs except those of *uids*."""
        self._entries = {uid: entry for uid, entry in self._entries.items() if uid in uids}

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()


def _history_in(state: str | None) -> FloorHistory | None:
    """Return the history in the annotation *state*, ``None`` without one that can be read."""
    with suppress(StateError):
        return None if state is None else decode_state(state).history
    return None


def _brought_back(hpa: HorizontalPodAutoscaler, history: FloorHistory, then: FloorHistory) -> FloorHistory:
    """Return *history*, with the owned bounds from *then* if *hpa* has exactly these, and nobody else owns them.

    Otherwise our own floor would count as the user's from then on, and the user's own would be lost.
    """
    applied = (then.applied_min, then.applied_max)
    others = [each for each in hpa.managers if each.manager != MANAGER]
    theirs = any(each.sets_min for each in others), any(each.sets_max for each in others)
    # The user owns a maximum that we had not raised.
    raised = then.original_max != then.applied_max
    ours = applied == (hpa.min_replicas, hpa.max_replicas) and not theirs[0] and not (theirs[1] and raised)
    if not ours or (history.applied_min, history.applied_max) == applied:
        return history
    return msgspec.structs.replace(
        history,
        original_min=then.original_min,
        original_max=then.original_max,
        applied_min=then.applied_min,
        applied_max=then.applied_max,
        seen=None,
    )


def is_due(decision: FloorDecision, noted: Noted) -> bool:
    """Whether to write a note about *decision* now, because a restart would forget its reasons."""
    if not decision.pending or decision.dry_run:
        return False
    return bool(_unsafe(decision) - noted.get(decision.uid, frozenset()))


def noted_after(decisions: Iterable[FloorDecision], endings: Mapping[str, Ending], noted: Noted) -> Noted:
    """Return the notes after a cycle of *decisions*; *endings* are by uid, *noted* are the notes of the cycle before.

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


def _unsafe(decision: FloorDecision) -> frozenset[Reason]:
    found = UNSAFE & {cause.reason for cause in decision.causes} - {Reason.COLD_SOURCE}
    # Unless we saw a gap, a new process learns the data's age from the server, or could not have learnt it before.
    return found | {Reason.COLD_SOURCE} if decision.history.recovering else found

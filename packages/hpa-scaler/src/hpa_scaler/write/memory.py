"""What the running controller knows of each HPA from cycle to cycle, by uid. Pure; not thread-safe.

After a change of leadership nothing is known: another replica may have written meanwhile, and its knowledge is in the
HPA's state annotation. An annotation also counts if it is newer than the one last seen or written: then a write whose
answer was lost did succeed, or a write of the previous leader came late. Otherwise our own bound would count as the
user's from then on. An older annotation, for example from a manifest that somebody kept, does not count. The exception:
nobody else owns a bound that the annotation says we set, and the HPA has exactly these bounds. Then etcd has restored
what we wrote before.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec import Struct

from hpa_scaler.decide.history import History
from hpa_scaler.decide.ownership import MANAGER
from hpa_scaler.decide.state import StateError, decode_state
from hpa_scaler.decide.writing import Restoration
from hpa_scaler.spec.annotations import STATE, name_of
from tightship.core.objects import HorizontalPodAutoscaler


class _Entry(Struct, frozen=True):
    """A history; the annotation *seen* or written with it; the bounds after a return that may have succeeded."""

    history: History
    seen: str | None
    returned: tuple[int, int] | None = None


class Memory:
    """Histories of HPAs with annotations of *prefix*.

    A process that does not write itself (a dry run) must expect that somebody else does: what it knows of an HPA counts
    as long as the state annotation does not change.
    """

    def __init__(self, prefix: str, *, writes: bool) -> None:
        self._name = name_of(prefix, STATE)
        self._writes = writes
        self._entries: dict[str, _Entry] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def recall(self, hpa: HorizontalPodAutoscaler) -> History | None:
        """Return what is known of *hpa*, ``None`` if its annotation has to be read."""
        entry, state = self._entries.get(hpa.uid), hpa.annotations.get(self._name)
        if entry is None:
            return None
        if state == entry.seen:
            return entry.history
        if not self._writes:
            return None
        if state is None:
            # Somebody took it away, or an HPA that we gave back is its user's again.
            return None if entry.returned == (hpa.min_replicas, hpa.max_replicas) else entry.history
        return None if _as_new(state, entry.seen) else _brought_back(hpa, entry.history, state)

    def ours(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Whether *hpa* has the bounds that we last set, as far as we set any."""
        entry = self._entries.get(hpa.uid)
        if entry is None:
            return True
        history = entry.history
        return history.applied_min in (None, hpa.min_replicas) and history.applied_max in (None, hpa.max_replicas)

    def keep(self, hpa: HorizontalPodAutoscaler, history: History, written: str | None = None) -> None:
        """Remember *history* of *hpa*, whose annotation is unchanged unless *written* has its new value."""
        seen = hpa.annotations.get(self._name) if written is None else written
        self._entries[hpa.uid] = _Entry(history, seen)

    def doubt_return(self, hpa: HorizontalPodAutoscaler, history: History, given: Restoration) -> None:
        """Remember that it is unknown whether *hpa* was given back."""
        seen = hpa.annotations.get(self._name)
        self._entries[hpa.uid] = _Entry(history, seen, (given.minimum, given.maximum))

    def forget(self, uid: str) -> None:
        """Forget one HPA."""
        self._entries.pop(uid, None)

    def retain(self, uids: Collection[str]) -> None:
        """Forget all HPAs except those of *uids*."""
        self._entries = {uid: entry for uid, entry in self._entries.items() if uid in uids}

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()


def _as_new(state: str, seen: str | None) -> bool:
    """Whether the annotation *state* was made no earlier than *seen*; one that can't be read was not."""
    made = _made(state)
    return made is not None and made >= (_made(seen) or 0.0)


def _brought_back(hpa: HorizontalPodAutoscaler, history: History, state: str) -> History:
    """Return *history*, with what *state* says of whose the bounds of *hpa* are if both are what we had written before.

    Taken for somebody's change our own floor would be the user's from then on, and the user's own be lost.
    """
    try:
        then = decode_state(state).history
    except StateError:
        return history
    applied = (then.applied_min, then.applied_max)
    others = [each for each in hpa.managers if each.manager != MANAGER]
    theirs = any(each.sets_min for each in others), any(each.sets_max for each in others)
    # A maximum that we had not raised is the user's, and owned by them.
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


def _made(state: str | None) -> float | None:
    if state is None:
        return None
    try:
        return decode_state(state).history.evaluated
    except StateError:
        return None


__all__ = ["Memory"]

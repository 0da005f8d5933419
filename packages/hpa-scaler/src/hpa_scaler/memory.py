"""What the running controller knows of each HPA from cycle to cycle, by uid. Pure; for one thread at a time.

Nothing is known after a change of leadership: another replica may have written meanwhile, and what it knew is in the
HPA's annotation. A write without an answer may have been carried out. Which it was can be told by the HPA the next time
it is read, and must be: taken for not written, our own bound would be the user's from then on.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from hpa_scaler.annotations import STATE, name_of
from hpa_scaler.history import History
from hpa_scaler.policy import Decision
from hpa_scaler.writing import Patch, Restoration
from tightship.objects import HorizontalPodAutoscaler


class _Unheard(Struct, frozen=True):
    """A write that may have been carried out: how the HPA looks then, and what is to be remembered then.

    *written* is ``None`` where the HPA was given back, and nothing is.
    """

    state: str | None
    minimum: int
    maximum: int
    written: History | None

    def carried_out(self, hpa: HorizontalPodAutoscaler, state: str | None) -> bool:
        if self.written is not None:
            # The text has the time of the write: it is ours whatever somebody did to the bounds afterwards.
            return state == self.state
        return state is None and (hpa.min_replicas, hpa.max_replicas) == (self.minimum, self.maximum)


class _Entry(Struct, frozen=True):
    history: History
    unheard: _Unheard | None = None
    seen: str | None = None


class Memory:
    """Histories of HPAs with annotations of *prefix*.

    For a process that *writes* they count until leadership changes. One that does not (a dry run) has to expect that
    somebody else does: what it knows of an HPA counts as long as the state annotation is the same.
    """

    def __init__(self, prefix: str, *, writes: bool) -> None:
        self._name = name_of(prefix, STATE)
        self._writes = writes
        self._entries: dict[str, _Entry] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def recall(self, hpa: HorizontalPodAutoscaler) -> History | None:
        """Return what is known of *hpa*, ``None`` where its annotation has to be read."""
        entry, state = self._entries.get(hpa.uid), hpa.annotations.get(self._name)
        if entry is None or (not self._writes and entry.seen != state):
            return None
        unheard = entry.unheard
        return unheard.written if unheard is not None and unheard.carried_out(hpa, state) else entry.history

    def ours(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Whether the bounds of *hpa* are those that we set last, as far as we set any."""
        entry = self._entries.get(hpa.uid)
        if entry is None or entry.unheard is not None:
            return True
        history = entry.history
        return history.applied_min in (None, hpa.min_replicas) and history.applied_max in (None, hpa.max_replicas)

    def keep(self, hpa: HorizontalPodAutoscaler, history: History) -> None:
        """Remember *history* of *hpa* in the place of everything else."""
        self._entries[hpa.uid] = _Entry(history, seen=hpa.annotations.get(self._name))

    def doubt(self, hpa: HorizontalPodAutoscaler, decision: Decision, patch: Patch) -> None:
        """Remember that nobody knows whether *patch* was carried out, which was to do what *decision* says."""
        target, maximum = decision.target, decision.target_maximum
        self._entries[hpa.uid] = _Entry(decision.history, _Unheard(patch.state, target, maximum, decision.written))

    def doubt_return(self, hpa: HorizontalPodAutoscaler, history: History, given: Restoration) -> None:
        """Remember that nobody knows whether *hpa* was given back."""
        self._entries[hpa.uid] = _Entry(history, _Unheard(None, given.minimum, given.maximum, None))

    def forget(self, uid: str) -> None:
        """Forget one HPA."""
        self._entries.pop(uid, None)

    def retain(self, uids: Collection[str]) -> None:
        """Forget all HPAs but those of *uids*."""
        self._entries = {uid: entry for uid, entry in self._entries.items() if uid in uids}

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()


__all__ = ["Memory"]

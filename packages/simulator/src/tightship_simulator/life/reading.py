"""The store's objects as a snapshot of the judgement, decoded only where they have changed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tightship.cluster import Snapshot
from tightship.cluster.state import ClusterState
from tightship.objects import KINDS, ObjectError, decode
from tightship_simulator.life.changes import Json, key_of


class Reading:
    """Cuts snapshots of what it is told of, of *items* to begin with."""

    def __init__(self, items: Iterable[Json] = ()) -> None:
        self._state = ClusterState()
        self._last: Snapshot | None = None
        for item in items:
            self.put(item)

    def put(self, item: Json) -> None:
        """Take in an object that is new, or has changed."""
        kind = item["kind"]
        if kind not in KINDS:
            return
        self._last = None
        try:
            self._state.upsert(kind, decode(kind, msgspec.json.encode(item)))
        except ObjectError as error:
            self._state.mark_unreadable(error, (item.get("spec") or {}).get("nodeName", "") if kind == "Pod" else "")

    def drop(self, item: Json) -> None:
        """Forget an object that is gone."""
        if item["kind"] in KINDS:
            self._last = None
            self._state.delete(item["kind"], *key_of(item))

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is; the same object while nothing has changed."""
        if self._last is None:
            self._last = self._state.snapshot()
        return self._last


__all__ = ["Reading"]

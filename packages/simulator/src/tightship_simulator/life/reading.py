"""The store's objects as a snapshot of the judgement, decoded only where they have changed."""

from __future__ import annotations

import msgspec

from tightship.cluster import Snapshot
from tightship.cluster.state import ClusterState
from tightship.objects import KINDS, ObjectError, decode
from tightship_simulator.life.changes import Json, Look, key_of


class Reading:
    """Cuts snapshots. An object counts as changed when its ``resourceVersion`` has, or is absent."""

    def __init__(self) -> None:
        self._state = ClusterState()
        self._known: dict[str, dict[tuple[str, str], str | None]] = {kind: {} for kind in sorted(KINDS)}
        self._last: Snapshot | None = None

    def _take(self, kind: str, item: Json) -> None:
        try:
            self._state.upsert(kind, decode(kind, msgspec.json.encode(item)))
        except ObjectError as error:
            self._state.mark_unreadable(error, (item.get("spec") or {}).get("nodeName", "") if kind == "Pod" else "")

    def snapshot(self, look: Look) -> Snapshot:
        """Return the cluster as *look* shows it; the same object while nothing has changed."""
        changed = self._last is None
        for kind, known in self._known.items():
            seen = set()
            for item in look(kind):
                key, version = key_of(item), item["metadata"].get("resourceVersion")
                seen.add(key)
                if version is not None and known.get(key) == version:
                    continue
                self._take(kind, item)
                known[key] = version
                changed = True
            for key in known.keys() - seen:
                self._state.delete(kind, *key)
                del known[key]
                changed = True
        if self._last is None or changed:
            self._last = self._state.snapshot()
        return self._last

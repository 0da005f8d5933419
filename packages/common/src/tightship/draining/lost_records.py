"""Records of drains that vanish from their nodes soon after they were written, as where a policy cleans metadata.

A node's back-off is a record too. So without a memory of our own, the same nodes would be cordoned and given back
without end. Who removes a note by hand does so later, and is obeyed at once.
"""

from __future__ import annotations

from tightship.cluster import Snapshot
from tightship.kube.host import monotonic
from tightship.objects.backoff import doubled
from tightship.objects.drain_record import DRAIN_ANNOTATION, Phase
from tightship.objects.durations import format_duration
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.nodes import drain_record

SEEN = 5.0
"""Seconds after which the cache shows what was written."""

SOON = 60.0
"""Seconds after which a note that is still there stays, unless somebody removes it by hand."""

FIRST, LAST = 60.0, 3600.0
"""Seconds without a claim after a record has vanished, doubled from the first to the last."""


class LostRecords:
    """The records that vanished lately, and for how long nothing is claimed therefore."""

    def __init__(self) -> None:
        self._times = 0
        self._until = 0.0
        self._node = ""
        # When the note about a drain that failed was written on each node, and until when it holds; the nodes that
        # don't show theirs.
        self._noted: dict[str, tuple[float, float]] = {}
        self._missing: set[str] = set()

    @property
    def problem(self) -> str:
        """A sentence while nothing is claimed, empty otherwise."""
        if monotonic() >= self._until:
            return ""
        return (
            f"Annotation {DRAIN_ANNOTATION} vanished from node {self._node} soon after it was written, so no drain "
            "begins for a while: exempt this annotation from what cleans the metadata of nodes."
        )

    def lost(self, node: str) -> None:
        """Record that a record vanished from *node*."""
        self._until = monotonic() + doubled(FIRST, LAST, self._times)
        self._times, self._node = self._times + 1, node

    def ended(self, node: str, *, lost: bool, backoff: float) -> None:
        """Record that a drain has ended: its record is *lost*, or a note on *node* holds for *backoff* seconds."""
        now = monotonic()
        if lost:
            self.lost(node)
        elif backoff > 0:
            self._noted[node] = now, now + backoff

    def look(self, snapshot: Snapshot) -> None:
        """See which notes are still there."""
        now = monotonic()
        self._missing.clear()
        for name, (since, until) in list(self._noted.items()):
            view = snapshot.nodes.get(name)
            record = drain_record(view.node) if view is not None else None
            if record is not None and record.phase is Phase.BACKOFF:
                if now < since + SOON:
                    continue
                self._times = 0
            elif view is not None and now < until and (record is None or not record.owns_node):
                # A mark may stand there by now.
                self._missing.add(name)
                if now < since + SEEN:
                    continue
                self.lost(name)
            del self._noted[name]

    def refusal(self, node: str) -> Refusal | None:
        """Return why *node* is not claimed now."""
        left = self._until - monotonic()
        if left <= 0:
            detail = "its last drain has just failed, and the note about that is not there"
            return Refusal(Reason.BACKOFF, node, detail) if node in self._missing else None
        detail = f"a drain's record vanished from node {self._node}; next try in {format_duration(left)}"
        return Refusal(Reason.BACKOFF, node, detail)


__all__ = ["LostRecords"]

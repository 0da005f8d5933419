"""Drains and claims of other controllers, watched until one of them may count as an orphan.

No clock alone makes an orphan: what others wrote must be old by the server's clock, and must also have stood still for
hours while this replica looked on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from tightship.core.drain_record import DRAIN_ANNOTATION, UNDER_WAY, DrainRecord
from tightship.core.objects import Node
from tightship.drain_io.claims import Claim
from tightship.kube.host import monotonic
from tightship.planning.cluster import Snapshot
from tightship.planning.nodes import drain_record

ORPHAN_AFTER = 24 * 3600.0
"""Seconds, by the server's clock, since its last phase began, after which another controller's drain is an orphan."""

ORPHAN_WATCHED = 6 * 3600.0
"""Seconds for which this replica must also have seen the drain stand still."""

ELSEWHERE_WATCHED = 60.0
"""Seconds for which another controller's drain must lack a claim: node and ledger are not read at the same time."""

K = TypeVar("K")
_Still = dict[K, tuple[str, float]]


def _still(known: _Still[K], found: Mapping[K, str]) -> _Still[K]:
    """Return since when each of *found* has been unchanged, by the monotonic clock."""
    now = monotonic()
    return {key: known[key] if known.get(key, ("",))[0] == text else (text, now) for key, text in found.items()}


class Others:
    """What controllers other than *controller* have written, and since when this replica has seen it unchanged."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._drains: _Still[str] = {}
        self._claims: _Still[str] = {}
        self._unclaimed: _Still[tuple[str, str]] = {}

    @property
    def elsewhere(self) -> Sequence[tuple[str, str]]:
        """Nodes in drain by a controller that keeps its claims elsewhere, each with that controller's name."""
        seen = monotonic() - ELSEWHERE_WATCHED
        return sorted(drain for drain, (_, since) in self._unclaimed.items() if since <= seen)

    def see_drains(self, nodes: Sequence[Node]) -> None:
        """Record the drains on *nodes*, which others own."""
        self._drains = _still(self._drains, {node.uid: node.annotations[DRAIN_ANNOTATION] for node in nodes})

    def see_claims(self, claims: Sequence[Claim], snapshot: Snapshot) -> None:
        """Record the *claims* of others, and the drains of others in *snapshot* that have no claim."""
        self._claims = _still(
            self._claims, {each.op: each.holder for each in claims if each.controller != self._controller}
        )
        claimed = {each.op for each in claims}
        found: dict[tuple[str, str], str] = {}
        for name, view in snapshot.nodes.items():
            record = drain_record(view.node)
            if record is None or record.controller == self._controller or record.op in claimed:
                continue
            # After a drain, or once an autoscaler has taken the node, the claim may go first.
            if record.phase in UNDER_WAY:
                found[name, record.controller] = record.op
        self._unclaimed = _still(self._unclaimed, found)

    def drain_orphaned(self, node: Node, record: DrainRecord, now: float) -> bool:
        """Whether the drain on *node* is an orphan at *now* (seconds since 1970 by the server's clock)."""
        return _orphaned(self._drains.get(node.uid), max([record.deadline or 0.0, *record.since.values()]), now)

    def claim_orphaned(self, claim: Claim, now: float) -> bool:
        """Whether *claim* is an orphan at *now*."""
        return _orphaned(self._claims.get(claim.op), claim.since, now)


def _orphaned(still: tuple[str, float] | None, last: float, now: float) -> bool:
    watched = still is not None and monotonic() >= still[1] + ORPHAN_WATCHED
    return watched and now >= last + ORPHAN_AFTER

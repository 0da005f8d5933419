"""Drains and claims of others, watched until one of them may count as an orphan.

No clock alone makes an orphan: what others wrote must be old by the server's clock, and must also have stood still for
hours while this replica looked on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.draining.claims import Claim
from tightship.kube.host import monotonic
from tightship.objects import Node
from tightship.objects.drain_record import DRAIN_ANNOTATION, UNDER_WAY, Phase
from tightship.objects.pod import DRAINING
from tightship.rules.nodes import drain_record

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
    """What others than the installation *lease* of *controller* have written, and since when it is unchanged.

    *beside* tells which other installations may be alive. While *releasing* is true, only the drains under *lease* are
    ours.
    """

    def __init__(
        self,
        controller: str,
        lease: str,
        *,
        beside: Callable[[], Beside],
        releasing: Callable[[], bool],
    ) -> None:
        self._controller = controller
        self._lease = lease
        self._beside = beside
        self._releasing = releasing
        self._drains: _Still[str] = {}
        self._claims: _Still[str] = {}
        self._unclaimed: _Still[tuple[str, str]] = {}

    @property
    def elsewhere(self) -> Sequence[tuple[str, str]]:
        """Nodes in drain by an installation that keeps its claims elsewhere, each with the name of its controller."""
        seen = monotonic() - ELSEWHERE_WATCHED
        return sorted(drain for drain, (_, since) in self._unclaimed.items() if since <= seen)

    def see_drains(self, nodes: Sequence[Node]) -> None:
        """Record the drains on *nodes*, which others own."""
        self._drains = _still(self._drains, {node.uid: node.annotations[DRAIN_ANNOTATION] for node in nodes})

    def see_claims(self, claims: Sequence[Claim], snapshot: Snapshot) -> None:
        """Record the *claims* of others, and the drains of others in *snapshot* that have no claim.

        Whoever is or was a listed installation keeps its claims here, even if the list of claims was lost.
        """
        self._claims = _still(
            self._claims, {each.op: each.holder for each in claims if each.controller != self._controller}
        )
        claimed, sharing = {each.op for each in claims}, self._beside().known
        found: dict[tuple[str, str], str] = {}
        for name, view in snapshot.nodes.items():
            record = drain_record(view.node)
            if record is None or record.op in claimed or record.lease in sharing:
                continue
            if record.controller == self._controller and record.lease == self._lease:
                continue
            # After a drain, or once an autoscaler has taken the node, the claim may go first.
            if record.phase in UNDER_WAY:
                found[name, record.controller] = record.op
        self._unclaimed = _still(self._unclaimed, found)

    def owns(self, node: Node) -> bool:
        """Whether *node* is in a drain of this installation, or of one that shared its claims and is gone."""
        record = drain_record(node)
        if record is None or not record.owns_node or record.controller != self._controller:
            return False
        if record.lease == self._lease or self._releasing():
            return record.lease == self._lease
        # Of an installation that keeps its claims elsewhere, nobody knows whether it is alive.
        elsewhere = self._unclaimed.get((node.name, record.controller), ("",))[0] == record.op
        return not (elsewhere or self._beside().foreign(record.lease))

    def owns_claim(self, claim: Claim) -> bool:
        """Whether *claim* is one of this installation, or of one that is gone."""
        return claim.controller == self._controller and not self._beside().foreign(claim.lease)

    def hold(self, node: Node) -> bool:
        """Whether *node* is in a drain of others."""
        record = drain_record(node)
        return record is not None and record.owns_node and not self.owns(node)

    def forsaken(self, claim: Claim, now: float, *, others: bool) -> bool:
        """Whether it is for us to see what became of *claim*; *others* says that orphans of other controllers are."""
        if claim.controller == self._controller:
            return self.owns_claim(claim)
        return others and _orphaned(self._claims.get(claim.op), claim.since, now)

    def suspicious(self, node: Node, now: float, *, others: bool, unreadable: bool) -> bool:
        """Whether it is for us to repair *node*, or to drive its drain, at *now* (seconds since 1970 by the server).

        *others* says that orphans of others are ours to take, *unreadable* that nobody's in particular are.
        """
        record = drain_record(node)
        if self.owns(node):
            return True
        if record is not None and record.phase is Phase.UNKNOWN:
            return others or unreadable  # nobody's in particular: also where others' drains don't count
        if not others:
            return False
        if record is None or not record.owns_node:
            return any(taint.key == DRAINING.key for taint in node.taints)
        if record.controller == self._controller and self._beside().foreign(record.lease):
            return False
        last = max([record.deadline or 0.0, *record.since.values()])
        return _orphaned(self._drains.get(node.uid), last, now)


def _orphaned(still: tuple[str, float] | None, last: float, now: float) -> bool:
    watched = still is not None and monotonic() >= still[1] + ORPHAN_WATCHED
    return watched and now >= last + ORPHAN_AFTER

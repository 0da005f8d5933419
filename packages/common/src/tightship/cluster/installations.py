"""Which installation of a controller may touch what. Pure.

An installation is known by the Lease of its election (``namespace/name``). Installations that share the claims also
share a list of each other, in the order in which they came. Of those that drain the same pool, the first in that list
holds the pool. :mod:`tightship.draining.installations` keeps the list, and drops whom nobody hears of any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32

from msgspec import Struct

from tightship.cluster.pools import KNOWN_POOL_LABELS, pool_of, shown
from tightship.objects import Node
from tightship.objects.reasons import Reason, Refusal

EVERY_OTHER = "*"
"""Stands for every pool without an entry of its own."""


class Installation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One installation of *controller*, which leads by *lease*.

    *pools* says by name which pools it drains. *labels* are the node labels by which it tells pools, none for the known
    ones. *renewed* changes with each sign of life; others wait *lasts* seconds for the next one.
    """

    lease: str
    controller: str
    pools: Mapping[str, bool] = {}
    labels: tuple[str, ...] = ()
    since: str = ""
    renewed: str = ""
    lasts: float = 0.0

    def drains(self, node: Node) -> bool:
        """Whether it drains the pool of *node*."""
        pool = pool_of(node, self.labels or KNOWN_POOL_LABELS)
        return self.pools.get(pool, self.pools.get(EVERY_OTHER, False))


class Beside(Struct, frozen=True):
    """The installation that judges, of *controller* by *lease*, and those beside it.

    *listed* are all installations in their order, *known* the Leases of all that have ever been listed, *alive* those
    that may be alive, by :func:`short`; ``None`` as long as nobody has watched for long enough to know. Without a
    *lease* nobody else counts, as in a plan on the command line.
    """

    controller: str = ""
    lease: str = ""
    listed: tuple[Installation, ...] = ()
    alive: frozenset[str] | None = frozenset()
    known: frozenset[str] = frozenset()

    @property
    def mark(self) -> str:
        """What tells our soft taints and deletion costs from those of others."""
        return f"{self.controller}.{short(self.lease)}" if self.lease else self.controller

    def foreign(self, lease: str) -> bool:
        """Whether what was written under *lease* belongs to another installation that may be alive."""
        return bool(lease) and self._lives(short(lease))

    def ours(self, mark: str) -> bool:
        """Whether the soft taint or deletion cost with *mark* is ours, or was left by an installation that is gone."""
        controller, _, lease = mark.partition(".")
        return controller == self.controller and not self._lives(lease)

    def holder(self, node: Node) -> Installation | None:
        """Return the other installation that holds the pool of *node*, which we drain too; ``None`` if we hold it."""
        first = None
        for each in self.listed:
            if each.controller == self.controller and each.drains(node):
                if each.lease == self.lease:
                    return first
                first = first or each
        return None

    def refusal(self, node: Node) -> Refusal | None:
        """Return why *node* is another installation's to drain, ``None`` if no other one holds its pool."""
        holder = self.holder(node)
        if holder is None:
            return None
        pool = pool_of(node, holder.labels or KNOWN_POOL_LABELS)
        detail = f"the installation with Lease {holder.lease} drains pool {shown(pool)} too, and was here first"
        return Refusal(Reason.OTHER_INSTALLATION, node.name, detail, "drain each pool by one installation only")

    def others(self) -> Sequence[Installation]:
        """Return the other installations of this controller."""
        return [each for each in self.listed if each.controller == self.controller and each.lease != self.lease]

    def _lives(self, lease: str) -> bool:
        if not self.lease or not lease or lease == short(self.lease):
            return False
        return self.alive is None or lease in self.alive


def short(lease: str) -> str:
    """Return *lease* in a form that fits into the value of a taint."""
    return f"{crc32(lease.encode()):08x}"

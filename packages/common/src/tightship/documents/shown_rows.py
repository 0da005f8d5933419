"""Which of a plan's nodes an output for people prints, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from tightship.documents.document import NodeEntry, NodePlan, Share
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason

DEFAULT_ORDER = "decision"

_Key = Callable[[NodeEntry], tuple[float | str, ...]]


def _ratio(share: Share) -> float:
    return share.ratio if share.ratio is not None else -1.0


_KEYS: Mapping[str, _Key] = {
    DEFAULT_ORDER: lambda node: (
        node.order if node.order is not None else float("inf"),
        node.pool,
        _ratio(node.cpu_milli),
        node.name,
    ),
    "name": lambda node: (node.name,),
    "pool": lambda node: (node.pool, _ratio(node.cpu_milli), node.name),
    "cpu": lambda node: (_ratio(node.cpu_milli), node.name),
    "memory": lambda node: (_ratio(node.memory_bytes), node.name),
    "price": lambda node: (-(node.cost.micros_per_hour if node.cost is not None else -1), node.name),
    "age": lambda node: (-(node.age_seconds or 0), node.name),
}

ORDERS: tuple[str, ...] = tuple(_KEYS)
"""Words of ``--sort-by``. ``decision``: removals in their order, then the rest by pool and CPU ratio; ``age``: the
oldest first; ``price``: the dearest first; ``cpu`` and ``memory``: the emptiest first."""


def sorted_nodes(nodes: tuple[NodeEntry, ...], by: str) -> tuple[NodeEntry, ...]:
    """Return *nodes* in the order of one of :data:`ORDERS`, then by name."""
    return tuple(sorted(nodes, key=_KEYS[by]))


SHOW: Final = ("removals", "kept", "all")
"""Words of ``--show``."""

SUMMARY_FROM = 100
"""Nodes from which on a plan is printed as a summary unless ``-o`` says otherwise."""

SUMMARY_ROWS = 5
"""Nodes that a summary prints unless ``--limit-rows`` says otherwise."""


class ShownRows(Struct, frozen=True):
    """What ``--show`` and ``--limit-rows`` say; without *show*, nodes that stay for a reason of *unasked* are left out.

    Such nodes are those that ``--pool``, ``--selector`` and ``--max-nodes`` exclude.
    """

    show: str = ""
    limit: int | None = None
    unasked: frozenset[Reason] = frozenset({Reason.NOT_SELECTED})

    def of(self, plan: NodePlan, *, brief: bool = False) -> tuple[tuple[NodeEntry, ...], str]:
        """Return the nodes of *plan* to print, and what says that there are more; *brief* is as a summary has them."""
        show = self.show or ("removals" if brief and plan.summary.nodes.removed else "")
        limit = SUMMARY_ROWS if self.limit is None and brief else self.limit
        found = plan.nodes
        if show in ("removals", "kept"):
            found = tuple(each for each in found if (each.decision == "remove") == (show == "removals"))
        elif not show:
            found = tuple(each for each in found if not self.unasked.intersection(each.reasons))
        rows = found if limit is None else found[:limit]
        if len(rows) == len(plan.nodes):
            return rows, ""
        left = len(found) - len(rows)
        if not left:
            return rows, "" if brief else f"{counted(len(rows), 'row')} of {counted(len(plan.nodes), 'node')}"
        noun = {"removals": "more removal", "kept": "more kept node"}.get(show, "more node")
        return rows, f"and {counted(left, noun)} (--show {show or 'all'} --limit-rows {len(found)}, or -o table)"

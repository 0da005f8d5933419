"""The orders of a plan's nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tightship.documents.document import NodeEntry, Share

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

"""Where the pods of one node fit, asked for all of them at once: a plan asks for thousands, each array for hundreds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tightship.planning.placement.space import Ask, Space
from tightship.planning.placement.topology import NodeMask

_MANY = 4
"""Asks from which judging all at once is faster than one after another."""

_FEW = 3
"""Nodes up to which looking at each is faster than looking at all."""

_NOTHING = -(2**62)
"""What any node has left, even one whose pods request more than it has."""


def feasible_each(space: Space, asks: Sequence[Ask]) -> dict[Ask, NodeMask]:
    """Return what :meth:`Space.feasible` does for each of *asks*, which differ."""
    if len(asks) < _MANY:
        return {ask: space.feasible(ask) for ask in asks}
    masks = np.array([ask.static for ask in asks])
    masks &= space.open
    wanted: dict[int, list[int]] = {}
    for number, ask in enumerate(asks):
        for row, amount in ask.rows:
            wanted.setdefault(row, [_NOTHING] * len(asks))[number] = amount
    for row, amounts in wanted.items():
        masks &= space.free[row] >= np.array(amounts)[:, None]
    space.constraints.restrict_all(masks, asks)
    return dict(zip(asks, masks, strict=True))


def left_over(space: Space, ask: Ask, mask: NodeMask, nodes: Mapping[int, int]) -> NodeMask:
    """Return where *ask* still fits of the nodes in *mask*, now that others that are apart have *nodes*."""
    taken = [node for node in set(nodes.values()) if mask[node]]
    if len(taken) > _FEW:
        return space.feasible(ask)
    gone = [node for node in taken if not space.accepts(ask, node)]
    if gone:
        mask = mask.copy()
        mask[gone] = False
    return mask

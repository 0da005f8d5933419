"""Where the pods of one node fit, asked for all of them at once: a plan asks for thousands, each array for hundreds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tightship.scheduler.space import PodDemand, Space
from tightship.scheduler.topology import NodeMask

_MANY = 4
"""Asks from which judging all at once is faster than one after another."""

_FEW = 3
"""Nodes up to which looking at each is faster than looking at all."""

_NOTHING = -(2**62)
"""What any node has left, even one whose pods request more than it has."""


def feasible_each(space: Space, demands: Sequence[PodDemand]) -> dict[PodDemand, NodeMask]:
    """Return what :meth:`Space.feasible` does for each of *demands*, which differ."""
    if len(demands) < _MANY:
        return {demand: space.feasible(demand) for demand in demands}
    masks = np.array([demand.static for demand in demands])
    masks &= space.open
    wanted: dict[int, list[int]] = {}
    for number, demand in enumerate(demands):
        for row, amount in demand.rows:
            wanted.setdefault(row, [_NOTHING] * len(demands))[number] = amount
    for row, amounts in wanted.items():
        masks &= space.free[row] >= np.array(amounts)[:, None]
    space.constraints.restrict_all(masks, demands)
    return dict(zip(demands, masks, strict=True))


def left_over(space: Space, demand: PodDemand, mask: NodeMask, nodes: Mapping[int, int]) -> NodeMask:
    """Return where *demand* still fits of the nodes in *mask*, now that node-local others have *nodes*."""
    taken = [node for node in set(nodes.values()) if mask[node]]
    if len(taken) > _FEW:
        return space.feasible(demand)
    gone = [node for node in taken if not space.accepts(demand, node)]
    if gone:
        mask = mask.copy()
        mask[gone] = False
    return mask

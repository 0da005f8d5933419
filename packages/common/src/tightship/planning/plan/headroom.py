"""Room that CapacityBuffers keep free, while a plan grows.

kube-scheduler ignores buffers, and pods take any free room. Afterwards an autoscaler checks again and again whether the
pods of a buffer would still fit anywhere, and adds nodes if they don't. So this module places nothing: it counts how
many pods would fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from tightship.core.objects import Pod
from tightship.core.reasons import Reason, Refusal
from tightship.core.resources import Resources
from tightship.planning.cluster import Headroom, Snapshot
from tightship.planning.cluster.state import add
from tightship.planning.placement.scoring import best_fit
from tightship.planning.placement.space import Ask, Space

SHOWN = 3
"""Buffers that a refusal names."""


class _Units(Struct, frozen=True):
    """The pods of one buffer, which *ask* alike."""

    of: Headroom
    ask: Ask


class BufferRoom:
    """Watches whether buffers lack more room in *space* than they did at first."""

    def __init__(self, space: Space, snapshot: Snapshot) -> None:
        self._space = space
        pods = [(each, each.pod) for each in snapshot.headroom if each.pod is not None and each.count]
        asked = [_Units(each, space.ask(pod)) for each, pod in pods if pod.spec.scheduler in snapshot.schedulers]
        self._units = [each for each in asked if each.ask.unknown is None]
        self.held: Mapping[str, Resources] = {}
        """The amounts that buffers would take, by node."""
        self._lacking = self._count(note=True)

    @property
    def promised(self) -> list[tuple[Pod, int]]:
        """Return how many pods of each buffer had room at first: they keep room while a plan grows."""
        return [
            (each.of.pod, each.of.count - lacking)
            for each, lacking in zip(self._units, self._lacking, strict=True)
            if each.of.pod is not None
        ]

    def refusal(self, node: str) -> Refusal | None:
        """Return why *node* can't go, with *space* as it would be then: buffers would lack room they had at first."""
        if not self._units:
            return None
        now = self._count()
        short = [each.of for each, was, lacks in zip(self._units, self._lacking, now, strict=True) if lacks > was]
        if not short:
            return None
        more = f" and {len(short) - SHOWN} more" if len(short) > SHOWN else ""
        detail = (
            f"{'; '.join(str(each) for each in short[:SHOWN])}{more}: without this node that room would be too small"
        )
        return Refusal(Reason.BUFFER_NEEDS_NODE, node, detail, "shrink the buffer, or add capacity for it")

    def _count(self, *, note: bool = False) -> Sequence[int]:
        """Return how many pods of each buffer have no room. With *note*, also record where the other pods have room."""
        space, lacking = self._space, list[int]()
        held: dict[str, dict[str, int]] = {}
        mark = space.mark()
        for units in self._units:
            left = units.of.count
            for node, many in self._places(units.ask, left):
                left -= many
                for _ in range(many if note and units.of.pod is not None else 0):
                    add(held.setdefault(space.names[node], {}), units.of.pod.requests if units.of.pod else {})
            lacking.append(left)
        space.rollback(mark)
        if note:
            self.held = held
        return lacking

    def _places(self, ask: Ask, count: int) -> list[tuple[int, int]]:
        """Place up to *count* pods. Return the nodes, and how many pods each got."""
        space, found = self._space, list[tuple[int, int]]()
        while count and len(nodes := np.flatnonzero(space.feasible(ask))):
            node = best_fit(space, ask, nodes)
            many = min(count, self._fits(ask, node)) if ask.plain else 1
            for _ in range(many):
                space.place(ask, node)
            found.append((node, many))
            count -= many
        return found

    def _fits(self, ask: Ask, node: int) -> int:
        """Return how many pods that request only amounts fit on *node*, at least one."""
        return max(
            1, min((int(self._space.free[row, node]) // amount for row, amount in ask.rows if amount), default=1)
        )


def together(some: Mapping[str, Resources], others: Mapping[str, Resources]) -> Mapping[str, Resources]:
    """Return the amounts of both, by node."""
    if not others:
        return some
    total = {name: dict(amounts) for name, amounts in some.items()}
    for name, amounts in others.items():
        add(total.setdefault(name, {}), amounts)
    return total

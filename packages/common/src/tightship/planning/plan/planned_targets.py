"""Sends pods to the targets that are known before their plan is made."""

from __future__ import annotations

from tightship.planning.placement.scoring import Choice, Indices
from tightship.planning.placement.space import Ask, Space


class PlannedTargets:
    """A :data:`~tightship.planning.placement.scoring.Choice` of the targets that are known, where they fit."""

    def __init__(self, otherwise: Choice) -> None:
        self._otherwise = otherwise
        self._wanted: dict[int, list[int]] = {}
        self._taken: list[tuple[int, int, int]] = []

    def expect(self, targets: list[tuple[Ask, int]]) -> None:
        """From now on place pods with these asks on these nodes."""
        self._wanted = {}
        self._taken = []
        for ask, node in targets:
            self._wanted.setdefault(id(ask), []).append(node)

    def __call__(self, space: Space, ask: Ask, nodes: Indices) -> int:
        mark = space.mark()
        # The planner undoes choices when it starts over: those made at this point of the journal or later.
        while self._taken and self._taken[-1][0] >= mark:
            _, key, node = self._taken.pop()
            self._wanted[key].append(node)
        wanted = self._wanted.get(id(ask), [])
        for node in sorted(wanted):
            if (nodes == node).any():
                wanted.remove(node)
                self._taken.append((mark, id(ask), node))
                return node
        return self._otherwise(space, ask, nodes)

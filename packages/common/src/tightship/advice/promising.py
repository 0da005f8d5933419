"""Sets of changes to plan with, the most promising first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping

from tightship.advice.model import Gain
from tightship.planning.changes import Change

Changes = frozenset[Change]

MOST_CHANGES = 12
"""Most changes in a set. Nobody makes more of them to free a node."""


class Promising:
    """A queue of sets: single changes first, then pairs, then larger ones; of each, what could gain most first.

    *blockers* are the changes against all that is known to keep each node, by name. *worth* is what nodes are worth.
    """

    def __init__(self, blockers: Mapping[str, Changes], worth: Callable[[Iterable[str]], Gain]) -> None:
        self._worth = worth
        self._nodes: dict[Changes, list[str]] = {}
        for name, each in blockers.items():
            self._nodes.setdefault(each, []).append(name)
        self._known: set[Changes] = set()
        self._heap: list[tuple[int, Gain, int, str, Changes]] = []
        for each in self._nodes:
            self.add(each)

    def add(self, changes: Changes) -> None:
        """Queue *changes*, unless they have been queued before or are too many."""
        if not changes or len(changes) > MOST_CHANGES or changes in self._known:
            return
        self._known.add(changes)
        bound = self._worth(self.frees(changes))
        order = min(len(changes), 3), Gain(-bound.micros, -bound.nodes), len(changes)
        heapq.heappush(
            self._heap, (*order, ", ".join(sorted(f"{each.reason} {each.thing}" for each in changes)), changes)
        )

    def frees(self, changes: Changes) -> list[str]:
        """Return the nodes against whose known blockers *changes* have everything."""
        return [name for each, names in self._nodes.items() if each <= changes for name in names]

    def take(self) -> tuple[Changes, Gain] | None:
        """Return the next set and a bound of its gain, ``None`` after the last one."""
        if not self._heap:
            return None
        _, worst, _, _, changes = heapq.heappop(self._heap)
        return changes, Gain(-worst.micros, -worst.nodes)

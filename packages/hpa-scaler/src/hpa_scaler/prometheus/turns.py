"""Fair turns at a server: no HPA delays the others, because its queries take turns and get no more than their share."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from hpa_scaler.spec.queries import Query

Asks = Mapping[str, Sequence[Query]]
"""The queries of each HPA, in its own order."""
NOBODY: Asks = MappingProxyType({})


class Turns:
    """The turns of one cycle. Each HPA has *share* seconds for all its queries; a shared query costs each its part."""

    def __init__(self, asks: Asks, share: float, clock: Callable[[], float]) -> None:
        self.share = share
        self._clock = clock
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._askers: defaultdict[Query, list[str]] = defaultdict(list)
        self._ranks: dict[Query, int] = {}
        for who, queries in asks.items():
            for rank, query in enumerate(queries):
                self._askers[query].append(who)
                self._ranks[query] = min(rank, self._ranks.get(query, rank))

    def ordered(self, texts: Mapping[str, Sequence[Query]]) -> list[str]:
        """Return *texts* in turns: the first query of each HPA, then the second of each, and so on.

        Within a turn the order changes each time, so that a slow query does not always delay the same neighbours.
        """
        mixed = random.sample(sorted(texts), len(texts))
        return sorted(mixed, key=lambda text: min(self._ranks.get(query, 0) for query in texts[text]))

    def who(self, queries: Iterable[Query]) -> set[str]:
        """Return the HPAs that ask *queries*."""
        return {each for query in queries for each in self._askers.get(query, ())}

    def left(self, queries: Iterable[Query]) -> float:
        """Return how many seconds *queries*, which are one question, may still take; 0 or less: none."""
        return max((self._left(query) for query in queries), default=math.inf)

    def _left(self, query: Query) -> float:
        return self.share - min((self._spent[each] for each in self._askers.get(query, ())), default=-math.inf)

    def spend(self, queries: Iterable[Query], seconds: float) -> None:
        """Record that *queries*, which are one question, took so many *seconds*."""
        who = self.who(queries)
        for each in who:
            self._spent[each] += seconds / len(who)


__all__ = ["NOBODY", "Asks", "Turns"]

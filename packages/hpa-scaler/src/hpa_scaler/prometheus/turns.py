"""Whose turn it is at a server: no HPA delays the others, for its queries take turns, and no more than their share."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from hpa_scaler.queries import Query

Askers = Mapping[Query, Sequence[str]]
"""Who asks each query, in the order in which each of them asks."""
NOBODY: Askers = MappingProxyType({})


class Turns:
    """The turns of one cycle; each asker has *share* seconds for all it asks, a query of several costs each a part."""

    def __init__(self, askers: Askers, share: float, clock: Callable[[], float]) -> None:
        self.share = share
        self._askers = askers
        self._clock = clock
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._ranks: dict[Query, int] = {}
        asked: Counter[str] = Counter()
        for query, who in askers.items():
            self._ranks[query] = min((asked[each] for each in who), default=0)
            asked.update(who)

    def ordered(self, texts: Mapping[str, Sequence[Query]]) -> list[str]:
        """Return *texts* in turns: what each asks first, then what each asks second, and so on.

        Within these in another order each time: what is slow must not always meet the same neighbours.
        """
        mixed = random.sample(sorted(texts), len(texts))
        return sorted(mixed, key=lambda text: min(self._ranks.get(query, 0) for query in texts[text]))

    def who(self, queries: Iterable[Query]) -> set[str]:
        """Return who asks *queries*."""
        return {each for query in queries for each in self._askers.get(query, ())}

    def left(self, queries: Iterable[Query]) -> float:
        """Return how many seconds *queries*, which are one question, may take; 0 or less: none any more."""
        return max((self._left(query) for query in queries), default=math.inf)

    def _left(self, query: Query) -> float:
        return self.share - min((self._spent[each] for each in self._askers.get(query, ())), default=-math.inf)

    def spend(self, queries: Iterable[Query], seconds: float) -> None:
        """Take note that *queries*, which are one question, have taken so long."""
        who = self.who(queries)
        for each in who:
            self._spent[each] += seconds / len(who)


__all__ = ["NOBODY", "Askers", "Turns"]

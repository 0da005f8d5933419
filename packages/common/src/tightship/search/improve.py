"""Ruin and recreate: fewer and fewer nodes, then fewer moves.

The bound says about how many nodes of each sort to keep, which gives a first state. Then one node after another is
closed. A pod without a place makes lighter ones leave, which look for places in turn; it weighs more the longer it
stays without one. From time to time a kept node changes places with a removed one. At last nodes with many pods
change places with nodes with few. Everything random comes from a seed: equal iterations give equal states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.search.bound import Bound
from tightship.search.ejection import Places
from tightship.search.problem import Problem
from tightship.search.state import Packing

FEWER_NODES = 0.7
"""The part of the effort spent on fewer nodes; the rest, and what is left at the bound, goes to fewer moves."""

PATIENCE = 12_000
"""Iterations without success after which a search returns to its best state and closes other nodes."""

SWAPS = 0.12
"""How often an iteration exchanges nodes instead of ejecting pods."""

BY_SORT = 0.2
"""How often the node that comes back is one of a sort that the bound wants more of, not the home of a stuck pod."""

MOST_TO_PLACE = 20_000
"""Pods above which the bound gives no first state; placing one takes a tenth of a millisecond and more."""

TRIED_TO_CLOSE, TRIED_TO_SWAP = 8, 4
"""Nodes tried before the one is closed that leaves least without a place."""

REPAIRS = 12
"""Ejections by which an exchange of nodes may find places for all."""


class Packed(Struct, frozen=True):
    """A state in which every pod has a place: the nodes *closed*, where each pod is, and the evictions (*moves*)."""

    closed: tuple[int, ...]
    location: tuple[int, ...]
    moves: int


class Effort:
    """How long to search: *iterations*, or *seconds* of *clock*, whichever ends first; at least one of them.

    The search also ends once *stop* is true. Each iteration asks.
    """

    def __init__(
        self,
        iterations: int | None = None,
        seconds: float | None = None,
        clock: Callable[[], float] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        if iterations is None and (seconds is None or clock is None):
            raise ValueError("a search needs iterations, or seconds and a clock")
        self.iterations = 0
        self._most = iterations
        self._clock = clock if seconds is not None else None
        self._begun = clock() if clock is not None else 0.0
        self._seconds = seconds or 0.0
        self._stop = stop
        self.stopped = False
        """Whether the search was told to stop."""

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning; 0 without a clock."""
        return 0.0 if self._clock is None else self._clock() - self._begun

    def spent(self) -> float:
        """Return the part of the effort that is spent, 1 or more at its end."""
        if self._stop is not None:
            self.stopped = self.stopped or self._stop()
        if self.stopped:
            return 1.0
        by_count = 0.0 if self._most is None else self.iterations / max(1, self._most)
        if self._clock is None:
            return by_count
        return max(by_count, self.elapsed / self._seconds if self._seconds > 0 else 1.0)


def improve(
    problem: Problem,
    bound: Bound,
    start: Packed | None,
    effort: Effort,
    seed: int,
    *,
    afresh: bool = True,
    first: Sequence[int] = (),
) -> Packed | None:
    """Return the best state found, *start* if nothing is better; ``None`` if there is neither.

    The search makes a first state of its own, unless it is told not to begin *afresh* and has a *start*. That state
    is without the nodes *first*, or else without those that the bound doesn't want.
    """
    search = _Search(problem, bound, effort, seed)
    search.best = start
    if len(problem.kinds) or problem.closable.any():
        if afresh or start is None:
            search.construct(first)
        search.fewer_nodes()
        search.fewer_moves()
    return search.best


class _Search:
    def __init__(self, problem: Problem, bound: Bound, effort: Effort, seed: int) -> None:
        self.best: Packed | None = None
        self._problem = problem
        self._bound = bound
        self._effort = effort
        self._random = Random(seed)  # noqa: S311 - a search needs no secrecy
        self._noise = np.random.default_rng(seed)
        self._state = Packing(problem)
        self._places = Places(self._state, bound, self._random, self._noise)
        self._native_count = np.bincount(problem.homes[problem.evicted], minlength=len(problem.names))

    def construct(self, first: Sequence[int] = ()) -> None:
        """Close *first*, or all but the wanted nodes of each sort; nodes whose pods find no place come back.

        With very many pods that would take all the time; the search then goes on from where it starts.
        """
        state, places, bound = self._state, self._places, self._bound
        order = list(first)
        for sort, wanted in enumerate(() if first else bound.wanted.tolist()):
            nodes: list[int] = np.flatnonzero((bound.sorts == sort) & self._problem.closable).tolist()
            nodes.sort(key=lambda node: (-places.native_weight[node], node))
            order += nodes[math.ceil(wanted - 0.3) :]
        if self.best is not None and int(np.isin(self._problem.homes, order).sum()) > MOST_TO_PLACE:
            return
        for node in sorted(order, key=lambda each: (places.native_weight[each], each)):
            if state.may_close(node):
                state.close(node)
        tried: set[int] = set()
        queue: list[int] = []
        while state.unplaced and self._effort.spent() < FEWER_NODES:
            if not queue:
                queue = sorted(state.unplaced, key=lambda each: (places.weight[each], -each))
            pod = queue.pop()
            if pod not in state.unplaced:
                continue
            self._effort.iterations += 1
            if pod in tried or not places.insist(pod):
                state.reopen(state.home[pod])
            tried.add(pod)
        state.forget()
        places.forget()
        self._save()

    def fewer_nodes(self) -> None:
        """Close one node after another until the effort for this is spent, or the bound is reached."""
        state, places = self._state, self._places
        waited = 0
        best = self.best
        if best is not None and (state.unplaced or len(state.closed) < 0.9 * len(best.closed)):
            state.adopt(best.closed, best.location)
        while self._effort.spent() < FEWER_NODES:
            self._effort.iterations += 1
            if not state.unplaced:
                self._save()
                state.forget()
                places.forget()
                waited = 0
                if int(state.kept.sum()) <= self._bound.nodes or not self._close_one():
                    return
                continue
            waited += 1
            if waited % PATIENCE == 0 and self.best is not None:
                state.adopt(self.best.closed, self.best.location)
                continue
            pod = places.hardest()
            if self._random.random() >= SWAPS or not self._swap(pod):
                places.insist(pod)
            if waited % 64 == 0:
                state.forget()

    def fewer_moves(self) -> None:
        """Exchange removed nodes for kept ones with fewer pods, as long as every pod finds a place."""
        state, best = self._state, self.best
        if best is None:
            return
        state.adopt(best.closed, best.location)
        self._places.forget()
        while self._effort.spent() < 1.0:
            self._effort.iterations += 1
            pair = self._pair()
            if pair is None:
                continue
            back, out = pair
            before = state.moves
            state.forget()
            state.reopen(back)
            if state.may_close(out):
                state.close(out)
                self._places.place_all()
                for _ in range(REPAIRS):
                    if not state.unplaced or not self._places.insist(self._places.hardest()):
                        break
            heat = 1.5 * (1.0 - self._effort.spent())
            worse = state.moves - before
            fine = worse <= 0 or self._random.random() < math.exp(-worse / max(heat, 1e-3))
            if state.unplaced or not fine or len(state.closed) < len(best.closed):
                state.rollback(0)
            else:
                self._save()
            if self._effort.iterations % 256 == 0:
                self._places.forget()

    def _pair(self) -> tuple[int, int] | None:
        """Return a removed node with many pods and a kept one with few, often of the same sort."""
        state, count = self._state, self._native_count
        closed = list(state.closed)
        kept = np.flatnonzero(state.kept & self._problem.closable)
        if not closed or not len(kept):
            return None
        back = max(self._random.choices(closed, k=4), key=lambda node: (int(count[node]), -node))
        if self._random.random() < 0.7:
            kept = kept[self._bound.sorts[kept] == self._bound.sorts[back]]
        kept = kept[count[kept] < count[back]]
        if not len(kept):
            return None
        some: list[int] = kept[self._noise.integers(0, len(kept), 3)].tolist()
        return back, min(some, key=lambda node: (int(count[node]), node))

    def _save(self) -> None:
        state = self._state
        if state.unplaced:
            return
        found = (len(state.closed), -state.moves)
        if self.best is None or found > (len(self.best.closed), -self.best.moves):
            self.best = Packed(tuple(sorted(state.closed)), tuple(state.location), state.moves)

    def _close_one(self) -> bool:
        """Close the node, of some, whose pods find the best places; return whether any may close."""
        node = self._least_harm(self._some_kept(TRIED_TO_CLOSE, self._surplus()))
        if node is None:
            return False
        self._state.close(node)
        self._places.place_all()
        self._state.forget()
        return True

    def _swap(self, pod: int) -> bool:
        """Bring a removed node back, the home of *pod* or one of a sort in demand, and close another."""
        state = self._state
        surplus = self._surplus()
        back = state.home[pod]
        if state.kept[back] or self._random.random() < BY_SORT:
            wanted = np.flatnonzero(~state.kept & (surplus[self._bound.sorts] < -0.5))
            if len(wanted):
                some: list[int] = wanted[self._noise.integers(0, len(wanted), 3)].tolist()
                back = max(some, key=lambda node: (self._places.native_weight[node], -node))
        if state.kept[back]:
            return False
        mark = state.mark()
        state.reopen(back)
        self._places.place_all()
        surplus[self._bound.sorts[back]] += 1.0
        node = self._least_harm([each for each in self._some_kept(TRIED_TO_SWAP, surplus) if each != back])
        if node is None:
            state.rollback(mark)
            return False
        state.close(node)
        self._places.place_all()
        return True

    def _least_harm(self, nodes: list[int]) -> int | None:
        state, least, best = self._state, math.inf, None
        for node in nodes:
            mark = state.mark()
            state.close(node)
            left = self._places.place_all()
            state.rollback(mark)
            if left < least:
                least, best = left, node
            if not left:
                break
        return best

    def _surplus(self) -> NDArray[np.float64]:
        """Return by sort how many more nodes are kept than the bound wants."""
        kept = self._bound.sorts[self._state.kept & self._problem.closable]
        surplus: NDArray[np.float64] = np.bincount(kept, minlength=len(self._bound.wanted)) - self._bound.wanted
        return surplus

    def _some_kept(self, count: int, surplus: NDArray[np.float64]) -> list[int]:
        """Return some kept nodes that may go, rather those with few pods, and of sorts of which too many are kept."""
        state, sorts = self._state, self._bound.sorts
        kept = np.flatnonzero(state.kept & self._problem.closable)
        of = sorts[kept]
        chance = (np.maximum(surplus, 0.0) + 0.3)[of] / np.bincount(of, minlength=len(surplus))[of]
        chance *= np.exp(-np.minimum(0.1 * self._places.native_weight[kept] / self._places.unit, 300.0))
        # Efraimidis and Spirakis: the largest keys are a weighted sample without replacement.
        keys = np.log(self._noise.random(len(kept))) / chance
        found: list[int] = []
        for node in kept[np.argsort(-keys, kind="stable")].tolist():
            if state.may_close(node):
                found.append(node)
                if len(found) == count:
                    break
        return found

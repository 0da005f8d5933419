"""Finds places for pods: where one fits, or where newcomers of less weight make way for it."""

from __future__ import annotations

import math
from random import Random

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.search.bound import Bound
from tightship.search.problem import Problem
from tightship.search.state import UNPLACED, Packing

SUBSETS = 6
"""Nodes on which a pod tries to replace several newcomers at once."""

ELSEWHERE = 0.01
"""What ejecting a newcomer costs, as a part of its weight, if it fits on another node anyway."""

PERSISTENCE = 0.1
"""How much the weight of a pod without a place grows with each attempt, in mean weights."""


_AT_ONCE = 256
"""Kinds whose prices are computed together: all of a large cluster's would take gigabytes."""


def _cheapest(problem: Problem, prices: NDArray[np.float64], first: int) -> NDArray[np.float64]:
    """Return the price of the cheapest room for some kinds from *first* on."""
    some = slice(first, first + _AT_ONCE)
    room = np.where(problem.allowed[:, some], prices @ problem.requests[some].T, np.inf)
    cheapest: NDArray[np.float64] = room.min(axis=0, initial=np.inf)
    return cheapest


class _Ejection(Struct, frozen=True):
    node: int
    out: tuple[int, ...]
    cost: float


class Places:
    """Places pods on a state. *weight* says how hard a pod is to place: the price of the cheapest room for it."""

    def __init__(self, state: Packing, bound: Bound, random: Random, noise: np.random.Generator) -> None:
        problem = state.problem
        self.state = state
        self._random = random
        self._noise = noise
        mean = np.maximum(problem.whole().sum(axis=0) / max(1, len(problem.names)), 1.0)
        # Where the bound gives room away free, a little of everything still counts.
        prices = bound.prices + 0.02 / mean
        self._prices = np.ascontiguousarray(prices.T)
        parts = [_cheapest(problem, prices, kind) for kind in range(0, len(problem.demands), _AT_ONCE)]
        room = np.concatenate([np.zeros(0), *parts])
        worth = np.where(np.isfinite(room), room, (problem.requests / mean).sum(axis=1)) + 0.01
        self._first: NDArray[np.float64] = worth[problem.kinds]
        self.weight = self._first.copy()
        self.unit = float(self.weight.mean()) if len(self.weight) else 1.0
        self.native_weight = np.bincount(problem.homes, self.weight, minlength=len(problem.names))
        self._requests = np.ascontiguousarray(problem.requests[problem.kinds].T)
        self._amounts: list[list[float]] = problem.requests.tolist()

    def forget(self) -> None:
        """Weigh every pod as at first."""
        self.weight[:] = self._first

    def place(self, pod: int) -> bool:
        """Put *pod* where the room left is worth least; return whether it fits anywhere."""
        state = self.state
        kind = state.kind[pod]
        nodes = state.fits(kind)
        if not len(nodes):
            return False
        node = int(nodes[0])
        if len(nodes) > 1:
            prices = self._prices[:, nodes]
            left = (state.free[:, nodes] * prices).sum(axis=0) - state.request[kind] @ prices
            node = int(nodes[left.argmin()])
        state.move(pod, node)
        return True

    def place_all(self) -> float:
        """Place pods without a place, the heaviest first; return the weight of those that fit nowhere."""
        weight, left = self.weight, 0.0
        for pod in sorted(self.state.unplaced, key=lambda each: (-weight[each], each)):
            if not self.place(pod):
                left += float(weight[pod])
        return left

    def hardest(self) -> int:
        """Return one of the heaviest pods without a place."""
        weight, random = self.weight, self._random.random
        return max(self.state.unplaced, key=lambda each: (weight[each] * (0.7 + 0.6 * random()), -each))

    def insist(self, pod: int) -> bool:
        """Place *pod*, on a node whose newcomers make way if need be; return whether there is such a node."""
        if self.place(pod):
            return True
        self.weight[pod] += PERSISTENCE * self.unit
        state, kind = self.state, self.state.kind[pod]
        allowed = state.unblocked(kind)
        rows = self.state.request[kind].nonzero()[0].tolist()
        best = self._one_out(kind, rows, allowed)
        for node in self._some_roomy(kind, rows, allowed):
            several = self._several_out(node, rows, self._amounts[kind])
            if best is None or several.cost < best.cost:
                best = several
        if best is None:
            return False
        for newcomer in best.out:
            state.move(newcomer, UNPLACED)
        state.move(pod, best.node)
        for newcomer in sorted(best.out, key=lambda each: (-self.weight[each], each)):
            self.place(newcomer)
        return True

    def _one_out(self, kind: int, rows: list[int], allowed: NDArray[np.bool_]) -> _Ejection | None:
        """Return the cheapest single newcomer whose node then has room."""
        state, need = self.state, self._amounts[kind]
        newcomers = (state.newcomer & allowed[state.where]).nonzero()[0]
        nodes = state.where[newcomers]
        fine = np.ones(len(newcomers), dtype=np.bool_)
        for row in rows:
            fine &= state.free[row][nodes] + self._requests[row][newcomers] >= need[row]
        newcomers, nodes = newcomers[fine], nodes[fine]
        if not len(newcomers):
            return None
        kinds = state.problem.kinds[newcomers]
        cost = self.weight[newcomers] * (1.0 + 0.3 * self._noise.random(len(newcomers)))
        cost[state.choices[kinds] > state.fit[nodes, kinds]] *= ELSEWHERE
        cheapest = int(cost.argmin())
        return _Ejection(int(nodes[cheapest]), (int(newcomers[cheapest]),), float(cost[cheapest]))

    def _some_roomy(self, kind: int, rows: list[int], allowed: NDArray[np.bool_]) -> list[int]:
        """Return some nodes that have room without their newcomers."""
        state, need = self.state, self._amounts[kind]
        for row in rows:
            allowed = allowed & (state.free[row] + state.movable[row] >= need[row])
        nodes: list[int] = allowed.nonzero()[0].tolist()
        return nodes if len(nodes) <= SUBSETS else self._random.sample(nodes, SUBSETS)

    def _several_out(self, node: int, rows: list[int], need: list[float]) -> _Ejection:
        """Return light newcomers of *node* that together make enough room."""
        state, weight, random = self.state, self.weight, self._random.random
        short = {row: lack for row in rows if (lack := need[row] - float(state.free[row, node])) > 0}
        out: list[int] = []
        newcomers = sorted(
            (float(weight[newcomer]) * (0.7 + 0.6 * random()), newcomer) for newcomer in state.newcomers[node]
        )
        for _, newcomer in newcomers:
            amounts = self._amounts[state.kind[newcomer]]
            if not any(lack > 0 and amounts[row] > 0 for row, lack in short.items()):
                continue
            for row in short:
                short[row] -= amounts[row]
            out.append(newcomer)
            if all(lack <= 0 for lack in short.values()):
                break
        for newcomer in out[-2::-1]:  # the last one was needed; some before it may not be any more
            amounts = self._amounts[state.kind[newcomer]]
            if all(lack + amounts[row] <= 0 for row, lack in short.items()):
                for row in short:
                    short[row] += amounts[row]
                out.remove(newcomer)
        cost = math.fsum(
            float(weight[newcomer]) * (ELSEWHERE if self._fits_elsewhere(newcomer, node) else 1.0) for newcomer in out
        )
        return _Ejection(node, tuple(out), cost)

    def _fits_elsewhere(self, newcomer: int, node: int) -> bool:
        kind = self.state.kind[newcomer]
        return bool(self.state.choices[kind] > self.state.fit[node, kind])

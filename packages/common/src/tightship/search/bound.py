"""How many nodes a cluster needs at least, however its pods are placed: a proven lower bound, and prices of room.

Duals of the :mod:`relaxation <tightship.search.relaxation>` prove the bound, however good they are. The ascent
here finds good ones in a fraction of a second; :mod:`tightship.search.linear` finds the best ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.search.problem import Problem
from tightship.search.relaxation import Duals, Relaxation, nothing, proven, relaxed

STEPS = 4000
"""Most steps of the ascent."""

WORK = 2 * 10**8
"""Prices of a kind of pods on a sort of nodes that the ascent may compute, about a second of work."""

FEW = 300
"""Steps that the ascent makes however much work they are."""


class Bound(Struct, frozen=True):
    """*nodes* are needed at least, nodes included that may not go. *exact* is the same before rounding.

    ``prices[n]`` (node, resource) is what room is worth on each node, as a share of a node. *wanted* is how many nodes
    of each sort the dual problem would keep, about; ``sorts[n]`` is a node's sort.
    """

    nodes: int
    exact: float
    prices: NDArray[np.float64]
    sorts: NDArray[np.intp]
    wanted: NDArray[np.float64]


def bound(problem: Problem, stop: Callable[[], bool] = lambda: False) -> Bound:
    """Return how many nodes *problem* needs at least. *stop* may end the ascent: what it found by then is proven."""
    relaxation = relaxed(problem)
    duals, wanted = ascend(relaxation, stop)
    proof = proven(relaxation, duals)
    prices = (duals.prices / relaxation.unit)[relaxation.sorts]
    return Bound(max(proof.least, problem.kept_by_gates), proof.exact, prices, relaxation.sorts, wanted)


def ascend(relaxation: Relaxation, stop: Callable[[], bool] = lambda: False) -> tuple[Duals, NDArray[np.float64]]:
    """Return the best duals found, and how many nodes of each sort they keep.

    The ascent gives no rent to large pods, and no fee to any rule.
    """
    if not len(relaxation.count):
        return nothing(relaxation), np.zeros(len(relaxation.capacity))
    steps = min(STEPS, max(FEW, WORK // relaxation.allowed.size))
    return _Ascent(relaxation).ascend(steps, stop)


class _Ascent:
    def __init__(self, relaxation: Relaxation) -> None:
        self._relaxation = relaxation
        self._forbidden = np.where(relaxation.allowed, 0.0, np.inf)
        self._group = np.full(len(relaxation.count), -1, dtype=np.intp)
        for row in relaxation.node_local:
            self._group[row.kinds] = row.group
        self._grouped = self._group >= 0
        self._groups = int(self._group.max(initial=-1)) + 1
        self._at = (
            np.array([row.sort for row in relaxation.node_local], dtype=np.intp),
            np.array([row.group for row in relaxation.node_local], dtype=np.intp),
        )
        self._takes = np.zeros((len(relaxation.capacity), self._groups))
        self._takes[self._at] = [row.staying for row in relaxation.node_local]

    def ascend(self, steps: int, stop: Callable[[], bool]) -> tuple[Duals, NDArray[np.float64]]:
        given = self._relaxation
        requests, capacity, staying, count = given.requests, given.capacity, given.staying, given.count
        demand = count @ requests
        share = demand / max(float(demand.sum()), 1e-12)
        prices = share / np.maximum((capacity * share).sum(axis=1, keepdims=True), 1e-9)
        rents = np.zeros_like(self._takes)
        best, best_prices, best_rents = -math.inf, prices, rents
        mean_p, mean_r = np.zeros_like(prices), np.zeros_like(rents)
        square_p, square_r = np.zeros_like(prices), np.zeros_like(rents)
        wanted, weight = np.zeros_like(given.stay), 0.0
        kinds = np.arange(len(requests))
        size = float(prices.mean())
        for step in range(1, steps + 1):
            room = prices @ requests.T + self._forbidden
            if self._groups:
                room[:, self._grouped] += rents[:, self._group[self._grouped]]
            cheapest = room.argmin(axis=0)
            worth = room[cheapest, kinds]
            gains = ((prices * capacity).sum(axis=1) + rents.sum(axis=1))[given.columns] - 1.0
            value = float(count @ worth) - float(given.many @ np.maximum(gains, 0.0))
            value -= float((prices * staying).sum()) + float((rents * self._takes).sum())
            if value > best:
                best, best_prices, best_rents = value, prices.copy(), rents.copy()
            keeps = np.zeros_like(given.stay)
            np.add.at(keeps, given.columns, np.where(gains > 0.0, given.many, 0.0))
            used = np.zeros_like(prices)
            np.add.at(used, cheapest, requests * count[:, None])
            up = used - keeps[:, None] * capacity - staying
            if step > steps // 2:
                wanted += keeps
                weight += 1.0
            if step % 64 == 0 and stop():
                break
            rate = size * 0.05 * 0.5 * (1.0 + math.cos(math.pi * step / (steps + 1)))
            mean_p = 0.9 * mean_p + 0.1 * up
            square_p = 0.99 * square_p + 0.01 * up * up
            scale = math.sqrt(1 - 0.99**step) / (1 - 0.9**step)
            prices = np.maximum(prices + rate * scale * mean_p / (np.sqrt(square_p) + 1e-9), 0.0)
            if self._groups:
                hosted = np.zeros_like(rents)
                np.add.at(hosted, (cheapest[self._grouped], self._group[self._grouped]), count[self._grouped])
                up_r = hosted - keeps[:, None] - self._takes
                mean_r = 0.9 * mean_r + 0.1 * up_r
                square_r = 0.99 * square_r + 0.01 * up_r * up_r
                rents = np.maximum(rents + rate * scale * mean_r / (np.sqrt(square_r) + 1e-9), 0.0)
        if not weight:
            wanted, weight = keeps, 1.0
        return Duals(
            best_prices,
            np.concatenate([best_rents[self._at], np.zeros(len(given.large))]),
            np.zeros(len(given.rules)),
        ), wanted / weight

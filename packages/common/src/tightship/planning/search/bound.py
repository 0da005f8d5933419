"""How many nodes a cluster needs at least, however its pods are placed: a proven lower bound, and prices of room.

The bound is the value of a feasible solution of a dual problem, so it holds however well that problem was solved. Each
sort of node has a price for each resource, and for hosting a pod of each anti-affinity group. A pod is worth the
cheapest room that it may use; what a node earns beyond 1, the cost of keeping it, is lost. The worth of all pods less
those losses can't exceed the number of nodes that any packing keeps. The bound lets every pod move, also pods of nodes
that stay, and cuts pods into pieces. It sees amounts, node labels, taints, volumes and anti-affinity by node.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.planning.search.problem import Problem

STEPS = 4000
"""Most steps of the ascent."""

WORK = 2 * 10**8
"""Prices of a kind of pods on a sort of nodes that the ascent may compute, about a second of work."""

FEW = 300
"""Steps that the ascent makes however much work they are."""

MOST_SORTS = 200
"""Most sorts of nodes told apart. More are merged into larger ones, which may weaken the bound and never breaks it."""


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


class _Sorts(Struct, frozen=True):
    """Nodes by sort: *of* each node, how *many* may go, their capacity with all pods lifted, the *allowed* kinds."""

    of: NDArray[np.intp]
    many: NDArray[np.float64]
    stay: NDArray[np.float64]
    capacity: NDArray[np.float64]
    staying: NDArray[np.float64]
    allowed: NDArray[np.bool_]


def bound(problem: Problem, stop: Callable[[], bool] = lambda: False) -> Bound:
    """Return how many nodes *problem* needs at least. *stop* may end the ascent: what it found by then is proven."""
    sorts = _sorts(problem)
    closed_forever = int(np.count_nonzero(~problem.closable))
    if not len(problem.kinds):
        nothing = np.zeros_like(problem.free)
        return Bound(closed_forever, float(closed_forever), nothing, sorts.of, np.zeros(len(sorts.many)))
    unit = np.maximum(sorts.capacity.max(axis=0), 1.0)
    dual = _Dual(problem, sorts, unit)
    steps = min(STEPS, max(FEW, WORK // (len(sorts.many) * len(problem.asks))))
    best, prices, wanted = dual.ascend(steps, stop)
    exact = best + closed_forever
    return Bound(math.ceil(exact - 1e-6), exact, (prices / unit)[sorts.of], sorts.of, wanted)


def _sorts(problem: Problem) -> _Sorts:
    """Group the nodes: equal ones, or, if there are too many groups, roughly equal ones."""
    whole = problem.whole()
    # Nodes of one shape differ by their DaemonSet pods. The largest room stands for all of a group.
    for room in (whole, np.ceil(np.log2(whole + 1.0) * 4), np.zeros((len(whole), 0))):
        keys = [
            problem.allowed[node].tobytes() + problem.closable[node].tobytes() + room[node].tobytes()
            for node in range(len(problem.names))
        ]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        if len(numbers) <= MOST_SORTS:
            break
    exactly = [numbers[key] for key in keys]
    of = np.array(exactly, dtype=np.intp)
    count = len(numbers)
    capacity = np.zeros((count, whole.shape[1]))
    np.maximum.at(capacity, of, whole)
    many = np.bincount(of[problem.closable], minlength=count).astype(np.float64)
    stay = np.bincount(of[~problem.closable], minlength=count).astype(np.float64)
    staying = np.zeros_like(capacity)
    np.add.at(staying, of[~problem.closable], whole[~problem.closable])
    allowed = np.zeros((count, problem.allowed.shape[1]), dtype=np.bool_)
    np.logical_or.at(allowed, of, problem.allowed | _home_allows(problem))
    return _Sorts(of, many, stay, capacity, staying, allowed)


def _home_allows(problem: Problem) -> NDArray[np.bool_]:
    """Return where pods run already: they may stay there, whatever labels and taints say by now."""
    found = np.zeros_like(problem.allowed)
    found[problem.homes, problem.kinds] = True
    return found


class _Dual:
    def __init__(self, problem: Problem, sorts: _Sorts, unit: NDArray[np.float64]) -> None:
        self._sorts = sorts
        self._count = np.bincount(problem.kinds, minlength=len(problem.asks)).astype(np.float64)
        self._requests = problem.requests / unit
        self._capacity = sorts.capacity / unit
        self._staying = sorts.staying / unit
        self._forbidden = np.where(sorts.allowed, 0.0, np.inf)
        self._group = _groups(problem)
        self._groups = int(self._group.max(initial=-1)) + 1
        self._grouped = self._group >= 0

    def ascend(self, steps: int, stop: Callable[[], bool]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Return the best value found, its prices by sort and resource, and the nodes of each sort that it keeps."""
        sorts, requests = self._sorts, self._requests
        demand = self._count @ requests
        prices = np.zeros_like(self._capacity)
        share = demand / max(float(demand.sum()), 1e-12)
        prices += share / np.maximum((self._capacity * share).sum(axis=1, keepdims=True), 1e-9)
        rents = np.zeros((len(sorts.many), self._groups))
        best, best_prices = -math.inf, prices
        mean_p, mean_r = np.zeros_like(prices), np.zeros_like(rents)
        square_p, square_r = np.zeros_like(prices), np.zeros_like(rents)
        wanted, weight = np.zeros(len(sorts.many)), 0.0
        kinds = np.arange(len(requests))
        size = float(prices.mean())
        for step in range(1, steps + 1):
            room = prices @ requests.T + self._forbidden
            if self._groups:
                room[:, self._grouped] += rents[:, self._group[self._grouped]]
            cheapest = room.argmin(axis=0)
            worth = room[cheapest, kinds]
            earns = (prices * self._capacity).sum(axis=1) + rents.sum(axis=1)
            value = float(self._count @ worth) - float(sorts.many @ np.maximum(earns - 1.0, 0.0))
            value -= float((prices * self._staying).sum()) + float(sorts.stay @ rents.sum(axis=1))
            if value > best:
                best, best_prices = value, prices.copy()
            keeps = np.where(earns > 1.0, sorts.many, 0.0)
            used = np.zeros_like(prices)
            np.add.at(used, cheapest, requests * self._count[:, None])
            up = used - keeps[:, None] * self._capacity - self._staying
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
                np.add.at(hosted, (cheapest[self._grouped], self._group[self._grouped]), self._count[self._grouped])
                up_r = hosted - (keeps + sorts.stay)[:, None]
                mean_r = 0.9 * mean_r + 0.1 * up_r
                square_r = 0.99 * square_r + 0.01 * up_r * up_r
                rents = np.maximum(rents + rate * scale * mean_r / (np.sqrt(square_r) + 1e-9), 0.0)
        if not weight:
            wanted, weight = keeps, 1.0
        return max(best, 0.0), best_prices, wanted / weight


def _groups(problem: Problem) -> NDArray[np.intp]:
    """Return for each kind the number of its group, of which each node holds at most one pod; -1 without a group.

    Pods that share a node already may stay together, whatever their anti-affinity says by now: no group then.
    """
    found = np.full(len(problem.asks), -1, dtype=np.intp)
    numbers: dict[int, int] = {}
    marks = problem.marks
    for kind, (adds, blocks) in enumerate(zip(marks.adds, marks.blocks, strict=True)):
        for row in adds:
            if row in blocks and marks.members[row] is None:
                found[kind] = numbers.setdefault(row, len(numbers))
                break
    own = found[problem.kinds]
    seen, count = np.unique(np.stack([problem.homes, own])[:, own >= 0], axis=1, return_counts=True)
    found[np.isin(found, seen[1, count > 1])] = -1
    return found

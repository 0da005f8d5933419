"""A problem made easier, so that the least it needs can be proven: nodes by sort, pods by kind, a linear program.

The relaxation lets every pod of a node that may go move, also if the node stays, and cuts pods into pieces. It sees
amounts, node labels, taints, volumes, anti-affinity by node, PodDisruptionBudgets, and how many nodes the gates let go.
It leaves out required affinity, topology spread, anti-affinity by wider domains, host ports and attach limits.

Every set of *duals* proves a bound, good or bad ones alike. Each sort of node has a price for each resource, and a rent
for each rule of how many pods of some kinds fit on one node. A pod is worth the cheapest room that it may use. What a
node earns above 1, what it costs to keep, is lost. No plan keeps less than the worth of all pods less those losses.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.search.problem import Problem

MOST_SORTS = 200
"""Most sorts of nodes told apart. More are merged into larger ones, which may weaken the bound and never breaks it."""

MOST_OF_SHARES = 4
"""Pods larger than a half, a third, ... of a node are counted, down to one over this and one."""

MOST_LARGE = 2 * 10**6
"""Amounts (sort, kind, resource) above which large pods are not counted, which may weaken the bound."""

ROUNDING = 1e-9
"""What is subtracted from a proven value, as a part of all amounts added up: far more than floats may lose. A sum of a
million terms loses 1.2e-10 at most (Higham, *Accuracy and Stability of Numerical Algorithms*, 4.2).
"""


class AtMost(Struct, frozen=True):
    """A node of sort *sort* holds at most *most* pods of the *kinds*; all its nodes that stay, *staying* of them.

    *group* is the number of the kinds' anti-affinity group, -1 for pods that are only large.
    """

    sort: int
    kinds: NDArray[np.intp]
    most: float
    staying: float
    group: int = -1


class Rule(Struct, frozen=True):
    """Of the nodes that may go, each weighed by its column's *weights*, at least *least* stay."""

    weights: NDArray[np.float64]
    least: float


class Relaxation(Struct, frozen=True):
    """The linear program. ``sorts[n]`` is the sort of node *n*.

    By sort: *capacity* of one node with all pods lifted, *staying*, the same of all nodes that stay together, *stay*,
    how many do, and the *allowed* kinds. By kind: *count* and *requests*; amounts are in units of *unit*.
    Nodes that may go are in *columns* (each of one sort), *many* alike.
    """

    sorts: NDArray[np.intp]
    capacity: NDArray[np.float64]
    staying: NDArray[np.float64]
    stay: NDArray[np.float64]
    allowed: NDArray[np.bool_]
    count: NDArray[np.float64]
    requests: NDArray[np.float64]
    unit: NDArray[np.float64]
    columns: NDArray[np.intp]
    many: NDArray[np.float64]
    node_local: tuple[AtMost, ...] = ()
    large: tuple[AtMost, ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def at_most(self) -> tuple[AtMost, ...]:
        """All rows of how many pods one node holds: those *apart* by anti-affinity, then those too *large*."""
        return self.node_local + self.large


class Duals(Struct, frozen=True):
    """Prices of room by sort and resource; by row, *rents* of :attr:`Relaxation.at_most`, *fees* of the rules."""

    prices: NDArray[np.float64]
    rents: NDArray[np.float64]
    fees: NDArray[np.float64]


def nothing(relaxation: Relaxation) -> Duals:
    """Return duals by which no room is worth anything."""
    rows, rules = len(relaxation.at_most), len(relaxation.rules)
    return Duals(np.zeros_like(relaxation.capacity), np.zeros(rows), np.zeros(rules))


class Proof(Struct, frozen=True):
    """No plan keeps fewer nodes than *least*. *exact* is the same before rounding up."""

    least: int
    exact: float


def relaxed(problem: Problem) -> Relaxation:
    """Return the relaxation of *problem*."""
    room = problem.whole() + problem.slack
    of, capacity = sorts_of(problem, room)
    stays, goes = np.flatnonzero(~problem.closable), np.flatnonzero(problem.closable)
    stay = np.bincount(of[stays], minlength=len(capacity)).astype(np.float64)
    staying = np.zeros_like(capacity)
    np.add.at(staying, of[stays], room[stays])
    allowed = np.zeros((len(capacity), problem.allowed.shape[1]), dtype=np.bool_)
    np.logical_or.at(allowed, of, problem.allowed | _home_allows(problem))
    for kind, request in enumerate(problem.requests):
        allowed[:, kind] &= (request <= capacity).all(axis=1)
    unit = np.maximum(capacity.max(axis=0, initial=0.0), 1.0)
    rules = tuple(rules_of(problem))
    weights = np.array([rule.weights for rule in rules]).reshape(len(rules), len(of))
    alike: dict[object, list[int]] = {}
    for node in goes.tolist():
        alike.setdefault((of[node], weights[:, node].tobytes()), []).append(node)
    first = np.array([nodes[0] for nodes in alike.values()], dtype=np.intp)
    return Relaxation(
        sorts=of,
        capacity=capacity / unit,
        staying=staying / unit,
        stay=stay,
        allowed=allowed,
        count=np.bincount(problem.kinds, minlength=len(problem.demands)).astype(np.float64),
        requests=problem.requests / unit,
        unit=unit,
        columns=of[first],
        many=np.array([len(nodes) for nodes in alike.values()], dtype=np.float64),
        node_local=tuple(_apart(problem, of, allowed)),
        large=tuple(_large(problem, capacity, stay, allowed)),
        rules=tuple(Rule(rule.weights[first], rule.least) for rule in rules),
    )


def proven(relaxation: Relaxation, duals: Duals) -> Proof:
    """Return what *duals* prove. Negative ones count as 0.

    Parts of a cluster that share no kind of pods and no rule with a fee are rounded up each by itself.
    """
    prices, rents, fees = (np.maximum(each, 0.0) for each in (duals.prices, duals.rents, duals.fees))
    room, earns = prices @ relaxation.requests.T, (prices * relaxation.capacity).sum(axis=1)
    idle = (prices * relaxation.staying).sum(axis=1)
    for rent, row in zip(rents.tolist(), relaxation.at_most, strict=True):
        if rent:
            room[row.sort, row.kinds] += rent
            earns[row.sort] += rent * row.most
            idle[row.sort] += rent * row.staying
    room[~relaxation.allowed] = np.inf
    cheapest = room.argmin(axis=0) if len(relaxation.count) else np.empty(0, dtype=np.intp)
    worth = relaxation.count * room.min(axis=0, initial=np.inf)
    gains = earns[relaxation.columns] - 1.0
    for fee, rule in zip(fees.tolist(), relaxation.rules, strict=True):
        gains += fee * rule.weights
    losses = relaxation.many * np.maximum(gains, 0.0)
    part = _parts(relaxation, fees)
    values, amounts = np.zeros(len(part)), np.zeros(len(part))
    for sorts, terms in (
        (cheapest, worth),
        (relaxation.columns, -losses),
        (np.arange(len(idle)), -idle),
        *(
            (relaxation.columns[rule.weights > 0][:1], np.array([fee * rule.least]))
            for fee, rule in zip(fees.tolist(), relaxation.rules, strict=True)
            if fee
        ),
    ):
        np.add.at(values, part[sorts], terms)
        np.add.at(amounts, part[sorts], np.abs(terms))
    safe = values - ROUNDING * (amounts + 1.0)
    stay = int(relaxation.stay.sum())
    return Proof(stay + int(np.maximum(np.ceil(safe), 0.0).sum()), stay + float(np.maximum(values, 0.0).sum()))


def _parts(relaxation: Relaxation, fees: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the number of each sort's part: sorts that a kind of pods may use alike, or a rule with a fee, are one."""
    part = np.arange(len(relaxation.capacity))

    def join(sorts: NDArray[np.intp]) -> None:
        together = np.unique(part[sorts])
        if len(together) > 1:
            part[np.isin(part, together)] = together[0]

    for allowed in np.unique(relaxation.allowed.T, axis=0):
        join(np.flatnonzero(allowed))
    for fee, rule in zip(fees.tolist(), relaxation.rules, strict=True):
        if fee:
            join(relaxation.columns[rule.weights > 0])
    return part


def sorts_of(problem: Problem, whole: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Group the nodes: equal ones, or, if there are too many groups, roughly equal ones. Return each group's room."""
    numbers: dict[bytes, int] = {}
    keys: list[bytes] = []
    # Nodes of one shape differ by their DaemonSet pods. The largest room stands for all of a group.
    for room in (whole, np.ceil(np.log2(whole + 1.0) * 4), np.zeros((len(whole), 0))):
        keys = [
            problem.allowed[node].tobytes() + problem.closable[node].tobytes() + room[node].tobytes()
            for node in range(len(problem.names))
        ]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        if len(numbers) <= MOST_SORTS:
            break
    of = np.array([numbers[key] for key in keys], dtype=np.intp)
    capacity = np.zeros((len(numbers), whole.shape[1]))
    np.maximum.at(capacity, of, whole)
    return of, capacity


def _home_allows(problem: Problem) -> NDArray[np.bool_]:
    """Return where pods run already: they may stay there, whatever labels and taints say by now."""
    found = np.zeros_like(problem.allowed)
    found[problem.homes, problem.kinds] = True
    return found


def _apart(problem: Problem, of: NDArray[np.intp], allowed: NDArray[np.bool_]) -> Iterator[AtMost]:
    """Yield where a node holds one pod of several at most, by required anti-affinity.

    A node that stays and holds such a pod, which stays too, takes none. Pods that share a node already may stay
    together, whatever their anti-affinity says by now: no row for them.
    """
    marks = problem.marks
    row_of = np.full(len(problem.demands), -1, dtype=np.intp)
    for kind, (adds, blocks) in enumerate(zip(marks.adds, marks.blocks, strict=True)):
        row_of[kind] = next((row for row in adds if row in blocks and marks.members[row] is None), -1)
    own = row_of[problem.kinds]
    seen, count = np.unique(np.stack([problem.homes, own])[:, own >= 0], axis=1, return_counts=True)
    together = set(seen[1, count > 1].tolist())
    takes = ~problem.closable
    sure = problem.slack.sum(axis=1) == 0
    for group, row in enumerate(sorted(set(row_of[row_of >= 0].tolist()) - together)):
        kinds = np.flatnonzero(row_of == row)
        free = np.bincount(of[takes & ~(sure & (marks.start[row] > 0))], minlength=len(allowed))
        for sort in np.flatnonzero(allowed[:, kinds].any(axis=1)).tolist():
            yield AtMost(sort, kinds[allowed[sort, kinds]], 1.0, float(free[sort]), group)


def _large(
    problem: Problem, capacity: NDArray[np.float64], stay: NDArray[np.float64], allowed: NDArray[np.bool_]
) -> Iterator[AtMost]:
    """Yield how many of the largest pods fit on one node: of those above a third of a resource, two at most."""
    if problem.requests.size * len(capacity) > MOST_LARGE:
        return
    for sort, room in enumerate(capacity):
        for resource in np.flatnonzero(room > 0).tolist():
            requests = np.where(allowed[sort], problem.requests[:, resource], 0.0)
            for most in range(1, MOST_OF_SHARES + 1):
                large = requests * (most + 1) > room[resource]
                # Where all of them have a full share, the amounts say as much.
                if (large & (requests * most < room[resource])).any():
                    yield AtMost(sort, np.flatnonzero(large), float(most), most * float(stay[sort]))


def rules_of(problem: Problem) -> Iterator[Rule]:
    """Yield what gates and budgets want of the nodes that may go: how many stay, each weighed by its pods."""
    closable = problem.closable
    if problem.limits.total < closable.sum():
        yield Rule(closable.astype(np.float64), float(closable.sum() - problem.limits.total))
    for pool, limit in enumerate(problem.limits.pools.tolist()):
        own = closable & (problem.pools == pool)
        if limit < own.sum():
            yield Rule(own.astype(np.float64), float(own.sum() - limit))
    takes: dict[int, list[tuple[int, int]]] = {}
    for node, needs in enumerate(problem.needs):
        for budget, pods in needs:
            takes.setdefault(budget, []).append((node, min(pods, max(1, problem.allowances[budget]))))
    for budget, found in sorted(takes.items()):
        # All nodes but the last find an allowance for each pod; the last one may need more than is left.
        most = problem.allowances[budget] - 1 + max(pods for _, pods in found) if problem.allowances[budget] else 0
        needed = sum(pods for _, pods in found)
        if needed > most:
            weights = np.zeros(len(closable))
            weights[[node for node, _ in found]] = [pods for _, pods in found]
            yield Rule(weights, float(needed - most))

"""The least that pods can cost: a linear program over machines, and a proof that doesn't trust its solver.

Pods are cut into pieces, and machines too unless the program is small. Amounts, labels, taints, volumes' zones, and
pods that exclude their own kind from a node are counted; affinity, spread and anti-affinity by zone are left out.

A set of prices of room proves the bound, whoever found it: on each column of machines, room may be worth no more than
the machine costs. Then no machines carry the pods for less than each pod's cheapest room, summed up.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.planning.solver import passed, solver_installed

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

WHOLE = 6_000
"""Pairs of kinds and columns up to which the program counts whole machines."""

MOST_PAIRS = 40_000
"""Pairs of kinds and columns from which a coarser program chooses the columns first."""

TOLERANCE = 1e-6
"""What a solver's bound is lowered by: its own tolerance for integers and rows."""


class Program(Struct, frozen=True):
    """*cost* and *room* (column, resource) of columns of machines; *request* (kind, resource) and *count* of kinds.

    *allowed* (column, kind) says where a kind may run. Of a kind that is *alone*, a machine takes one.
    """

    cost: Floats
    room: Floats
    request: Floats
    count: Floats
    allowed: Bools
    alone: Bools


class Prices(Struct, frozen=True):
    """What room is worth: *amounts* by column and resource, and *rents* by column and kind that is alone."""

    amounts: Floats
    rents: Floats


class Solved(Struct, frozen=True):
    """*bound* is proven. *machines* are how many of each column the program has, *worth* what room for a kind costs.

    *flows* are how many pods of a kind go to a column: (kind, column, pods).
    """

    bound: float
    machines: Floats
    worth: Floats
    by_solver: bool
    flows: tuple[tuple[int, int, float], ...] = ()


def reduced(program: Program, *, scaled: bool) -> NDArray[np.intp]:
    """Return the columns that no other one replaces: none is as cheap, as roomy, and open to as many kinds.

    With *scaled*, machines may be cut, so that room is measured by its price.
    """
    cost = np.ones_like(program.cost) if scaled else program.cost
    room = program.room / program.cost[:, None] if scaled else program.room
    kept: list[int] = []
    sizes = program.allowed.sum(axis=1)
    for column in np.lexsort((-room.sum(axis=1), -sizes, cost)).tolist():
        others = np.array(kept, dtype=np.intp)
        better = cost[others] <= cost[column]
        better &= (room[others] >= room[column]).all(axis=1)
        others = others[better]
        if not (program.allowed[others] | ~program.allowed[column]).all(axis=1).any():
            kept.append(column)
    return np.array(sorted(kept), dtype=np.intp)


def solve(program: Program, seconds: float) -> Solved:
    """Return the least that the kinds cost, each of which some column allows."""
    if not len(program.count):
        return Solved(0.0, np.zeros(len(program.cost)), np.zeros(0), by_solver=solver_installed())
    columns = reduced(program, scaled=False)
    whole = len(columns) * len(program.count) <= WHOLE
    if not whole:
        columns = reduced(program, scaled=True)
    all_columns = _part(program, columns)
    used, coarse = np.arange(len(columns)), None
    solver = solver_installed()
    if solver and all_columns.allowed.sum() > MOST_PAIRS:
        used, coarse = _promising(all_columns, seconds)
    some = _part(all_columns, used)
    machines = np.zeros(len(program.cost))
    found = _highs(some, seconds, whole=False) if solver else None
    if found is None and coarse is None:
        coarse = by_volume(all_columns)
    if found is None:
        assert coarse is not None
        return Solved(proven(all_columns, coarse), machines, worth(all_columns, coarse), by_solver=False)
    prices, plan = found.prices if coarse is None else coarse, found
    bound = proven(all_columns, prices)
    if whole and (integral := _highs(some, seconds, whole=True)) is not None:
        bound, plan = max(bound, integral.bound), integral
    machines[columns[used]] = plan.machines
    at, kind = np.nonzero(some.allowed)
    flows = tuple(
        (int(kind[piece]), int(columns[used[at[piece]]]), float(plan.pieces[piece]))
        for piece in np.flatnonzero(plan.pieces > 1e-9)
    )
    return Solved(bound, machines, worth(all_columns, prices), by_solver=True, flows=flows)


def _part(program: Program, columns: NDArray[np.intp]) -> Program:
    return msgspec.structs.replace(
        program, cost=program.cost[columns], room=program.room[columns], allowed=program.allowed[columns]
    )


def _promising(program: Program, seconds: float) -> tuple[NDArray[np.intp], Prices | None]:
    """Return the columns that a coarser program uses, and its prices of room, which prove a bound for all columns.

    In it, kinds that ask in about the same proportions, and may run on about the same machines, are one.
    """
    share = program.request / np.maximum(program.count @ program.request, 1e-12)
    slope = np.round(np.arctan2(share[:, 0], share[:, min(1, share.shape[1] - 1)]) * 8)
    wide = program.room.sum(axis=1) >= np.median(program.room.sum(axis=1))
    classes: dict[object, list[int]] = {}
    for kind in range(len(program.count)):
        # A kind that only the largest machines hold is told apart from one that most of them hold.
        fits = np.log2(program.allowed[:, kind].sum() + 1).round()
        key = (program.allowed[wide, kind].tobytes(), float(slope[kind]), float(fits), bool(program.alone[kind]))
        classes.setdefault(key, []).append(kind)
    members = [np.array(each, dtype=np.intp) for each in classes.values()]
    count = np.array([program.count[each].sum() for each in members])
    coarse = Program(
        cost=program.cost,
        room=program.room,
        request=np.array([program.count[each] @ program.request[each] for each in members]) / count[:, None],
        count=count,
        allowed=np.array([program.allowed[:, each].any(axis=1) for each in members]).T,
        alone=np.zeros(len(members), dtype=np.bool_),
    )
    found = _highs(coarse, seconds, whole=False)
    columns = [] if found is None else np.flatnonzero(found.machines > 1e-6).tolist()
    for kind in range(len(program.count)):
        if not program.allowed[columns, kind].any():
            open_to = np.flatnonzero(program.allowed[:, kind])
            columns.append(int(open_to[program.cost[open_to].argmin()]))
    prices = None
    if found is not None:
        prices = Prices(found.prices.amounts, np.zeros(program.allowed.shape))
    return np.array(sorted(columns), dtype=np.intp), prices


class _Optimum(Struct, frozen=True):
    """*machines* by column, *pieces* by allowed pair of column and kind; a *bound* where machines are whole."""

    machines: Floats
    pieces: Floats
    prices: Prices
    bound: float = 0.0


def worth(program: Program, prices: Prices) -> Floats:
    """Return the price of the cheapest room for each kind."""
    room = prices.amounts @ program.request.T + prices.rents
    room[~program.allowed] = np.inf
    found: Floats = room.min(axis=0)
    return found


def proven(program: Program, prices: Prices) -> float:
    """Return what *prices* prove, however good they are."""
    amounts, rents = np.maximum(prices.amounts, 0.0), np.maximum(prices.rents, 0.0)
    rents[:, ~program.alone] = 0.0
    earns = (amounts * program.room).sum(axis=1) + rents.sum(axis=1)
    share = np.minimum(1.0, program.cost / np.maximum(earns, 1e-300))[:, None]
    total = float(program.count @ worth(program, Prices(amounts * share, rents * share)))
    return total * (1 - 1e-9)


def by_volume(program: Program) -> Prices:
    """Return prices by volume alone: what a resource costs where it is cheapest, at the best mixture of resources."""
    whole = program.room > 0
    each = np.where(whole, program.cost[:, None] / np.where(whole, program.room, 1.0), 0.0)
    resources = each.shape[1]
    best, most = Prices(each * 0.0, np.zeros_like(program.allowed, dtype=np.float64)), -1.0
    for first in range(resources):
        for second in range(resources):
            for part in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
                weights = np.zeros(resources)
                weights[first] += part
                weights[second] += 1 - part
                tried = Prices(each * weights, best.rents)
                value = proven(program, tried)
                if value > most:
                    best, most = tried, value
    return best


def _highs(program: Program, seconds: float, *, whole: bool) -> _Optimum | None:
    """Return the optimum, of *whole* machines or of pieces; ``None`` if HiGHS finds none in *seconds* of wall time."""
    import highspy

    columns, kinds = len(program.cost), len(program.count)
    resources = program.room.shape[1]
    at, kind = np.nonzero(program.allowed)
    pieces = columns + np.arange(len(at))
    rows, cols, entries = [kind], [pieces], [np.ones(len(at))]
    for resource in range(resources):
        first = kinds + resource * columns
        rows += [first + at, first + np.arange(columns)]
        cols += [pieces, np.arange(columns)]
        entries += [program.request[kind, resource], -program.room[:, resource]]
    lone = np.flatnonzero(program.alone[kind])
    own = kinds + resources * columns + np.arange(len(lone))
    rows, cols = [*rows, own, own], [*cols, pieces[lone], at[lone]]
    entries += [np.ones(len(lone)), -np.ones(len(lone))]
    total = kinds + resources * columns + len(lone)
    solver = passed(
        np.concatenate([program.cost, np.zeros(len(at))]),
        np.full(columns + len(at), np.inf),
        np.concatenate([program.count, np.full(total - kinds, -np.inf)]),
        np.concatenate([program.count, np.zeros(total - kinds)]),
        (np.concatenate(rows), np.concatenate(cols), np.concatenate(entries)),
        seconds=seconds,
        whole=columns if whole else 0,
    )
    solver.run()
    status = solver.getModelStatus()
    optimal = status == highspy.HighsModelStatus.kOptimal
    info = solver.getInfo()
    if not optimal and not (
        whole and status == highspy.HighsModelStatus.kTimeLimit and info.primal_solution_status == 2
    ):
        return None
    values = np.array(solver.getSolution().col_value)
    if whole:
        none = Prices(np.zeros((0, 0)), np.zeros((0, 0)))
        return _Optimum(values[:columns], values[columns:], none, float(info.mip_dual_bound) * (1 - TOLERANCE))
    duals = -np.array(solver.getSolution().row_dual)
    amounts = duals[kinds : kinds + resources * columns].reshape(resources, columns).T
    rents = np.zeros(program.allowed.shape)
    rents[at[lone], kind[lone]] = duals[kinds + resources * columns :]
    return _Optimum(values[:columns], values[columns:], Prices(amounts.copy(), rents))

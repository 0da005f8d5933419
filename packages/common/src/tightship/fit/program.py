"""The least that pods can cost: a linear program over machines, and a proof that doesn't trust its solver.

Pods and machines are cut into pieces. Amounts, labels, taints, volumes' zones, and how
many pods of a kind a whole machine takes are counted; affinity, spread and anti-affinity by zone are left out.

A set of prices of room proves the bound, whoever found it: on each column of machines, room may be worth no more than
the machine costs. Then no machines carry the pods for less than each pod's cheapest room, summed up. A large program
begins with few columns and takes in those whose room would be worth more than they cost (column generation).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.planning.solver import passed, solver_installed

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]

FINE = 20_000
"""Pairs of kinds and columns up to which only kinds that ask for exactly the same are one."""

WHOLE = 16
"""Columns up to which the bound counts whole machines."""

SLOPES = 24
"""Steps in the proportions of a request below which kinds of a large program are one."""

TURNS = 12
"""Most times that columns are taken in, of which each is :data:`TAKEN`."""

TAKEN = 12

BINDS = 0.95
"""Pods of a kind that a machine takes are a row of the program if they are fewer than this share of what fits in
pieces."""


class Program(Struct, frozen=True):
    """*cost* and *room* (column, resource) of columns of machines; *request* (kind, resource) and *count* of kinds.

    *allowed* (column, kind) says where a kind may run. Of a kind that is *alone*, a machine takes one. Columns of the
    same number among *twins* are the same machine in other zones.
    """

    cost: Floats
    room: Floats
    request: Floats
    count: Floats
    allowed: Bools
    alone: Bools
    twins: Indices


class Solved(Struct, frozen=True):
    """*bound* is proven. *machines* are how many of each column the program has, *worth* what room for a kind costs.

    *flows* are how many pods of a kind go to a column: (kind, column, pods). *yields* say what a column's room is worth
    at most, for what the column costs.
    """

    bound: float
    machines: Floats
    worth: Floats
    yields: Floats
    by_solver: bool
    flows: Sequence[tuple[int, int, int]] = ()


class _Prices(Struct, frozen=True):
    """What room is worth: *amounts* by column and resource, and *rents* by column and kind whose pods are limited."""

    amounts: Floats
    rents: Floats


class _Coarse(Struct, frozen=True):
    """A program of fewer *columns* and *kinds*: the numbers of those that each stands for.

    A machine takes at most *most* pods of a kind (column, kind; infinite where pieces say as much).
    """

    cost: Floats
    room: Floats
    request: Floats
    count: Floats
    allowed: Bools
    most: Floats
    columns: Sequence[Indices]
    kinds: Sequence[Indices]


class _Optimum(Struct, frozen=True):
    """*machines* by column, *pieces* (column, kind), and what room is worth."""

    machines: Floats
    pieces: Floats
    prices: _Prices


def _coarse(program: Program) -> _Coarse:
    """Return *program* with machines that are the same in other zones as one, open to what any of them is open to.

    Kinds that ask for the same are one, in a large program also those that ask in about the same proportions.
    """
    same: dict[int, list[int]] = {}
    for column in range(len(program.cost)):
        same.setdefault(int(program.twins[column]), []).append(column)
    columns = [np.array(each, dtype=np.intp) for each in same.values()]
    heads = np.array([each[0] for each in columns])
    allowed = np.array([program.allowed[each].any(axis=0) for each in columns])
    most = _most(program, heads)
    slope = program.request
    if program.allowed.sum() > FINE:
        share = program.request / np.maximum(program.count @ program.request, 1e-12)
        slope = np.round(share / np.maximum(share.sum(axis=1, keepdims=True), 1e-300) * SLOPES)
    alike: dict[object, list[int]] = {}
    for kind in range(len(program.count)):
        key = allowed[:, kind].tobytes(), most[:, kind].tobytes(), slope[kind].tobytes()
        alike.setdefault(key, []).append(kind)
    kinds = [np.array(each, dtype=np.intp) for each in alike.values()]
    first = np.array([each[0] for each in kinds])
    count = np.array([program.count[each].sum() for each in kinds])
    return _Coarse(
        cost=program.cost[heads],
        room=program.room[heads],
        request=np.array([program.count[each] @ program.request[each] for each in kinds]) / count[:, None],
        count=count,
        allowed=allowed[:, first],
        most=most[:, first] * [len(each) for each in kinds],
        columns=columns,
        kinds=kinds,
    )


def _most(program: Program, columns: Indices) -> Floats:
    """Return how many pods of each kind an empty machine takes, infinite where that is about what fits in pieces."""
    pieces = np.full((len(columns), len(program.count)), np.inf)
    for resource in range(program.room.shape[1]):
        needs = np.flatnonzero(program.request[:, resource] > 0)
        here = program.room[columns, resource, None] / program.request[needs, resource]
        pieces[:, needs] = np.minimum(pieces[:, needs], here)
    most = np.floor(pieces + 1e-9)
    most[:, program.alone] = np.minimum(most[:, program.alone], 1.0)
    most[most > BINDS * pieces] = np.inf
    return most


def solve(program: Program, seconds: float) -> Solved:
    """Return the least that the kinds cost, each of which some column allows."""
    total = len(program.cost)
    if not len(program.count):
        return Solved(0.0, np.zeros(total), np.zeros(0), np.ones(total), solver_installed())
    coarse = _coarse(program)
    found = _generated(coarse, seconds) if solver_installed() else None
    prices = _by_volume(coarse) if found is None else found.prices
    bound, worth = _proven(coarse, prices, program)
    yields = np.ones(total)
    for column, earned in enumerate(_earned(coarse, prices) / coarse.cost):
        yields[coarse.columns[column]] = earned
    machines = np.zeros(total)
    if found is None:
        return Solved(bound, machines, worth, yields, by_solver=False)
    if len(coarse.cost) <= WHOLE and program.allowed.sum() <= FINE:
        bound = max(bound, _whole(coarse, seconds))
    machines[[each[0] for each in coarse.columns]] = found.machines
    flows = _flows(coarse, found.pieces, program.count)
    return Solved(bound, machines, worth, yields, by_solver=True, flows=flows)


def _flows(coarse: _Coarse, pieces: Floats, count: Floats) -> list[tuple[int, int, int]]:
    """Return whole pods of each kind by column: of kinds that are one, one kind after another fills a column."""
    flows: list[tuple[int, int, int]] = []
    for one, kinds in enumerate(coarse.kinds):
        rest = [(int(kind), int(count[kind])) for kind in kinds[::-1]]
        for column in np.flatnonzero(pieces[:, one] > 1e-6).tolist():
            room = int(pieces[column, one] + 1e-6)
            while room and rest:
                kind, left = rest.pop()
                some = min(room, left)
                room -= some
                flows.append((kind, int(coarse.columns[column][0]), some))
                if left > some:
                    rest.append((kind, left - some))
    return flows


def _earned(coarse: _Coarse, prices: _Prices) -> Floats:
    """Return what the room of each column is worth."""
    rents = np.where(np.isfinite(coarse.most), coarse.most, 0.0) * prices.rents
    found: Floats = (prices.amounts * coarse.room).sum(axis=1) + rents.sum(axis=1)
    return found


def _proven(coarse: _Coarse, prices: _Prices, program: Program | None = None) -> tuple[float, Floats]:
    """Return what *prices* prove, however good they are, and the price of the cheapest room for each kind.

    The kinds are those of *program*, which *coarse* stands for, or its own.
    """
    amounts = np.maximum(prices.amounts, 0.0)
    rents = np.where(np.isfinite(coarse.most), np.maximum(prices.rents, 0.0), 0.0)
    share = np.minimum(1.0, coarse.cost / np.maximum(_earned(coarse, _Prices(amounts, rents)), 1e-300))
    request, count, of = coarse.request, coarse.count, np.arange(len(coarse.count))
    if program is not None:
        request, count = program.request, program.count
        of = np.empty(len(count), dtype=np.intp)
        for one, kinds in enumerate(coarse.kinds):
            of[kinds] = one
    worth = np.full(len(count), np.inf)
    for column in range(len(coarse.cost)):
        room = (request @ amounts[column] + rents[column, of]) * share[column]
        np.minimum(worth, np.where(coarse.allowed[column, of], room, np.inf), out=worth)
    return float(count @ worth) * (1 - 1e-9), worth


def _by_volume(coarse: _Coarse) -> _Prices:
    """Return prices by volume alone: what a resource costs where it is cheapest, at the best mixture of resources."""
    whole = coarse.room > 0
    each = np.where(whole, coarse.cost[:, None] / np.where(whole, coarse.room, 1.0), 0.0)
    resources, rents = each.shape[1], np.zeros_like(coarse.most)
    mixtures = [
        part * np.eye(resources)[first] + (1 - part) * np.eye(resources)[second]
        for first in range(resources)
        for second in range(resources)
        for part in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    ]
    return max((_Prices(each * mixture, rents) for mixture in mixtures), key=lambda prices: _proven(coarse, prices)[0])


def _generated(coarse: _Coarse, seconds: float) -> _Optimum | None:
    """Return the optimum over all columns, with prices on each; ``None`` if HiGHS finds none in time."""
    columns = len(coarse.cost)
    volume = _by_volume(coarse).amounts @ coarse.request.T
    volume[~coarse.allowed] = np.inf
    used = np.unique(volume.argmin(axis=0))
    found = None
    for turn in range(TURNS):
        tried = _highs(coarse, used, seconds)
        if tried is None or len(used) == columns:
            return tried or found
        found = tried
        _, worth = _proven(_only(coarse, used), _Prices(found.prices.amounts[used], found.prices.rents[used]))
        others = np.setdiff1d(np.arange(columns), used)
        for column in others.tolist():
            _price(coarse, column, worth, used, found.prices)
        earned = _earned(coarse, found.prices) / coarse.cost
        better = others[earned[others] > 1 + 1e-4]
        if not len(better) or turn == TURNS - 1:
            break
        used = np.union1d(used, better[np.argsort(-earned[better])][:TAKEN])
    return found


def _only(coarse: _Coarse, columns: Indices) -> _Coarse:
    return msgspec.structs.replace(
        coarse,
        cost=coarse.cost[columns],
        room=coarse.room[columns],
        allowed=coarse.allowed[columns],
        most=coarse.most[columns],
    )


def _price(coarse: _Coarse, column: int, worth: Floats, used: Indices, prices: _Prices) -> None:
    """Set the *prices* on *column* at which its room costs least, and no kind has cheaper room than it is *worth*."""
    kinds = np.flatnonzero(coarse.allowed[column])
    room, request, asked = coarse.room[column], coarse.request[kinds], worth[kinds]
    # As on another column, raised until that is so: good enough where it is no more than the machine costs.
    dear = request @ prices.amounts[used].T
    raised = (asked[:, None] / np.maximum(dear, asked[:, None] * 1e-3 + 1e-300)).max(axis=0, initial=0.0)
    cost = np.where(raised < 999, raised * (prices.amounts[used] @ room), np.inf)
    best = int(cost.argmin())
    if cost[best] <= coarse.cost[column]:
        prices.amounts[column], prices.rents[column] = prices.amounts[used[best]] * raised[best], 0.0
        return
    limited = np.flatnonzero(np.isfinite(coarse.most[column, kinds]))
    row, resource = np.nonzero(request)
    resources = len(room)
    solver = passed(
        np.concatenate([room, coarse.most[column, kinds[limited]]]),
        np.full(resources + len(limited), np.inf),
        asked,
        np.full(len(kinds), np.inf),
        (
            np.concatenate([row, limited]),
            np.concatenate([resource, resources + np.arange(len(limited))]),
            np.concatenate([request[row, resource], np.ones(len(limited))]),
        ),
        seconds=1.0,
    )
    solver.run()
    values = np.array(solver.getSolution().col_value)
    if len(values) == resources + len(limited):
        prices.amounts[column] = values[:resources]
        prices.rents[column, kinds[limited]] = values[resources:]


def _passed(coarse: _Coarse, used: Indices, seconds: float, *, whole: bool) -> tuple[Any, Indices, Indices, Indices]:
    """Return the program with the columns *used* alone; column and kind of each piece; limited pieces."""
    columns, kinds, resources = len(used), len(coarse.count), coarse.room.shape[1]
    at, kind = np.nonzero(coarse.allowed[used])
    pieces = columns + np.arange(len(at))
    rows, cols, entries = [kind], [pieces], [np.ones(len(at))]
    for resource in range(resources):
        first = kinds + resource * columns
        rows += [first + at, first + np.arange(columns)]
        cols += [pieces, np.arange(columns)]
        entries += [coarse.request[kind, resource], -coarse.room[used, resource]]
    most = coarse.most[used[at], kind]
    limited = np.flatnonzero(np.isfinite(most))
    own = kinds + resources * columns + np.arange(len(limited))
    rows, cols = [*rows, own, own], [*cols, pieces[limited], at[limited]]
    entries += [np.ones(len(limited)), -most[limited]]
    total = kinds + resources * columns + len(limited)
    solver = passed(
        np.concatenate([coarse.cost[used], np.zeros(len(at))]),
        np.full(columns + len(at), np.inf),
        np.concatenate([coarse.count, np.full(total - kinds, -np.inf)]),
        np.concatenate([coarse.count, np.zeros(total - kinds)]),
        (np.concatenate(rows), np.concatenate(cols), np.concatenate(entries)),
        seconds=seconds,
        whole=columns if whole else 0,
    )
    solver.run()
    return solver, at, kind, limited


def _whole(coarse: _Coarse, seconds: float) -> float:
    """Return what HiGHS proves of whole machines, less its own tolerance for integers and rows; 0 without a proof."""
    solver, *_ = _passed(coarse, np.arange(len(coarse.cost)), seconds, whole=True)
    found = float(solver.getInfo().mip_dual_bound)
    return found * (1 - 1e-6) if np.isfinite(found) else 0.0


def _highs(coarse: _Coarse, used: Indices, seconds: float) -> _Optimum | None:
    """Return the optimum with the columns *used* alone; ``None`` if HiGHS finds none in *seconds* of wall time."""
    import highspy

    solver, at, kind, limited = _passed(coarse, used, seconds, whole=False)
    columns, kinds, resources = len(used), len(coarse.count), coarse.room.shape[1]
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    values = np.array(solver.getSolution().col_value)
    machines, share = np.zeros(len(coarse.cost)), np.zeros(coarse.allowed.shape)
    machines[used], share[used[at], kind] = values[:columns], values[columns:]
    duals = -np.array(solver.getSolution().row_dual)
    prices = _Prices(np.zeros_like(coarse.room), np.zeros_like(coarse.most))
    prices.amounts[used] = duals[kinds : kinds + resources * columns].reshape(resources, columns).T
    prices.rents[used[at[limited]], kind[limited]] = duals[kinds + resources * columns :]
    return _Optimum(machines, share, prices)

"""The least that pods can cost: a linear program over machines, and a proof that doesn't trust its solver.

Pods and machines are cut into pieces. Amounts, attached volumes, labels, taints, zones, how many pods of a kind a
whole machine takes, and anti-affinity by node are counted; other affinity and spread are left out.

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

WHOLE = 1_500
"""Pairs of kinds and columns up to which machines are whole."""

SLOPES = 12
"""Steps in the proportions of a request below which kinds of a large program are one."""

FEW = 10
"""Pods of a group up to which a large program lets machines take several: it has far more machines."""

TURNS, TAKEN = 12, 12
"""Most times that columns are taken in, and how many each time."""

BINDS, BINDS_IN_LARGE = 0.95, 0.8
"""Pods of a kind that a machine takes are a row of the program if they are fewer than this share of what fits in
pieces."""


class Program(Struct, frozen=True):
    """*cost* and *room* (column, resource) of columns of machines; *request* (kind, resource) and *count* of kinds.

    *allowed* (column, kind) says where a kind may run. A machine takes one pod of all kinds that have the same *group*;
    kinds of -1 exclude none.
    """

    cost: Floats
    room: Floats
    request: Floats
    count: Floats
    allowed: Bools
    group: Indices


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
    """What room is worth: *amounts* by column and resource, and *rents* by column and group of limited pods."""

    amounts: Floats
    rents: Floats


class _Coarse(Program, frozen=True):
    """A program of fewer *kinds*: the numbers of those that each stands for. Each kind has a group.

    A machine takes at most *most* pods of a group (column, group; infinite where pieces say as much).
    """

    most: Floats
    kinds: Sequence[Indices]

    def only(self, columns: Indices) -> _Coarse:
        """Return the program of some *columns*."""
        parts = {name: getattr(self, name)[columns] for name in ("cost", "room", "allowed", "most")}
        return msgspec.structs.replace(self, **parts)


class _Optimum(Struct, frozen=True):
    """*machines* by column, *pieces* (column, kind), and what room is worth. *bound* is of whole machines."""

    machines: Floats
    pieces: Floats
    prices: _Prices
    bound: float


def solve(program: Program, seconds: float) -> Solved:
    """Return the least that the kinds cost which some column allows, in *seconds* of wall time for each program."""
    program = msgspec.structs.replace(program, count=program.count * program.allowed.any(axis=0))
    if not program.count.any():
        none = np.zeros(len(program.cost))
        return Solved(0.0, none, np.zeros(len(program.count)), np.ones(len(program.cost)), solver_installed())
    coarse = _coarse(program)
    found = _generated(coarse, seconds) if solver_installed() else None
    prices = _by_volume(coarse) if found is None else found.prices
    bound, worth = _proven(coarse, prices, program)
    yields = _earned(coarse, prices) / coarse.cost
    if found is None:
        return Solved(bound, np.zeros(len(program.cost)), worth, yields, by_solver=False)
    few = coarse.allowed.sum() <= WHOLE
    if few and (whole := _highs(coarse, np.arange(len(coarse.cost)), seconds, whole=True)) is not None:
        found, bound = whole, max(bound, whole.bound)
    return Solved(bound, found.machines, worth, yields, True, _flows(coarse, found.pieces, program.count))


def _coarse(program: Program) -> _Coarse:
    """Return *program* with kinds that ask for the same as one, in a large program also those in like proportions.

    A large program has fewer limits, too: each that is left out only lowers the bound.
    """
    large = program.allowed.sum() > FINE
    if large and len(program.group):
        pods = np.bincount(program.group + 1, program.count)
        program = msgspec.structs.replace(program, group=np.where(pods[program.group + 1] <= FEW, -1, program.group))
    most = _most(program, BINDS_IN_LARGE if large else BINDS)
    slope = program.request
    if large:
        share = program.request / np.maximum(program.count @ program.request, 1e-12)
        slope = np.round(share / np.maximum(share.sum(axis=1, keepdims=True), 1e-300) * SLOPES)
    alike: dict[object, list[int]] = {}
    for kind in np.flatnonzero(program.count).tolist():
        key = program.group[kind], program.allowed[:, kind].tobytes(), most[:, kind].tobytes(), slope[kind].tobytes()
        alike.setdefault(key, []).append(kind)
    kinds = [np.array(each, dtype=np.intp) for each in alike.values()]
    heads = np.array([each[0] for each in kinds])
    count = np.array([program.count[each].sum() for each in kinds])
    own = program.group[heads] + len(kinds) * (program.group[heads] >= 0)
    _, first, group = np.unique(np.where(own < 0, np.arange(len(kinds)), own), return_index=True, return_inverse=True)
    pods = np.where(program.group[heads] >= 0, 1, [len(each) for each in kinds])
    return _Coarse(
        cost=program.cost,
        room=program.room,
        request=np.array([program.count[each] @ program.request[each] for each in kinds]) / count[:, None],
        count=count,
        allowed=program.allowed[:, heads],
        group=group,
        most=(most[:, heads].astype(np.float64) * pods)[:, first],
        kinds=kinds,
    )


def _most(program: Program, binds: float) -> NDArray[np.float32]:
    """Return how many pods of each kind an empty machine takes, infinite where that is about what fits in pieces."""
    most = np.empty(program.allowed.shape, dtype=np.float32)  # of a large fleet as large as all the rest
    for column, room in enumerate(program.room):
        pieces = np.full(program.request.shape, np.inf)
        np.divide(room, program.request, out=pieces, where=program.request > 0)
        pieces = pieces.min(axis=1, initial=np.inf)
        whole = np.floor(pieces + 1e-9)
        most[column] = np.where(whole > binds * pieces, np.inf, whole)
    most[:, program.group >= 0] = 1.0
    return most


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
                flows.append((kind, column, some))
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
        request, count, of = program.request, program.count, np.full(len(program.count), -1)
        for one, kinds in enumerate(coarse.kinds):
            of[kinds] = one
    worth = np.full(len(count), np.inf)
    for column in np.flatnonzero(coarse.allowed.any(axis=1)).tolist():
        room = (request @ amounts[column] + rents[column, coarse.group[of]]) * share[column]
        np.minimum(worth, np.where(coarse.allowed[column, of], room, np.inf), out=worth)
    worth[count == 0] = 0.0
    return float(count @ worth) * (1 - 1e-9), worth


def _by_volume(coarse: _Coarse) -> _Prices:
    """Return prices by volume alone: what a resource costs where it is cheapest, at the best mixture of resources."""
    whole = coarse.room > 0
    each = np.where(whole, coarse.cost[:, None] / np.where(whole, coarse.room, 1.0), 0.0)
    resources, rents = np.eye(each.shape[1]), np.zeros_like(coarse.most)
    mixtures = [
        part * first + (1 - part) * second for first in resources for second in resources for part in (0.5, 0.75, 1.0)
    ]
    return max((_Prices(each * mixture, rents) for mixture in mixtures), key=lambda prices: _proven(coarse, prices)[0])


def _generated(coarse: _Coarse, seconds: float) -> _Optimum | None:
    """Return the optimum over all columns, with prices on each; ``None`` if HiGHS finds none in time."""
    volume = _by_volume(coarse).amounts @ coarse.request.T
    volume[~coarse.allowed] = np.inf
    used = np.unique(volume.argmin(axis=0))
    found = None
    for _ in range(TURNS):
        tried = _highs(coarse, used, seconds)
        if tried is None:
            break
        found = tried
        _, worth = _proven(coarse.only(used), _Prices(found.prices.amounts[used], found.prices.rents[used]))
        others = np.setdiff1d(np.arange(len(coarse.cost)), used)
        for column in others.tolist():
            _price(coarse, column, worth, used, found.prices)
        earned = _earned(coarse, found.prices) / coarse.cost
        better = others[earned[others] > 1 + 1e-4]
        if not len(better):
            break
        used = np.union1d(used, better[np.argsort(-earned[better])][:TAKEN])
    return found


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
    limited = np.flatnonzero(np.isfinite(coarse.most[column, coarse.group[kinds]]))
    groups, own = np.unique(coarse.group[kinds[limited]], return_inverse=True)
    row, resource = np.nonzero(request)
    resources = len(room)
    solver = passed(
        np.concatenate([room, coarse.most[column, groups]]),
        np.full(resources + len(groups), np.inf),
        asked,
        np.full(len(kinds), np.inf),
        (
            np.concatenate([row, limited]),
            np.concatenate([resource, resources + own]),
            np.concatenate([request[row, resource], np.ones(len(limited))]),
        ),
        seconds=1.0,
    )
    solver.run()
    values = np.array(solver.getSolution().col_value)
    if len(values) == resources + len(groups):
        prices.amounts[column], prices.rents[column, groups] = values[:resources], values[resources:]


def _passed(
    coarse: _Coarse, used: Indices, seconds: float, *, whole: bool = False
) -> tuple[Any, Indices, Indices, Indices]:
    """Return the program with the columns *used* alone; column and kind of each piece; pairs of column and group that
    are limited, as one number.
    """
    columns, kinds, resources, groups = len(used), len(coarse.count), coarse.room.shape[1], coarse.most.shape[1]
    at, kind = np.nonzero(coarse.allowed[used])
    pieces = columns + np.arange(len(at))
    rows, cols, entries = [kind], [pieces], [np.ones(len(at))]
    for resource in range(resources):
        first = kinds + resource * columns
        rows += [first + at, first + np.arange(columns)]
        cols += [pieces, np.arange(columns)]
        entries += [coarse.request[kind, resource], -coarse.room[used, resource]]
    limited = np.flatnonzero(np.isfinite(coarse.most[used[at], coarse.group[kind]]))
    pairs, own = np.unique(at[limited] * groups + coarse.group[kind[limited]], return_inverse=True)
    first = kinds + resources * columns
    rows, cols = [*rows, first + own, first + np.arange(len(pairs))], [*cols, pieces[limited], pairs // groups]
    entries += [np.ones(len(limited)), -coarse.most[used].ravel()[pairs]]
    total = first + len(pairs)
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
    return solver, at, kind, pairs


def _highs(coarse: _Coarse, used: Indices, seconds: float, *, whole: bool = False) -> _Optimum | None:
    """Return the best with the columns *used* alone; ``None`` if HiGHS finds none in *seconds* of wall time."""
    import highspy

    solver, at, kind, pairs = _passed(coarse, used, seconds, whole=whole)
    columns, kinds, resources, groups = len(used), len(coarse.count), coarse.room.shape[1], coarse.most.shape[1]
    if whole:
        done = solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        bound = solver.getInfo().mip_dual_bound * (1 - 1e-6)  # HiGHS's own tolerance for integers and rows
    else:
        done, bound = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal, 0.0
    if not done:
        return None
    values = np.array(solver.getSolution().col_value)
    machines, share = np.zeros(len(coarse.cost)), np.zeros(coarse.allowed.shape)
    machines[used], share[used[at], kind] = values[:columns], values[columns:]
    prices = _Prices(np.zeros_like(coarse.room), np.zeros_like(coarse.most))
    if not whole:
        duals = -np.array(solver.getSolution().row_dual)
        prices.amounts[used] = duals[kinds : kinds + resources * columns].reshape(resources, columns).T
        prices.rents[used[pairs // groups], pairs % groups] = duals[kinds + resources * columns :]
    return _Optimum(machines, share, prices, bound)

"""The fewest evictions with which so many nodes go, whatever plan removes them: a linear program, and its proof.

Only pods of removed nodes move. Nodes that stay offer what they have free, summed over nodes of a sort, and pods may be
cut into pieces: so no plan of one round evicts fewer pods than the program says. It sees amounts, node labels, taints,
anti-affinity by node, PodDisruptionBudgets, and how many nodes the gates let go; required affinity, topology spread,
anti-affinity by wider domains, host ports and attach limits are left out.

The solver (the extra ``tightship[solver]``) only proposes multipliers. What they prove is computed anew, so its
tolerances don't matter. Without the solver the nodes with the fewest pods are the proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.planning.solver import passed, solver_installed
from tightship.search.problem import Problem
from tightship.search.relaxation import ROUNDING, rules_of, sorts_of

MOST_FLOWS = 400_000
"""Most pairs of a sort of nodes and a kind of pods: more would take too much memory."""

SECONDS = 60.0
"""Most seconds of wall time that the solver takes for one number of nodes."""

_Floats = NDArray[np.float64]
_Ints = NDArray[np.intp]


class Choice(Struct, frozen=True):
    """No plan that removes as many nodes evicts fewer than *least* pods; *share* is how much of each node goes."""

    least: int
    share: _Floats


class Program:
    """The program of *problem*, asked again and again. *evictions* are the pods to evict of each node."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        nodes = len(problem.names)
        self.evictions = np.bincount(problem.homes[problem.evicted], minlength=nodes).astype(np.float64)
        self._may = np.flatnonzero(problem.closable)
        self.sorts, _ = sorts_of(problem, problem.whole() + problem.slack)
        self._solver: Any = None
        if solver_installed():
            self._build()

    @property
    def solved(self) -> bool:
        """Whether the solver is there, and the program small enough."""
        return self._solver is not None

    def fewest(self, removed: int) -> Choice | None:
        """Return the choice for *removed* nodes or more, ``None`` if no plan removes as many."""
        may = self._may
        share = np.zeros(len(self.problem.names))
        if removed > len(may):
            return None
        cheapest = may[np.argsort(self.evictions[may], kind="stable")[:removed]]
        share[cheapest] = 1.0
        least = int(self.evictions[cheapest].sum())
        if self._solver is None:
            return Choice(least, share)
        found, duals = self._run(self._costs, removed, np.inf)
        if duals is None:
            return None if found is None else Choice(least, share)
        share[may] = found
        return Choice(max(least, self._proven(duals)), share)

    def order(self, points: int) -> _Floats:
        """Return how early each node goes: of so many choices, from few nodes to the most, how much it is part of."""
        whole = self.most(np.ones(len(self.problem.names)), np.inf).sum() if self.solved else len(self._may)
        choices = (self.fewest(int(whole * part / points)) for part in range(1, points + 1))
        return sum((each.share for each in choices if each is not None), np.zeros(len(self.problem.names)))

    def most(self, worth: _Floats, evictions: float) -> _Floats:
        """Return how much of each node goes where nodes of most *worth* go with at most so many *evictions*."""
        may, share = self._may, np.zeros(len(self.problem.names))
        if self._solver is None:
            first = may[np.argsort(-worth[may] / np.maximum(self.evictions[may], 0.1), kind="stable")]
            share[first[np.cumsum(self.evictions[first]) <= evictions]] = 1.0
        else:
            found, duals = self._run(np.concatenate([-worth[may], self._costs[len(may) :]]), 0, evictions)
            if found is not None and duals is not None:
                share[may] = found
        return share

    def _run(self, costs: _Floats, removed: int, evictions: float) -> tuple[_Floats | None, _Floats | None]:
        """Return how much of each node that may go does, and the duals of the rows; without an optimum, no duals.

        If there is no choice at all, there is neither.
        """
        import highspy

        solver, rows = self._solver, len(self._lower)
        self._lower[-1] = float(removed)
        solver.changeColsCost(len(costs), np.arange(len(costs), dtype=np.int32), costs)
        solver.changeRowBounds(rows - 2, -np.inf, evictions)
        solver.changeRowBounds(rows - 1, float(removed), np.inf)
        solver.run()
        status, found = solver.getModelStatus(), solver.getSolution()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None, None
        share = np.array(found.col_value)[: len(self._may)]
        return share, np.array(found.row_dual) if status == highspy.HighsModelStatus.kOptimal else None

    def _proven(self, duals: _Floats) -> int:
        """Return what *duals* prove, good or bad ones alike: the least of the Lagrangian over all columns' bounds."""
        above, below = np.isfinite(self._lower), np.isfinite(self._upper)
        duals = np.where(above, np.maximum(duals, 0.0), 0.0) + np.where(below, np.minimum(duals, 0.0), 0.0)
        at_rows = np.where(duals > 0, self._lower, np.where(duals < 0, self._upper, 0.0))
        rows, columns, values = self._matrix
        reduced = self._costs - np.bincount(columns, values * duals[rows], minlength=len(self._costs))
        terms = np.concatenate([duals * at_rows, np.minimum(reduced, 0.0) * self._most])
        return max(0, math.ceil(float(terms.sum()) - ROUNDING * float(np.abs(terms).sum()) - 1e-6))

    def _build(self) -> None:
        problem, may = self.problem, self._may
        held = np.zeros_like(problem.free)
        np.add.at(held, problem.homes[~problem.evicted], problem.requests[problem.kinds[~problem.evicted]])
        room = np.maximum(problem.free, 0.0) + held + problem.slack
        sorts, kinds = self.sorts, len(problem.demands)
        largest = np.zeros((int(sorts.max(initial=-1)) + 1, problem.free.shape[1]))
        allowed = np.zeros((len(largest), kinds), dtype=np.bool_)
        np.maximum.at(largest, sorts, room)
        np.logical_or.at(allowed, sorts, problem.allowed)
        for kind, request in enumerate(problem.requests):
            allowed[:, kind] &= (request <= largest).all(axis=1)
        to, what = np.nonzero(allowed)
        if len(to) > MOST_FLOWS or not len(may):
            return
        unit = np.maximum(largest.max(axis=0, initial=0.0), 1.0)
        pods = np.zeros((len(problem.names), kinds))
        np.add.at(pods, (problem.homes, problem.kinds), 1.0)
        flows, each, resources = len(may) + np.arange(len(to)), np.arange(len(may)), room.shape[1]
        # Every pod of a removed node goes somewhere.
        at, which = np.nonzero(pods[may])
        parts = [(what, flows, np.ones(len(to))), (which, at, -pods[may][at, which])]
        # What goes to a sort fits into what its nodes that stay have free.
        for resource in range(resources):
            parts.append((kinds + to * resources + resource, flows, (problem.requests / unit)[what, resource]))
            parts.append((kinds + sorts[may] * resources + resource, each, (room / unit)[may, resource]))
        whole = np.zeros_like(largest)
        np.add.at(whole, sorts, room / unit)
        upper = [0.0] * kinds + whole.ravel().tolist()

        def row(columns: _Ints, values: _Floats, most: float) -> None:
            parts.append((np.full(len(columns), len(upper)), columns, values))
            upper.append(most)

        numbers = np.full(allowed.shape, -1, dtype=np.intp)
        numbers[to, what] = flows
        for group, free in self._exclusive():
            for sort in np.flatnonzero(allowed[:, group].any(axis=1)).tolist():
                into = numbers[sort, group]
                into, own = into[into >= 0], np.flatnonzero(sorts[may] == sort)
                values = np.concatenate([np.ones(len(into)), free[may[own]]])
                row(np.concatenate([into, own]), values, float(free[sorts == sort].sum()))
        for rule in rules_of(problem):
            row(each, rule.weights[may], float(rule.weights.sum() - rule.least))
        row(each, self.evictions[may], np.inf)
        row(each, np.ones(len(may)), np.inf)
        self._lower = np.concatenate([np.zeros(kinds), np.full(len(upper) - kinds, -np.inf)])
        self._upper = np.array(upper)
        rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        self._matrix = rows[values != 0], columns[values != 0], values[values != 0]
        self._costs = np.concatenate([self.evictions[may], np.zeros(len(to))])
        self._most = np.concatenate([np.ones(len(may)), pods.sum(axis=0)[what]])
        self._solver = passed(self._costs, self._most, self._lower, self._upper, self._matrix, seconds=SECONDS)

    def _exclusive(self) -> Iterator[tuple[_Ints, _Floats]]:
        """Yield groups of kinds of which a node takes one pod, by required anti-affinity, and which nodes take one."""
        problem = self.problem
        marks, by_row = problem.marks, dict[int, list[int]]()
        for kind, (adds, blocks) in enumerate(zip(marks.adds, marks.blocks, strict=True)):
            row = next((row for row in adds if row in blocks and marks.members[row] is None), -1)
            if row >= 0:
                by_row.setdefault(row, []).append(kind)
        sure = (problem.slack.sum(axis=1) == 0) & ~np.isin(
            np.arange(len(problem.names)), problem.homes[~problem.evicted]
        )
        for row, group in by_row.items():
            yield np.array(group, dtype=np.intp), (~(sure & (marks.start[row] > 0))).astype(np.float64)

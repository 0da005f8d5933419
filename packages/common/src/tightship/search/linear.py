"""The best duals of a relaxation, by the HiGHS solver where it is installed: the extra ``tightship[solver]``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tightship.planning.solver import Entries, passed, solver_installed
from tightship.search.problem import Problem
from tightship.search.relaxation import AtMost, Duals, Relaxation, nothing, proven, relaxed


def solved_bound(problem: Problem, seconds: float) -> int | None:
    """Return how many nodes *problem* needs at least by the optimum of its relaxation; ``None`` as :func:`solved`."""
    relaxation = relaxed(problem)
    duals = solved(relaxation, seconds)
    return None if duals is None else proven(relaxation, duals).least


def solved(relaxation: Relaxation, seconds: float) -> Duals | None:
    """Return the duals of the optimum; ``None`` without the solver, or if it finds none in *seconds* of wall time.

    The result is proven anew by :func:`tightship.search.relaxation.proven`, so the solver's tolerances don't
    matter.
    """
    if not solver_installed():
        return None
    if not len(relaxation.columns):
        return nothing(relaxation)
    import highspy

    program, rows = _Program(relaxation), len(relaxation.at_most)
    lower, upper = program.lower, program.upper
    solver = passed(program.costs, program.most, lower, upper, program.entries(), seconds=seconds)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    duals = np.array(solver.getSolution().row_dual)
    kinds, shape = len(relaxation.count), relaxation.capacity.shape
    prices, rents, fees = np.split(duals, np.cumsum([kinds, shape[0] * shape[1], rows])[:3])[1:]
    return Duals(-prices.reshape(shape), -rents, fees)


class _Program:
    """The linear program in rows: places for all kinds, amounts, at most so many pods, at least so many nodes.

    Its columns are how many nodes to keep of each column of the relaxation, then pods of a kind on a sort.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        self._given = relaxation
        self._sorts, self._kinds = np.nonzero(relaxation.allowed)
        nodes, pods = len(relaxation.columns), len(self._sorts)
        self.costs = np.concatenate([np.ones(nodes), np.zeros(pods)])
        self.most = np.concatenate([relaxation.many, np.full(pods, np.inf)])
        none = np.full(relaxation.staying.size + len(relaxation.at_most), -np.inf)
        least = [rule.least for rule in relaxation.rules]
        self.lower = np.concatenate([relaxation.count, none, least])
        room = [relaxation.staying.ravel(), [row.staying for row in relaxation.at_most], np.full(len(least), np.inf)]
        self.upper = np.concatenate([relaxation.count, *room])
        self._of = np.full(relaxation.allowed.shape, -1, dtype=np.intp)
        self._of[self._sorts, self._kinds] = nodes + np.arange(pods)

    def entries(self) -> Entries:
        """Return what is not 0 in the matrix."""
        given = self._given
        nodes, resources = np.arange(len(given.columns)), given.capacity.shape[1]
        pods = len(nodes) + np.arange(len(self._sorts))
        rows, columns, values = [self._kinds], [pods], [np.ones(len(pods))]

        def add(row: NDArray[np.intp], column: NDArray[np.intp], value: NDArray[np.float64]) -> None:
            rows.append(row)
            columns.append(column)
            values.append(value)

        first = len(given.count)
        for resource in range(resources):
            add(first + self._sorts * resources + resource, pods, given.requests[self._kinds, resource])
            add(first + given.columns * resources + resource, nodes, -given.capacity[given.columns, resource])
        first += given.staying.size
        own = [np.flatnonzero(given.columns == sort) for sort in range(len(given.capacity))]
        for number, row in enumerate(given.at_most, first):
            add(*self._pods_and_nodes(number, row, own[row.sort]))
        for number, rule in enumerate(given.rules, first + len(given.at_most)):
            some = np.flatnonzero(rule.weights)
            add(np.full(len(some), number), some, rule.weights[some])
        all_values = np.concatenate(values)
        some = all_values != 0
        return np.concatenate(rows)[some], np.concatenate(columns)[some], all_values[some]

    def _pods_and_nodes(
        self, number: int, row: AtMost, nodes: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
        columns = np.concatenate([self._of[row.sort, row.kinds], nodes])
        values = np.concatenate([np.ones(len(row.kinds)), np.full(len(nodes), -row.most)])
        return np.full(len(columns), number), columns, values

"""HiGHS, the solver of linear programs, where it is installed: the extra ``tightship[solver]``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

Entries = tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]], NDArray[np.float64]]
"""The entries of a matrix: the row, the column and the value of each."""


def solver_installed() -> bool:
    """Whether HiGHS is there."""
    return find_spec("highspy") is not None


def passed(
    costs: NDArray[np.float64],
    most: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    entries: Entries,
    *,
    seconds: float,
    whole: int = 0,
) -> Any:
    """Return HiGHS with a program, which ``run()`` solves on one thread in at most *seconds* of wall time.

    The program asks for the least *costs* of columns between 0 and *most*, whose rows lie between *lower* and *upper*.
    *entries* may be in any order. The first *whole* columns take whole numbers, to within a thousandth of the best or
    as near as a search of 5,000 nodes comes, on a machine of any speed.
    """
    import highspy

    rows, columns, values = entries
    order = np.argsort(rows, kind="stable")
    solver, given = highspy.Highs(), highspy.HighsLp()
    options = {"output_flag": False, "threads": 1, "time_limit": seconds, "mip_rel_gap": 1e-3, "mip_max_nodes": 5000}
    for option, setting in options.items():
        solver.setOptionValue(option, setting)
    given.num_col_, given.num_row_ = len(costs), len(lower)
    given.col_cost_, given.col_lower_, given.col_upper_ = costs, np.zeros_like(costs), most
    given.row_lower_, given.row_upper_ = lower, upper
    given.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    given.a_matrix_.start_ = np.searchsorted(rows[order], np.arange(len(lower) + 1)).astype(np.int32)
    given.a_matrix_.index_, given.a_matrix_.value_ = columns[order].astype(np.int32), values[order]
    if whole:
        continuous = [highspy.HighsVarType.kContinuous] * (len(costs) - whole)
        given.integrality_ = [highspy.HighsVarType.kInteger] * whole + continuous
    solver.passModel(given)
    return solver

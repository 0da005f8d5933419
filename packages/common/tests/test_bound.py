"""What no plan goes below: a proven bound, checked against every plan of fleets small enough to try them all."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_fleets import exclusive_fleet, gpu_fleet
from tiny_fleets import TinyFleet, tiny_fleet

from tightship.core.reasons import Reason, Refusal
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.plan import Candidate, Planner
from tightship.planning.search.bound import ascend, bound
from tightship.planning.search.limits import limits_of
from tightship.planning.search.linear import solved, solver_installed
from tightship.planning.search.problem import Problem, extract
from tightship.planning.search.relaxation import Duals, Relaxation, proven, relaxed
from tightship_testkit.planning import judge, snapshot_of

needs_solver = pytest.mark.skipif(not solver_installed(), reason="no HiGHS: pip install 'tightship[gap]'")


class _AtMost:
    def __init__(self, most: int) -> None:
        self._most = most

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        full = len(planner.removals) >= self._most
        return [Refusal(Reason.MAX_NODES_REACHED, candidate.name)] if full else []


def problem_of(fleet: TinyFleet) -> Problem:
    snapshot = snapshot_of(fleet.cluster)
    goes = {f"n{number}" for number, each in enumerate(fleet.nodes) if each.goes}
    candidates = tuple(each for each in judge(snapshot).candidates if each.name in goes)
    planner = Planner(snapshot, DisruptionLedger(snapshot), candidates, "possible")
    found = extract(planner, limits_of(_AtMost(fleet.most), planner))
    assert found is not None
    return found


def costs_of(fleet: TinyFleet, problem: Problem) -> list[int]:
    return [fleet.nodes[int(name[1:])].price for name in problem.names]


def best(relaxation: Relaxation) -> Duals:
    found = solved(relaxation, 60.0)
    assert found is not None
    return found


@pytest.fixture
def short_ascent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightship.planning.search.bound.STEPS", 200)


@needs_solver
@pytest.mark.usefixtures("short_ascent")
@pytest.mark.takes(10)
def test_the_bound_is_never_above_the_best_of_all_plans_and_mostly_equals_it() -> None:
    missed: Counter[int] = Counter()
    for seed in range(400):
        fleet = tiny_fleet(seed)
        problem = problem_of(fleet)
        relaxation = relaxed(problem)
        proof, fewest = proven(relaxation, best(relaxation)), fleet.fewest()
        assert proof.least <= fewest, f"seed {seed}"
        assert bound(problem).nodes <= fewest, f"seed {seed}, ascent"
        missed[fewest - proof.least] += 1
    print(missed)
    assert missed[0] > 320, missed
    assert max(missed) <= 2, missed


@needs_solver
@pytest.mark.usefixtures("short_ascent")
@pytest.mark.takes(10)
def test_the_bound_in_money_is_never_above_the_cheapest_of_all_plans() -> None:
    for seed in range(1000, 1300):
        fleet = tiny_fleet(seed)
        problem = problem_of(fleet)
        relaxation = relaxed(problem, costs_of(fleet, problem))
        cheapest = fleet.cheapest()
        assert proven(relaxation, best(relaxation)).least <= cheapest, f"seed {seed}"
        assert proven(relaxation, ascend(relaxation)[0]).least <= cheapest, f"seed {seed}, ascent"

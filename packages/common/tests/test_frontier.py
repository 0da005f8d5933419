"""What evictions buy: a proof that no plan goes below, checked against every plan of small fleets, and near plans."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from search_fleets import exclusive_fleet, gpu_fleet
from test_bound import OPENB, needs_solver, problem_of
from tiny_fleets import tiny_fleet

from tightship.cli.snapshot_file import read_file
from tightship.cluster import Snapshot
from tightship.documents.frontier import HEIGHT, MARGIN, WIDTH, FrontierPoint, plot, steps, with_knee
from tightship.frontier import frontier
from tightship.frontier.program import Program
from tightship.objects.reasons import Reason
from tightship.planning.plan import STRATEGIES, Plan, Planner, Proven, SearchRules, make_plan
from tightship.rules.disruption import DisruptionLedger
from tightship.search.limits import limits_of
from tightship.search.problem import Problem, extract
from tightship_testkit.planning import judge, snapshot_of


def whole(fleet: Snapshot) -> Problem:
    judgement = judge(fleet)
    planner = Planner(fleet, DisruptionLedger(fleet), judgement.candidates, "possible")
    found = extract(planner, limits_of(judgement.gates, planner))
    assert found is not None
    return found


@pytest.mark.takes(5)
@pytest.mark.parametrize("solver", [pytest.param(True, marks=needs_solver), False])
def test_no_plan_evicts_fewer_pods_than_proven(solver: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not solver:
        monkeypatch.setattr("tightship.planning.solver.find_spec", lambda _: None)
    missed: Counter[int] = Counter()
    for seed in range(300):
        fleet = tiny_fleet(seed)
        program, best = Program(problem_of(fleet)), fleet.evictions()
        for removed in range(len(fleet.nodes) + 1):
            choice = program.fewest(removed)
            if removed in best:
                assert choice is not None, f"seed {seed}: {removed} nodes can go"
                assert choice.least <= best[removed], f"seed {seed}: {removed} nodes"
                missed[best[removed] - choice.least] += 1
    assert missed[0] > (0.9 if solver else 0.7) * missed.total(), missed


@needs_solver
def test_multipliers_of_any_kind_prove_nothing_that_is_not_so() -> None:
    rng = np.random.default_rng(1)
    for seed in range(100):
        fleet = tiny_fleet(seed)
        program = Program(problem_of(fleet))
        if not program.solved:
            continue
        for removed, fewest in fleet.evictions().items():
            assert program.fewest(removed) is not None
            duals = rng.normal(0.0, 2.0, len(program._lower))
            assert program._proven(duals) <= fewest, f"seed {seed}: {removed} nodes"


@needs_solver
@pytest.mark.skipif(not OPENB.exists(), reason="the openb cluster is not at hand")
@pytest.mark.parametrize(
    ("kept", "least"),
    [(1400, 0), (923, 355), (723, 669), (572, 971), (561, 993), (414, 1386), (371, 1529), (369, 1540), (365, 1567)],
)
def test_the_proof_on_openb(kept: int, least: int, openb: Program) -> None:
    choice = openb.fewest(1523 - kept)
    assert choice is not None
    assert choice.least == least


@needs_solver
@pytest.mark.skipif(not OPENB.exists(), reason="the openb cluster is not at hand")
def test_fewer_nodes_than_openb_needs_are_proven_impossible(openb: Program) -> None:
    assert openb.fewest(1523 - 364) is None


@pytest.fixture(scope="module")
def openb() -> Program:
    return Program(whole(read_file(str(OPENB))))


def planned(snapshot: Snapshot, most: int | None = None) -> tuple[Plan, Proven]:
    improve, prove = frontier(most)
    plan = make_plan(snapshot, judge, improve(STRATEGIES["least-utilized"], SearchRules()), "possible")
    return plan, prove(plan)


@needs_solver
@pytest.mark.takes(10)
@pytest.mark.parametrize("fleet", [gpu_fleet(5), exclusive_fleet(4)], ids=["gpu", "exclusive"])
def test_each_beginning_of_the_plan_takes_5_percent_more_evictions_than_proven_at_most(
    fleet: dict[str, object],
) -> None:
    snapshot = snapshot_of(fleet)
    plan, proven = planned(snapshot)
    others = (make_plan(snapshot, judge, STRATEGIES[name], "possible") for name in ("fewest-nodes", "least-utilized"))
    assert len(plan.removals) >= 0.98 * max(len(each.removals) for each in others)
    assert proven.solved
    assert len(proven.points) == 10
    assert proven.points[-1][:2] == (len(plan.removals), plan.evictions)
    for removed, evictions, least in proven.points:
        assert evictions == sum(len(each.moves) for each in plan.removals[:removed])
        assert least <= evictions <= 1.05 * least


def test_without_a_program_the_nodes_with_the_fewest_pods_are_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightship.search.problem.MOST_CELLS", 0)
    snapshot = snapshot_of(gpu_fleet(6, 60))
    plan, proven = planned(snapshot)
    assert plan.removals
    assert not proven.solved
    fewest = sorted(len(each.evict) for each in judge(snapshot).candidates)
    assert [each[2] for each in proven.points] == [sum(fewest[: each[0]]) for each in proven.points]
    assert all(least <= evictions for _, evictions, least in proven.points)


@pytest.mark.parametrize("solver", [pytest.param(True, marks=needs_solver), False])
def test_a_plan_with_a_limit_has_no_more_evictions_and_says_why_nodes_stay(
    solver: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not solver:
        monkeypatch.setattr("tightship.planning.solver.find_spec", lambda _: None)
    snapshot = snapshot_of(gpu_fleet(6, 60))
    for most in (1, 7, 20):
        plan, _ = planned(snapshot, most)
        assert plan.evictions <= most
        assert any(each.reason is Reason.MAX_EVICTIONS_REACHED for found in plan.refusals.values() for each in found)
        plain = make_plan(snapshot, judge, STRATEGIES["least-utilized"], "possible")
        spent = np.cumsum([len(each.moves) for each in plain.removals])
        assert len(plan.removals) >= int((spent <= most).sum())


@pytest.mark.parametrize(
    ("curve", "knee"),
    [
        ([(10, 0), (20, 10), (30, 60)], 20),
        ([(10, 10), (20, 20), (30, 30)], None),
        ([(10, 0)], None),
        ([], None),
        ([(5, 1), (6, 30)], 5),
    ],
)
def test_the_knee_is_where_nodes_get_dear(curve: list[tuple[int, int]], knee: int | None) -> None:
    points = with_knee([FrontierPoint(removed, 99, evictions, 0, None) for removed, evictions in curve])
    assert next((each.removed for each in points if each.knee), None) == knee


def test_each_point_tells_what_one_more_node_takes() -> None:
    points = [FrontierPoint(removed, 9, evictions, 0, None) for removed, evictions in ((10, 5), (20, 25), (20, 25))]
    assert steps(points) == [0.5, 2.0, 0.0]


def test_a_curve_goes_from_corner_to_corner() -> None:
    points = ((5, 1, 1), (10, 4, 2))
    drawn: Any = plot([FrontierPoint(removed, 9, evictions, least, None) for removed, evictions, least in points])
    left, right, bottom, top = MARGIN, WIDTH - MARGIN, HEIGHT - MARGIN, MARGIN
    middle, quarter, half = (bottom + top) / 2, left + (right - left) / 4, left + (right - left) / 2
    assert [each[:2] for each in drawn["plans"]] == [(quarter, middle), (right, top)]
    assert drawn["proof"] == [(left, bottom), (quarter, middle), (half, top)]
    assert [drawn["across"][0], drawn["across"][-1]] == [(left, "0"), (right, "4")]
    assert [drawn["up"][0], drawn["up"][-1]] == [(bottom, "0"), (top, "10")]

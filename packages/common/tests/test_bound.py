"""What no plan goes below: a proven bound, checked against every plan of fleets small enough to try them all."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from search_fleets import exclusive_fleet
from tiny_fleets import TinyFleet, TinyNode, TinyPod, tiny_fleet

from tightship.cli.snapshot_file import read_file
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan import STRATEGIES, Candidate, Planner, SearchRules, make_plan
from tightship.planning.solver import solver_installed
from tightship.rules.disruption import DisruptionLedger
from tightship.search.bound import bound
from tightship.search.limits import limits_of
from tightship.search.linear import solved
from tightship.search.problem import Problem, extract
from tightship.search.relaxation import Duals, Relaxation, nothing, proven, relaxed
from tightship.search.strategy import Searching
from tightship_testkit.planning import judge, snapshot_of

DATA = Path(os.environ.get("TIGHTSHIP_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))
OPENB = DATA / "openb_cluster.json.gz"

needs_solver = pytest.mark.skipif(not solver_installed(), reason="no HiGHS: pip install 'tightship[solver]'")


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


def best(relaxation: Relaxation) -> Duals:
    found = solved(relaxation, 60.0)
    assert found is not None
    return found


@pytest.fixture
def short_ascent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightship.search.bound.STEPS", 200)


@pytest.mark.slow
@needs_solver
@pytest.mark.usefixtures("short_ascent")
@pytest.mark.takes(10)
def test_the_bound_is_never_above_the_best_of_all_plans_and_mostly_equals_it() -> None:
    missed: Counter[int] = Counter()
    for seed in range(150):
        fleet = tiny_fleet(seed)
        problem = problem_of(fleet)
        relaxation = relaxed(problem)
        proof, fewest = proven(relaxation, best(relaxation)), fleet.fewest()
        assert proof.least <= fewest, f"seed {seed}"
        assert bound(problem).nodes <= fewest, f"seed {seed}, ascent"
        missed[fewest - proof.least] += 1
    assert missed[0] > 120, missed
    assert max(missed) <= 2, missed


def test_duals_of_any_kind_prove_nothing_that_is_not_so() -> None:
    rng = np.random.default_rng(1)
    for seed in range(100):
        fleet = tiny_fleet(seed)
        relaxation = relaxed(problem_of(fleet))
        prices = rng.exponential(0.3, relaxation.capacity.shape) * rng.integers(0, 2, relaxation.capacity.shape)
        rents = rng.normal(0.0, 0.3, len(relaxation.at_most))
        fees = rng.exponential(0.3, len(relaxation.rules))
        assert proven(relaxation, Duals(prices, rents, fees)).least <= fleet.fewest(), f"seed {seed}"


def test_the_nodes_that_may_not_go_are_proven_without_any_dual() -> None:
    for seed in range(20):
        fleet = tiny_fleet(seed)
        relaxation = relaxed(problem_of(fleet))
        assert proven(relaxation, nothing(relaxation)).least == sum(not each.goes for each in fleet.nodes)


@needs_solver
def test_parts_of_a_cluster_are_rounded_up_each_by_itself() -> None:
    nodes = tuple(TinyNode(cpu=12, memory=64, zone=zone, goes=True) for zone in "aabb")
    homes = (0, 0, 0, 1, 1, 2, 2, 2, 3, 3)
    pods = [TinyPod(app=0, home=home, cpu=3, memory=1, zone="aabb"[home], apart=False) for home in homes]
    relaxation = relaxed(problem_of(TinyFleet(nodes, tuple(pods), {}, 9)))
    proof = proven(relaxation, best(relaxation))
    assert proof.exact == pytest.approx(2.5)
    assert proof.least == 4


@needs_solver
def test_two_pods_of_more_than_half_a_node_need_two_nodes() -> None:
    nodes = tuple(TinyNode(cpu=10, memory=64, zone="a", goes=True) for _ in range(4))
    pods = tuple(TinyPod(app=0, home=home, cpu=6, memory=1, zone="", apart=False) for home in range(4))
    relaxation = relaxed(problem_of(TinyFleet(nodes, pods, {}, 9)))
    assert proven(relaxation, best(relaxation)).least == 4


@needs_solver
def test_what_a_budget_or_a_gate_keeps_is_in_the_bound() -> None:
    nodes = tuple(TinyNode(cpu=10, memory=64, zone="a", goes=True) for _ in range(6))
    pods = tuple(TinyPod(app=0, home=home, cpu=1, memory=1, zone="", apart=False) for home in range(6))
    for allowed, most, least in (({}, 9, 1), ({0: 2}, 9, 4), ({}, 3, 3), ({0: 2}, 1, 5)):
        relaxation = relaxed(problem_of(TinyFleet(nodes, pods, allowed, most)))
        assert proven(relaxation, best(relaxation)).least == least


@needs_solver
@pytest.mark.takes(3)
def test_a_search_keeps_4_percent_more_than_the_bound_at_most_where_all_workloads_exclude_their_own_replicas() -> None:
    fleet = snapshot_of(exclusive_fleet(3))
    judgement = judge(fleet)
    planner = Planner(fleet, DisruptionLedger(fleet), judgement.candidates, "possible")
    problem = extract(planner, limits_of(judgement.gates, planner))
    assert problem is not None
    relaxation = relaxed(problem)
    least = proven(relaxation, best(relaxation)).least
    searching = Searching(STRATEGIES["fewest-nodes"], SearchRules(iterations=3000))
    kept = len(fleet.nodes) - len(make_plan(fleet, judge, searching, "possible").removals)
    assert least <= kept <= 1.04 * least


@needs_solver
@pytest.mark.takes(4)
def test_the_real_cluster_needs_364_nodes_or_365() -> None:
    if not OPENB.exists():
        pytest.skip("openb_cluster.json.gz is absent: let TIGHTSHIP_DATA name the folder that holds it")
    cluster = read_file(str(OPENB))
    candidates = judge(cluster).candidates
    planner = Planner(cluster, DisruptionLedger(cluster), candidates, "possible")
    problem = extract(planner, limits_of(_AtMost(len(cluster.nodes)), planner))
    assert problem is not None
    relaxation = relaxed(problem)
    assert proven(relaxation, best(relaxation)).least in {364, 365}


def test_without_the_solver_there_are_no_duals_of_its(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightship.planning.solver.find_spec", lambda _: None)
    assert solved(relaxed(problem_of(tiny_fleet(1))), 60.0) is None

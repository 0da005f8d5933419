"""A searched plan obeys the compactor's gates as every plan does, and is no smaller for them than without a search."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from node_compactor.judge import CompactorJudge
from node_compactor.settings import load_settings
from tightship.cluster import Snapshot
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import Evaluation, Horizon, evaluate
from tightship.planning.plan import SearchRules
from tightship.search import search as improving
from tightship_simulator.generate import off_peak_cluster
from tightship_testkit.builders import NOW, budget, node, pod, snapshot, workload
from tightship_testkit.planning import snapshot_of

POOL = "cloud.google.com/gke-nodepool"
SIZES = (("small", "2"), ("small", "2"), ("middle", "4"), ("large", "8"))


@pytest.fixture(scope="module")
def fleet() -> Snapshot:
    """Twenty-four nodes of three pools; small nodes are half full, the others nearly empty."""
    things: list[Any] = [workload()]
    for number in range(24):
        pool, cpu = SIZES[number % 4]
        name = f"n{number:02}"
        room = {"cpu": cpu, "memory": "16Gi", "pods": "20"}
        things += [node(name, labels={POOL: pool}, allocatable=room), pod(f"p{number:02}", on=name, cpu="900m")]
    return snapshot(*things)


def judged(
    fleet: Snapshot, pool: dict[str, Any], *, search: bool, until_stable: bool = False, **more: object
) -> Evaluation:
    everywhere = {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75, **pool}
    off = {"minimumNodeAge": 0, "neededMarkedTimeForRemoval": 0, "placement": "possible"}
    settings = load_settings({"nodePools": {"*": everywhere}, **off, **more})
    rules = SearchRules(iterations=300) if search else None
    return evaluate(
        fleet, CompactorJudge(settings), NOW, Horizon(until_stable=until_stable, search=rules), improve=improving
    )


@pytest.mark.parametrize(
    ("pool", "more"),
    [
        ({}, {}),
        ({"minimumNodeCount": 4}, {}),
        ({"minimumNodeCount": 12}, {}),
        ({"scaleDownRequiredUnderutilizedNodeCount": 3}, {}),
        ({"scaleDownCPURequestRatioLimit": 0.3}, {}),
        ({"minimumNodeCount": 1}, {"maximumNodesInPlan": 5}),
        ({"enabled": False}, {}),
    ],
)
def test_the_gates_of_pools_hold_for_a_searched_plan(
    fleet: Snapshot, pool: dict[str, Any], more: dict[str, Any]
) -> None:
    greedy = judged(fleet, pool, search=False, **more).plan
    found = judged(fleet, pool, search=True, **more)
    plan, facts = found.plan, found.facts
    removed = {each.node for each in plan.removals}
    nodes = Counter(fact.pool for fact in facts.values())
    left = Counter(fact.pool for name, fact in facts.items() if name not in removed)
    assert len(plan.removals) >= len(greedy.removals)
    assert all(left[name] >= min(pool.get("minimumNodeCount", 0), many) for name, many in nodes.items())
    assert len(removed) <= more.get("maximumNodesInPlan", 24)
    assert all(facts[name].cpu_ratio < pool.get("scaleDownCPURequestRatioLimit", 0.75) for name in removed)
    assert plan.refusals.keys() == facts.keys() - removed
    assert all(plan.refusals.values())
    assert plan.searched is not None
    assert (plan.searched.removed, plan.searched.greedy_removed) == (len(plan.removals), len(greedy.removals))


def test_a_searched_plan_spends_no_more_of_a_budget_than_it_allows(fleet: Snapshot) -> None:
    pods = [each for view in fleet.nodes.values() for each in view.pods]
    things: list[Any] = [workload(), budget(status={"disruptionsAllowed": 3, "currentHealthy": 24, "expectedPods": 24})]
    things += [node(name, labels={POOL: "one"}) for name in fleet.nodes]
    things += [pod(each.name, on=each.node, cpu="900m") for each in pods]
    plan = judged(snapshot(*things), {}, search=True).plan
    assert plan.evictions == 3
    assert {refusal.reason for each in plan.refusals.values() for refusal in each} >= {Reason.PDB_SPENT_BY_PLAN}


def test_what_is_not_selected_stays_and_receives(fleet: Snapshot) -> None:
    settings = load_settings(
        {
            "nodePools": {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75}},
            "minimumNodeAge": 0,
            "neededMarkedTimeForRemoval": 0,
            "placement": "possible",
        }
    )
    only = {"n00", "n01", "n04"}
    horizon = Horizon(only=only, search=SearchRules(iterations=100))
    plan = evaluate(fleet, CompactorJudge(settings), NOW, horizon, improve=improving).plan
    assert {each.node for each in plan.removals} == only


def test_a_search_of_the_first_round_costs_no_node_in_later_rounds() -> None:
    """Budgets end the first round. The most nodes that it can remove take the room that later rounds would use."""
    spread = snapshot_of(off_peak_cluster(7, 20, pods=200, now=datetime.fromtimestamp(NOW, UTC)))
    every = {"scaleDownCPURequestRatioLimit": 1.01}
    rules = {"strategy": "fewest-nodes", "disabledRules": ["LocalStorage", "NotReplicated", "JobRunning"]}
    plain = judged(spread, every, search=False, until_stable=True, **rules).plan
    plan = judged(spread, every, search=True, until_stable=True, **rules).plan
    assert plan.searched is not None
    assert (len(plan.removals), -plan.evictions) >= (len(plain.removals), -plain.evictions)
    assert plan.searched.removed == sum(each.round == 1 for each in plan.removals)

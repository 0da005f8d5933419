"""What may be claimed beside what is claimed: the pool's budget and minimum, after the cluster's budget."""

from __future__ import annotations

from typing import Any

import pytest

from node_compactor.judge import CompactorJudge
from node_compactor.settings import load_settings
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.evaluate import evaluate
from tightship.planning.facts import FactRules, gather
from tightship_testkit.builders import NOW, node, snapshot

Json = dict[str, Any]
CLUSTER = snapshot(*(node(f"{pool}{n}", labels={"nodepool": pool}) for pool in "ab" for n in range(1, 5)))


def room(node: str, claimed: str = "", *, cluster: object = 8, **pool: object) -> Refusal | None:
    """Whether *node* may go too while the nodes *claimed* are out."""
    pools = {"a": {"enabled": True, **pool}, "b": {"enabled": True}}
    settings = load_settings({"nodePools": pools, "maximumNodesInDrain": cluster})
    return CompactorJudge(settings).room(node, gather(CLUSTER, FactRules(), NOW), claimed.split())


@pytest.mark.parametrize(
    ("node", "claimed", "given", "why"),
    [
        ("a1", "", {}, ""),
        ("a1", "a2 b1", {}, ""),
        (
            "a1",
            "b1",
            {"cluster": 1},
            "BudgetExhausted the cluster: the cluster may have 1 node out at once (1), 1 is out",
        ),
        (
            "a1",
            "b1",
            {"cluster": None},
            "BudgetExhausted the cluster: the cluster may have 1 node out at once (1), 1 is out",
        ),
        ("a1", "a1", {}, "DrainInProgress a1: another drain has claimed the node"),
        ("a1", "b1 b2", {"maximumNodesInDrain": 1}, ""),
        (
            "a1",
            "a2",
            {"maximumNodesInDrain": "25%"},
            "BudgetExhausted a1: pool a may have 1 node out at once (25%), 1 is out",
        ),
        ("b1", "a2", {"maximumNodesInDrain": 1}, ""),
        ("a1", "b1 b2", {"minimumNodeCount": 3}, ""),
        ("a1", "a2", {"minimumNodeCount": 3}, "PoolMinSize a1: pool a would keep 2 nodes, its minimum is 3"),
    ],
)
def test_a_claim_is_judged_beside_all_others(node: str, claimed: str, given: Json, why: str) -> None:
    found = room(node, claimed, **given)
    assert ("" if found is None else str(found)) == why


def test_explain_shows_the_one_node_of_a_cluster_without_a_budget() -> None:
    settings = load_settings({"nodePools": {"*": {"enabled": True}}, "neededMarkedTimeForRemoval": 0})
    found = evaluate(snapshot(node("a1"), node("a2", ready="False")), CompactorJudge(settings), NOW)
    [check] = [check for check in found.checks("a1") if check.reason is Reason.BUDGET_EXHAUSTED]
    assert (check.open, check.detail) == (False, "the cluster may have 1 node out at once (1), 1 is out")
    assert check.fix == "raise the budget (--cluster-budget)"


def test_explain_shows_both_budgets_though_they_shorten_no_plan() -> None:
    pools = {"a": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5, "maximumNodesInDrain": 1}}
    settings = load_settings({"nodePools": pools, "maximumNodesInDrain": "10%", "neededMarkedTimeForRemoval": 0})
    found = evaluate(snapshot(node("a1", labels={"nodepool": "a"})), CompactorJudge(settings), NOW)
    assert [each.node for each in found.plan.removals] == ["a1"]
    budgets = [check for check in found.checks("a1") if check.reason is Reason.BUDGET_EXHAUSTED]
    assert [(check.gate, check.open, check.detail) for check in budgets] == [
        ("pool's budget", True, "pool a may have 1 node out at once (1), 0 are out"),
        ("cluster's budget", True, "the cluster may have 1 node out at once (10%), 0 are out"),
    ]

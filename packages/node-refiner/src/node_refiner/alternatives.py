"""The refiner with other settings, to measure how far a plan is from the best and what each setting costs. Pure.

This module is short: each controller has one, and the refiner has few settings.
"""

from __future__ import annotations

from typing import Any

from node_refiner.excess import remains
from node_refiner.judge import RefinerJudge
from node_refiner.settings import RefinerSettings
from tightship.core.reasons import Reason
from tightship.planning.evaluate import Facts
from tightship.planning.gap import BUDGET_REASONS, Alternatives, Without


def alternatives(settings: RefinerSettings) -> Alternatives:
    """Return the judges of *settings* changed in one point each."""

    def other(**changed: Any) -> RefinerJudge:
        return RefinerJudge(settings.model_copy(update=changed))

    def most(facts: Facts) -> int:
        """Return how many nodes ``minimum_nodes`` and the plan's size let go in any order."""
        nodes = sum(remains(fact.view.node) for fact in facts.values())
        spare = max(0, nodes - settings.minimum_nodes)
        return spare if settings.max_nodes is None else min(spare, settings.max_nodes)

    minimums = {"minimum_nodes": 0, "minimum_non_tainted_nodes": 0}
    without = [
        Without("threshold", other(excess_nodes_threshold=0.0), frozenset({Reason.EXCESS_BELOW_THRESHOLD})),
        Without("minimums", other(**minimums), frozenset({Reason.MIN_NODES})),
        Without("plan size", other(max_nodes=None), frozenset({Reason.MAX_NODES_REACHED})),
    ]
    if not settings.past_budgets:
        without.insert(0, Without("budgets", other(eviction_method="delete"), BUDGET_REASONS))
    if settings.placement != "possible":
        without.append(Without(f"placement {settings.placement}", other(placement="possible")))
    return Alternatives(packed=other(placement="possible"), without=tuple(without), most=most)

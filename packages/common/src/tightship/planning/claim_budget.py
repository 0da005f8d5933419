"""How many nodes may be out at once, in the cluster or in a part of it, asked at the moment of a claim. Pure.

Budgets set the pace, not the direction: no plan is shorter for them. What is claimed is counted from the cluster-wide
ledger, because a sibling controller may have claimed since the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from tightship.objects.counting import counted
from tightship.objects.drain_record import Phase
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.facts import NodeFacts
from tightship.rules.checks import Check
from tightship.rules.nodes import drain_record


class NodeBudget(Protocol):
    """A number or a percentage of nodes; ``str()`` gives it as users write it."""

    def allows(self, nodes: int) -> int:
        """Return how many of *nodes* may be out at once."""


def nodes_out(facts: Mapping[str, NodeFacts], claimed: Collection[str] = ()) -> frozenset[str]:
    """Return the nodes that are out: *claimed*, in drain by any of our tools, or not Ready.

    A node that others took from its drain and never finished with does not count.
    """
    taken = {name for name in claimed if name in facts and not _given_back(facts[name])}
    return frozenset(taken | {name for name, fact in facts.items() if fact.draining or not fact.view.node.ready})


def _given_back(fact: NodeFacts) -> bool:
    record = drain_record(fact.view.node)
    return not fact.draining and record is not None and record.phase is Phase.YIELDED


def budget_check(budget: NodeBudget | None, what: str, *, nodes: int, out: int, flag: str = "") -> Check:
    """Return whether one more node may go out while *out* of the *nodes* of *what* are; without *budget* one may be."""
    allowed, shown = (1, "1") if budget is None else (budget.allows(nodes), str(budget))
    detail = f"{what} may have {counted(allowed, 'node')} out at once ({shown}), {counted(out, 'is', 'are')} out"
    fix = f"raise the budget ({flag})" if flag else ""
    whose = what.removeprefix("the ").split(maxsplit=1)[0]
    return Check(f"{whose}'s budget", Reason.BUDGET_EXHAUSTED, out < allowed, detail, fix)


def cluster_room(
    node: str, facts: Mapping[str, NodeFacts], budget: NodeBudget | None, claimed: Collection[str]
) -> Refusal | None:
    """Return why *node* may not be claimed beside *claimed*, ``None`` if the cluster's *budget* allows it.

    *facts* are of the latest snapshot. Without a budget one node is out at a time.
    """
    if node in claimed:
        return Refusal(Reason.DRAIN_IN_PROGRESS, node, "another drain has claimed the node")
    out = nodes_out(facts, claimed) - {node}
    return budget_check(budget, "the cluster", nodes=len(facts), out=len(out)).refusal(node)

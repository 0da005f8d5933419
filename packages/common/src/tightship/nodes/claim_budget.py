"""How many nodes of the cluster may be out at once, checked at the moment of a claim. Pure.

Claims are counted from the cluster-wide ledger, because a sibling controller may have claimed since the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tightship.app.settings.fields import Budget
from tightship.core.counting import counted
from tightship.core.drain_record import Phase
from tightship.core.reasons import Reason, Refusal
from tightship.drain_io.claims import Claim
from tightship.nodes.decision import NodeFacts
from tightship.planning.nodes import drain_record

ONE_AT_A_TIME = Budget(count=1)
"""The cluster's budget if none is configured."""


def nodes_out(facts: Mapping[str, NodeFacts], claims: Sequence[Claim]) -> frozenset[str]:
    """Return the nodes that are out: claimed, in drain by any of our tools, or not Ready.

    A node that others took from its drain and never finished with does not count.
    """
    claimed = {claim.node for claim in claims if claim.node in facts and not _given_back(facts[claim.node])}
    return frozenset(claimed | {name for name, fact in facts.items() if fact.draining or not fact.view.node.ready})


def _given_back(fact: NodeFacts) -> bool:
    record = drain_record(fact.view.node)
    return not fact.draining and record is not None and record.phase is Phase.YIELDED


def within(budget: Budget, what: str, node: str, *, nodes: int, out: int) -> Refusal | None:
    """Return why *node* may not go too while *out* of the *nodes* of *what* are out, ``None`` if it may."""
    allowed = budget.allows(nodes)
    if out < allowed:
        return None
    detail = f"{what} may have {counted(allowed, 'node')} out at once ({budget}), {counted(out, 'is', 'are')} out"
    return Refusal(Reason.BUDGET_EXHAUSTED, node, detail)


def cluster_room(
    node: str, facts: Mapping[str, NodeFacts], budget: Budget | None, claims: Sequence[Claim]
) -> Refusal | None:
    """Return why *node* may not be claimed beside *claims*, ``None`` if the cluster's *budget* allows it.

    *facts* are of the latest snapshot. Without a budget one node is out at a time.
    """
    if any(claim.node == node for claim in claims):
        return Refusal(Reason.DRAIN_IN_PROGRESS, node, "another drain has claimed the node")
    out = nodes_out(facts, claims) - {node}
    return within(budget or ONE_AT_A_TIME, "the cluster", node, nodes=len(facts), out=len(out))

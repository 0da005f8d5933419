"""How many nodes may be out at once, asked at the moment a node is claimed. Pure.

While a plan is made its own gates count what it takes; what is claimed is counted here again, from the cluster-wide
ledger, since a sibling controller may have claimed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node_compactor.policy import NodeFacts
from node_compactor.settings import CompactorSettings
from tightship.drain.claims import Claim
from tightship.pools import shown
from tightship.reasons import Reason, Refusal
from tightship.settings.fields import Budget

ONE_AT_A_TIME = Budget(count=1)
"""The cluster's budget where none is configured."""


def without_budgets(settings: CompactorSettings) -> CompactorSettings:
    """Return *settings* for a plan that shows the whole direction: budgets say how fast to go there, not where."""
    pools = {name: pool.model_copy(update={"budget": None}) for name, pool in settings.pools.items()}
    return settings.model_copy(update={"pools": pools, "cluster_budget": None})


def room(
    node: str, facts: Mapping[str, NodeFacts], settings: CompactorSettings, claims: Sequence[Claim]
) -> Refusal | None:
    """Return why *node* may not be claimed beside *claims*, ``None`` if it may.

    Nodes that are out are those claimed, those in drain by whatever tool of ours, and those that are not Ready; *facts*
    are of the latest snapshot.
    """
    claimed = {claim.node for claim in claims} & set(facts)
    if node in claimed:
        return Refusal(Reason.DRAIN_IN_PROGRESS, node, "is claimed already")
    out = claimed | {name for name, fact in facts.items() if fact.draining or not fact.view.node.ready}
    out.discard(node)
    pool = facts[node].pool
    own = facts[node].settings
    members = [name for name, fact in facts.items() if fact.pool == pool]
    in_pool = sum(facts[name].pool == pool for name in out)
    for budget, what, nodes, count in (
        (settings.cluster_budget or ONE_AT_A_TIME, "the cluster", len(facts), len(out)),
        (own.budget if own is not None else None, f"pool {shown(pool)}", len(members), in_pool),
    ):
        if budget is not None and count >= budget.allows(nodes):
            detail = f"{what} may have {budget.allows(nodes)} nodes out at once ({budget}), {count} are"
            return Refusal(Reason.BUDGET_EXHAUSTED, node, detail)
    keeps = len(members) - in_pool - 1
    if own is not None and keeps < own.minimum_nodes:
        detail = f"pool {shown(pool)} would keep {keeps} nodes, its minimum is {own.minimum_nodes}"
        return Refusal(Reason.POOL_MIN_SIZE, node, detail)
    return None

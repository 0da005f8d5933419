"""How many nodes may be out at once, asked at the moment a node is claimed. Pure.

While a plan is made its own gates count what it takes; what is claimed is counted here again, from the cluster-wide
ledger, since a sibling controller may have claimed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node_compactor.policy import NodeFacts, below_minimum
from node_compactor.settings import CompactorSettings
from tightship.core.reasons import Refusal
from tightship.drain_io.claims import Claim
from tightship.nodes.claim_budget import cluster_room, nodes_out, within
from tightship.planning.nodes import owner_elsewhere
from tightship.planning.pools import shown


def without_budgets(settings: CompactorSettings) -> CompactorSettings:
    """Return *settings* for a plan that shows the whole direction: budgets say how fast to go there, not where."""
    pools = {name: pool.model_copy(update={"budget": None}) for name, pool in settings.pools.items()}
    return settings.model_copy(update={"pools": pools, "cluster_budget": None})


def room(
    node: str, facts: Mapping[str, NodeFacts], settings: CompactorSettings, claims: Sequence[Claim]
) -> Refusal | None:
    """Return why *node* may not be claimed beside *claims*, ``None`` if it may; *facts* are of the latest snapshot."""
    refusal = cluster_room(node, facts, settings.cluster_budget, claims)
    pool = facts[node].pool
    # Not the facts' own settings: the plan they were gathered for shows the direction, without budgets.
    own = settings.pool(pool)
    if refusal is not None or own is None:
        return refusal
    nodes = sum(fact.pool == pool for fact in facts.values())
    outside = nodes_out(facts, claims) - {node}
    out = sum(facts[name].pool == pool for name in outside)
    if own.budget is not None:
        refusal = within(own.budget, f"pool {shown(pool)}", node, nodes=nodes, out=out)
        if refusal is not None:
            return refusal
    # Whoever takes a node away may be slow: it holds no place in the budget for ever, but it is none that stays.
    taken = sum(
        fact.pool == pool and name not in outside and owner_elsewhere(fact.view.node) is not None
        for name, fact in facts.items()
    )
    below = below_minimum(node, pool, nodes - out - taken - 1, own)
    return below[0] if below else None

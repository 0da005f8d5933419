"""Who consolidates the nodes of Karpenter's NodePools, and whether an emptied one goes. Pure.

As Karpenter documents (``spec.disruption`` of karpenter.sh/v1): empty nodes go with each policy, underutilized ones
with each but ``WhenEmpty``; nothing goes with ``consolidateAfter: Never``, with a budget of zero, or in a static pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tightship.core.durations import format_duration
from tightship.core.objects import Node, NodePool
from tightship.core.objects.karpenter import NEVER, WHEN_EMPTY
from tightship.core.reasons import Reason, Refusal

POOL_LABEL = "karpenter.sh/nodepool"

_EMPTY, _UNDERUTILIZED = "Empty", "Underutilized"


def timed(node: Node, pools: Mapping[str, NodePool]) -> bool:
    """Whether what :func:`left_to_karpenter` says of *node* depends on the time."""
    pool = pools.get(node.labels.get(POOL_LABEL, ""))
    return pool is not None and pool.timed


def left_to_karpenter(node: Node, pools: Mapping[str, NodePool], now: float | None) -> Iterator[Refusal]:
    """Yield why *node* stays because of its NodePool at *now* (seconds since 1970); nothing if Karpenter would delete
    the node once it is empty, and else leaves it alone.

    *pools* are the known NodePools. Without *now*, budgets that hold only at times are left out.
    """
    name = node.labels.get(POOL_LABEL)
    if name is None:
        return
    pool, managed = pools.get(name), Reason.KARPENTER_MANAGED
    if pool is None:
        detail = f"belongs to NodePool {name}, which is not known here, so that Karpenter may consolidate it"
        yield Refusal(managed, node.name, detail, "let Tightship read nodepools.karpenter.sh")
    elif pool.problem:
        detail = f"belongs to NodePool {name}, which can't be read: {pool.problem}"
        yield Refusal(managed, node.name, detail, f"fix NodePool {name}")
    else:
        if consolidates(pool):
            after = format_duration(pool.after or 0.0)
            how = f"consolidationPolicy {pool.policy}, consolidateAfter {after}"
            detail = f"belongs to NodePool {name}, and Karpenter consolidates underutilized nodes itself ({how})"
            fix = f"set consolidationPolicy: {WHEN_EMPTY} for NodePool {name}"
            yield Refusal(managed, node.name, detail, fix)
        why = keeps_empty(pool, now)
        if why:
            detail = f"belongs to NodePool {name}, and nobody would delete the emptied node: {why[0]}"
            yield Refusal(Reason.KARPENTER_CONSOLIDATION_OFF, node.name, detail, why[1])


def consolidates(pool: NodePool) -> bool:
    """Whether Karpenter itself consolidates nodes of *pool* that are not empty, now or at other times."""
    return (
        pool.policy != WHEN_EMPTY
        and pool.after is not None
        and pool.replicas is None
        and not any(each.forbids(_UNDERUTILIZED, None) for each in pool.budgets)
    )


def keeps_empty(pool: NodePool, now: float | None) -> tuple[str, str] | None:
    """Return why Karpenter keeps an empty node of *pool* at *now* and what would change that; ``None`` if it goes."""
    if pool.replicas is not None:
        return f"the pool is static, with {pool.replicas} replicas", f"lower the replicas of NodePool {pool.name}"
    if pool.after is None:
        return f"consolidateAfter is {NEVER}", f"set consolidateAfter: 30s for NodePool {pool.name}"
    shut = next((each for each in pool.budgets if each.forbids(_EMPTY, now)), None)
    if shut is None:
        return None
    when = f" for {format_duration(shut.duration)} from {shut.text} (UTC)" if shut.schedule is not None else ""
    return f"a disruption budget allows {shut.nodes} nodes{when}", f"raise that budget of NodePool {pool.name}"

"""Which strategy plans which pool. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from node_compactor.settings import CompactorSettings
from tightship.planning.plan import STRATEGIES, PerPool, Strategy


def strategy_of(settings: CompactorSettings, pools: Mapping[str, str]) -> Strategy:
    """Return the strategy for a cluster whose nodes are in *pools* (by node name).

    Where every enabled pool goes by the same, that is it; else one that plans each pool by its own.
    """
    chosen: dict[str, str] = {}
    for name in sorted(set(pools.values())):
        pool = settings.pool(name)
        if pool is not None and pool.enabled:
            chosen[name] = pool.strategy or settings.strategy
    distinct = set(chosen.values()) or {settings.strategy}
    if len(distinct) == 1:
        return STRATEGIES[distinct.pop()]
    return PerPool(chosen, settings.strategy)

"""The compactor with other settings, to measure how far a plan is from the best and what each setting costs. Pure."""

from __future__ import annotations

import math
from typing import Any

from node_compactor.judge import CompactorJudge
from node_compactor.settings import CompactorSettings
from tightship.core.reasons import Reason
from tightship.planning.gap import BUDGET_REASONS, Alternatives, Without


def alternatives(settings: CompactorSettings) -> Alternatives:
    """Return the judges of *settings* changed in one point each."""

    def other(**changed: Any) -> CompactorJudge:
        return CompactorJudge(settings.model_copy(update=changed))

    def pools(**changed: Any) -> dict[str, Any]:
        return {"pools": {name: pool.model_copy(update=changed) for name, pool in settings.pools.items()}}

    without = [
        Without("limit", other(**pools(limit=math.inf)), frozenset({Reason.NOT_UNDERUTILIZED})),
        Without("required count", other(**pools(required_count=0)), frozenset({Reason.REQUIRED_COUNT_NOT_REACHED})),
        Without("minimum size", other(**pools(minimum_nodes=0)), frozenset({Reason.POOL_MIN_SIZE})),
        Without("plan size", other(max_nodes=None), frozenset({Reason.MAX_NODES_REACHED})),
        Without("minimum age", other(minimum_age=0.0), frozenset({Reason.TOO_YOUNG})),
        Without("needed mark", other(marked_for=0.0), frozenset({Reason.NOT_MARKED_LONG_ENOUGH})),
    ]
    if not settings.past_budgets:
        without.insert(0, Without("budgets", other(eviction_method="delete"), BUDGET_REASONS))
    chosen = {pool.strategy or settings.strategy for pool in settings.pools.values()} | {settings.strategy}
    if chosen != {"fewest-nodes"}:
        without.append(Without("strategy", other(strategy="fewest-nodes", **pools(strategy=None))))
    if settings.placement != "possible":
        without.append(Without(f"placement {settings.placement}", other(placement="possible")))
    return Alternatives(
        packed=other(placement="possible", strategy="fewest-nodes", **pools(strategy=None)),
        cheapest=other(placement="possible", strategy="lowest-cost", **pools(strategy=None)),
        without=tuple(without),
    )

"""What a drain is told of the settings."""

from __future__ import annotations

from node_compactor.policy import eviction_rules
from node_compactor.settings import CompactorSettings
from tightship.drain.driving import DrainSettings
from tightship.drain.machine import DrainRules


def drain_settings(settings: CompactorSettings) -> DrainSettings:
    """Return how drains go about it under *settings*."""
    rules = DrainRules(
        settle=settings.settle,
        pod_timeout=settings.pod_timeout,
        node_timeout=settings.node_timeout,
        await_timeout=settings.await_timeout,
        not_ready_timeout=settings.not_ready_timeout,
        pending_timeout=settings.pending_timeout,
        hand_over_timeout=settings.hand_over_timeout,
        keep_drained=settings.when_not_taken == "keep",
        backoff_base=settings.backoff,
        backoff_limit=settings.backoff_limit,
        hold_off=settings.hold_off,
        most_in_flight=settings.most_in_flight,
        past_budgets=settings.eviction_method == "delete",
    )
    return DrainSettings(rules=rules, eviction=eviction_rules(settings), placement=settings.placement)

"""The settings of a drain."""

from __future__ import annotations

from tightship.app.settings.sections import DrainKeys
from tightship.drain.rules import DrainRules
from tightship.drain_io.drain_task import DrainSettings, Keeps
from tightship.planning.demand import Ahead
from tightship.planning.evictability import EvictionRules
from tightship.planning.plan.model import Placement


def drain_settings(
    keys: DrainKeys, eviction: EvictionRules, placement: Placement, ahead: Ahead, keeps: Keeps
) -> DrainSettings:
    """Return how drains proceed under *keys*; the remaining settings are those of plans."""
    rules = DrainRules(
        settle=keys.settle,
        pod_timeout=keys.pod_timeout,
        node_timeout=keys.node_timeout,
        await_timeout=keys.await_timeout,
        not_ready_timeout=keys.not_ready_timeout,
        pending_timeout=keys.pending_timeout,
        hand_over_timeout=keys.hand_over_timeout,
        keep_drained=keys.when_not_taken == "keep",
        backoff_base=keys.backoff,
        backoff_limit=keys.backoff_limit,
        hold_off=keys.hold_off,
        most_in_flight=keys.most_in_flight,
        past_budgets=keys.eviction_method == "delete",
    )
    return DrainSettings(rules=rules, eviction=eviction, placement=placement, ahead=ahead, keeps=keeps)

"""What drains are told of the settings."""

from __future__ import annotations

from typing import Any

from tightship.drain.machine import DrainRules
from tightship.objects.reasons import Reason
from tightship.planning.demand import ReservedDemand
from tightship.process.settings.loading import load
from tightship.process.settings.sections import DrainKeys
from tightship.rules.evictability import ENDS_BY_ITSELF, EvictionRules

from .toy import TOY, ToySettings

Json = dict[str, Any]
PLANS: Json = {
    "placement": "possible",
    "disabledRules": ["LocalStorage"],
    "blockingSystemPodTimeout": "13m",
    "maximumScaleUpReplicas": 12,
    "workloadPause": "14m",
    "minStableTime": "15m",
}
"""Settings of plans that drains go by too."""
EVICTION = EvictionRules(frozenset({Reason.LOCAL_STORAGE}), 780, ENDS_BY_ITSELF, 180, restarts="all")


def test_the_defaults_are_the_machines() -> None:
    assert TOY.drain_settings(ToySettings()).rules == DrainRules(workload_pause=600)


def test_every_setting_of_a_drain_reaches_it() -> None:
    values: Json = {
        "evictionMethod": "delete",
        "makeBeforeBreak": "all",
        "settleTime": "1s",
        "podEvictionTimeout": "2m",
        "nodeDrainTimeout": "3m",
        "awaitCompletionFor": "4m",
        "notReadyTimeout": "5m",
        "pendingTimeout": "6m",
        "afterCordonTimeout": "12m",
        "handOverTimeout": "7m",
        "whenNotTaken": "keep",
        "backoff": "8m",
        "backoffLimit": "9m",
        "holdOff": "10m",
        "maximumEvictionsInFlight": 11,
    }
    assert set(DrainKeys.model_fields) == {_field(key) for key in values}
    found = TOY.drain_settings(load(ToySettings, {**values, **PLANS}))
    assert found.rules == DrainRules(
        settle=1,
        pod_timeout=120,
        node_timeout=180,
        await_timeout=240,
        not_ready_timeout=300,
        pending_timeout=360,
        after_cordon_timeout=720,
        hand_over_timeout=420,
        keep_drained=True,
        backoff=480,
        backoff_limit=540,
        hold_off=600,
        most_in_flight=11,
        workload_pause=840,
        min_stable_time=900,
        past_budgets=True,
    )
    ahead = ReservedDemand(12, buffers=True, recommended=True)
    assert (found.eviction, found.placement, found.ahead) == (EVICTION, "possible", ahead)


def _field(key: str) -> str:
    return next(name for name, field in DrainKeys.model_fields.items() if field.alias == key)

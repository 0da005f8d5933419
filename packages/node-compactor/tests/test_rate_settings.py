"""Rates and budgets of zones as users write them, at load and at a claim."""

from __future__ import annotations

import pytest

from node_compactor.judge import CompactorJudge
from node_compactor.settings import load_settings
from tightship.objects.drain_record import Begun, Spent
from tightship.objects.reasons import Reason
from tightship.planning.facts import FactRules, gather
from tightship.process.settings.loading import SettingsError
from tightship_testkit.builders import node, snapshot

NOW = 1_800_000_000.0


@pytest.mark.parametrize("key", ["maximumNodesPerHour", "maximumNodesPerDay", "maximumEvictionsPerHour"])
@pytest.mark.parametrize("value", [0.5, -1, "many"])
@pytest.mark.parametrize("pool", [False, True])
def test_a_rate_below_one_node_is_refused_by_name(key: str, value: object, pool: bool) -> None:
    with pytest.raises(SettingsError, match=key):
        load_settings({"nodePools": {"a": {key: value}}} if pool else {key: value})


@pytest.mark.parametrize("what", ["Nodes", "Evictions"])
@pytest.mark.parametrize("pool", [False, True])
def test_a_rate_of_an_hour_above_that_of_a_day_is_refused(what: str, pool: bool) -> None:
    keys = {f"maximum{what}PerHour": 5, f"maximum{what}PerDay": 4}
    with pytest.raises(SettingsError, match=f"maximum{what}PerDay.*allowed is 5 or more"):
        load_settings({"nodePools": {"a": keys}} if pool else keys)


def test_a_claim_asks_rates_of_cluster_and_pool_and_the_budget_of_its_zone() -> None:
    zone = "topology.kubernetes.io/zone"
    nodes = [node(f"n{at}", labels={zone: "z1" if at < 2 else "z2", "agentpool": "a"}) for at in range(3)]
    facts = gather(snapshot(*nodes), FactRules(), NOW)

    def room(name: str, claimed: str = "", *, begun: Begun = Begun(now=NOW), **given: object) -> Reason | None:
        settings = load_settings({"maximumNodesInDrain": 9, **given})
        refusal = CompactorJudge(settings).room(name, facts, claimed.split(), begun)
        return None if refusal is None else refusal.reason

    spent = Begun((Spent(NOW - 60, "a", 1, 0),), NOW)
    assert room("n0", "n1", maximumNodesInDrainPerZone=1) is Reason.BUDGET_EXHAUSTED
    assert room("n2", "n1", maximumNodesInDrainPerZone=1) is None
    assert room("n0", begun=spent, maximumNodesPerHour=1) is Reason.RATE_LIMITED
    assert room("n0", begun=spent, nodePools={"a": {"enabled": True, "maximumNodesPerHour": 1}}) is Reason.RATE_LIMITED
    assert room("n0", begun=spent, maximumNodesPerHour=2) is None

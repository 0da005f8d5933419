"""node-compactor and node-refiner on one cluster: one budget, one ledger, and neither touches what is the other's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tightship_testkit.audit_readings import claims_made, evictions_by, quarrels
from tightship_testkit.drains import all_ready
from tightship_testkit.embedded import embedded_cluster
from tightship_testkit.off_peak import off_peak
from tightship_testkit.refining import quick
from tightship_testkit.replica import COMPACTOR, QUICK, REFINER, new_team

pytestmark = [pytest.mark.virtual_time, pytest.mark.slow]

BOTH = {COMPACTOR.user: COMPACTOR.name, REFINER.user: REFINER.name}
CALM = {"LEASE_RETRY_PERIOD": "10s"}
"""A Lease is renewed so seldom that minutes of rest are soon over."""
EVERY = "10"
"""Seconds between two passes."""
REST = 600.0
"""Seconds without a write of a node after which nothing more is expected."""


@pytest.mark.takes(3)
@pytest.mark.parametrize("seed", range(2))
async def test_compactor_and_refiner_drain_one_cluster_together(tmp_path: Path, seed: int) -> None:
    """The compactor has one pool and begins, the refiner has the whole cluster, and pauses after each drain."""
    pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75, "scaleDownRequiredUnderutilizedNodeCount": 1}
    settings = {**QUICK, "nodePools": {"memory": pool}, "neededMarkedTimeForRemoval": "1s"}
    cluster = off_peak({"general": 5, "memory": 5}, low=0.5, high=0.6, seed=seed)
    async with embedded_cluster(tmp_path, cluster, settings) as on:
        on.start(**CALM, **{COMPACTOR.interval: EVERY})
        await on.seen(lambda: bool(on.recorder.in_drain()), "the compactor has begun")
        ledger = f"{on.team}-claims"
        on.team = new_team()
        await on.staff(REFINER, quick(clusterCoolDownAfterDrain="4s"))
        on.start(CLAIMS_LEASE_NAME=ledger, **CALM, **{REFINER.interval: EVERY})

        with on.removing() as remover:
            await on.seen(lambda: len(remover.removed) >= 2, "two nodes are removed")
            written = -1
            while (last := on.yard.cluster.store.changed(("Node",))) != written:
                written = last
                await asyncio.sleep(REST)
        await all_ready(on.api)
        for replica in on.replicas:
            replica.asked_to_end()
            assert await replica.ended() == 0
        made = claims_made(on.events)
        assert {each.user for each in made} == set(BOTH)
        assert {each.name for each in made} >= set(remover.removed)
        assert on.recorder.most_in_drain == 1
        assert quarrels(on.events, BOTH) == []
        assert [set(evictions_by(on.events, user).values()) for user in BOTH] == [{1}, {1}]
        assert min(on.recorder.least_spare.values()) >= 0
        assert {each["metadata"]["name"] for each in await on.api.list("Node")}.isdisjoint(remover.removed)
        assert on.recorder.in_drain() == {}

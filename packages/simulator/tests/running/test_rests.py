"""Workloads rest between drains, as seen from outside: the next node is claimed when the replacement is stable."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tightship.rules.rates import SKEW
from tightship_testkit.drains import SETTINGS
from tightship_testkit.embedded import Ground, cluster, ground

pytestmark = pytest.mark.virtual_time

TWO = cluster({"n1": 1, "n2": 1, "n3": 2}, pools={"n1": "spare", "n2": "spare"})
BOTH = {**SETTINGS, "maximumNodesInDrain": 2}
LATE = 15.0
"""Seconds from the end of a rest to a claim: a pass, and a pod's start."""


async def claimed(on: Ground) -> list[float]:
    """Return when the drains of both nodes began, once they have gone."""
    on.start()
    with on.removing():
        await on.ended_well("n1", "n2")
    return sorted(each.at for each in on.recorder.moments if each.phase == "Claimed")


async def test_a_node_waits_until_the_replacement_of_its_workloads_last_eviction_is_stable(tmp_path: Path) -> None:
    async with ground(tmp_path, TWO, {**BOTH, "minStableTime": "20s"}) as on:
        first, second = await claimed(on)
    assert 20 + SKEW <= second - first <= 20 + SKEW + LATE


async def test_a_controller_writes_nothing_while_workloads_keep_its_next_node(tmp_path: Path) -> None:
    async with ground(tmp_path, TWO, {**BOTH, "workloadPause": "30s"}) as on:
        on.start()
        with on.removing():
            await on.seen(lambda: any(each.phase == "gone" for each in on.recorder.moments), "one node is gone")
            await asyncio.sleep(4)
            before = len(on.yard.written())
            await asyncio.sleep(15)
            meanwhile = on.yard.written()[before:]
            await on.ended_well("n1", "n2")
    assert [each for each in meanwhile if each.resource not in ("leases", "events")] == []
    assert sum(each.name.endswith("claims") for each in meanwhile) <= 1

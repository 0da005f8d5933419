"""Workloads rest between drains, as seen from outside: the next node is claimed when the replacement is stable."""

from __future__ import annotations

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


async def test_a_controller_asks_for_nothing_more_while_workloads_rest(tmp_path: Path) -> None:
    """Else a pause of ten minutes costs requests and passes of ten minutes."""
    counts = {}
    for pause in ("0s", "40s"):
        async with ground(tmp_path / pause, TWO, {**BOTH, "workloadPause": pause}) as on:
            first, second = await claimed(on)
            counts[pause] = len(on.yard.asked), second - first
    assert counts["40s"][1] >= 40
    print(counts)

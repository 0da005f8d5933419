"""A cache behind a connection that fails in every way, or is away: in the end it holds the truth."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tightship.kube import host
from tightship.kube.cache import ClusterCache, Timing
from tightship.kube.connection import connect
from tightship_testkit.builders import node
from tightship_testkit.faults import Call, Fault, Hang, HeldWatch, Rates, SeededFaults
from tightship_testkit.simulated import Simulated, simulated, until

pytestmark = pytest.mark.virtual_time

SEEDS = range(20)
STORM = 6.0
QUICK = Timing(first=0.1, longest=5, silence=20)


async def change(api: Simulated) -> set[str]:
    """Make and delete nodes for as long as a storm lasts; return which there are in the end."""
    for number in range(30):
        api.add(node(f"n{number}"))
        if number % 2:
            api.remove("Node", f"n{number - 1}")
        await asyncio.sleep(STORM / 30)
    return {f"n{number}" for number in range(1, 30, 2)}


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_cache_holds_the_truth_after_a_storm(tmp_path: Path, seed: int) -> None:
    async with simulated(tmp_path) as api:
        plan = SeededFaults(seed, Rates(hang_seconds=1).times(3), seconds=STORM, clock=host.monotonic)
        api.proxy.plan = plan
        async with (
            await connect(api.kubeconfig(), timeout=3) as connection,
            ClusterCache(connection, timing=QUICK) as cache,
        ):
            wanted = await change(api)
            await until(lambda: cache.has_synced, 600)
            await until(lambda: set(cache.snapshot().nodes) == wanted, 600)
        assert plan.tally.total() > 5


@pytest.mark.parametrize("how", ["refuses", "hangs"])
async def test_a_cache_outlives_an_outage_of_the_api_server(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()

    async def silent(call: Call) -> Fault | None:
        return HeldWatch(open=go) if call.is_watch else Hang(release=go)

    def opened() -> int:
        return sum(each.call.is_watch and each.call.path == "/api/v1/nodes" for each in api.proxy.log)

    async with (
        simulated(tmp_path, node("n1")) as api,
        await connect(api.kubeconfig()) as connection,
        ClusterCache(connection) as cache,
    ):
        await until(lambda: cache.has_synced, 60)
        watches = opened()
        if how == "refuses":
            async with api.proxy.outage():
                await asyncio.sleep(600)
        else:
            api.freeze("Node")
            api.proxy.plan = silent
            # The stream stays open and says nothing: only the bound on silence ends it.
            await until(lambda: "WATCH /api/v1/nodes" in caplog.text)
            assert "n1" in cache.snapshot().nodes
            go.set()
        api.add(node("n2"))
        await until(lambda: "n2" in cache.snapshot().nodes, 600)
        # Where it had to list anew, n2 is known before the next watch is open.
        await until(lambda: opened() > watches, 600)

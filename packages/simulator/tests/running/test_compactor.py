"""Running node-compactors on the embedded cluster: what they do to a cluster, what stops them, and how they end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tightship_testkit.client import Json, wait_for
from tightship_testkit.drains import SETTINGS, all_ready, small
from tightship_testkit.embedded import embedded_cluster
from tightship_testkit.marks import TAINT, drain, taints
from tightship_testkit.refining import slow

pytestmark = pytest.mark.virtual_time


def lasting(ends_in: str = "8s") -> Json:
    """Return a cluster whose drain takes a while: pods take their time to end."""
    cluster = small()
    slow(cluster["items"], ends_in)
    return cluster


async def test_a_replacement_that_is_not_made_yet_is_waited_for(tmp_path: Path) -> None:
    """A budget of a number then wants as many pods as there are; which it does for a moment after every eviction."""
    async with embedded_cluster(tmp_path, small(), SETTINGS) as on:

        async def one_less() -> bool:
            status = (await on.api.get("PodDisruptionBudget", "web", "shop"))["status"]
            return bool(status["expectedPods"] == status["desiredHealthy"] == 4)

        with on.living.paused("workloads"):
            replica = on.start()
            await on.phase("n1", "Evicting")
            await wait_for(one_less, 60, "the budget counts a pod less")
            await on.passes(replica, 3)
            assert on.recorder.phases("n1")[-1] == "Evicting"
        with on.removing():
            await on.gone("n1")
        await all_ready(on.api)
        assert on.recorder.phases("n1") == ["Marked", "Claimed", "Evicting", "Drained", "gone"]


async def test_a_node_that_becomes_not_ready_is_given_back(tmp_path: Path) -> None:
    settings = {**SETTINGS, "notReadyTimeout": "1s", "backoff": "600s", "backoffLimit": "600s"}
    async with embedded_cluster(tmp_path, lasting("40s"), settings) as on:
        on.start()
        await on.phase("n1", "Evicting")
        down = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "by the test"}
        await on.api.patch("Node", "n1", {"status": {"conditions": [down]}}, subresource="status")
        await on.phase("n1", "Backoff")
        node = on.recorder.node("n1") or {}
        assert drain(node)["reason"].startswith("NotReady")
        assert not node["spec"].get("unschedulable")
        assert not [each for each in taints(node) if each["key"] == TAINT]


# Configuration, dry run, pages.


async def test_a_replica_that_is_ready_stays_so_while_its_passes_begin_to_follow_more(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, small(), SETTINGS) as on:
        on.machine.simulation.network.delay = lambda: 0.2
        replica = on.start()

        async def asked(after: float) -> tuple[float, int]:
            await asyncio.sleep(after)
            try:
                return after, (await replica.get("/readyz"))[0]
            except OSError:
                return after, 0

        answers = [code for _, code in sorted(await asyncio.gather(*(asked(each / 20) for each in range(200))))]
        assert set(answers[answers.index(200) :]) == {200}


async def test_everything_is_served(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, small(), SETTINGS) as on:
        replica = on.start()
        await replica.ready()
        await on.phase("n1", "Drained")
        for path, part in (
            ("/healthz", ""),
            ("/liveness", ""),
            ("/readyz", ""),
            ("/readiness", ""),
            ("/metrics", "estafette_node_compactor_total_node_count"),
            ("/metrics", "tightship_"),
            ("/status", '"CompactorStatus"'),
            ("/", "<html"),
        ):
            status, text = await replica.get(path)
            assert status == 200, (path, status, text)
            assert part in text.lower() or part in text, path

        async def shown() -> bool:
            return "n1" in json.dumps((await replica.status()).get("inDrain"))

        await wait_for(shown, 30, "the drain is shown")

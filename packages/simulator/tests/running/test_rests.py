"""Workloads rest between drains and after rollouts, as seen from outside."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tightship.rules.rates import SKEW
from tightship_testkit.client import wait_for
from tightship_testkit.drains import SETTINGS, spare
from tightship_testkit.embedded import EmbeddedCluster, cluster, embedded_cluster
from tightship_testkit.manifests import as_list

pytestmark = pytest.mark.virtual_time

TWO = cluster({"n1": 1, "n2": 1, "n3": 2}, pools={"n1": "spare", "n2": "spare"})
BOTH = {**SETTINGS, "maximumNodesInDrain": 2}
LATE = 15.0
"""Seconds from the end of a rest to a claim: a pass, and a pod's start."""


async def claimed(on: EmbeddedCluster) -> list[float]:
    """Return when the drains of both nodes began, once they have gone."""
    on.start()
    with on.removing():
        await on.ended_well("n1", "n2")
    return sorted(each.at for each in on.recorder.moments if each.phase == "Claimed")


async def test_a_node_waits_until_the_replacement_of_its_workloads_last_eviction_is_stable(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, TWO, {**BOTH, "minStableTime": "20s"}) as on:
        first, second = await claimed(on)
    assert 20 + SKEW <= second - first <= 20 + SKEW + LATE


async def test_a_controller_writes_nothing_while_workloads_keep_its_next_node(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, TWO, {**BOTH, "workloadPause": "30s"}) as on:
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


async def test_a_drain_that_restarts_a_deployment_does_not_wait_for_the_rest_after_that_rollout(tmp_path: Path) -> None:
    pods = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}]},
    }
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pods},
    }
    own = {"makeBeforeBreak": "all", "windows": {"notBefore": "60s"}, "regretWindow": 0}
    async with embedded_cluster(tmp_path, as_list(spare("n1")), {**SETTINGS, **own}) as on:
        await on.api.create({"kind": "Namespace", "metadata": {"name": "shop"}})
        await on.api.create(deployment)

        async def runs() -> bool:
            return any(each["status"].get("phase") == "Running" for each in await on.api.list("Pod", "shop"))

        await wait_for(runs, 30, "the pod runs on n1")
        await on.api.create(spare("n2", pool="rest"))
        on.start()
        with on.removing():
            await on.gone("n1", 180)
        assert on.yard.evicted() == []
        phases = [each.phase for each in on.recorder.moments if each.node == "n1"]
        [restarted] = [each["spec"]["template"]["metadata"] for each in await on.api.list("Deployment", "shop")]
    assert "kubectl.kubernetes.io/restartedAt" in restarted["annotations"]
    assert [each for each in phases if each != "Evicting"] == ["Marked", "Claimed", "Drained", "gone"]

"""node-compactor beside a stand-in for Karpenter that deletes empty nodes as Karpenter documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_simulator.life.karpenter import POOL, Karpenter
from tightship_testkit.client import Json
from tightship_testkit.drains import SETTINGS, all_ready
from tightship_testkit.embedded import EmbeddedCluster, embedded_cluster
from tightship_testkit.embedded import small as small_cluster

pytestmark = pytest.mark.virtual_time

GROUP = "karpenter.sh"


def cluster(disruption: Json) -> Json:
    """Return a cluster whose n1 may go by the pools' settings, all nodes of one NodePool."""
    made = small_cluster()
    for item in made["items"]:
        if item["kind"] == "Node":
            item["metadata"]["labels"][POOL] = "default"
    served = {"group": GROUP, "versions": [{"name": "v1", "served": True}]}
    made["items"] += [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"nodepools.{GROUP}"},
            "spec": served,
        },
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "NodePool",
            "metadata": {"name": "default"},
            "spec": {"disruption": disruption},
        },
    ]
    return made


def employ(on: EmbeddedCluster) -> Karpenter:
    karpenter = Karpenter()
    on.living.others.append(karpenter)
    on.living.wake()
    return karpenter


async def test_karpenter_deletes_the_node_that_was_emptied_in_its_pool(tmp_path: Path) -> None:
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "2s"}
    async with embedded_cluster(tmp_path, cluster(disruption), SETTINGS) as on:
        karpenter = employ(on)
        on.start()
        await on.ended_well("n1")
        assert karpenter.removed == ["n1"]
        assert on.recorder.phases("n1")[-1] == "gone"


@pytest.mark.parametrize(
    ("disruption", "reason"),
    [
        ({"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}, "KarpenterManaged"),
        ({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}, "KarpenterConsolidationOff"),
        ({"consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "0"}]}, "KarpenterConsolidationOff"),
    ],
)
async def test_nothing_is_evicted_where_the_emptied_node_would_stay(
    tmp_path: Path, disruption: Json, reason: str
) -> None:
    async with embedded_cluster(tmp_path, cluster(disruption), SETTINGS) as on:
        karpenter = employ(on)
        replica = on.start()
        await on.passes(replica, 5)
        [node] = [each for each in (await replica.status())["plan"]["nodes"] if each["name"] == "n1"]
        assert node["reasons"] == [reason]
        assert on.yard.evicted() == []
        assert karpenter.removed == []
        await all_ready(on.api)

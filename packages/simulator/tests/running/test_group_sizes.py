"""Running controllers of nodes evict nothing from a node that the autoscaler would not delete."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_testkit.client import Json
from tightship_testkit.drains import SETTINGS
from tightship_testkit.embedded import embedded_cluster, small

pytestmark = pytest.mark.virtual_time


def status(group: str, least: int) -> Json:
    text = f"autoscalerStatus: Running\nnodeGroups:\n- name: {group}\n  health:\n    minSize: {least}\n"
    meta = {"name": "cluster-autoscaler-status", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"status": text}}


async def test_a_node_goes_when_its_group_may_shrink_and_not_before(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, small(), SETTINGS) as on:
        await on.api.create(status("spare", 1))
        replica = on.start()
        await on.passes(replica, 5)
        [n1] = [each for each in (await replica.status())["plan"]["nodes"] if each["name"] == "n1"]
        assert n1["reasons"] == ["NodeGroupMinSize"]
        assert on.yard.evicted() == []
        await on.api.patch(
            "ConfigMap", "cluster-autoscaler-status", {"data": status("spare", 0)["data"]}, "kube-system"
        )
        with on.removing():
            await on.ended_well("n1")

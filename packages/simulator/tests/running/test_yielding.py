"""A termination handler or a reboot daemon joins a drain: the node is theirs until they let go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_testkit.client import Json
from tightship_testkit.drains import SETTINGS
from tightship_testkit.embedded import EmbeddedCluster, embedded_cluster, small
from tightship_testkit.marks import TAINT, drain, taints
from tightship_testkit.refining import slow

pytestmark = pytest.mark.virtual_time

MARKS: dict[str, tuple[str, str, str]] = {
    "aws-node-termination-handler": ("labels", "aws-node-termination-handler/action", "UncordonAfterReboot"),
    "GKE": ("taints", "cloud.google.com/impending-node-termination", "true"),
    "kured": ("annotations", "weave.works/kured-reboot-in-progress", "2026-11-01T00:00:00Z"),
}


async def marked(on: EmbeddedCluster, where: str, key: str, value: str | None) -> None:
    """Write the mark of another tool on n1, or without *value* take it off."""
    on.recorder.human.add("n1")
    if where != "taints":
        await on.api.patch("Node", "n1", {"metadata": {where: {key: value}}})
        return
    kept = [each for each in taints(await on.api.get("Node", "n1")) if each["key"] != key]
    mark: list[Json] = [] if value is None else [{"key": key, "value": value, "effect": "NoSchedule"}]
    await on.api.patch("Node", "n1", {"spec": {"taints": [*kept, *mark]}})


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
async def test_a_drain_stops_and_lifts_nothing_while_another_tool_has_the_node(
    tmp_path: Path, mark: tuple[str, str, str]
) -> None:
    cluster = small(least=4)  # one pod at a time
    slow(cluster["items"], "8s")
    settings = {**SETTINGS, "nodeDrainTimeout": "60s", "handOverTimeout": "3600s"}
    async with embedded_cluster(tmp_path, cluster, settings, ending=8) as on:
        replica = on.start()
        await on.phase("n1", "Evicting")
        where, key, value = mark
        await marked(on, where, key, value)
        await on.phase("n1", "Yielded")
        evicted = on.yard.evicted()
        assert len(evicted) < 3
        await on.yard.simulation.sleep(90)  # longer than the drain might have taken
        node = await on.api.get("Node", "n1")
        assert node["spec"]["unschedulable"] is True
        assert TAINT in {each["key"] for each in taints(node)}
        assert key in drain(node)["reason"]
        assert on.yard.evicted() == evicted
        [entry] = [each for each in (await replica.status())["plan"]["nodes"] if each["name"] == "n1"]
        assert "NodeLifecycle" in entry["reasons"]
        await marked(on, where, key, None)
        await on.phase("n1", "Backoff")
        node = await on.api.get("Node", "n1")
        assert not node["spec"].get("unschedulable")
        assert TAINT not in {each["key"] for each in taints(node)}

"""A searched plan and the pilot: every pod moves once, and nearly all to where the plan wants them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tightship.landing.controller import POLICY_ANNOTATION
from tightship.objects.node import LEAVING
from tightship_testkit.audit_readings import evictions_by
from tightship_testkit.client import Json
from tightship_testkit.drains import all_ready
from tightship_testkit.embedded import embedded_cluster
from tightship_testkit.manifests import as_list, node, replicas
from tightship_testkit.replica import QUICK, USER, Settings

pytestmark = pytest.mark.virtual_time

LED: Settings = {
    **QUICK,
    "nodePools": {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 1.01}},
    "strategy": "fewest-nodes",
    "steering": "hints",
    "search": "20s",
    "maximumNodesInDrain": 4,
    "maximumNotReadyNodePercentage": 100,
}


def fleet(seed: int, nodes: int = 16) -> Json:
    """Nodes a third to two thirds full of pods of four sizes."""
    rng = random.Random(seed)
    sizes = {"small": 300, "middle": 700, "large": 1100, "huge": 1900}
    where: dict[str, list[str]] = {name: [] for name in sizes}
    for number in range(nodes):
        left = rng.uniform(0.35, 0.7) * 3900
        while fitting := [name for name, size in sizes.items() if size <= left]:
            name = rng.choice(fitting)
            where[name].append(f"n{number:02}")
            left -= sizes[name]
    items = [node(f"n{number:02}") for number in range(nodes)]
    for name, at in where.items():
        pods = replicas(name, at, app=name)
        for pod in pods:
            pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{sizes[name]}m"}}
        items += pods
    return as_list(*items)


@pytest.mark.takes(20)
async def test_with_targets_and_labels_the_searched_plan_comes_true(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, fleet(1), LED) as on:
        on.recorder.budget = 4
        notes = {POLICY_ANNOTATION: "hints/2"}
        meta = {"name": "node-compactor-landings", "namespace": "default", "annotations": notes}
        on.yard.cluster.store.create("ConfigMap", {"metadata": meta, "data": {}})
        replica = on.start()
        await replica.ready()
        with on.removing() as remover:
            await on.seen(lambda: bool(on.recorder.in_drain()), "the first nodes are claimed")
            detail = (await replica.status())["plan"]["summary"]["search"]
            kept = detail["searched"]["nodesAfter"]
            await on.seen(lambda: len(remover.removed) >= 16 - kept, "all planned nodes are removed", 600)
        await all_ready(on.api)
        evictions = evictions_by(on.events, USER)
        status = await replica.status()
        assert set(evictions.values()) == {1}
        assert len(evictions) == detail["searched"]["evictions"]
        landed = status["landings"]
        assert landed["target"] >= 3 * landed.get("elsewhere", 0)
        assert "unscheduled" not in landed
        assert not [each for each in await on.api.list("Node") if LEAVING in each["metadata"]["labels"]]

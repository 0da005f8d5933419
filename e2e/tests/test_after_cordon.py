"""A budget of AKS' eviction-autoscaler on a real control plane: shut until the cordon, open by the surge."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from drains import site

from tightship_e2e import ControlPlane
from tightship_simulator.api.budgets import matches
from tightship_simulator.life.openers import EvictionAutoscaler
from tightship_testkit.client import Client, wait_for
from tightship_testkit.drains import DEADLINE, SETTINGS, small
from tightship_testkit.drains import removing as removing_by


async def surging(api: Client, actor: EvictionAutoscaler) -> None:
    """Let *actor* see the cluster once a second, and write what it wants."""
    kinds = ("Node", "Pod", "PodDisruptionBudget", "Deployment", "ReplicaSet", "HorizontalPodAutoscaler")
    while True:
        seen = {kind: [{**each, "kind": kind} for each in await api.list(kind)] for kind in kinds}
        for change in actor.step(lambda kind: seen[kind], asyncio.get_running_loop().time(), ""):  # noqa: B023
            item = change.item
            await api.patch(item["kind"], item["metadata"]["name"], change.merge, "shop")
        await asyncio.sleep(1)


@pytest.mark.takes(1)
def test_a_surge_after_the_cordon_opens_the_budget(empty_plane: ControlPlane, tmp_path: Path) -> None:
    cluster = small()
    for each in cluster["items"]:
        if each["kind"] == "PodDisruptionBudget":
            each["metadata"]["annotations"] = {"ownedBy": "EvictionAutoScaler", "target": "web"}
            each["spec"]["minAvailable"] = 5
            assert matches(each, {"metadata": {"labels": {"app": "web"}}})
    settings = {**SETTINGS, "afterCordonTimeout": "120s"}

    async def work(api: Client) -> None:
        async with site(empty_plane, api, tmp_path, cluster, settings) as on:
            actor = EvictionAutoscaler(cooldown=3)

            async def waits() -> bool:
                return "OpensAfterCordon" in {each["reason"] for each in await api.list("Event")}

            async with removing_by(api):
                on.start()
                # A surge within the settle time would leave nothing to wait for.
                await wait_for(waits, DEADLINE, "the drain waits")
                assert "Evicted" not in {each["reason"] for each in await api.list("Event")}
                life = asyncio.create_task(surging(api, actor))
                try:
                    gone = asyncio.create_task(on.gone("n1"))
                    await asyncio.wait((life, gone), return_when=asyncio.FIRST_COMPLETED)
                    assert not life.done(), life.exception()
                    await gone
                    await on.free()
                finally:
                    life.cancel()
            assert actor.surges
            assert min(on.recorder.least_spare.values()) >= 0

    empty_plane.run(work)

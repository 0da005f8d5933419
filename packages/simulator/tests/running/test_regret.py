"""What is drained and comes back: the pool pauses, and the next leader knows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_testkit.autoscaled import BOTH, Outcome, live_for
from tightship_testkit.client import wait_for
from tightship_testkit.drains import SETTINGS, small, spare
from tightship_testkit.embedded import EmbeddedCluster, embedded_cluster
from tightship_testkit.loads import together
from tightship_testkit.refining import one_to_spare, quick
from tightship_testkit.replica import COMPACTOR, REFINER, Program, Replica, Settings

pytestmark = [pytest.mark.virtual_time, pytest.mark.slow, pytest.mark.takes(8)]

WINDOW = 200.0
"""Seconds in which a node counts as come back, and of the first pause."""


@pytest.mark.virtual_time
@pytest.mark.parametrize("program", [COMPACTOR, REFINER], ids=["node-compactor", "node-refiner"])
async def test_a_node_that_comes_back_pauses_its_pool_whoever_leads(tmp_path: Path, program: Program) -> None:
    settings: Settings = (
        {**SETTINGS, "regretWindow": WINDOW} if program is COMPACTOR else quick(regretWindow=f"{WINDOW:g}s")
    )
    cluster = small() if program is COMPACTOR else one_to_spare()
    async with embedded_cluster(tmp_path, cluster, settings, program) as on:
        first = on.start()
        with on.removing():
            await on.gone("n1")
        await on.free()
        await on.api.create(spare("n9"))
        came = on.yard.simulation.wall()
        await held(on, first)
        first.kill()
        second = on.start()
        await held(on, second)
        assert "n9 was added to pool spare" in (await second.status())["held"]["n9"]["detail"]
        assert "tightship.dev/candidate" not in str((await on.api.get("Node", "n9"))["spec"])
        with on.removing():
            await on.gone("n9", 2 * WINDOW)
        assert on.yard.simulation.wall() - came >= WINDOW - 1


async def held(on: EmbeddedCluster, replica: Replica) -> None:
    """Wait until the pool is held back."""
    await on.passes(replica, 1)

    async def regretted() -> bool:
        found = (await replica.status())["held"].get("n9") or {}
        return bool("within" in found.get("detail", "") and found.get("reason") == "CoolDown")

    await wait_for(regretted, 120, "the pool is held back")
    await on.passes(replica, 3)
    assert on.recorder.phases("n9") in ([], ["Marked"])


WAVES = 2.75 * 80 * 60.0
"""Seconds for which the autoscaler is alone at first: as one finds a cluster whose load has long risen and fallen."""


def waves(seed: int, *controllers: str, **more: object) -> Outcome:
    settings = dict.fromkeys(controllers, more) if more else {}
    return live_for(8, together(seed), seed=seed, nodes=12, controllers=controllers, warm_up=WAVES, settings=settings)


def test_where_loads_rise_and_fall_together_the_pool_pauses_and_no_more_cpus_are_kept() -> None:
    """How many more nodes are added ``bench/regret.py`` measures: of one seed a ratio says little."""
    alone, ours = waves(12), waves(12, *BOTH)
    assert ours.cpus <= alone.cpus
    assert len(ours.added) <= 1.5 * len(alone.added)
    assert "CoolDown" in ours.said

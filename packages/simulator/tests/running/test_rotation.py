"""A person replaces a pool: cordons its nodes, and drains them later, while a controller runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_testkit.drains import SETTINGS
from tightship_testkit.embedded import embedded_cluster
from tightship_testkit.replica import COMPACTOR, QUICK_REFINER, REFINER, Program, Settings
from tightship_testkit.rotation import BLUE, GREEN, blue_green, cordoned, emptied

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("program", "settings"), [(COMPACTOR, SETTINGS), (REFINER, QUICK_REFINER)], ids=["compactor", "refiner"]
)
async def test_the_new_pool_stays_whole_until_the_old_one_is_empty(
    tmp_path: Path, program: Program, settings: Settings
) -> None:
    async with embedded_cluster(tmp_path, blue_green(), settings, program) as on:
        on.recorder.human.update(BLUE)
        await cordoned(on.api)
        replica = on.start()
        await on.passes(replica, 6)
        plan = {each["name"]: each["reasons"] for each in (await replica.status())["plan"]["nodes"]}
        assert {"OtherDrainNeedsNode" in plan[name] for name in GREEN} == {True}
        for name in BLUE:
            await emptied(on.api, name)
            await on.passes(replica, 2)
        begun = {name: on.recorder.phases(name) for name in GREEN}
        assert {name: found for name, found in begun.items() if set(found) - {"Marked", ""}} == {}
        for name in BLUE:
            await on.api.delete("Node", name)
        await on.api.patch("ReplicaSet", "web", {"spec": {"replicas": 5}}, "shop")
        with on.removing():
            await on.seen(lambda: any(on.recorder.node(name) is None for name in GREEN), "a node of the new pool goes")

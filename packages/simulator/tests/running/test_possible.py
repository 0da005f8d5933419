"""A dry run of node-compactor without pools judges what ``plan`` judges without a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tightship_testkit.drains import SETTINGS
from tightship_testkit.embedded import embedded_cluster, small
from tightship_testkit.replica import configure

pytestmark = pytest.mark.virtual_time

SAID = "No pool is configured: this is what would be possible"


async def test_a_dry_run_without_pools_shows_what_would_be_possible_until_one_is_configured(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, small(), {"nodePools": {}}) as on:
        replica = on.start(DRY_RUN="true")
        await on.passes(replica, 3)
        status: dict[str, Any] = await replica.status()
        assert any(each.startswith(SAID) for each in status["problems"])
        assert status["plan"]["summary"]["nodes"]["removed"] > 0
        assert "every pool (no configuration given)" in status["plan"]["settings"]["summary"]
        assert SAID in (await replica.get("/"))[1]
        assert replica.log.count(SAID) == 1
        metrics = (await replica.get("/metrics"))[1]
        assert 'estafette_node_compactor_underutilized_node_count{nodepool="spare"} 1.0' in metrics
        await configure(on.api, on.team, {"nodePools": {"rest": {"enabled": False}}})
        await replica.says("configuration")
        await on.passes(replica, 3)
        status = await replica.status()
        assert not status.get("problems")
        assert status["plan"]["summary"]["nodes"]["removed"] == 0


async def test_a_controller_that_is_live_does_nothing_without_pools(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, small(), {"nodePools": {}}) as on:
        replica = on.start()
        await on.passes(replica, 4)
        nodes = (await replica.status())["plan"]["nodes"]
        assert all("PoolNotConfigured" in each["reasons"] for each in nodes)
        assert SAID not in replica.log
        assert on.yard.evicted() == []


async def test_a_dry_run_waits_for_no_mark_that_it_would_never_write(tmp_path: Path) -> None:
    settings = {key: value for key, value in SETTINGS.items() if key != "neededMarkedTimeForRemoval"}
    async with embedded_cluster(tmp_path, small(), settings) as on:
        replica = on.start(DRY_RUN="true")
        await on.passes(replica, 3)
        assert (await replica.status())["plan"]["summary"]["nodes"]["removed"] == 1

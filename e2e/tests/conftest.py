"""Fixtures of the tests on a control plane; see also :mod:`tightship_e2e.plugin`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from day import ClusterWork, Live, live_in
from drains import Run, Work, site
from floors import Open, shop
from floors import Work as ShopWork

from tightship_e2e import ControlPlane
from tightship_e2e.plugin import require_programs
from tightship_e2e.providers.choice import available, chosen
from tightship_e2e.source import Source
from tightship_testkit.client import Client
from tightship_testkit.drains import small


@pytest.fixture
def on_site(empty_plane: ControlPlane, tmp_path: Path) -> Run:
    """Run something on a loaded cluster, and hold what was seen against the invariants."""

    def run(work: Work, cluster: Source | None = None, **options: object) -> None:
        async def main(api: Client) -> None:
            async with site(empty_plane, api, tmp_path, cluster or small(), **options) as made:  # type: ignore[arg-type]
                await work(made)
                await made.checked()

        empty_plane.run(main)

    return run


@pytest.fixture
def in_shop(empty_plane: ControlPlane, tmp_path: Path) -> Open:
    """Run something with HPAs, a Prometheus and replicas of the hpa-scaler."""

    def run(work: ShopWork) -> None:
        async def main(api: Client) -> None:
            async with shop(empty_plane, api, tmp_path) as made:
                await work(made)

        empty_plane.run(main)

    return run


@pytest.fixture
def on_shop_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Live:
    """Run something in a shop on the run's cluster, and hold what was seen of its nodes against the invariants."""
    provider = request.config.getoption("provider")
    plane: ControlPlane | None = None
    if provider == "controlplane":
        require_programs("helm", "prometheus")
        plane = request.getfixturevalue("empty_plane")
    charts: Path = request.getfixturevalue("charts")

    def run(work: ClusterWork, *, by_night: bool = False, upgrade: bool = False) -> None:
        async def main() -> None:
            async with chosen(request.config, plane, tmp_path, keep=upgrade) as (cluster, made):
                await live_in(cluster, made, charts, work, by_night=by_night, lasts=plane is None)

        with available(provider):
            asyncio.run(main())

    return run

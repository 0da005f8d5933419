"""Fixtures of the tests on a control plane; see also :mod:`tightship_e2e.plugin`."""

from __future__ import annotations

from pathlib import Path

import pytest
from drains import Run, Work, site, small
from floors import Open, shop
from floors import Work as ShopWork

from tightship_e2e import Client, ControlPlane
from tightship_e2e.source import Source


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

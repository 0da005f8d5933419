"""A world for each test, on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tightship_testkit.stall import NEVER, Stall, stall

from .world import World


@pytest_asyncio.fixture
async def on(tmp_path: Path) -> AsyncIterator[Stall]:
    """A cluster with an HPA controller."""
    async with stall(tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """HPAs whose status is what the test says."""
    async with stall(tmp_path, speeds=NEVER) as made:
        yield World(made)

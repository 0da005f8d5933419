"""A world for each test, with short pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from drain.fake_api import serving as serving_api

from tightship.runtime import campaign
from tightship.runtime import serving as frames
from tightship_simulator.life.prometheus import serving
from tightship_testkit.floors import answering_one

from .world import HpaApi, World


@pytest_asyncio.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(frames, "LEAST_PAUSE", 0.002)
    monkeypatch.setattr(campaign, "LOOK", 0.01)
    async with serving_api(HpaApi()) as api, serving(answering_one()) as prometheus:
        assert isinstance(api, HpaApi)
        made = World(api, prometheus, tmp_path)
        made.configure()
        yield made
        for each in made.processes:
            await each.killed()

"""Processes of the toy against an API server in memory, on the small cluster of the drains' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from drain.conftest import impatient, small_cluster  # noqa: F401 - a fixture
from drain.fake_api import serving

from tightship.runtime import campaign
from tightship.runtime import serving as frames
from tightship.settings.process import load_process
from tightship_testkit.ports import free_ports

from .toy import Cluster, Process, ToyRun

Start = Callable[..., Process]


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with serving(small_cluster()) as api:
        yield Cluster(api)


@pytest_asyncio.fixture
async def start(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    impatient: None,  # noqa: F811
) -> AsyncIterator[Start]:
    """Start a process; flags of ``run`` by field."""
    monkeypatch.setattr(frames, "LEAST_PAUSE", 0.002)
    monkeypatch.setattr(campaign, "LOOK", 0.01)
    made: list[Process] = []

    def begin(**flags: Any) -> Process:
        port = free_ports("http")["http"]
        given = {"kubeconfig": cluster.api.kubeconfig(tmp_path), "namespace": "default", "ports": [port], **flags}
        made.append(Process(load_process(ToyRun, {}, given, namespace_file=tmp_path / "none")))
        return made[-1]

    yield begin
    for each in made:
        await each.killed()

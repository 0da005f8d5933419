"""Processes of the toy on an embedded cluster: the small one of the drains' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from drain.conftest import small_cluster

from tightship.process.settings.process import load_process
from tightship_testkit.replica import IN_POD
from tightship_testkit.simulated import simulated

from .toy import NAME, Cluster, Process, ToyRun

Start = Callable[..., Process]


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with simulated(tmp_path, *small_cluster()) as api:
        yield Cluster(api)


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Start:
    """Start a process of the toy or of another *program*; flags of ``run`` by field."""
    made: list[Process] = []

    def begin(program: str = NAME, **flags: Any) -> Process:
        name = f"toy-{len(made)}"
        given = {"kubeconfig": cluster.api.kubeconfig(), "namespace": "default", **flags}
        run = load_process(ToyRun, {"POD_NAME": name, **IN_POD}, given, namespace_file=tmp_path / "none")
        made.append(Process(cluster.api, name, run, program))
        return made[-1]

    return begin

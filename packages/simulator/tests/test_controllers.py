"""`plan` and `explain` as they are installed, on an embedded cluster made of a generated file; `running/` has `run`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from contract_api import DEADLINE

from tightship_simulator.api.store import Store
from tightship_simulator.generate import off_peak_cluster
from tightship_simulator.serve import EmbeddedCluster

Json = dict[str, Any]

SCRIPTS = Path(sys.executable).parent
NODES = 12


class Fleet:
    """An embedded cluster, and commands on it."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.store = cluster.store
        self.environment = {"KUBECONFIG": str(cluster.kubeconfig(folder / "kubeconfig")), "NO_COLOR": "1"}

    async def reported(self, *command: str) -> str:
        """Run a command to its end and return what it prints."""
        pipe = asyncio.subprocess.PIPE
        script = str(SCRIPTS / command[0])
        process = await asyncio.create_subprocess_exec(
            script, *command[1:], env=self.environment, stdout=pipe, stderr=pipe
        )
        async with asyncio.timeout(DEADLINE):
            out, complaint = await process.communicate()
        assert process.returncode == 0, complaint.decode()
        return out.decode()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    store = Store()
    assert store.load(off_peak_cluster(7, NODES)["items"]) == {}
    async with EmbeddedCluster(store) as cluster:
        yield Fleet(cluster, tmp_path)


async def test_every_controller_plans_and_explains_on_it(fleet: Fleet) -> None:
    name = fleet.store.list("Node")[0]["metadata"]["name"]
    assert name in await fleet.reported("node-compactor", "explain", name)
    assert name in await fleet.reported("node-refiner", "explain", name)
    for controller in ("node-refiner", "hpa-scaler"):
        assert await fleet.reported(controller, "plan")

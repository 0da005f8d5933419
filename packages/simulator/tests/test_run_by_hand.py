"""`run` as a person types it on their own machine: whose cluster it is comes first, and nothing in it is changed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from contract_api import DEADLINE

from tightship_simulator.api.store import Store
from tightship_simulator.generate import off_peak_cluster
from tightship_simulator.ports import free_ports
from tightship_simulator.serve import EmbeddedCluster
from tightship_testkit.builders import single_replica
from tightship_testkit.client import wait_for
from tightship_testkit.processes import fetch

SCRIPTS = Path(sys.executable).parent
CONTROLLERS = ("node-compactor", "node-refiner", "hpa-scaler")


class Typed:
    """A command that runs, and what it has said."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, port: int) -> None:
        self.process = process
        self.port = port
        self._log = log

    @property
    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    def listens(self) -> set[str]:
        """Return the addresses on which its ports listen, as the kernel writes them."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [row[1].split(":") for row in rows if row[3] == "0A"]
        return {address for address, port in listening if int(port, 16) == self.port}


@asynccontextmanager
async def typed(cluster: EmbeddedCluster, folder: Path, *command: str) -> AsyncIterator[Typed]:
    """Run *command* as on a laptop: no pod's variables, and nothing but a kubeconfig."""
    [port] = free_ports(1)
    environment = {"KUBECONFIG": str(cluster.kubeconfig(folder / "kubeconfig")), "HOME": str(folder)}
    log = folder / f"{command[0]}.log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            str(SCRIPTS / command[0]), *command[1:], f"--port={port}", env=environment, stderr=stderr
        )
    run = Typed(process, log, port)

    async def judged() -> bool:
        assert process.returncode is None, run.lines
        return any("judged" in line for line in run.lines)

    try:
        await wait_for(judged, DEADLINE, f"{command[0]} judges")
        yield run
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.mark.takes(8)
@pytest.mark.parametrize("controller", CONTROLLERS)
async def test_run_by_hand_names_the_cluster_first_and_changes_nothing(controller: str, tmp_path: Path) -> None:
    store = Store()
    assert store.load(off_peak_cluster(7, 12)["items"]) == {}
    async with EmbeddedCluster(store) as cluster:
        async with typed(cluster, tmp_path, controller, "run") as run:
            assert "context embedded at " + cluster.url in run.lines[1]
            assert (
                f"dry run: nothing is changed; to change this cluster, type {controller} run --dry-run=false"
                in (run.lines[1])
            )
            assert run.listens() == {"0100007F"}
            assert (await fetch(run.port, "/status"))[0] == 200
        assert [each for each in cluster.requests if each.writes] == []
        assert cluster.requests


@pytest.mark.takes(4)
async def test_what_is_typed_to_change_a_cluster_says_so_first(tmp_path: Path) -> None:
    store = Store()
    assert store.load(off_peak_cluster(7, 12)["items"]) == {}
    command = ("node-refiner", "run", "--dry-run=false")
    async with EmbeddedCluster(store) as cluster, typed(cluster, tmp_path, *command) as run:
        assert f"context embedded at {cluster.url}; live: this process changes the cluster" in run.lines[1]
        assert run.listens() == {"0100007F"}


@pytest.mark.takes(4)
@pytest.mark.parametrize("mode", ["all", "off"])
async def test_a_plan_reads_the_deployments_of_a_cluster_where_make_before_break_asks(
    mode: str, tmp_path: Path
) -> None:
    config, store = tmp_path / "config.json", Store()
    assert store.load(single_replica()) == {}
    pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 1, "minimumNodeCount": 0}
    config.write_text(json.dumps({"nodePools": {"*": pool}, "makeBeforeBreak": mode}))
    async with EmbeddedCluster(store, budgets=False) as cluster:
        environment = {"KUBECONFIG": str(cluster.kubeconfig(tmp_path / "kubeconfig")), "HOME": str(tmp_path)}
        command = (str(SCRIPTS / "node-compactor"), "plan", "--config", str(config), "-o", "json")
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        asked = {each.resource for each in cluster.requests}
    found = [each["name"] for each in json.loads(out)["nodes"] if each["decision"] == "remove"]
    assert found == (["a"] if mode == "all" else [])
    assert ("deployments" in asked) is (mode == "all")

"""What a running controller of nodes costs while pods come and go: a share of one core.

    python bench/running.py                   1,000 nodes and 30,000 pods, both controllers, 10 changes of pods a second
    python bench/running.py --nodes 200       a smaller one
    python bench/running.py --json

The API is the embedded one, in this process; each controller is a process of its own, a dry run with a pass every ten
seconds, and what is measured is that process alone, from its second pass on. *still* is a window without changes,
*busy* one in which a third of the changes each turns a pod's readiness, deletes a pod, and makes one again on another
node. Exit code 1 when a bar does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tightship_simulator.api.store import Store
from tightship_simulator.generate import objects
from tightship_simulator.ports import free_ports
from tightship_simulator.serve import EmbeddedCluster

PODS_PER_NODE = 30
CHANGES = 10
"""A second."""
BAR = 5.0
"""Per cent of a core."""
WINDOW = 60.0
"""Seconds of each measurement."""
INTERVAL = 10
"""Seconds between two passes."""
POOLS = {"nodePools": {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75}}}
CONTROLLERS = {"node-compactor": POOLS, "node-refiner": {}}
TICKS = os.sysconf("SC_CLK_TCK")


class Traffic:
    """Pods of *store* that change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._random = random.Random(1)
        self._nodes = [each["metadata"]["name"] for each in store.list("Node")]
        pods = [each for each in store.list("Pod") if not _of_daemon(each)]
        self._random.shuffle(pods)
        self._there = deque(pods)
        self._gone: deque[dict[str, Any]] = deque()
        self._number = 0

    def change(self) -> None:
        """Change one pod."""
        store, self._number = self._store, self._number + 1
        if self._number % 3 == 0:
            pod = self._gone.popleft()
            meta = pod["metadata"]
            kept = {key: meta[key] for key in ("namespace", "labels", "annotations", "ownerReferences") if key in meta}
            spec = {**pod["spec"], "nodeName": self._random.choice(self._nodes)}
            named = {**kept, "name": f"{meta['name'][:40]}-{self._number}"}
            self._there.append(store.create("Pod", {"metadata": named, "spec": spec, "status": pod["status"]}))
            return
        pod = self._there.popleft()
        meta = pod["metadata"]
        if self._number % 3 == 1:
            self._gone.append(pod)
            store.delete("Pod", meta["name"], meta["namespace"], grace=0)
        else:
            self._there.append(store.modify("Pod", meta["name"], meta["namespace"], _turn))


def _of_daemon(pod: dict[str, Any]) -> bool:
    return any(each["kind"] == "DaemonSet" for each in pod["metadata"].get("ownerReferences") or [])


def _turn(pod: dict[str, Any]) -> None:
    for each in pod["status"].get("conditions") or []:
        if each["type"] in ("Ready", "ContainersReady"):
            each["status"] = "False" if each["status"] == "True" else "True"


def cpu(pid: int) -> float:
    """Return the seconds of a processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def measure(name: str, cluster: EmbeddedCluster, folder: Path) -> dict[str, Any]:
    """Return the shares of a core that the controller *name* takes."""
    config = folder / f"{name}.d"
    config.mkdir()
    settings = CONTROLLERS[name]
    if settings:
        (config / "config.yaml").write_text(json.dumps(settings))
    log = (folder / f"{name}.log").open("wb")
    program = Path(sys.executable).parent / name
    flags = ("--dry-run", "--no-leader-elect", f"--interval={INTERVAL}", f"--config={config}", "--host=127.0.0.1")
    port, probes = free_ports(2)
    ports = (f"--port={port}", f"--probe-port={probes}")
    kubeconfig = cluster.kubeconfig(folder / "kubeconfig")
    running = await asyncio.create_subprocess_exec(
        program, "run", f"--kubeconfig={kubeconfig}", *flags, *ports, stdout=log, stderr=log
    )
    try:
        await _passes(running, folder / f"{name}.log", 2)
        started = cpu(running.pid)
        still = await _share(running.pid, None)
        busy = await _share(running.pid, Traffic(cluster.store))
    finally:
        if running.returncode is None:
            running.terminate()
        await running.wait()
        log.close()
    return {"controller": name, "start": started, "still": still, "busy": busy}


async def _passes(running: asyncio.subprocess.Process, log: Path, wanted: int) -> None:
    """Wait until the controller has judged so often. Raises :class:`RuntimeError` if it ends, or needs too long."""
    async with asyncio.timeout(300):
        while _read(log).count("judged") < wanted:
            if running.returncode is not None:
                raise RuntimeError(f"the controller has ended: {_read(log)}")
            await asyncio.sleep(0.5)


def _read(log: Path) -> str:
    return log.read_text()


async def _share(pid: int, traffic: Traffic | None) -> float:
    """Return the per cent of a core that the process takes within a window."""
    loop = asyncio.get_running_loop()
    began, before = loop.time(), cpu(pid)
    for number in range(int(WINDOW * CHANGES)):
        await asyncio.sleep(max(0.0, began + number / CHANGES - loop.time()))
        if traffic is not None:
            traffic.change()
    return 100 * (cpu(pid) - before) / (loop.time() - began)


async def run(nodes: int) -> list[dict[str, Any]]:
    store = Store()
    store.load(list(objects(1, nodes, pods=nodes * PODS_PER_NODE, now=datetime.now(UTC))))
    with tempfile.TemporaryDirectory(prefix="tightship-") as folder:
        async with EmbeddedCluster(store) as cluster:
            return [await measure(name, cluster, Path(folder)) for name in CONTROLLERS]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = asyncio.run(run(chosen.nodes))
    if chosen.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{chosen.nodes:,} nodes and {chosen.nodes * PODS_PER_NODE:,} pods")
        for each in found:
            print(
                f"{each['controller']:15}  {each['start']:5.1f} s until its second pass  {each['still']:5.1f} % still  "
                f"{each['busy']:5.1f} % with {CHANGES} changes a second (bar {BAR:g} %)"
            )
    return int(any(each["busy"] > BAR for each in found))


if __name__ == "__main__":
    sys.exit(main())

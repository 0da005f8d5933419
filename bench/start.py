"""What a controller costs before it has done anything, and while it has nothing to do: processor time and memory.

    python bench/start.py                   300 nodes and 4,114 pods, each controller five times
    python bench/start.py --nodes 5 --pods 68
    python bench/start.py --bin /opt/tightship/bin       the programs of another environment, as images/install.sh makes
    python bench/start.py --json

The API is the embedded one, in a process of its own; each controller is a dry run that judges once and then waits.
*start* is the processor time, user and system, until its first judgement is logged; *idle* the proportional set size
(PSS) a while later, which depends on who else on this machine maps the same interpreter and libraries; *alone* the
resident one, which is what PSS comes to where nobody does. Medians. Exit code 1 when a bar does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from running import CONTROLLERS as SETTINGS
from running import cpu

from tightship_simulator.api.store import Store
from tightship_simulator.generate import objects
from tightship_simulator.ports import free_ports
from tightship_simulator.serve import EmbeddedCluster

CONTROLLERS = ("node-compactor", "node-refiner", "hpa-scaler")
START_BAR = 2.5
"""Seconds of a processor."""
IDLE_BAR = 70.0
"""MiB."""
SETTLE = 20.0
"""Seconds after the first judgement."""
FLAGS = ("--dry-run", "--no-leader-elect", "--interval=300", "--host=127.0.0.1")


def serve(nodes: int, pods: int, kubeconfig: Path) -> None:
    """Serve a generated cluster until this process is ended; *kubeconfig* appears once it answers."""

    async def forever() -> None:
        store = Store()
        store.load(list(objects(1, nodes, pods=pods, now=datetime.now(UTC))))
        async with EmbeddedCluster(store) as cluster:
            cluster.kubeconfig(kubeconfig.with_suffix(".new")).rename(kubeconfig)
            await asyncio.Event().wait()

    asyncio.run(forever())


def memory(pid: int) -> tuple[float, float]:
    """Return MiB of a process: its PSS, and all that is resident."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = {name: int(size) for name, size in re.findall(r"^(\w+): +(\d+) kB", rollup, flags=re.MULTILINE)}
    return kib["Pss"] / 1024, kib["Rss"] / 1024


async def measure(program: Path, kubeconfig: Path, folder: Path) -> tuple[float, float, float]:
    """Return what one start of *program* took: seconds of a processor, MiB of PSS, and MiB resident."""
    port, probes = free_ports(2)
    config = folder / "config.d"
    config.mkdir(exist_ok=True)
    (config / "config.yaml").write_text(json.dumps(SETTINGS.get(program.name, {})))
    path = folder / "log"
    with path.open("wb") as log:
        running = await asyncio.create_subprocess_exec(
            program, "run", f"--kubeconfig={kubeconfig}", *FLAGS, f"--config={config}", f"--port={port}",
            f"--probe-port={probes}", stdout=log, stderr=log,
        )  # fmt: skip
        try:
            async with asyncio.timeout(300):
                while "judged" not in path.read_text():
                    if running.returncode is not None:
                        raise RuntimeError(f"{program} has ended: {path.read_text()}")
                    await asyncio.sleep(0.02)
            started = cpu(running.pid)
            await asyncio.sleep(SETTLE)
            return started, *memory(running.pid)
        finally:
            if running.returncode is None:
                running.terminate()
            await running.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--pods", type=int, default=4114)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--bin", type=Path, default=Path(sys.executable).parent)
    parser.add_argument("--only", choices=CONTROLLERS, action="append")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="tightship-") as name:
        folder = Path(name)
        kubeconfig = folder / "kubeconfig"
        server = multiprocessing.get_context("spawn").Process(
            target=serve, args=(chosen.nodes, chosen.pods, kubeconfig), daemon=True
        )
        server.start()
        while not kubeconfig.exists():
            if not server.is_alive():
                raise RuntimeError("the cluster has ended")
            server.join(0.1)
        for each in chosen.only or CONTROLLERS:
            turns = [asyncio.run(measure(chosen.bin / each, kubeconfig, folder)) for _ in range(chosen.turns)]
            start, idle, alone = (statistics.median(one) for one in zip(*turns, strict=True))
            found.append({"controller": each, "start": start, "idle": idle, "alone": alone})
        server.terminate()
    if chosen.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{chosen.nodes:,} nodes and {chosen.pods:,} pods, medians of {chosen.turns}")
        for each in found:
            print(
                f"{each['controller']:15}  {each['start']:4.2f} s until its first judgement (bar {START_BAR:g})  "
                f"{each['idle']:5.1f} MiB idle (bar {IDLE_BAR:g}), {each['alone']:5.1f} alone"
            )
    return int(any(each["start"] > START_BAR or each["idle"] > IDLE_BAR for each in found))


if __name__ == "__main__":
    sys.exit(main())

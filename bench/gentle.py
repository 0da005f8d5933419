"""What a workload's rest costs and spares: a week of the three controllers on virtual time, with and without pauses.

    python bench/gentle.py                       workloadPause 0 and 10m, on the 40 nodes of virtual.py
    python bench/gentle.py --pauses 0 10m 30m    others
    python bench/gentle.py --days 1              two minutes of one core for each pause; a week takes 13

*node-hours* count every node that is there. *pod and day* is the mean, over the pods of all workloads, of their
workload's evictions in one day by its replicas, and its 99th percentile; *an hour* is the latter of the most evictions
within any hour. *twice* counts evictions of a workload within ten minutes of another.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from typing import Any

from virtual import Traffic, config_maps, forty

from tightship.process.settings.loading import seconds
from tightship_simulator.demo import story
from tightship_simulator.demo.cluster import WORKS, group, objects
from tightship_simulator.life.prometheus import Outage, Prometheus
from tightship_simulator.virtual.programs import PROGRAMS
from tightship_simulator.virtual.simulation import Simulation, simulate

DAY = 86400.0


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def _with(pause: str, config_map: dict[str, Any]) -> dict[str, Any]:
    """Return the ConfigMap of a controller with this pause."""
    name = config_map["metadata"]["name"]
    if name == "node-compactor":
        held = json.loads(config_map["data"]["config.yaml"])
        return {**config_map, "data": {"config.yaml": json.dumps({**held, "workloadPause": pause})}}
    return {**config_map, "data": {"workloadPause": pause}} if name == "node-refiner" else config_map


def run(pause: str, days: float) -> dict[str, Any]:
    traffic = Traffic(WORKS)
    evicted: defaultdict[str, list[float]] = defaultdict(list)
    replicas: defaultdict[str, list[int]] = defaultdict(list)
    found: dict[str, Any] = {"pause": pause, "nodeHours": 0.0, "evictions": 0, "removed": 0}

    async def live(simulation: Simulation) -> None:
        store, start = simulation.store, simulation.now().timestamp()
        traffic.now = simulation.now
        store.load(objects(7, simulation.now(), forty(), WORKS))
        store.load([_with(pause, each) for each in config_maps()])
        for program in PROGRAMS:
            simulation.start(program, LEADER_ELECT="false", CONFIG_MAP_NAME=program.name, LOG_LEVEL="error")
        version = store.version
        for _ in range(round(days * 24 * 60)):
            await simulation.sleep(60)
            at = simulation.now().timestamp() - start
            simulation.prometheus.outage = Outage.REFUSES if story.fails(traffic.hour()) else Outage.NONE
            found["nodeHours"] += len(store.list("Node")) / 60
            for change in store.changes("Node", version):
                found["removed"] += change.type == "DELETED"
            version = store.version
            for asked in simulation.cluster.requests:
                if asked.subresource == "eviction" and asked.code == 201:
                    evicted[asked.name.rsplit("-", 2)[0]].append(at)
            simulation.cluster.requests.clear()
            if at % 3600 < 60:
                for each in store.list("Pod"):
                    replicas[each["metadata"]["name"].rsplit("-", 2)[0]].append(1)
        found["hours"] = at / 3600

    began = time.process_time()
    simulate(
        live,
        seed=7,
        groups=[group(each) for each in forty()],
        measure=traffic.measure,
        prometheus=Prometheus({"http_requests_total": traffic.rate}),
    )
    daily, hourly = [], []
    for name, held in replicas.items():
        size = len(held) / found["hours"]
        for some in ([at for at in evicted[name] if at // DAY == day] for day in range(math.ceil(days))):
            most = max((sum(a <= b < a + 3600 for b in some) for a in some), default=0)
            daily += [len(some) / size] * max(1, round(size))
            hourly += [most / size] * max(1, round(size))
    twice = sum(b - a < 600 for times in evicted.values() for a, b in pairwise(sorted(times)))
    found |= {"evictions": sum(map(len, evicted.values())), "twice": twice, "cpu": time.process_time() - began}
    mean = sum(daily) / len(daily)
    return found | {"mean": mean, "daily": percentile(daily, 0.99), "hourly": percentile(hourly, 0.99)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pauses", nargs="+", default=["0", "10m"])
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run(options.child, options.days)))
        return
    print(
        f"{'pause':>6}{'node-hours':>12}{'evictions':>11}{'removed':>9}{'twice':>7}"
        f"{'pod and day':>13}{'99th':>7}{'an hour':>9}"
    )
    first = None
    for pause in options.pauses:
        seconds(pause)
        command = [sys.executable, __file__, "--child", pause, "--days", str(options.days)]
        each = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        first = first or each
        more = each["nodeHours"] / first["nodeHours"] - 1
        print(
            f"{pause:>6}{each['nodeHours']:>12,.0f}{each['evictions']:>11,}{each['removed']:>9,}{each['twice']:>7,}"
            f"{each['mean']:>13.2f}{each['daily']:>7.2f}{each['hourly']:>9.2f}"
            f"  {more:+.1%} node-hours, {each['cpu']:.0f} s of CPU",
            flush=True,
        )


if __name__ == "__main__":
    main()

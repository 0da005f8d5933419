"""What a workload's rest costs and spares: a week of the three controllers on virtual time, with and without pauses.

    python bench/gentle.py                       workloadPause 0 and 10m, on the 40 nodes of virtual.py
    python bench/gentle.py --settings workloadPause=0 workloadPause=10m,deletionCost=true
    python bench/gentle.py --days 2              two minutes of one core a day for each

*node-hours* count every node that is there. *pod and day* is the mean, over the pods of all workloads, of their
workload's evictions in one day by its replicas, and its 99th percentile; *an hour* is the latter of the most evictions
within any hour. *again* is the 99th percentile, over the pods of each full hour after the first day, of how often the
pod and those that it replaced were evicted in the last 24 hours. *twice* counts evictions of a workload within ten
minutes of another.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from virtual import Traffic, config_maps, forty

from tightship_simulator.demo import story
from tightship_simulator.demo.cluster import WORKS, group, objects
from tightship_simulator.life.prometheus import Outage, Prometheus
from tightship_simulator.virtual.programs import PROGRAMS
from tightship_simulator.virtual.simulation import Simulation, simulate

DAY = 86400.0


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def _with(settings: Mapping[str, str], config_map: dict[str, Any]) -> dict[str, Any]:
    """Return the ConfigMap of a controller of nodes with these *settings*."""
    name, data = config_map["metadata"]["name"], config_map["data"]
    if name == "node-compactor":
        return {**config_map, "data": {"config.yaml": json.dumps({**json.loads(data["config.yaml"]), **settings})}}
    return {**config_map, "data": {**data, **settings}} if name == "node-refiner" else config_map


class Lines:
    """The evictions that each pod inherits: a pod's successor is the next pod of its workload to be created."""

    def __init__(self) -> None:
        self.evicted: defaultdict[str, list[float]] = defaultdict(list)
        self.recent: list[int] = []
        self._living: dict[str, list[float]] = {}
        self._heirs: defaultdict[str, list[list[float]]] = defaultdict(list)

    def add(self, pod: str) -> None:
        heirs = self._heirs[_workload(pod)]
        self._living[pod] = heirs.pop(0) if heirs else []

    def evict(self, pod: str, at: float) -> None:
        self.evicted[_workload(pod)].append(at)
        times = self._living.pop(pod, [])
        self._heirs[_workload(pod)].append([*times, at])

    def sample(self, at: float) -> None:
        """Note of each pod that is there how often it was evicted in the day before *at*."""
        self.recent += [sum(each > at - DAY for each in times) for times in self._living.values()]

    def end(self, pod: str) -> None:
        self._living.pop(pod, None)


def _workload(pod: str) -> str:
    return pod.rsplit("-", 2)[0]


def run(settings: Mapping[str, str], days: int) -> dict[str, Any]:
    traffic, names = Traffic(WORKS), {each.name for each in WORKS}
    lines = Lines()
    replicas = Counter[str]()
    found: dict[str, Any] = {"nodeHours": 0.0, "removed": 0}

    async def live(simulation: Simulation) -> None:
        store, start = simulation.store, simulation.now().timestamp()
        traffic.now = simulation.now
        store.load(objects(7, simulation.now(), forty(), WORKS))
        store.load([_with(settings, each) for each in config_maps()])
        for each in store.list("Pod"):
            follow("ADDED", each["metadata"]["name"])
        for program in PROGRAMS:
            simulation.start(program, LEADER_ELECT="false", CONFIG_MAP_NAME=program.name, LOG_LEVEL="error")
        version = store.version
        for minute in range(1, days * 24 * 60 + 1):
            await simulation.sleep(60)
            at = simulation.now().timestamp() - start
            simulation.prometheus.outage = Outage.REFUSES if story.fails(traffic.hour()) else Outage.NONE
            found["nodeHours"] += len(store.list("Node")) / 60
            requests = simulation.cluster.requests
            for name in [each.name for each in requests if each.subresource == "eviction" and each.code == 201]:
                lines.evict(name, at)
            requests.clear()
            found["removed"] += sum(change.type == "DELETED" for change in store.changes("Node", version))
            for change in store.changes("Pod", version):
                follow(change.type, change.object["metadata"]["name"])
            version = store.version
            if minute % 60 == 0:
                replicas.update(_workload(each["metadata"]["name"]) for each in store.list("Pod"))
            if minute % 60 == 0 and minute >= 24 * 60:
                lines.sample(at)
            if minute % (24 * 60) == 0:
                found.update(
                    figures(lines, {name: replicas[name] for name in names}, minute // (24 * 60)),
                    days=minute // (24 * 60),
                )
                print(json.dumps(found), flush=True)

    def follow(what: str, pod: str) -> None:
        if _workload(pod) in names and what != "MODIFIED":
            (lines.add if what == "ADDED" else lines.end)(pod)

    began = time.process_time()
    simulate(
        live,
        seed=7,
        groups=[group(each) for each in forty()],
        measure=traffic.measure,
        prometheus=Prometheus({"http_requests_total": traffic.rate}),
    )
    return found | {"cpu": time.process_time() - began}


def figures(lines: Lines, replicas: Mapping[str, int], days: int) -> dict[str, Any]:
    """Return what *days* days did to workloads that had so many *replicas* in all hours together."""
    daily, hourly, shares = [], [], {}
    for name, held in replicas.items():
        size = held / days / 24
        shares[name] = [round(size, 1)]
        for day in range(days):
            some = [at for at in lines.evicted[name] if at // DAY == day]
            most = max((sum(a <= b < a + 3600 for b in some) for a in some), default=0)
            shares[name].append(round(len(some) / size, 2))
            daily += [len(some) / size] * max(1, round(size))
            hourly += [most / size] * max(1, round(size))
    times = lines.evicted.values()
    return {
        "twice": sum(b - a < 600 for each in times for a, b in pairwise(sorted(each))),
        "evictions": sum(map(len, times)),
        "mean": sum(daily) / len(daily),
        "daily": percentile(daily, 0.99),
        "hourly": percentile(hourly, 0.99),
        "counts": sorted(Counter(lines.recent).items()),
        "again": percentile(lines.recent, 0.99),
        "shares": shares,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=["workloadPause=0", "workloadPause=10m"])
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run(dict(each.split("=") for each in options.child.split(",")), options.days)))
        return
    print(
        f"{'node-hours':>12}{'evictions':>11}{'removed':>9}{'twice':>7}"
        f"{'pod and day':>13}{'99th':>7}{'an hour':>9}{'again':>7}"
    )
    first = None
    for settings in options.settings:
        command = [sys.executable, __file__, "--child", settings, "--days", str(options.days)]
        each = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
        first = first or each
        more = each["nodeHours"] / first["nodeHours"] - 1
        print(
            f"{each['nodeHours']:>12,.0f}{each['evictions']:>11,}{each['removed']:>9,}{each['twice']:>7,}"
            f"{each['mean']:>13.2f}{each['daily']:>7.2f}{each['hourly']:>9.2f}{each['again']:>7}"
            f"  {settings}: {more:+.1%} node-hours, {each['cpu']:.0f} s of CPU",
            flush=True,
        )
        if options.json:
            print(json.dumps(each), flush=True)


if __name__ == "__main__":
    main()

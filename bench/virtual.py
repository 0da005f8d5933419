"""The three controllers on virtual time: how much of a cluster's life a core gets through.

    python bench/virtual.py                 a day on 40 nodes, an hour with two replicas, a day on 500 nodes
    python bench/virtual.py --only day      one of them: day, hour, fleet
    python bench/virtual.py --json

Controllers, API server, scheduler, kubelets, workload controllers, HPAs and Cluster Autoscaler are in one process and
one event loop whose clock is virtual; every request goes through aiohttp down to the bytes. The settings are those of
the charts but for the pools, which have none by default: intervals of 300 s (node-compactor), 60 s (node-refiner) and
75 s (hpa-scaler), their pauses, limits and timeouts. The embedded cluster has the defaults of the real one: HPAs every
15 s, the Cluster Autoscaler every 10 s with ten minutes until a node counts as unneeded.

* *day*: 40 nodes and 191 pods, from eight in the morning. Traffic falls at night to a third, wavers by an eighth within
  three hours, and breaks down from a quarter to midnight until one, with Prometheus away. One replica of each, without
  leader election;
* *hour*: the same cluster with two replicas of each, and Leases of 15, 10 and 2 s;
* *fleet*: 500 nodes and 5,000 pods of 13 such clusters, one replica of each, a day.

Seconds are of CPU, of this process, which has one thread; *speed* is the simulated time over them. *requests* are
those to the API server, *changes* the store's. Drains, nodes and floors say that it was no idle day.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import msgspec

from tightship.cli.app import COLLECTIONS
from tightship_simulator.demo import story
from tightship_simulator.demo.cluster import SHAPES, SYSTEM, WORKS, Shape, Work, group, objects
from tightship_simulator.life.changes import Json, key_of
from tightship_simulator.life.prometheus import Outage, Prometheus
from tightship_simulator.virtual.programs import PROGRAMS
from tightship_simulator.virtual.simulation import Simulation, simulate

COPIES = 13
"""Copies of the cluster in the fleet."""
WAVES, HEIGHT = 3.0, 0.125
"""Hours between two waves of traffic within a day, and how high they are."""


@dataclass(frozen=True)
class Scale:
    """One simulation: its cluster, *replicas* of each controller, *hours*, and the *bar* in seconds of CPU."""

    title: str
    shapes: Sequence[Shape]
    works: Sequence[Work]
    replicas: int
    hours: float
    bar: float


@dataclass
class Figures:
    """What a simulation took, and what happened in it."""

    title: str
    nodes: int
    pods: int
    hours: float
    seconds: float
    bar: float
    requests: int
    changes: int
    removed: int
    added: int
    fewest: int
    drains: int
    evictions: int
    floors: int
    errors: list[str]


def forty() -> list[Shape]:
    return [msgspec.structs.replace(each, count=each.count + (each.pool != "general")) for each in SHAPES]


def fleet() -> tuple[list[Shape], list[Work]]:
    """Return 13 copies: more and smaller pods, ten a node."""
    counts = {"compute": 132, "general": 236, "memory": 132}
    shapes = [msgspec.structs.replace(each, count=counts[each.pool], least=each.least * COPIES) for each in SHAPES]
    works = [
        msgspec.structs.replace(
            each,
            name=f"{each.name}-{number}",
            namespace=each.namespace if each.namespace == "kube-system" else f"{each.namespace}-{number}",
            replicas=each.replicas if each.stubborn else round(each.replicas * 2.38),
            cpu=each.cpu if each.stubborn else each.cpu * 2 // 5,
            memory=each.memory if each.stubborn else each.memory * 2 // 5,
            rate=each.rate * 2 / 5,
        )
        for number in range(COPIES)
        for each in WORKS
    ]
    return shapes, works


def scales() -> dict[str, Scale]:
    return {
        "day": Scale("a day, one replica of each", forty(), WORKS, 1, 24, 30),
        "hour": Scale("an hour, two replicas of each", forty(), WORKS, 2, 1, 20),
        "fleet": Scale("a day, one replica of each", *fleet(), 1, 24, 600),
    }


class Traffic:
    """What reaches the workloads, by name; the night is the demo's."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = {each.name: each for each in works if each.rate}
        self._phases = {name: math.tau * number / len(self._works) for number, name in enumerate(self._works)}
        self.now: Callable[[], datetime] = datetime.now

    def hour(self) -> float:
        now = self.now()
        hour = now.hour + now.minute / 60 + now.second / 3600
        return hour if hour >= 8 else hour + 24

    def demand(self, name: str) -> float:
        wave = 1 + HEIGHT * math.sin(math.tau * self.hour() / WAVES + self._phases[name])
        return self._works[name].peak * story.demand(self.hour()) * wave

    def rate(self, labels: Mapping[str, str]) -> float | None:
        name = labels.get("app", "")
        return self.demand(name) if name in self._works else None

    def measure(self, hpa: Json, metric: Json, current: int) -> float | None:
        del metric
        name = key_of(hpa)[1]
        reaches = story.REACHES if story.fails(self.hour()) else 1.0
        return self.demand(name) * reaches / (self._works[name].rate * max(1, current))


def config_maps() -> Iterator[Json]:
    pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 0.55, "scaleDownRequiredUnderutilizedNodeCount": 1}
    compactor = {"nodePools": {each.pool: {**pool, "minimumNodeCount": each.least} for each in SHAPES}}
    data = {"node-compactor": {"config.yaml": json.dumps(compactor)}, "node-refiner": {}, "hpa-scaler": {}}
    for name, held in data.items():
        meta = {"name": name, "namespace": SYSTEM}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": held}


def run(scale: Scale) -> Figures:
    traffic = Traffic(scale.works)
    figures = Figures(scale.title, 0, 0, scale.hours, 0, scale.bar, 0, 0, 0, 0, 0, 0, 0, 0, [])
    seen: Counter[str] = Counter()

    async def live(simulation: Simulation) -> None:
        store = simulation.store
        traffic.now = simulation.now
        store.load(objects(7, simulation.now(), scale.shapes, scale.works))
        store.load(config_maps())
        figures.nodes, figures.pods = len(store.list("Node")), len(store.list("Pod"))
        figures.fewest, first = figures.nodes, store.version
        for program in PROGRAMS:
            for _ in range(scale.replicas):
                simulation.start(
                    program, LEADER_ELECT=str(scale.replicas > 1), CONFIG_MAP_NAME=program.name, LOG_LEVEL="error"
                )
        versions = dict.fromkeys(("Node", "HorizontalPodAutoscaler"), store.version)
        for _ in range(round(scale.hours * 4)):
            await simulation.sleep(900)
            simulation.prometheus.outage = Outage.REFUSES if story.fails(traffic.hour()) else Outage.NONE
            for kind, version in versions.items():
                for change in store.changes(kind, version):
                    count(change.type, change.object, change.previous)
                versions[kind] = store.version
            for asked in simulation.cluster.requests:
                seen["evictions"] += asked.subresource == "eviction" and asked.code == 201
                seen["requests"] += 1
            simulation.cluster.requests.clear()
            figures.fewest = min(figures.fewest, len(store.list("Node")))
        figures.changes = store.version - first
        figures.errors = [f"{each.name}: {each.error!r}" for each in simulation.replicas if each.crashed]

    def count(what: str, item: Json, before: Json | None) -> None:
        if item["kind"] == "Node":
            seen[what] += 1
            mark = "tightship.dev/drain"
            begun = mark in (item["metadata"].get("annotations") or {})
            seen["drains"] += begun and mark not in ((before or item)["metadata"].get("annotations") or {})
        elif before is not None:
            seen["floors"] += item["spec"].get("minReplicas") != before["spec"].get("minReplicas")

    began = time.process_time()
    simulate(
        live,
        seed=7,
        groups=[group(each) for each in scale.shapes],
        measure=traffic.measure,
        prometheus=Prometheus({"http_requests_total": traffic.rate}),
    )
    figures.seconds = round(time.process_time() - began, 1)
    figures.removed, figures.added = seen["DELETED"], seen["ADDED"]
    figures.drains, figures.floors = seen["drains"], seen["floors"]
    figures.requests, figures.evictions = seen["requests"], seen["evictions"]
    return figures


def lines(each: Figures) -> list[str]:
    mark = "ok" if each.seconds <= each.bar else "ABOVE"
    return [
        f"{each.nodes:,} nodes, {each.pods:,} pods: {each.title}",
        f"  CPU       {each.seconds:>9} s   {each.bar:g}: {mark}",
        f"  speed     {each.hours * 3600 / max(each.seconds, 1e-9):>9,.0f} x",
        f"  requests  {each.requests:>9,}     changes {each.changes:,}",
        f"  drains    {each.drains:>9,}     evictions {each.evictions:,}, floors moved {each.floors:,}",
        f"  nodes     {each.removed:>9,} removed, {each.added:,} added, {each.fewest:,} the fewest",
        *(f"  crashed: {error}" for error in each.errors),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(scales()), action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        gc.freeze()  # as tightship.process.starting does
        gc.set_threshold(*COLLECTIONS)
        print(json.dumps(asdict(run(scales()[options.child]))))
        return
    results: list[Any] = []
    for name in options.only or list(scales()):
        command = [sys.executable, __file__, "--child", name]
        results.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
        if not options.json:
            print("\n".join(lines(Figures(**results[-1]))), flush=True)
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

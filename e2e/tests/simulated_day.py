"""Half a day of the embedded cluster on virtual time, with what Prometheus would have scraped in it, as OpenMetrics.

The world is that of ``bench/virtual.py``: 40 nodes and three controllers, here from six in the evening until six in the
morning. Traffic falls and rises again, and the metrics are away for an hour.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tightship_simulator.demo import story
from tightship_simulator.demo.cluster import SYSTEM, WORKS, group, objects
from tightship_simulator.life.changes import Json
from tightship_simulator.life.prometheus import Outage, Prometheus
from tightship_simulator.virtual.programs import PROGRAMS
from tightship_simulator.virtual.simulation import Replica, Simulation, simulate

SCRAPE = 150
"""Seconds between two scrapes: two of them fall into every window of five minutes."""
SOON = 5.0
"""Seconds until the first scrape."""
HOURS = 12
LATER = timedelta(hours=10)
"""Simulations begin at eight in the morning."""
PORTS = {"node-refiner": 8080}
CALM = {
    "LEASE_DURATION": "120s",
    "LEASE_RENEW_DEADLINE": "90s",
    "LEASE_RETRY_PERIOD": "40s",
}
"""Nobody contends for the Leases: with the usual times their renewals would be half of all work."""
UNASKED = re.compile(r"#|python_|process_|\w+_created\b")
"""What no panel asks for, and comments."""


@dataclass
class Day:
    """What happened: *samples* by series, with their times, and what the cluster itself says of the day."""

    samples: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    begin: float = 0.0
    end: float = 0.0
    nodes: list[int] = field(default_factory=list)
    """How many there were, scrape by scrape."""
    handed_over: int = 0
    """Nodes that were empty, by our drain, when they were taken away."""
    given_up: int = 0
    reasons: set[str] = field(default_factory=set)
    """Why drains were given up."""
    evicted: int = 0
    floors: int = 0
    opted_in: int = 0
    hpas: int = 0

    def ended(self, before: Json, after: Json, *, gone: bool) -> None:
        """Count the end of a drain, by what the node's annotation said *before* and says *after* a change."""
        if gone and after.get("phase") == "Drained":
            self.handed_over += 1
        elif before.get("phase") == "Restoring" and after.get("phase") != "Restoring":
            self.given_up += 1
            self.reasons.add(before["reason"].partition(" ")[0])

    def openmetrics(self, shift: float) -> Iterator[str]:
        """Yield the samples *shift* seconds later; families may not be mixed."""
        families: dict[str, list[str]] = defaultdict(list)
        for series in self.samples:
            families[series.partition("{")[0]].append(series)
        for name in sorted(families):
            yield f"# TYPE {name} unknown\n"
            for series in families[name]:
                for when, value in self.samples[series]:
                    # Rounded up, the last sample would come after the day's end.
                    yield f"{series} {value} {int(when + shift)}\n"
        yield "# EOF\n"


def phase(node: Json | None) -> Json:
    """Return the drain that a node's annotation tells of."""
    notes = (node or {"metadata": {}})["metadata"].get("annotations") or {}
    found: Json = json.loads(notes.get("tightship.dev/drain", "{}"))
    return found


def world() -> Any:
    """Return the module ``bench/virtual.py``."""
    path = Path(__file__).parents[2] / "bench/virtual.py"
    spec = importlib.util.spec_from_file_location("bench_virtual", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def live() -> Day:
    """Simulate the day."""
    bench, day = world(), Day()
    traffic, shapes = bench.Traffic(WORKS), bench.forty()

    async def work(simulation: Simulation) -> None:
        store = simulation.store
        traffic.now = lambda: simulation.now() + LATER
        store.load(objects(7, simulation.now(), shapes, WORKS))
        store.load(bench.config_maps())
        for program in PROGRAMS:
            simulation.start(program, CONFIG_MAP_NAME=program.name, LOG_LEVEL="error", **CALM)
        day.begin, version = simulation.wall(), store.version
        async with simulation.session() as session:
            for number in range(HOURS * 3600 // SCRAPE):
                # increase() does not see what happened before the first scrape.
                await simulation.sleep(SCRAPE if number else SOON)
                simulation.prometheus.outage = Outage.REFUSES if story.fails(traffic.hour()) else Outage.NONE
                for replica in simulation.replicas:
                    address = f"http://{replica.name}:{PORTS.get(replica.program.name, 9101)}/metrics"
                    async with session.get(address) as answer:
                        note(await answer.text(), replica, simulation.wall())
                for change in store.changes("Node", version):
                    day.ended(phase(change.previous), phase(change.object), gone=change.type == "DELETED")
                version = store.version
                day.nodes.append(len(store.list("Node")))
                for asked in simulation.cluster.requests:
                    day.evicted += asked.subresource == "eviction" and asked.code == 201
                simulation.cluster.requests.clear()
        assert not [each.name for each in simulation.replicas if each.crashed]
        day.end = simulation.wall()
        hpas = store.list("HorizontalPodAutoscaler")
        mine = [
            each
            for each in hpas
            if (each["metadata"].get("annotations") or {}).get("tightship.dev/hpa-scaler") == "true"
        ]
        day.floors = sum(each["spec"]["minReplicas"] for each in mine)
        day.hpas, day.opted_in = len(hpas), len(mine)

    def note(text: str, replica: Replica, when: float) -> None:
        """Keep what a replica says, with the labels that a scrape of its pod puts on it."""
        name = replica.program.name
        target = f'namespace="{SYSTEM}",job="{name}",pod="{replica.name}",container="{name}"'
        for line in text.splitlines():
            if UNASKED.match(line):
                continue
            series, _, value = line.rpartition(" ")
            metric, _, labels = series.partition("{")
            own = re.sub(r"(^|,)namespace=", r"\1exported_namespace=", labels.removesuffix("}"))
            day.samples[f"{metric}{{{target}{',' if own else ''}{own}}}"].append((when, value))

    simulate(
        work,
        seed=7,
        groups=[group(each) for each in shapes],
        measure=traffic.measure,
        prometheus=Prometheus({"http_requests_total": traffic.rate}),
    )
    return day

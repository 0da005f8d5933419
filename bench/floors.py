"""Floors of many HPAs by one Prometheus: what a cycle takes, and what it costs the API server and Prometheus.

    python bench/floors.py                  10,000 HPAs: half an hour; needs the control plane (make controlplane)
    python bench/floors.py --hpas 1000      a smaller one
    python bench/floors.py --json

`hpa-scaler run` is a process of its own, with its default limits; API server and Prometheus are the real ones. There is
no controller-manager: the statuses of the HPAs are written once, under its name, and nothing scales. The cycles:

* *first*: every floor is raised, so the writes a second that the controller allows itself set the pace;
* *steady*: nothing moves. *moving*: the traffic of every tenth HPA has grown by a third;
* *distant*: answers take 10 ms more, as over a network. In all others Prometheus is on this machine;
* *hung*, *still hung*: Prometheus is stopped (SIGSTOP). Nothing may be lowered;
* *repeated*: groups of a hundred HPAs ask the same query. *taken over*: a new process, which knows nothing.

Parts of a cycle are seen from outside: *list* from the first request to the last page's answer (the audit log), *ask*
until the last answer of Prometheus, *judge* until the first write or the end, status and metrics included, *write*
until the end. A relay before Prometheus counts *queries* and how many were *in flight* at once. CPU seconds are those
of the processes (`/proc`), *peak* the largest resident set within the cycle. Prometheus scrapes meanwhile. *load* is
the machine's load average at the end: far above its cores, seconds say more of the machine than of the controller.

The older controller asks one HPA after the other. So does a sample of them in the same run, over one kept connection:
extrapolated to all HPAs it is what asking alone would take. Exit code 1 when a bar does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import re
import statistics
import sys
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from relay import Relay
from shop import LOOKBACK, Traffic, fill, floors, query, repeat

from tightship_e2e import ControlPlane
from tightship_e2e.exporter import Exporter
from tightship_e2e.prometheus import Prometheus
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.replica import NAMESPACE, SCALER, Replica, configure, new_team, permit

INTERVAL = 20.0
"""Seconds between two cycles; by default it is 75, and a run would take an hour."""

CYCLE_BAR = 60.0
"""Seconds for a cycle with nothing but the day's work to do."""
DEADLINE_BAR = 120.0 + 10.0
"""Seconds for one in which Prometheus hangs: its deadline, after which it begins nothing, and a moment to end."""
IN_FLIGHT_BAR = 8

DISTANCE = 0.01  # seconds that answers of a distant Prometheus take more
LOOK = 0.2  # seconds between two looks at the processes
SAMPLE = 300  # HPAs whose queries are asked one after the other
TICKS = os.sysconf("SC_CLK_TCK")
MEBI = 1 << 20


# What is measured.


@dataclass(frozen=True)
class Look:
    """The processes at one moment: their CPU seconds so far, and the queries."""

    at: float
    ours: float
    server: float
    prometheus: float
    queries: int


@dataclass
class Cycle:
    """One cycle, as measured; seconds, bytes, counts."""

    kind: str
    seconds: float = 0.0
    listing: float = 0.0
    asking: float = 0.0
    judging: float = 0.0
    writing: float = 0.0
    requests: dict[str, int] = field(default_factory=dict)
    writes: int = 0
    queries: int = 0
    in_flight: int = 0
    cpu: float = 0.0
    server_cpu: float = 0.0
    prometheus_cpu: float = 0.0
    peak: int = 0
    load: float = 0.0
    said: dict[str, int] = field(default_factory=dict)


class Watch:
    """Looks at the processes all the while, and makes a `Cycle` of each that the controller's log says is over."""

    def __init__(self, plane: ControlPlane, relay: Relay, replica: Replica, pids: Sequence[int]) -> None:
        self._plane = plane
        self._relay = relay
        self._replica = replica
        self._pids = pids
        self._looks: list[Look] = []
        self._events: list[AuditEvent] = []
        self._read = 0
        self._ended: list[tuple[float, Json]] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Watch:
        self._task = asyncio.create_task(self._looking())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def cycle(self, kind: str, deadline: float = 300.0) -> Cycle:
        """Wait for the end of the next cycle."""
        before = len(self._ended)
        forget_peak(self._replica.pid)
        self._relay.most = 0

        async def over() -> bool:
            if self._replica.code is not None:
                raise RuntimeError(f"the controller ended with {self._replica.code}:\n{self._replica.log[-4000:]}")
            self._read_log()
            return len(self._ended) > before

        await wait_for(over, deadline, f"the end of a cycle ({kind})")
        peak, most = proc_bytes(self._replica.pid, "VmHWM"), self._relay.most
        await asyncio.sleep(3 * LOOK)  # the last answers get into the audit log
        end, said = self._ended[before]
        made = self._measured(kind, end, said)
        made.peak, made.in_flight, made.load = peak, most, os.getloadavg()[0]
        say(
            f"{kind}: {made.seconds:.1f} s (list {made.listing:.1f}, ask {made.asking:.1f}, judge {made.judging:.1f}, "
            f"write {made.writing:.1f}), {made.writes} writes, {made.queries} queries, {made.in_flight} in flight, "
            f"CPU {made.cpu:.1f} s, peak {made.peak / MEBI:.0f} MiB; load average {made.load:.1f}"
        )
        return made

    def _measured(self, kind: str, end: float, said: Json) -> Cycle:
        self._events += [each for each in self._plane.audit_events() if each.user.username == SCALER.user]
        mine = [each for each in self._events if moment(each.request_received_timestamp) <= end]
        self._events = [each for each in self._events if moment(each.request_received_timestamp) > end]
        pages = [each for each in mine if each.verb == "list" and of_hpas(each)]
        start = max(moment(each.request_received_timestamp) for each in pages if "continue=" not in each.request_uri)
        mine = [each for each in mine if moment(each.request_received_timestamp) >= start]
        listed = max(moment(each.stage_timestamp) for each in mine if each.verb == "list" and of_hpas(each))
        patches = [each for each in mine if each.verb == "patch" and of_hpas(each)]
        wrote = min((moment(each.request_received_timestamp) for each in patches), default=end)
        looks = [each for each in self._looks if start - LOOK <= each.at <= end + LOOK]
        self._looks = [each for each in self._looks if each.at > end - 1]
        asked = min(max(self._relay.last, listed), wrote)
        first, last = looks[0], looks[-1]
        return Cycle(
            kind,
            seconds=end - start,
            listing=listed - start,
            asking=asked - listed,
            judging=wrote - asked,
            writing=end - wrote,
            requests=dict(Counter(f"{each.verb} {each.object_ref.resource} {each.code}" for each in mine)),
            writes=sum(each.code == 200 for each in patches),
            queries=last.queries - first.queries,
            cpu=last.ours - first.ours,
            server_cpu=last.server - first.server,
            prometheus_cpu=last.prometheus - first.prometheus,
            said={key: said[key] for key in ("hpas", "queries", "raised", "lowered", "held", "skipped")},
        )

    def _read_log(self) -> None:
        with self._plane.logs[self._replica.name].open("rb") as log:
            log.seek(self._read)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            if b'"judged"' in line and (said := json.loads(line))["message"] == "judged":
                self._ended.append((moment(said["time"]), said))

    async def _looking(self) -> None:
        while True:
            ours, server, prometheus = (cpu_seconds(pid) for pid in (self._replica.pid, *self._pids))
            self._looks.append(Look(time.time(), ours, server, prometheus, self._relay.requests))
            await asyncio.sleep(LOOK)


def samples(text: str, name: str) -> Iterator[tuple[str, float]]:
    """The samples of one metric with their labels as written."""
    for labels, value in re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE):
        yield labels, float(value)


def of_hpas(event: AuditEvent) -> bool:
    return event.object_ref.resource == "horizontalpodautoscalers"


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process; 0 when it is gone."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0


def proc_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in /proc/{pid}/status")


def forget_peak(pid: int) -> None:
    """Let VmHWM begin anew at the present resident set."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


async def listed_bytes(api: Client) -> float:
    """Bytes of the answers to lists of HPAs so far, by the API server's metrics."""
    _, answer = await api.request("GET", "/metrics")
    sizes = samples(answer["message"], "apiserver_response_sizes_sum")
    return sum(value for text, value in sizes if 'verb="LIST"' in text and "horizontalpod" in text)


def one_by_one(relay: Relay, count: int) -> dict[str, float]:
    """Ask for a sample of *count* HPAs as the older controller does, one after the other."""
    numbers = range(0, count, -(-count // SAMPLE))
    connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=30)
    with contextlib.closing(connection):
        began = time.perf_counter()
        for number in numbers:
            connection.request("GET", f"/api/v1/query?{urllib.parse.urlencode({'query': query(number)})}")
            answer = json.loads(connection.getresponse().read())
            float(answer["data"]["result"][0]["value"][1])
        seconds = time.perf_counter() - began
    return {"sample": len(numbers), "seconds": seconds, "extrapolated": seconds / len(numbers) * count}


async def served(replica: Replica) -> dict[str, tuple[float, int]]:
    """Seconds and bytes of what people and Prometheus look at."""
    found = {}
    for path in ("/metrics", "/status", "/"):
        began = time.perf_counter()
        code, text = await replica.get(path)
        found[path] = (time.perf_counter() - began, len(text) if code == 200 else 0)
    return found


# The run.


@dataclass(frozen=True)
class Made:
    """What a run goes on."""

    plane: ControlPlane
    prometheus: Prometheus
    relay: Relay
    traffic: Traffic


async def drive(api: Client, made: Made, options: argparse.Namespace) -> dict[str, Any]:
    plane, prometheus, relay, traffic = made.plane, made.prometheus, made.relay, made.traffic
    count, turns = options.hpas, range(options.cycles)
    began = time.monotonic()
    size = await fill(api, count)
    say(f"{count} HPAs of {size} bytes in {time.monotonic() - began:.0f} s")
    await permit(api, SCALER.name)
    kubeconfig = await asyncio.to_thread(plane.service_account_kubeconfig, NAMESPACE, SCALER.name, lifetime=7200)
    say("waiting until Prometheus has seen as much as the queries look back")
    await asyncio.to_thread(prometheus.wait_for_value, f"up offset {LOOKBACK + 20}s", 1, 300.0)
    plane.audit_events()
    team = new_team()
    await configure(api, team, {}, SCALER)
    cycles: list[Cycle] = []
    result: dict[str, Any] = {"hpas": count, "hpa_bytes": size}

    def start() -> Replica:
        return Replica(
            plane, team, kubeconfig, SCALER, PROMETHEUS_SERVER_URL=relay.url, LOG_LEVEL="info",
            INTERVAL=str(INTERVAL), REQUEST_TIMEOUT="30",
            LEASE_DURATION="15", LEASE_RENEW_DEADLINE="10", LEASE_RETRY_PERIOD="2",
        )  # fmt: skip

    replica, pids = start(), (plane.pids["kube-apiserver"], prometheus.pids[-1])
    say(f"the controller is process {replica.pid}")
    async with Watch(plane, relay, replica, pids) as watch:

        async def rest(kind: str, most: int = 10) -> None:
            """Until a cycle gets answers and writes nothing."""
            for number in range(most):
                cycle = await watch.cycle(f"({kind}, cycle {number + 1})")
                if cycle.queries and not cycle.writes:
                    return

        cycles.append(await watch.cycle("first"))
        await rest("what is left")
        before = await listed_bytes(api)
        cycles += [await watch.cycle("steady") for _ in turns]
        result["list_bytes"] = (await listed_bytes(api) - before) / len(turns)
        near = await asyncio.to_thread(one_by_one, relay, count)
        for number in range(0, count, 10):
            traffic.grow(number, 1.34)
        cycles += [await watch.cycle("moving") for _ in turns]
        await rest("coming to rest")
        relay.delay = DISTANCE
        cycles += [await watch.cycle("distant") for _ in turns]
        far = await asyncio.to_thread(one_by_one, relay, count)
        relay.delay = 0.0
        result["one_by_one"] = {"steady": near, "distant": far}
        result["served"] = await served(replica)
        kept = await floors(api)
        await rest("before the outage")
        with prometheus.paused():
            cycles += [await watch.cycle(kind) for kind in ("hung", "still hung")]
        now = await floors(api)
        result["lowered"] = sum(now[name] < kept[name] for name in kept)
        await rest("after the outage")
        await api.each(lambda number: repeat(api, number), range(count))
        await rest("the new queries")
        cycles += [await watch.cycle("repeated") for _ in turns]
    replica.asked_to_end()
    await replica.ended()
    async with Watch(plane, relay, start(), pids) as watch:
        cycles.append(await watch.cycle("taken over"))
    return result | {"cycles": [asdict(each) for each in cycles]}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    parts = ("etcd", "kube-apiserver")
    with Exporter() as exporter:
        traffic = Traffic(options.hpas, exporter)
        with (
            ControlPlane(components=parts, audit=True) as plane,
            Prometheus(exporter.target, interval=10) as prometheus,
            Relay(prometheus.port) as relay,
        ):
            made = Made(plane, prometheus, relay, traffic)
            result = plane.run(lambda api: drive(api, made, options))
    return judge(result)


def judge(result: dict[str, Any]) -> dict[str, Any]:
    """Add the ratios and whether the bars hold."""
    cycles = result["cycles"]

    def of(*kinds: str) -> list[dict[str, Any]]:
        return [each for each in cycles if each["kind"] in kinds]

    for kind, one in result["one_by_one"].items():
        one["ratio"] = one["extrapolated"] / statistics.median(each["asking"] for each in of(kind))
    everyday, hung = of("steady", "moving", "distant", "repeated"), of("hung", "still hung")
    bars = {
        f"every cycle but the first within {CYCLE_BAR:.0f} s": max(each["seconds"] for each in everyday) <= CYCLE_BAR,
        f"at most {IN_FLIGHT_BAR} queries in flight": max(each["in_flight"] for each in cycles) <= IN_FLIGHT_BAR,
        f"Prometheus hangs: over within {DEADLINE_BAR:.0f} s": max(each["seconds"] for each in hung) <= DEADLINE_BAR,
        "Prometheus hangs: nothing lowered": not result["lowered"],
    }
    return result | {"bars": bars, "met": all(bars.values())}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


COLUMNS: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("seconds", lambda each: f"{each['seconds']:.1f}"),
    ("list", lambda each: f"{each['listing']:.1f}"),
    ("ask", lambda each: f"{each['asking']:.1f}"),
    ("judge", lambda each: f"{each['judging']:.1f}"),
    ("write", lambda each: f"{each['writing']:.1f}"),
    ("requests", lambda each: f"{sum(each['requests'].values()):,}"),
    ("written", lambda each: f"{each['writes']:,}"),
    ("queries", lambda each: f"{each['queries']:,}"),
    ("in flight", lambda each: f"{each['in_flight']}"),
    ("CPU s", lambda each: f"{each['cpu']:.1f}"),
    ("API CPU", lambda each: f"{each['server_cpu']:.1f}"),
    ("Prom. CPU", lambda each: f"{each['prometheus_cpu']:.1f}"),
    ("peak MiB", lambda each: f"{each['peak'] / MEBI:.0f}"),
    ("load", lambda each: f"{each['load']:.1f}"),
)


def table(result: dict[str, Any]) -> str:
    lines = [" " * 12 + "".join(f"{name:>10}" for name, _ in COLUMNS)]
    lines += [f"{each['kind']:12}" + "".join(f"{show(each):>10}" for _, show in COLUMNS) for each in result["cycles"]]
    for kind in ("first", "steady", "moving"):
        requests = next(each["requests"] for each in reversed(result["cycles"]) if each["kind"] == kind)
        counted = ", ".join(f"{count:,} {what}" for what, count in sorted(requests.items()))
        lines.append(f"requests of a cycle, {kind}: {counted}")
    for kind, one in result["one_by_one"].items():
        lines.append(
            f"one by one, {kind}: {one['sample']} in {one['seconds']:.1f} s, extrapolated to {result['hpas']:,} "
            f"{one['extrapolated']:.0f} s: {one['ratio']:.1f}x as long as asking eight at a time"
        )
    pages = ", ".join(
        f"{path} {size / MEBI:.1f} MiB in {took:.1f} s" for path, (took, size) in result["served"].items()
    )
    listed, size = result["list_bytes"] / MEBI, result["hpa_bytes"]
    lines += [
        f"an HPA has {size:,} bytes before the first cycle; {listed:.0f} MiB are listed in a steady cycle",
        f"served: {pages}",
        f"{os.cpu_count()} cores",
        *(f"{bar}: {'met' if met else 'NOT met'}" for bar, met in result["bars"].items()),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hpas", type=int, default=10_000, help="how many HPAs (default: %(default)s)")
    parser.add_argument("--cycles", type=int, default=2, help="cycles of each kind (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    result = measure(options)
    print(json.dumps(result, indent=2) if options.json else table(result))
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())

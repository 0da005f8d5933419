"""A Prometheus that has lost its data: it answers at once, far too low, and nothing in its answers says so.

That a real one does is in ``packages/simulator/tests/contract/test_prometheus.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tightship_simulator.life.prometheus import Prometheus
from tightship_simulator.life.scraping import Exporter, Past, growing
from tightship_testkit.faults import Call, Fault
from tightship_testkit.fleet import GUARDED, PER_POD, Fleet
from tightship_testkit.stall import Stall, stall

pytestmark = pytest.mark.virtual_time

RANGE = 300
"""Seconds that the queries look back."""
RATE = 70.0
"""In the middle of what makes 8."""
FOLLOWS = {**PER_POD, "minimum_replicas": 3}


def rate(app: str) -> str:
    """Return the query of an app's hits."""
    return f'sum(rate(hits_total{{app="{app}"}}[5m]))'


@pytest.fixture
def exporter() -> Exporter:
    """What is scraped."""
    return Exporter()


@pytest_asyncio.fixture
async def on(tmp_path: Path, exporter: Exporter) -> AsyncIterator[Stall]:
    """A cluster whose Prometheus has scraped what there is for an hour."""
    async with stall(tmp_path, prometheus=Prometheus(past=Past([exporter]))) as made:
        exporter.set("load", RATE)
        for app in ("steady", "quiet"):
            exporter.set("hits_total", growing(RATE), app=app)
        await made.sleep(3600)
        yield made


async def lose(prometheus: Prometheus) -> None:
    """Kill a Prometheus and empty it."""
    await prometheus.kill()
    assert prometheus.past is not None
    prometheus.past.wipe()


@asynccontextmanager
async def between_cycles(fleet: Fleet) -> AsyncIterator[None]:
    """Keep the replica from asking anything for the body's time: a cycle that begins meanwhile gets no HPAs."""
    begun, over = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        begun.set()
        await over.wait()

    async def plan(call: Call) -> Fault | None:
        return Fault(before=hold) if call.verb == "GET" and call.path.endswith("/horizontalpodautoscalers") else None

    fleet.on.proxy.plan = plan
    try:
        async with asyncio.timeout(600):
            await begun.wait()
        yield
    finally:
        fleet.on.proxy.plan = None
        over.set()


async def test_a_server_that_lost_its_data_lowers_nothing_until_its_ranges_are_full_again(
    on: Stall, exporter: Exporter
) -> None:
    fleet = Fleet(on)
    # Two that the ramp would lower, were it believed, and two that fall back to 0.
    queries = {
        "steady": rate("steady"),
        "quiet": rate("quiet"),
        "fallback": f"{rate('steady')} or vector(0)",
        "gauge": "sum(load) or vector(0)",
    }
    names = list(queries)
    stands = dict.fromkeys(names, 8)
    await on.configured({**GUARDED, "circuitBreakerFailures": 1000})
    await fleet.stand({name: {**FOLLOWS, "prometheus_query": text} for name, text in queries.items()})
    fleet.start()
    await fleet.until_floors(stands)

    # What it scrapes anew is quiet from the first sample on.
    await lose(on.prometheus)
    await fleet.until_events(dict.fromkeys(names, "ConnectionFailed"))
    exporter.set("hits_total", growing(RATE / 14), app="quiet")
    began = on.simulation.wall()
    await on.prometheus.start()
    await fleet.until_reported({name: "ColdSource" for name in names if name != "gauge"})
    assert await fleet.floors(names) == stands
    # What really has become quiet is lowered, but not before the range is full.
    await fleet.until_floors({"quiet": 3})
    assert on.simulation.wall() - began >= RANGE
    await fleet.cycles(20)
    assert fleet.lowered(names) == {"quiet": [(8, 3)]}


async def test_data_lost_between_two_cycles_lower_nothing_either(on: Stall) -> None:
    """The outage itself is not seen: one cycle finds the old data, and the next one none."""
    fleet = Fleet(on)
    await on.configured(GUARDED)
    await fleet.stand({"fallback": {**FOLLOWS, "prometheus_query": f"{rate('steady')} or vector(0)"}})
    fleet.start()
    await fleet.until_floors({"fallback": 8})
    for _ in range(2):
        async with between_cycles(fleet):
            await lose(on.prometheus)
            await on.prometheus.start()
        await fleet.cycles(1)
        await fleet.until_reported({"fallback": "ColdSource"})
    await fleet.cycles(20)
    assert fleet.lowered(["fallback"]) == {}
    assert await fleet.floors(["fallback"]) == {"fallback": 8}


async def test_so_many_that_fall_at_once_are_a_failure_and_one_of_them_is_not(on: Stall, exporter: Exporter) -> None:
    apps = [f"app-{number}" for number in range(12)]
    stands = dict.fromkeys(apps, 8)
    exporter.remove("load")
    for app in apps:
        exporter.set("load", 72, app=app)
    await on.sleep(3600)
    fleet = Fleet(on)
    await on.configured({**GUARDED, "correlatedDropMinimumCount": 10})
    texts = {app: f'sum(load{{app="{app}"}})' for app in apps}
    await fleet.stand({app: {**PER_POD, "prometheus_query": text} for app, text in texts.items()})
    fleet.start()
    await fleet.until_floors(stands)

    # No cycle may ask for some of them before and for the others after it.
    async with between_cycles(fleet):
        for app in apps:
            exporter.set("load", 0, app=app)
        await on.sleep(20)
    await on.until(lambda: held(fleet, 12), "all are held")
    await fleet.cycles(10)
    assert await fleet.floors(apps) == stands
    reported = [each for each in await fleet.events(f"{on.team}-leader", "default") if is_drop(each["reason"])]
    assert [each["type"] for each in reported] == ["Warning"]
    assert "12 of 12 queries fell at once, by 84 of 96 pods" in reported[0]["message"]
    assert not [each for app in apps for each in await fleet.events(app) if is_drop(each["reason"])]
    assert await fleet.samples("tightship_hpa_correlated_drop") == {(): 1}
    assert (await fleet.replica.status())["correlatedDrop"]

    async with between_cycles(fleet):
        for app in apps:
            exporter.set("load", 72, app=app)
        await on.sleep(20)
    await on.until(lambda: held(fleet, 0), "none is held any more")
    exporter.set("load", 10, app="app-3")
    await fleet.until_floors({**stands, "app-3": 2})
    assert fleet.lowered(apps) == {"app-3": [(8, 2)]}


async def held(fleet: Fleet, count: int) -> bool:
    """Whether so many are held."""
    return (await fleet.counted()).get("CorrelatedDrop", 0) == count


def is_drop(reason: str) -> bool:
    """Whether that is the reason."""
    return reason == "CorrelatedDrop"

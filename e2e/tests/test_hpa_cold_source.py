"""A real Prometheus that has lost its data: it answers at once, far too low, and nothing in its answers says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from fleets import GUARDED, PER_POD, Fleet, scraped
from floors import Open, Shop

from tightship_e2e.exporter import Exporter, growing
from tightship_e2e.prometheus import Prometheus
from tightship_testkit.faults import Call, Fault
from tightship_testkit.floors import DEADLINE

SCRAPES = 4.0  # seconds between two; until the first a server that lost its data knows of nothing at all
RANGE = 12  # seconds that the queries look back
RATE = 70.0  # in the middle of what makes 8
CAPPED = {**PER_POD, "minimum_replicas": 3, "maximum_replicas": 8}
"""A scrape that is held up by half a second makes the rate seem one pod more; what is raised then would come down again
as the lowering that nobody may see here. One that seems less is within the lowering window. So what is quiet is so by
far, and comes down to 3 at once.
"""


@asynccontextmanager
async def between_cycles(fleet: Fleet) -> AsyncIterator[None]:
    """Keep the replica from asking anything for the body's time: a cycle that begins meanwhile is not told the HPAs."""
    begun, over = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        begun.set()
        await over.wait()

    async def plan(call: Call) -> Fault | None:
        return Fault(before=hold) if call.verb == "GET" and call.path.endswith("/horizontalpodautoscalers") else None

    fleet.on.proxy.plan = plan
    try:
        async with asyncio.timeout(DEADLINE):
            await begun.wait()
        yield
    finally:
        fleet.on.proxy.plan = None
        over.set()


def rate(app: str) -> str:
    return f'sum(rate(hits_total{{app="{app}"}}[{RANGE}s]))'


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Exporter, Prometheus]]:
    with scraped(SCRAPES, load=RATE) as made:
        for app in ("steady", "quiet"):
            made[0].set("hits_total", growing(RATE), app=app)
        yield made


def test_a_server_that_lost_its_data_lowers_nothing_until_its_ranges_are_full_again(
    in_shop: Open, running: tuple[Exporter, Prometheus]
) -> None:
    exporter, prometheus = running

    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        # Two that the ramp would lower, were it believed, and two that fall back to 0.
        queries = {
            "steady": rate("steady"),
            "quiet": rate("quiet"),
            "fallback": f"{rate('steady')} or vector(0)",
            "gauge": "sum(load) or vector(0)",
        }
        ranges = {"gauge": {"query_range": f"{RANGE}s"}}  # by itself it would wait for two minutes
        names = list(queries)
        rate_names = [name for name in names if name not in ranges]
        stands = dict.fromkeys(names, 8)
        await on.configured({**GUARDED, "circuitBreakerPause": 1})
        await fleet.stand(
            {name: {**CAPPED, **ranges.get(name, {}), "prometheus_query": text} for name, text in queries.items()}
        )
        fleet.start(prometheus.url)
        await fleet.until_floors(stands)

        # What it scrapes anew is quiet from the first sample on.
        await asyncio.to_thread(prometheus.kill)
        prometheus.wipe()
        exporter.set("hits_total", growing(RATE / 14), app="quiet")
        began = time.monotonic()
        await asyncio.to_thread(prometheus.start)
        # That is said only where the answer would lower it, which is for some seconds; the Event stays.
        await fleet.until_events(dict.fromkeys(rate_names, "ColdSource"))
        assert await fleet.floors(names) == stands
        # What really has become quiet is lowered, but not before the range is full.
        await fleet.until_floors({"quiet": 3})
        assert time.monotonic() - began >= RANGE
        await fleet.cycles()
        assert fleet.lowered(names) == {"quiet": [(8, 3)]}

    in_shop(work)


def test_data_lost_between_two_cycles_lower_nothing_either(in_shop: Open, running: tuple[Exporter, Prometheus]) -> None:
    """The outage itself is not seen: one cycle finds the old data, and the next one none."""
    _, prometheus = running

    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        notes = {**CAPPED, "prometheus_query": f"{rate('steady')} or vector(0)"}
        await on.configured({**GUARDED, "circuitBreakerPause": 1})
        await fleet.stand({"fallback": notes})
        fleet.start(prometheus.url)
        await fleet.until_floors({"fallback": 8})
        for _ in range(2):
            async with between_cycles(fleet):
                await asyncio.to_thread(prometheus.kill)
                prometheus.wipe()
                await asyncio.to_thread(prometheus.start)
            await fleet.cycles(1)
            await fleet.until_told({"fallback": "ColdSource"})
        assert fleet.lowered(["fallback"]) == {}
        assert await fleet.floors(["fallback"]) == {"fallback": 8}

    in_shop(work)


def test_so_many_that_fall_at_once_are_a_failure_and_one_of_them_is_not(in_shop: Open) -> None:
    apps = [f"app-{number}" for number in range(12)]
    stands = dict.fromkeys(apps, 8)
    with scraped() as (exporter, prometheus):
        for app in apps:
            exporter.set("load", 72, app=app)
        prometheus.wait_for_value("sum(load)", 12 * 72)

        async def work(on: Shop) -> None:
            fleet = Fleet(on)
            await on.configured({**GUARDED, "correlatedDropMinimumCount": 10})
            texts = {app: f'sum(load{{app="{app}"}}) or vector(0)' for app in apps}
            at_once = {**PER_POD, "query_range": "0s"}  # a fallback alone would make them wait for data of two minutes
            await fleet.stand({app: {**at_once, "prometheus_query": text} for app, text in texts.items()})
            fleet.start(prometheus.url)
            await fleet.until_floors(stands)

            # No cycle may ask for some of them before and for the others after it.
            async with between_cycles(fleet):
                exporter.stop()
                await asyncio.to_thread(prometheus.wait_for_value, "sum(load) or vector(0)", 0)
            await on.until(lambda: held(fleet, 12), "all are held")
            await fleet.cycles()
            assert await fleet.floors(apps) == stands
            told = [each for each in await fleet.events(f"{on.team}-leader", "default") if is_drop(each["reason"])]
            assert [each["type"] for each in told] == ["Warning"]
            assert "12 of 12 HPAs fell at once, by 84 of 96 pods" in told[0]["message"]
            assert not [each for app in apps for each in await fleet.events(app) if is_drop(each["reason"])]
            assert await fleet.samples("tightship_hpa_correlated_drop") == {(): 1}

            async with between_cycles(fleet):
                exporter.start()
                await asyncio.to_thread(prometheus.wait_for_value, "sum(load)", 12 * 72)
            await on.until(lambda: held(fleet, 0), "none is held any more")
            exporter.set("load", 10, app="app-3")
            await fleet.until_floors({**stands, "app-3": 2})
            assert fleet.lowered(apps) == {"app-3": [(8, 2)]}

        in_shop(work)


async def held(fleet: Fleet, count: int) -> bool:
    return (await fleet.counted()).get("CorrelatedDrop", 0) == count


def is_drop(reason: str) -> bool:
    return reason == "CorrelatedDrop"

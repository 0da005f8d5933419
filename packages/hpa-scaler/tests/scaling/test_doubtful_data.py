"""Data that are wrong though every answer is well-formed: a part of them is missing, or late, or a clock is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tightship_simulator.life.prometheus import Prometheus
from tightship_simulator.life.scraping import Exporter, Past, growing
from tightship_testkit.fleet import GUARDED, PER_POD, Fleet
from tightship_testkit.stall import Stall, stall

pytestmark = pytest.mark.virtual_time

QUARTER = 17.5
"""What each of four targets shows; all of it makes 8, one alone 3."""
QUERIES = {
    "rated": 'sum(rate(hits_total{job="e2e"}[5m]))',
    "short": 'sum(rate(hits_total{job="e2e"}[1m]))',
    "gauge": 'sum(load{job="e2e"})',
    "fallback": 'sum(load{job="e2e"}) or vector(0)',
}
STANDS = dict.fromkeys(QUERIES, 8)


@pytest.fixture
def exporters() -> list[Exporter]:
    """What is scraped."""
    return [Exporter(f"exporter-{number}:9100") for number in range(4)]


@pytest_asyncio.fixture
async def on(tmp_path: Path, exporters: list[Exporter]) -> AsyncIterator[Stall]:
    """A cluster whose Prometheus has scraped what there is for an hour."""
    async with stall(tmp_path, prometheus=Prometheus(past=Past(exporters))) as made:
        for each in exporters:
            each.set("load", QUARTER)
            each.set("hits_total", growing(QUARTER))
        exporters[0].set("app:load:sum", 4 * QUARTER)
        exporters[0].set("app:hits:rate1m", 4 * QUARTER)
        await made.sleep(3600)
        yield made


async def standing(on: Stall, queries: dict[str, str], **variables: str) -> Fleet:
    """Return HPAs that follow their queries, with their floors where those want them."""
    fleet = Fleet(on)
    await on.configured(GUARDED)
    await fleet.stand({name: {**PER_POD, "prometheus_query": text} for name, text in queries.items()})
    fleet.start(**variables)
    await fleet.until_floors(dict.fromkeys(queries, 8))
    return fleet


async def test_targets_that_can_not_be_scraped_are_no_traffic_that_ended(on: Stall, exporters: list[Exporter]) -> None:
    fleet = await standing(on, QUERIES)
    for each in exporters[1:]:
        each.stop()
    await fleet.until_reported(dict.fromkeys(QUERIES, "FailedScrapes"))
    await on.sleep(1800)
    assert await fleet.floors(QUERIES) == STANDS
    for each in exporters:
        each.start()
    await on.sleep(1800)
    assert fleet.lowered(QUERIES) == {}
    # What has really become quiet is followed, as soon as they were scraped for long enough.
    for each in exporters:
        each.set("load", 5)
    await fleet.until_floors({"gauge": 3, "fallback": 3})
    assert fleet.lowered(["rated", "short"]) == {}


async def test_targets_that_come_and_go_lower_nothing(on: Stall, exporters: list[Exporter]) -> None:
    fleet = await standing(on, QUERIES)
    for _ in range(30):
        for each in exporters[1:]:
            each.stop()
        await on.sleep(45)
        for each in exporters[1:]:
            each.start()
        await on.sleep(15)
    assert fleet.lowered(QUERIES) == {}
    assert await fleet.floors(QUERIES) == STANDS


async def test_a_low_answer_lowers_nothing_whatever_the_query_and_the_truth_is_followed(
    on: Stall, exporters: list[Exporter]
) -> None:
    queries = {"gauge": "sum(load)", "rule": "app:load:sum", "rated-rule": "app:hits:rate1m", "constant": "vector(70)"}
    fleet = await standing(on, queries)
    names = [name for name in queries if name != "constant"]
    for _ in range(3):
        await show(exporters, 0.0)
        await on.sleep(90)
        await show(exporters, QUARTER)
        await on.sleep(90)
    assert fleet.lowered(queries) == {}

    began = on.simulation.wall()
    await show(exporters, QUARTER / 4)
    await fleet.until_floors(dict.fromkeys(names, 3))
    # The rule whose name has no range waits longest: for five minutes and four cycles, of which one was under way.
    assert on.simulation.wall() - began >= 300 + 300 - 94
    assert fleet.lowered(queries) == {name: [(8, 3)] for name in names}


async def show(exporters: list[Exporter], value: float) -> None:
    """Have every gauge, and what is recorded of them, come to four times *value*."""
    for each in exporters:
        each.set("load", value)
    exporters[0].set("app:load:sum", 4 * value)
    exporters[0].set("app:hits:rate1m", 4 * value)


async def test_samples_that_come_late_lower_nothing(on: Stall) -> None:
    """The server scrapes nothing for a while, and answers all the same."""
    fleet = await standing(on, QUERIES)
    past = on.prometheus.past
    assert past is not None
    scrape, past.scrape = past.scrape, lambda: None  # type: ignore[method-assign]
    await fleet.until_reported({"rated": "LateSamples"})
    await on.sleep(3600)
    past.scrape = scrape  # type: ignore[method-assign]
    await on.sleep(3600)
    assert fleet.lowered(QUERIES) == {}
    assert await fleet.floors(QUERIES) == STANDS


@pytest.mark.parametrize("skew", ["25", "-25", "86400"])
async def test_a_clock_of_ours_that_is_wrong_lowers_nothing(on: Stall, skew: str) -> None:
    """The server is asked for its own time; one whose clock and ours are a day apart is not believed to be low."""
    fleet = await standing(on, QUERIES, TEST_CLOCK_SKEW_SECONDS=skew)
    await fleet.cycles(20)
    assert fleet.lowered(QUERIES) == {}
    assert await fleet.floors(QUERIES) == STANDS


async def test_an_annotation_of_any_size_stops_nobody(on: Stall, exporters: list[Exporter]) -> None:
    fleet = await standing(on, {"gauge": "sum(load)"})
    worst = {
        "blanks": "x @" + " " * 200_000 + "x",
        "quotes": '"' + '\\"' * 100_000,
        "digits": "rate(x[" + "9" * 100_000 + "s])",
        "braces": "sum by (" + "{" * 100_000,
    }
    await fleet.stand({name: {**PER_POD, "prometheus_query": text} for name, text in worst.items()})
    await fleet.until_reported(dict.fromkeys(worst, "InvalidAnnotation"))
    await fleet.stand({"digits-few": {**PER_POD, "prometheus_query": "rate(x[" + "9" * 8000 + "s])"}})
    for each in exporters:
        each.set("load", 2 * QUARTER)
    await fleet.until_floors({"gauge": 15})

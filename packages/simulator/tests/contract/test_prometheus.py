"""What a Prometheus answers, and how it fails: the stand-in does as the real one, which runs where it is built."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from prometheus_contract import Real, RealOne, Source, real_one, stand_in

from hpa_scaler.annotations.spec import AGE_QUERY, FAILED_QUERY, LATE_QUERY
from tightship.kube.connector import connector
from tightship.kube.host import wall
from tightship_simulator.life.evaluation import evaluate
from tightship_simulator.life.promql import parse
from tightship_simulator.life.samples import Samples
from tightship_simulator.life.scraping import Places

Open = Callable[..., AbstractAsyncContextManager[Source]]
"""Opens a server of the test's own: with a *lookback*, or with so many places and so long a *timeout* for queries."""

SHORT = 0.5
"""Seconds in which a server that runs has answered long since."""

QUERIES = (
    "load",
    'load{n="1"}',
    'load{n!="1"}',
    'load{n=~"1|2"}',
    "sum(load)",
    "sum by (n) (load)",
    "min(load)",
    "max(load) - min(load)",
    "count(load)",
    "-sum(load) / 4 + 2 * 3",
    "sum(load) * 1e300",
    "sum(load) / scalar(none)",
    "scalar(none) / scalar(none)",
    "scalar(load)",
    "sum(load) + on() twin",
    "sum by (n) (load) + on() group_left twin",
    "sum(load) - on() group_right load",
    "load * ignoring(n, m) group_left twin",
    "clamp_min(quantile(0.5, load), 5)",
    "quantile(-1, load)",
    "lod or load",
    "sum(lod) or vector(0)",
    'sum(load{n="1"}) or on() vector(9)',
    "rate(hits_total[2s])",
    "sum(rate(hits_total[1s]))",
    "increase(hits_total[2s])",
    "rate(falls_total[2s])",
    "min_over_time(load[2s])",
    "max_over_time(load[2s]) # the largest",
    "avg_over_time(load[2s])",
    "count_over_time(load[2s])",
    "load > 1 and load < 100",
    "load < -1 or load",
    "timestamp(load)",
    "timestamp(load + 1)",
    "time()",
    "time() - timestamp(load)",
    "load[1s]",
    "max_over_time(sum(load)[2s:500ms])",
    AGE_QUERY.format(range=2, step=0.1).replace("0.1s", "100ms"),
    LATE_QUERY.replace("10m:30s", "2s:100ms").replace("10m", "2s"),
    FAILED_QUERY.format(range=2).replace("10m", "1s").replace("1h:2m", "3s:100ms"),
    '"72"',
    "72",
    "1e-9 * 1",
)
"""What the evaluation must make of a server's own samples, as the server does."""


class Contract:
    """What holds for both. ``source`` is left as it was, ``another`` opens one of the test's own."""

    # What it answers.

    async def test_a_query_answers_what_was_scraped(self, source: Source) -> None:
        source.exporter.set("requests", 12.5, app="web")
        series = await source.one('requests{app="web"}')
        assert series["metric"] == {
            "__name__": "requests", "app": "web", "instance": source.exporter.target, "job": "e2e"
        }  # fmt: skip
        assert series["value"][1] == "12.5"

    async def test_a_series_follows_what_the_exporter_is_set_to(self, source: Source) -> None:
        source.exporter.set("orders", 7, app="shop")
        source.exporter.set("orders", 12, app="web")
        source.exporter.set("orders", 13, app="web")
        await source.until("sum(orders)", 20)
        assert len(await source.vector("orders")) == 2
        source.exporter.remove("orders", app="shop")
        await source.until("sum(orders)", 13)

    async def test_values_that_are_no_numbers_come_through(self, source: Source) -> None:
        for name, value in (("none", math.nan), ("high", math.inf), ("low", -math.inf), ("huge", 1e12), ("quiet", 0)):
            source.exporter.set(name, value)
        await source.until("quiet", 0)
        await source.until("none", math.nan)
        shown = [(await source.one(name))["value"][1] for name in ("none", "high", "low", "huge")]
        assert shown == ["NaN", "+Inf", "-Inf", "1000000000000"]
        assert (await source.one("quiet / quiet"))["value"][1] == "NaN"

    async def test_a_label_may_hold_anything(self, source: Source) -> None:
        odd = 'a"b\\c\nd é'
        source.exporter.set("odd", 1, name=odd, value="v")
        assert (await source.one("odd"))["metric"]["name"] == odd
        assert (await source.one(r'odd{name="a\"b\\c\nd é"}'))["metric"]["value"] == "v"

    async def test_not_every_result_is_a_vector(self, source: Source) -> None:
        await source.until("up", 1)
        data = [(await source.query(text)).document["data"] for text in ("1", '"x"', "up[5m]")]
        assert [each["resultType"] for each in data] == ["scalar", "string", "matrix"]
        assert await source.value("1") == 1
        assert data[1]["result"][1] == "x"
        assert data[2]["result"][0]["values"]

    async def test_a_warning_stands_beside_the_result(self, source: Source) -> None:
        await source.until("up", 1)
        document = (await source.query("quantile(2, up)")).document
        assert document["status"] == "success"
        assert document["data"]["result"][0]["value"][1] == "+Inf"
        assert "quantile value should be between 0 and 1" in document["warnings"][0]

    @pytest.mark.parametrize(
        ("query", "status", "kind"),
        [("foo(", 400, "bad_data"), ("", 400, "bad_data"), ("many + on() many", 422, "execution")],
        ids=["not a query", "nothing", "many to many"],
    )
    async def test_a_bad_query_is_an_error_with_a_kind(
        self, source: Source, query: str, status: int, kind: str
    ) -> None:
        for number in ("1", "2"):
            source.exporter.set("many", 1, n=number)
        await source.until("sum(many)", 2)
        reply = await source.query(query)
        assert reply.status == status
        assert (reply.document["status"], reply.document["errorType"]) == ("error", kind)

    # What the author of a query may make of it: the answers to which the hpa-scaler has its reasons.

    @pytest.mark.parametrize("query", ["sum(load{", "sum(load", "load{n=1}", "sum by n (load)", "rate(load)", "sum(1)"])
    async def test_what_does_not_parse_is_bad_data(self, source: Source, query: str) -> None:
        reply = await source.query(query)
        assert (reply.status, reply.document["errorType"]) == (400, "bad_data")
        assert reply.document["error"].startswith('invalid parameter "query": ')

    async def test_a_result_may_be_empty_or_beyond_all_bounds(self, source: Source) -> None:
        source.exporter.set("load", 72)
        await source.until("sum(load)", 72)
        assert await source.vector("sum(lod)") == []
        assert float((await source.one("sum(load) * 1e300"))["value"][1]) == pytest.approx(7.2e301)

    async def test_a_division_by_what_has_become_zero_is_infinite_or_no_number(self, source: Source) -> None:
        source.exporter.set("load", 72)
        source.exporter.set("one", 0)
        await source.until("one", 0)
        await source.until("sum(load)", 72)
        assert (await source.one("sum(load) / scalar(one)"))["value"][1] == "+Inf"
        assert (await source.one("sum(load) * scalar(one) / scalar(one)"))["value"][1] == "NaN"

    async def test_a_second_series_makes_one_to_one_many_to_many_and_one_to_many_several(self, source: Source) -> None:
        source.exporter.set("load", 72)
        source.exporter.set("twin", 0, n="1")
        await source.until("sum(load) + on() twin", 72)
        assert len(await source.vector("sum by (n) (load) + on() group_right twin")) == 1
        source.exporter.set("twin", 0, n="2")
        await source.until("count(twin)", 2)
        reply = await source.query("sum(load) + on() twin")
        assert (reply.status, reply.document["errorType"]) == (422, "execution")
        assert "many-to-many matching not allowed" in reply.document["error"]
        assert len(await source.vector("sum by (n) (load) + on() group_right twin")) == 2

    async def test_a_share_below_zero_is_answered_with_a_warning(self, source: Source) -> None:
        source.exporter.set("load", 72)
        source.exporter.set("half", -1)
        await source.until("half", -1)
        await source.until("sum(load)", 72)
        document = (await source.query("clamp_min(quantile(scalar(half), load), 5)")).document
        assert document["data"]["result"][0]["value"][1] == "5"
        assert "quantile value should be between 0 and 1" in document["warnings"][0]

    # How long a query may take.

    async def test_a_slow_query_ends_by_its_timeout(self, another: Open) -> None:
        # Long enough for the evaluation to have begun, on a slow machine too.
        async with another(places=Places(timeout=2.0)) as source:
            for parameters in ({}, {"timeout": "1s"}):
                reply = await source.query(source.slow, **parameters)
                assert (reply.status, reply.document) == (
                    503,
                    {
                        "status": "error",
                        "errorType": "timeout",
                        "error": "query timed out in expression evaluation",
                    },
                )

    async def test_a_query_that_waits_too_long_for_its_turn_fails_otherwise(self, another: Open) -> None:
        async with another(places=Places(1, 5.0)) as source, aiohttp.ClientSession(connector=connector()) as session:
            slow = {"query": source.slow}
            async with under_way(session, f"{source.url}/api/v1/query", slow) as goes_on:
                # Whose turn it is gets an answer, or runs out of time while it is evaluated.
                while (reply := await source.query("vector(1)", timeout="100ms")).status in (200, 503):
                    assert goes_on()
            # Mostly the first: it depends on where in the server the time ran out.
            late = "context deadline exceeded"
            assert (reply.status, reply.document["errorType"], reply.document["error"]) in [
                (400, "bad_data", f'invalid parameter "query": {late}'),
                (422, "execution", late),
            ]
            # The place is free long before the query would have ended.
            assert (await source.query("vector(1)", timeout="15s")).status == 200

    # How series end.

    async def test_series_are_gone_once_the_exporter_is(self, another: Open) -> None:
        async with another() as source:
            source.exporter.set("requests", 12.5)
            await source.until("requests", 12.5)
            source.exporter.stop()
            await source.until("up", 0)
            assert await source.vector("requests") == []
            assert await source.value("sum(requests) or vector(0)") == 0
            source.exporter.start()
            await source.until("requests", 12.5)

    async def test_a_sample_with_a_time_of_its_own_ages_by_the_lookback(self, another: Open) -> None:
        async with another(lookback=2.0) as source:
            source.exporter.set("requests", 5)
            await source.until("requests", 5)
            began = wall()
            source.exporter.set("dated", 5, at=began)
            await source.until(f"timestamp(dated @ {began + 1:.3f})", lambda at: at is not None)
            source.exporter.stop()
            await source.until("up", 0)
            assert await source.vector("requests") == []
            # Asked for certain times, so that it does not matter when.
            assert await source.value(f"timestamp(dated @ {began + 1.9:.3f})") == pytest.approx(began, abs=0.001)
            assert await source.value(f"dated @ {began + 1.9:.3f}") == 5
            assert await source.value(f"dated @ {began + 2.1:.3f}") is None
            await source.until("dated", None)

    async def test_an_old_sample_is_scraped_with_its_age(self, source: Source) -> None:
        source.exporter.set("old", 5, at=wall() - 60)
        await source.until("old", 5)
        age = await source.value("time() - timestamp(old)")
        assert age is not None
        assert age >= 60

    # How it fails and comes back.

    @pytest.mark.parametrize("orderly", [False, True], ids=["kill", "orderly end"])
    async def test_what_it_knows_survives(self, another: Open, orderly: bool) -> None:
        async with another() as source:
            source.exporter.set("requests", 12.5)
            await source.until("requests", 12.5)
            source.exporter.set("requests", 99)
            await source.until("requests", 99)
            url = source.url
            await (source.stop() if orderly else source.kill())
            with pytest.raises(aiohttp.ClientConnectorError):
                await source.query("up")
            await source.start()
            assert await source.value("min_over_time(requests[1h])") == 12.5
            assert source.url == url

    async def test_without_its_data_it_answers_with_an_empty_vector(self, another: Open) -> None:
        async with another() as source:
            source.exporter.set("requests", 12.5)
            await source.until("requests", 12.5)
            source.exporter.stop()
            await source.kill()
            await source.wipe()
            await source.start()
            await source.until("up", 0)
            assert await source.vector("min_over_time(requests[1h])") == []
            assert await source.value("sum(requests) or vector(0)") == 0

    async def test_without_its_data_a_rate_is_far_too_small_and_nothing_says_so(self, another: Open) -> None:
        async with another() as source:
            source.exporter.set("hits_total", source.growing(110))
            await source.until("hits_total", bool)
            await source.kill()
            await source.wipe()
            await source.start()
            low = await source.until("rate(hits_total[5m])", lambda rate: rate is not None)
            assert low is not None
            assert 0 < low < 55
            assert (await source.query("rate(hits_total[5m])")).document.keys() == {"status", "data"}
            # What the age of its data says: seconds, of five minutes.
            age = await source.value(AGE_QUERY.format(range=300, step=15).replace(":15s", ":100ms"))
            assert age is not None
            assert age < 60
            await source.until("rate(hits_total[1s])", lambda rate: rate is not None and 80 < rate < 140)

    async def test_paused_it_accepts_and_does_not_answer(self, source: Source) -> None:
        await source.pause()
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(SHORT):
                    await source.query("up")
        finally:
            await source.resume()
        assert await source.value("vector(1)") == 1
        # A scrape that the pause cut in two has failed by its own clock: `up` is 0 until the next one.
        await source.until("up", 1)

    async def test_two_know_nothing_of_each_other(self, source: Source, another: Open) -> None:
        source.exporter.set("requests", 12.5, app="web")
        await source.until('requests{app="web"}', 12.5)
        async with another() as other:
            await other.until("up", 1)
            assert await other.vector("requests") == []
            await other.kill()
            assert await source.value('requests{app="web"}') == 12.5

    # Its numbers.

    async def test_the_evaluation_is_the_servers_own(self, another: Open) -> None:
        """Each query is asked for one moment, of a server and of the evaluation of that server's samples."""
        async with another() as source:
            for number in ("1", "2"):
                source.exporter.set("load", 10 * int(number), n=number)
            source.exporter.set("none", 0)
            source.exporter.set("twin", 3, m="a")
            source.exporter.set("hits_total", source.growing(110))
            falls = source.growing(50)
            source.exporter.set("falls_total", lambda: falls() % 40)
            await source.until("rate(hits_total[3s])", some)
            at = wall()
            samples = Samples()
            for series in (await source.query('{__name__=~".+"}[1m]', time=f"{at:.3f}")).document["data"]["result"]:
                labels = tuple(sorted(series["metric"].items()))
                for when, value in series["values"]:
                    samples.add(labels, round(when * 1000), float(value))
            for text in QUERIES:
                theirs = (await source.query(text, time=f"{at:.3f}")).document
                ours = evaluate(samples, parse(text), round(at, 3))
                assert reported(ours) == reported(theirs), text


@pytest.mark.virtual_time
class TestStandIn(Contract):
    """The contract, held by the stand-in on virtual time."""

    @pytest_asyncio.fixture
    async def source(self) -> AsyncIterator[Source]:
        async with stand_in() as made:
            yield made

    @pytest.fixture
    def another(self) -> Open:
        return stand_in


@pytest.fixture(scope="module")
def shared(real_prometheus: Real) -> Iterator[RealOne]:
    """One real server for the tests that leave it as it was."""
    with real_one(real_prometheus) as made:
        yield made


@pytest.mark.controlplane
class TestReal(Contract):
    """The contract, held by a real Prometheus."""

    @pytest.fixture
    def source(self, shared: RealOne) -> RealOne:
        return shared

    @pytest.fixture
    def another(self, real_prometheus: Real) -> Open:
        @asynccontextmanager
        async def open_(*, lookback: float = 0.0, places: Places | None = None) -> AsyncIterator[Source]:
            flags = [f"--query.lookback-delta={lookback:g}s"] if lookback else []
            if places is not None:
                flags += [f"--query.timeout={places.timeout:g}s", f"--query.max-concurrency={places.count}"]
            with ExitStack() as stack:
                yield await asyncio.to_thread(stack.enter_context, real_one(real_prometheus, flags))

        return open_


@asynccontextmanager
async def under_way(
    session: aiohttp.ClientSession, url: str, form: dict[str, str]
) -> AsyncIterator[Callable[[], bool]]:
    """Have a query asked for the body's time, then break it off. What is returned says whether it goes on."""
    query = asyncio.create_task(session.post(url, data=form))
    try:
        yield lambda: not query.done()
    finally:
        query.cancel()
        await asyncio.wait([query])


def some(value: float | None) -> bool:
    """Whether there is a value."""
    return value is not None


def reported(document: dict[str, Any]) -> tuple[str, list[Any], int]:
    """Return what an answer says: the type, and the series in an order of their own with close numbers alike."""
    data = document["data"]
    if data["resultType"] in ("scalar", "string"):
        return data["resultType"], [close(data["result"][1])], 0
    shown = [
        (
            sorted(each["metric"].items()),
            [(close(str(at)), close(value)) for at, value in each.get("values") or [each["value"]]],
        )
        for each in data["result"]
    ]
    return data["resultType"], sorted(shown), len(document.get("warnings") or ())


def close(text: str) -> str:
    """Return a number in twelve digits; sums are not added up in the same order everywhere."""
    try:
        return f"{float(text):.12g}"
    except ValueError:
        return text

"""The tiny Prometheus, over HTTP, as the hpa-scaler asks it."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tightship_simulator.life.prometheus import Outage, Prometheus, QueryError, body, parse, says, serving, silent


def _prometheus() -> Prometheus:
    return Prometheus(
        rates={"requests_total": lambda labels: {"web": 40.0}.get(labels.get("app", ""))},
        gauges={"queue": lambda _: 7.0},
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "max(queue)",
        "queue[5m]",
        "rate(queue)",
        "sum(queue",
        "queue)",
        'queue{app=~"x"}',
        "queue + 1",
        "sum(queue))",
    ],
)
def test_every_other_query_is_an_error_that_says_what_is_allowed(text: str) -> None:
    with pytest.raises(QueryError, match="allowed"):
        parse(text)


def test_rates_and_gauges_of_its_own_series_are_answered() -> None:
    for text, value in (('sum(rate(requests_total{app="web"}[1m]))', "40"), ("queue", "7")):
        assert [each["value"][1] for each in _prometheus().result(text)] == [value]  # type: ignore[index]
    assert _prometheus().result('sum(rate(requests_total{app="other"}[1m]))') == []


def test_an_unknown_series_is_an_error_that_names_those_that_are_known() -> None:
    with pytest.raises(QueryError, match=r"'other'.*requests_total"):
        _prometheus().result("rate(other[1m])")
    with pytest.raises(QueryError, match="queue"):
        _prometheus().result("requests_total")


async def asked(prometheus: Prometheus, text: str, path: str = "/api/v1/query") -> tuple[int, object]:
    """Ask as the hpa-scaler does; return the status and the answer."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{prometheus.url}{path}", data={"query": text}, headers={"X-Scope-OrgID": "shop"}) as answer,
    ):
        return answer.status, await answer.json()


async def test_samples_have_the_time_of_its_clock() -> None:
    now = 1_000.0
    prometheus = Prometheus(gauges={"queue": lambda _: 7.0}, now=lambda: now)
    prometheus.set("told", 3, "NaN")
    async with serving(prometheus):
        for now in (1_000.0, 2_000.0):
            assert prometheus.result("queue")[0]["value"] == [now, "7"]
            assert await asked(prometheus, "told") == (200, body("3", "NaN", at=now))


async def test_a_query_is_answered_as_it_was_told_to_whatever_its_series_say() -> None:
    async with serving(_prometheus()) as prometheus:
        prometheus.set("queue", 3)
        prometheus.answers["max(queue)"] = says({"status": "error"}, 500)
        _, reported = await asked(prometheus, "queue")
        assert reported["data"]["result"][0]["value"][1] == "3"  # type: ignore[index]
        assert await asked(prometheus, "max(queue)") == (500, {"status": "error"})
        prometheus.set("queue")
        assert await asked(prometheus, "queue") == (200, body())
        del prometheus.answers["queue"]
        _, reported = await asked(prometheus, "queue")
        assert reported["data"]["result"][0]["value"][1] == "7"  # type: ignore[index]


async def test_an_outage_comes_before_what_was_told() -> None:
    async with serving(_prometheus()) as prometheus:
        prometheus.set("queue", 3)
        prometheus.outage = Outage.EMPTY
        assert await asked(prometheus, "queue") == (200, body())
        prometheus.outage = Outage.REFUSES
        with pytest.raises(aiohttp.ClientError):
            await asked(prometheus, "queue")


@pytest.mark.parametrize("way", ["outage", "answer"])
async def test_a_silent_one_takes_requests_and_answers_none(way: str) -> None:
    async with serving(_prometheus()) as prometheus:
        if way == "outage":
            prometheus.outage = Outage.SILENT
        else:
            prometheus.answers["queue"] = silent
        asking = [asyncio.create_task(asked(prometheus, "queue")) for _ in range(3)]
        async with asyncio.timeout(60):
            while len(prometheus.seen) < 3:  # noqa: ASYNC110 - the server's side
                await asyncio.sleep(0.01)
        assert not any(each.done() for each in asking)
        assert prometheus.most == 3
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_it_knows_what_it_was_asked_by_whom_and_in_which_order() -> None:
    async with serving(_prometheus()) as prometheus, aiohttp.ClientSession() as session:
        await asked(prometheus, "queue", "/prefix/api/v1/query")
        prometheus.outage = Outage.EMPTY
        async with session.get(f"{prometheus.url}/api/v1/query", params={"query": "other"}):
            pass
        first, second = prometheus.seen
        assert (first.method, first.path, first.form, first.params) == (
            "POST", "/prefix/api/v1/query", {"query": "queue"}, {},
        )  # fmt: skip
        assert first.headers["X-Scope-OrgID"] == "shop"
        assert (second.method, second.form, second.params) == ("GET", {}, {"query": "other"})
        assert prometheus.texts == ["queue", "other"]
        assert prometheus.most == 1

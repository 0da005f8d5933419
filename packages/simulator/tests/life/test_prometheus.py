"""The tiny Prometheus, over HTTP, as the hpa-scaler asks it."""

from __future__ import annotations

import aiohttp
import pytest

from tightship_simulator.life.prometheus import Outage, Prometheus, QueryError, parse, serving


def _prometheus() -> Prometheus:
    return Prometheus(
        rates={"requests_total": lambda labels: {"web": 40.0}.get(labels.get("app", ""))},
        gauges={"queue": lambda _: 7.0},
    )


@pytest.mark.parametrize("text", ['sum(rate(requests_total{app="web"}[1m]))', 'rate(requests_total{app="web"}[5m])'])
def test_a_rate_of_its_own_series_is_answered(text: str) -> None:
    [series] = _prometheus().result(text)
    assert series["value"][1] == "40"  # type: ignore[index]


def test_a_gauge_is_answered() -> None:
    assert len(_prometheus().result("queue")) == 1


def test_a_series_with_other_labels_is_empty() -> None:
    assert _prometheus().result('sum(rate(requests_total{app="other"}[1m]))') == []


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


def test_an_unknown_series_is_an_error_that_names_those_that_are_known() -> None:
    with pytest.raises(QueryError, match=r"'other'.*requests_total"):
        _prometheus().result("rate(other[1m])")
    with pytest.raises(QueryError, match="queue"):
        _prometheus().result("requests_total")


async def test_it_answers_get_and_post_and_refuses_with_the_words_of_prometheus() -> None:
    async with serving(_prometheus()) as prometheus, aiohttp.ClientSession() as session:
        url = f"{prometheus.url}/api/v1/query"
        async with session.get(url, params={"query": "queue"}) as answer:
            assert (await answer.json())["data"]["result"][0]["value"][1] == "7"
        async with session.post(url, data={"query": "queue"}) as answer:
            assert (await answer.json())["status"] == "success"
        async with session.get(url, params={"query": "topk(1, queue)"}) as answer:
            assert answer.status == 400
            assert (await answer.json())["errorType"] == "bad_data"


async def test_an_outage_cuts_connections_or_empties_answers_and_ends() -> None:
    async with serving(_prometheus()) as prometheus, aiohttp.ClientSession() as session:
        url = f"{prometheus.url}/api/v1/query"
        prometheus.outage = Outage.REFUSES
        with pytest.raises(aiohttp.ClientError):
            await session.get(url, params={"query": "queue"})
        prometheus.outage = Outage.EMPTY
        async with session.get(url, params={"query": "queue"}) as answer:
            assert (await answer.json())["data"]["result"] == []
        prometheus.outage = Outage.NONE
        async with session.get(url, params={"query": "queue"}) as answer:
            assert len((await answer.json())["data"]["result"]) == 1

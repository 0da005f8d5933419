"""Prices of nodes that OpenCost knows, asked of a Prometheus server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from tightship.app.settings.loading import SettingsError
from tightship.app.settings.prices import read_prices
from tightship.core.objects import Node
from tightship.planning.prices import HOURLY_PRICE, PriceList, price_of
from tightship_testkit.builders import node, snapshot
from tightship_testkit.scripted import serving


def made(name: str, **notes: str) -> Node:
    labels = {"node.kubernetes.io/instance-type": "m5.large"}
    [view] = snapshot(node(name, labels=labels, notes=notes)).nodes.values()
    return view.node


def vector(*series: tuple[dict[str, str], str]) -> Any:
    found = [{"metric": labels, "value": [1_790_000_000.1, value]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": found}}


async def read(answer: Any, status: int = 200) -> tuple[PriceList, str]:
    async def told(_: web.Request) -> web.StreamResponse:
        if isinstance(answer, bytes):
            return web.Response(body=answer, status=status)
        return web.json_response(answer, status=status)

    async with serving() as api:
        api.script["LIST /api/v1/query"] = [told]
        prices = await asyncio.to_thread(read_prices, f"{api.url}/")
        [asked] = api.seen
    return prices, asked.params["query"]


async def test_nodes_cost_what_opencost_says_and_others_what_their_cloud_says() -> None:
    prices, query = await read(vector(({"node": "n1", "instance": "x"}, "0.25"), ({"instance": "n2"}, "0.5")))
    assert query == "node_total_hourly_cost"
    found = [price_of(made(name), prices) for name in ("n1", "n2", "n3")]
    assert [(each.hourly, each.source) for each in found if each] == [
        (250_000, "opencost"),
        (500_000, "opencost"),
        (96_000, "cloud"),
    ]


async def test_the_annotation_of_a_node_comes_before_opencost() -> None:
    prices, _ = await read(vector(({"node": "n1"}, "0.25")))
    found = price_of(made("n1", **{HOURLY_PRICE: "0.1"}), prices)
    assert found is not None
    assert (found.hourly, found.source) == (100_000, "annotation")


async def test_of_two_series_of_a_node_the_dearest_counts() -> None:
    prices, _ = await read(vector(({"node": "n1", "replica": "a"}, "0.2"), ({"node": "n1", "replica": "b"}, "0.3")))
    assert prices.nodes == {"n1": 300_000}


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (vector(), 200, "has no series node_total_hourly_cost; allowed is a Prometheus that scrapes OpenCost"),
        (vector(({"node": "n1"}, "NaN")), 200, "node_total_hourly_cost of node 'n1': 'NaN' is not a price"),
        (vector(({"node": "n1"}, "-1")), 200, "node_total_hourly_cost of node 'n1': '-1' is not a price"),
        ({"status": "error", "error": "no"}, 503, "answers 503 Service Unavailable"),
        (b"<html>", 200, "gives no answer of Prometheus: JSON is malformed"),
        ({"data": {"resultType": "matrix", "result": [{"metric": {}}]}}, 200, "gives no answer of Prometheus"),
    ],
)
async def test_an_unusable_answer_is_an_error_that_names_the_server(answer: Any, status: int, says: str) -> None:
    with pytest.raises(SettingsError) as error:
        await read(answer, status)
    [problem] = error.value.problems
    assert problem.startswith("--prices 'http://127.0.0.1:")
    assert says in problem


def test_a_server_that_is_away_is_an_error_that_names_it() -> None:
    with pytest.raises(SettingsError, match=r"--prices 'http://127\.0\.0\.1:9': can't be asked: .*refused"):
        read_prices("http://127.0.0.1:9")

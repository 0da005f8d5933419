"""Prices of nodes that OpenCost knows, asked of a Prometheus server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tightship.cli.commands import priced
from tightship.objects import Node
from tightship.objects.money import HOURLY_PRICE, Prices, price_of
from tightship.prices.lists import read_prices
from tightship.prices.opencost import OpenCost
from tightship.process.settings.loading import SettingsError
from tightship.process.settings.sections import NodeSettings
from tightship_testkit.builders import node, snapshot
from tightship_testkit.scripted import serving


def made(name: str, **notes: str) -> Node:
    labels = {"node.kubernetes.io/instance-type": "m5.large"}
    labels |= {key: value for key, value in notes.items() if key.startswith("karpenter")}
    [view] = snapshot(node(name, labels=labels, notes=notes)).nodes.values()
    return view.node


def vector(*series: tuple[dict[str, str], str]) -> Any:
    found = [{"metric": labels, "value": [1_790_000_000.1, value]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": found}}


async def read(answer: Any, status: int = 200) -> tuple[Prices, str]:
    async def reported(_: web.Request) -> web.StreamResponse:
        if isinstance(answer, bytes):
            return web.Response(body=answer, status=status)
        return web.json_response(answer, status=status)

    async with serving() as api:
        api.script["LIST /api/v1/query"] = [reported]
        prices = (await asyncio.to_thread(priced, NodeSettings(prices=read_prices(f"{api.url}/")))).prices
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
    assert problem.startswith("openCost http://127.0.0.1:")
    assert says in problem


def test_a_server_that_is_away_is_an_error_that_names_it() -> None:
    with pytest.raises(SettingsError, match=r"openCost http://127\.0\.0\.1:9: can't be asked: .*refused"):
        priced(NodeSettings(prices=read_prices("http://127.0.0.1:9")))


async def test_the_question_goes_through_the_proxy_that_go_would_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        body = json.dumps(vector(({"node": "n1"}, "0.25"))).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    asked = NodeSettings(prices=read_prices("http://opencost.invalid:9003"))
    async with await asyncio.start_server(talk, "127.0.0.1", 0) as proxy:
        place = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        monkeypatch.setenv("HTTP_PROXY", f"http://u:p%40@{place}")
        # Python's own rules would go there directly.
        monkeypatch.setenv("NO_PROXY", ".opencost.invalid")
        prices = (await asyncio.to_thread(priced, asked)).prices
    assert [each.hourly for each in [price_of(made("n1"), prices)] if each] == [250_000]
    assert heads[0].startswith("GET http://opencost.invalid:9003/api/v1/query?")
    assert "\r\nProxy-authorization: basic dtpwqa==\r\n".lower() in heads[0].lower()
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(SettingsError, match="the proxy's scheme is socks5; allowed is http here, or the server in NO_"):
        await asyncio.to_thread(priced, asked)


def test_a_list_says_its_server_and_credentials_and_a_password_in_an_address_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("instanceTypes: {m5.large: 7}\nopenCost: {url: 'http://p:9090', bearerTokenFile: /t}\n")
    ask = read_prices(str(path)).ask
    assert isinstance(ask, OpenCost)
    server = ask.server
    assert server is not None
    assert (str(server.address), server.token_file) == ("http://p:9090", "/t")
    with pytest.raises(SettingsError, match=r"openCost\.url: .*contains a user name"):
        read_prices("http://me:secret@p:9090")


async def test_the_token_goes_with_the_question_and_not_to_where_the_server_redirects(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0k3n")

    async def away(_: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect("http://127.0.0.1:9/")

    async with serving() as api:
        api.script["LIST /api/v1/query"] = [away]
        path = tmp_path / "prices.json"
        path.write_text(json.dumps({"openCost": {"url": api.url, "bearerTokenFile": str(tmp_path / "token")}}))
        with pytest.raises(SettingsError, match="answers 307"):
            await asyncio.to_thread(priced, NodeSettings(prices=read_prices(str(path))))
        [asked] = api.seen
    assert asked.headers["Authorization"] == "Bearer t0k3n"


def test_the_list_comes_before_opencost_and_a_spot_node_without_a_factor_costs_what_opencost_says(
    tmp_path: Path,
) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("instanceTypes: {m5.large: 7}\nopenCost: 'http://p:9090'\n")
    prices = NodeSettings(prices=read_prices(str(path))).priced({"n1": 250_000}).prices
    found = price_of(made("n1"), prices)
    assert found is not None
    assert (found.hourly, found.source) == (7_000_000, "list")
    spot = {"karpenter.sh/capacity-type": "spot"}
    found, none = price_of(made("n1", **spot), prices), price_of(made("n2", **spot), prices)
    assert found is not None
    assert (found.hourly, found.source, none) == (250_000, "opencost", None)

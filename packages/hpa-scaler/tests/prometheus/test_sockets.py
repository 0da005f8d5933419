"""Asking over real sockets: names, raw bytes, proxies of the environment, and answers without an end."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from hpa_scaler.annotations.queries import Failure, QueryAnswer
from hpa_scaler.prometheus import client as client_module
from tightship.objects.reasons import Reason
from tightship_simulator.life.responders import redirects

from .conftest import Prometheus, asking, body, failure_of, one, says, server, tcp

pytestmark = pytest.mark.asyncio


async def test_a_refused_connection_is_one() -> None:
    async with tcp(_hang) as url:
        pass
    found = await failure_of(server(url))
    assert found.reason is Reason.CONNECTION_FAILED
    assert "default: " in found.detail


async def _hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    del reader, writer
    await asyncio.Event().wait()


async def test_a_name_that_leads_nowhere_is_one() -> None:
    found = await failure_of(server("http://no-such-host.invalid"))
    assert found.reason is Reason.CONNECTION_FAILED


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
    ids=["closed", "not HTTP", "cut off", "broken chunks", "a huge header"],
)
async def test_what_is_no_proper_answer_at_all_is_one(reply: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(reply)
        await writer.drain()

    async with tcp(talk) as url, asking(server(url)) as client:
        found = await one(client)
    assert isinstance(found, Failure)
    assert found.reason is Reason.CONNECTION_FAILED


async def test_a_connection_closed_while_idle_is_opened_again() -> None:
    answered = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        await reader.readuntil(b"\r\n\r\n")
        content = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
        await writer.drain()
        answered += 1
        # Keep-alive was promised; the next request finds a closed connection.
        await reader.read(1000)

    async with tcp(talk) as url, asking(server(url)) as client:
        for _ in range(3):
            assert isinstance(await one(client), QueryAnswer)
    assert answered == 3


async def test_the_proxy_of_the_environment_is_asked_but_for_what_no_proxy_names(
    prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", prometheus.url)
    prometheus.otherwise = says(body("12"))
    async with asking(server("http://prometheus.example:9090/prefix")) as client:
        assert isinstance(await one(client), QueryAnswer)
    assert [seen.path for seen in prometheus.seen] == ["/prefix/api/v1/query"]
    assert prometheus.seen[0].headers["Host"] == "prometheus.example:9090"
    monkeypatch.setenv("no_proxy", "prometheus.example:9090")
    async with asking(server("http://prometheus.example:9090/prefix")) as client:
        assert isinstance(await one(client), Failure)
    assert len(prometheus.seen) == 1


async def test_a_redirect_elsewhere_goes_through_the_proxy_for_there(
    prometheus: Prometheus, another: Prometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", another.url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    prometheus.otherwise = redirects("http://elsewhere.example/api/v1/query")
    another.otherwise = says(body("12"))
    async with asking(server(prometheus.url), allowed=("http://elsewhere.example",)) as client:
        assert isinstance(await one(client), QueryAnswer)
    assert another.seen[0].headers["Host"] == "elsewhere.example"
    assert another.seen[0].form["query"] == "up"


async def test_a_huge_answer_is_given_up(prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LARGEST_BODY", 1 << 20)
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)
            sent += 65536

    prometheus.otherwise = endless
    found = await failure_of(server(prometheus.url))
    assert found.reason is Reason.ANSWER_TOO_LARGE
    assert sent < 16 << 20


async def test_an_ipv6_address_is_asked_and_named_in_brackets() -> None:
    asked = b""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        content = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(talk, "::1", 0)
    host = f"[::1]:{listening.sockets[0].getsockname()[1]}"
    async with listening, asking(server(f"http://{host}")) as client:
        assert isinstance(await one(client), QueryAnswer)
    assert f"Host: {host}\r\n".encode() in asked


async def test_https_goes_through_a_tunnel_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = b""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with tcp(talk) as url:
        monkeypatch.setenv("https_proxy", url)
        found = await failure_of(server("https://prometheus.example/prefix"))
    assert asked.startswith(b"CONNECT prometheus.example:443 ")
    assert (found.reason, "407" in found.detail) == (Reason.CONNECTION_FAILED, True)


async def test_queries_go_through_a_socks_proxy_unless_the_network_is_excepted(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        writer.write(b"\x05\x00")
        places.append((await reader.readexactly(5 + len("prometheus.example") + 2))[5:])
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await reader.readuntil(b"\r\n\r\n")
        content = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
        await writer.drain()

    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with tcp(talk) as url:
        monkeypatch.setenv("HTTP_PROXY", url.replace("http://", "socks5://"))
        async with asking(server("http://prometheus.example:9090")) as client:
            assert isinstance(await one(client), QueryAnswer)
        monkeypatch.setenv("HTTP_PROXY", "socks6://127.0.0.1:1")
        found = await failure_of(server("http://prometheus.example:9090"))
        assert (found.reason, "allowed are http, https" in found.detail) == (Reason.CONNECTION_FAILED, True)
        monkeypatch.setenv("NO_PROXY", "192.0.2.0/24,.example")
        found = await failure_of(server("http://prometheus.example:9090"))
        assert found.reason is Reason.CONNECTION_FAILED
    assert places == [b"prometheus.example" + (9090).to_bytes(2)]

"""Servers on the loopback, or on virtual time, that answer as a test says, well or badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest_asyncio
from aiohttp import web

from hpa_scaler.annotations.queries import Failure, Outcome, Query
from hpa_scaler.annotations.spec import ServerRef
from hpa_scaler.prometheus.client import ClientLimits, PrometheusClient
from tightship.objects.query_servers import AllowList, Server, parse_address
from tightship_simulator.life.prometheus import Prometheus, body, says, serving, silent
from tightship_simulator.life.responders import redirects
from tightship_simulator.virtual.loop import VirtualLoop
from tightship_testkit.floors import answering_one
from tightship_testkit.virtual import on_virtual_network

AT = 1_800_000_000.0
"""The time that is asked about, in seconds since 1970."""


async def trickling(request: web.Request) -> web.StreamResponse:
    """Send a byte of an answer now and then."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.3)


@pytest_asyncio.fixture
async def network() -> AsyncIterator[None]:
    """The virtual one for tests on virtual time, else sockets."""
    if isinstance(asyncio.get_running_loop(), VirtualLoop):
        with on_virtual_network():
            yield
    else:
        yield


@pytest_asyncio.fixture
async def prometheus(network: None) -> AsyncIterator[Prometheus]:
    async with serving(answering_one()) as fake:
        yield fake


@pytest_asyncio.fixture
async def another(network: None) -> AsyncIterator[Prometheus]:
    async with serving(answering_one()) as fake:
        yield fake


def now() -> float:
    """The seconds of the loop's clock."""
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def tcp(talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that says what it likes, without any HTTP."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()


def server(url: str, name: str = "default", **more: Any) -> Server:
    return Server(name, parse_address(url), **({"timeout": 60.0} | more))


@asynccontextmanager
async def asking(*servers: Server, allowed: tuple[str, ...] = (), **more: Any) -> AsyncIterator[PrometheusClient]:
    given = {each.name: each for each in servers}
    async with PrometheusClient(given, AllowList.of(allowed), **more) as client:
        yield client


async def one(
    client: PrometheusClient, text: str = "up", ref: ServerRef = ServerRef(), deadline: float = 120
) -> Outcome:
    query = Query(text, ref)
    return (await client.ask([query], deadline))[query]


async def failure_of(*servers: Server, **more: Any) -> Failure:
    """The failure of a query to the default one of *servers*."""
    async with asking(*servers, **more) as client:
        found = await one(client)
    assert isinstance(found, Failure)
    return found


__all__ = [
    "AT",
    "ClientLimits",
    "Prometheus",
    "another",
    "answering_one",
    "asking",
    "body",
    "failure_of",
    "now",
    "one",
    "prometheus",
    "redirects",
    "says",
    "server",
    "serving",
    "silent",
    "tcp",
]

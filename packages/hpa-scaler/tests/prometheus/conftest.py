"""Servers on the loopback that answer as they are told, well or badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from hpa_scaler.addresses import AllowList, parse_address
from hpa_scaler.prometheus.client import Limits, PrometheusClient
from hpa_scaler.prometheus.servers import Server
from hpa_scaler.queries import Outcome, Query
from hpa_scaler.spec import ServerRef
from tightship_simulator.life.prometheus import Prometheus, Responder, body, says, serving, silent
from tightship_testkit.floors import answering_one

AT = 1_800_000_000.0
"""The time that is asked about, in seconds since 1970."""


def redirects(location: str, status: int = 307) -> Responder:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": location})

    return respond


async def trickling(request: web.Request) -> web.StreamResponse:
    """Send a byte of an answer now and then."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.02)


@pytest_asyncio.fixture
async def prometheus() -> AsyncIterator[Prometheus]:
    async with serving(answering_one()) as fake:
        yield fake


@pytest_asyncio.fixture
async def another() -> AsyncIterator[Prometheus]:
    async with serving(answering_one()) as fake:
        yield fake


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


Ask = Callable[..., Awaitable[Outcome]]


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def asking(*servers: Server, allowed: tuple[str, ...] = (), **more: Any) -> AsyncIterator[PrometheusClient]:
    given = {each.name: each for each in servers}
    async with PrometheusClient(given, AllowList.of(allowed), **more) as client:
        yield client


async def one(
    client: PrometheusClient, text: str = "up", ref: ServerRef = ServerRef(), deadline: float = 120
) -> Outcome:
    query = Query(text, ref)
    return (await client.ask([query], AT, deadline))[query]


__all__ = [
    "AT",
    "Clock",
    "Limits",
    "Prometheus",
    "another",
    "answering_one",
    "asking",
    "body",
    "one",
    "prometheus",
    "says",
    "server",
    "serving",
    "silent",
    "tcp",
]


@pytest.fixture
def clock() -> Clock:
    return Clock()

"""Servers on the loopback that answer as they are told, well or badly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from hpa_scaler.addresses import AllowList, parse_address
from hpa_scaler.prometheus.client import Limits, PrometheusClient
from hpa_scaler.prometheus.servers import Server
from hpa_scaler.queries import Outcome, Query
from hpa_scaler.spec import ServerRef

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]

AT = 1_800_000_000.0


def body(*values: str, **more: Any) -> dict[str, Any]:
    """What Prometheus answers with one series for each of *values*."""
    series = [{"metric": {"n": str(number)}, "value": [AT, value]} for number, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": series}, **more}


def says(content: object, status: int = 200) -> Responder:
    """Answer with *content*, as JSON unless it is text or bytes."""
    raw = content.encode() if isinstance(content, str) else content
    raw = raw if isinstance(raw, bytes) else json.dumps(raw).encode()

    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(body=raw, status=status, content_type="application/json")

    return respond


def redirects(location: str, status: int = 307) -> Responder:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": location})

    return respond


async def silent(_: web.Request) -> web.StreamResponse:
    """Accept the request and never answer."""
    await asyncio.Event().wait()
    raise AssertionError


async def trickling(request: web.Request) -> web.StreamResponse:
    """Send a byte of an answer now and then."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.02)


@dataclass
class Seen:
    method: str
    path: str
    params: dict[str, str]
    form: dict[str, str]
    headers: dict[str, str]


@dataclass
class FakePrometheus:
    """Answers by the text of the query in *answers*, else by *otherwise*; *most* were on the way at once."""

    url: str = ""
    otherwise: Responder = field(default_factory=lambda: says(body("1")))
    answers: dict[str, Responder] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    flying: int = 0
    most: int = 0

    @property
    def texts(self) -> list[str]:
        return [(each.form or each.params).get("query", "") for each in self.seen]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.seen.append(Seen(request.method, request.path, dict(request.query), form, dict(request.headers)))
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            return await self.answers.get((form or request.query).get("query", ""), self.otherwise)(request)
        finally:
            self.flying -= 1


@asynccontextmanager
async def serving(fake: FakePrometheus, ssl: Any = None) -> AsyncIterator[FakePrometheus]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl).start()
    host, port = runner.addresses[0][:2]
    fake.url = f"{'https' if ssl else 'http'}://{host}:{port}"
    try:
        yield fake
    finally:
        await runner.cleanup()


@pytest_asyncio.fixture
async def prometheus() -> AsyncIterator[FakePrometheus]:
    async with serving(FakePrometheus()) as fake:
        yield fake


@pytest_asyncio.fixture
async def another() -> AsyncIterator[FakePrometheus]:
    async with serving(FakePrometheus()) as fake:
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
    return Server(name, parse_address(url), **({"timeout": 2.0} | more))


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
    client: PrometheusClient, text: str = "up", ref: ServerRef = ServerRef(), deadline: float = 20
) -> Outcome:
    query = Query(text, ref)
    return (await client.ask([query], AT, 20))[query]


__all__ = ["AT", "Clock", "FakePrometheus", "Limits", "another", "asking", "one", "prometheus", "server", "tcp"]


@pytest.fixture
def clock() -> Clock:
    return Clock()

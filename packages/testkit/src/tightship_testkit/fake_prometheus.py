"""A server that answers queries as it is told, well or badly, in the test's own event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]

AT = 1_800_000_000.0
"""The time of every sample, in seconds since 1970."""


def body(*values: str, **more: Any) -> dict[str, Any]:
    """Return what Prometheus answers with one series for each of *values*."""
    series = [{"metric": {"n": str(number)}, "value": [AT, value]} for number, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": series}, **more}


def says(content: object, status: int = 200) -> Responder:
    """Answer with *content*, as JSON unless it is text or bytes."""
    raw = content.encode() if isinstance(content, str) else content
    raw = raw if isinstance(raw, bytes) else json.dumps(raw).encode()

    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(body=raw, status=status, content_type="application/json")

    return respond


async def silent(_: web.Request) -> web.StreamResponse:
    """Accept the request and never answer."""
    await asyncio.Event().wait()
    raise AssertionError


@dataclass
class Seen:
    """A request."""

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
        """The queries, in their order."""
        return [(each.form or each.params).get("query", "") for each in self.seen]

    def set(self, query: str, *values: float | str) -> None:
        """Have *query* answered with *values* from now on."""
        self.answers[query] = says(body(*map(str, values)))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
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
    """Serve *fake* on a port of its own, which is in its URL."""
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

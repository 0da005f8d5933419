"""A real HTTP server on the loopback that answers as it is told, well or badly."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from tightship.kube.connection import Connection, RetryPolicy
from tightship.kube.credentials import Access, Credentials, Loaded

Json = dict[str, Any]
Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]


def node(name: str, **more: Any) -> Json:
    allocatable = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return {"metadata": {"name": name, "resourceVersion": "1"}, "status": {"allocatable": allocatable}, **more}


def pod(name: str, node: str = "n1", version: str = "1", **meta: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "default", "resourceVersion": version, **meta},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running"},
    }


def bad_pod(name: str, node: str = "n1") -> Json:
    broken = pod(name, node)
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "a lot"
    return broken


def page(items: list[Json], version: str = "10", token: str = "") -> Responder:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"resourceVersion": version, "continue": token}, "items": items})

    return respond


def status(
    code: int, reason: str = "", message: str = "", headers: dict[str, str] | None = None, **more: Any
) -> Responder:
    async def respond(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": code, "reason": reason, "message": message, **more}
        return web.json_response(body, status=code, headers=headers)

    return respond


def event(kind: str, thing: Json) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def bookmark(version: str) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": version}})


def stream(*chunks: bytes, end: str = "hang") -> Responder:
    """Send *chunks* apart, then hang, close properly, or reset the connection."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if end == "hang":
            await asyncio.Event().wait()
        if end == "reset" and request.transport is not None:
            request.transport.abort()
        return response

    return respond


@dataclass
class Seen:
    verb: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]


@dataclass
class FakeApi:
    """``script`` holds, by "LIST path" or "WATCH path" (else "METHOD path"), answers in turn; the last stays."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    script: dict[str, list[Responder]] = field(default_factory=lambda: defaultdict(list))

    def on(self, key: str, *responders: Responder) -> None:
        self.script[key] = list(responders)

    def count(self, verb: str, path: str) -> int:
        return sum(1 for each in self.seen if (each.verb, each.path) == (verb, path))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        watch = request.query.get("watch") == "true"
        verb = "WATCH" if watch else "LIST" if request.method == "GET" else request.method
        self.seen.append(Seen(verb, request.path, dict(request.query), dict(request.headers)))
        queue = self.script[f"{verb} {request.path}"]
        responder = queue[0] if queue else (stream() if watch else page([]))
        if len(queue) > 1:
            queue.pop(0)
        return await responder(request)


@pytest_asyncio.fixture
async def api() -> AsyncIterator[FakeApi]:
    fake = FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    fake.url = f"http://{host}:{port}"
    yield fake
    await runner.cleanup()


class Sleeper:
    """Sleeps no time at all and remembers what it was asked for."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper()


@pytest_asyncio.fixture
async def connection(api: FakeApi, sleeper: Sleeper) -> AsyncIterator[Connection]:
    access = Access(api.url)

    async def load() -> Loaded:
        return Loaded(access)

    source = Credentials("test", load)
    async with Connection(source, access, retry=RetryPolicy(attempts=3, sleep=sleeper), timeout=60) as made:
        yield made


async def until(condition: Callable[[], bool], deadline: float = 60) -> None:
    """Wait for *condition*, looking again whenever the loop has been round."""
    async with asyncio.timeout(deadline):
        while not condition():  # noqa: ASYNC110 - any condition, on either side of the connection
            await asyncio.sleep(0.002)

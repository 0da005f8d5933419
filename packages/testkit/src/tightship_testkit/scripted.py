"""An API server that answers as it is told, well or badly: for what no real server says.

It listens on a socket, or on virtual time in the network of the loop: :func:`serving`.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import web

from tightship.kube.host import HOST, Host
from tightship_simulator.virtual.loop import VirtualLoop

Json = dict[str, Any]
Responder: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer(body: Json) -> Responder:
    """Return *body*, whatever it is."""

    async def respond(_: web.Request) -> web.StreamResponse:
        return web.json_response(body)

    return respond


def page(items: list[Json], version: str = "10", token: str = "") -> Responder:
    """Return a list, or a page of one where there is a *token*."""
    return answer({"metadata": {"resourceVersion": version, "continue": token}, "items": items})


def status(
    code: int, reason: str = "", message: str = "", headers: dict[str, str] | None = None, **more: Any
) -> Responder:
    """Return an answer that is a ``Status``."""

    async def respond(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": code, "reason": reason, "message": message, **more}
        return web.json_response(body, status=code, headers=headers)

    return respond


def event(kind: str, thing: Json) -> bytes:
    """Return what a watch says of a thing."""
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def bookmark(version: str) -> bytes:
    """Return what a watch says of how far it has come."""
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
    """A request that was made."""

    verb: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]


@dataclass
class ScriptedApi:
    """``script`` holds, by "LIST path" or "WATCH path" (else "METHOD path"), answers in turn; the last stays.

    What nothing is said of is an empty list, or a watch that says nothing.
    """

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


@asynccontextmanager
async def serving() -> AsyncIterator[ScriptedApi]:
    """Serve an API without a script; on virtual time connections from here on need no socket."""
    api = ScriptedApi()
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualLoop):
        HOST.set(Host(wall=loop.time, connector=loop.network.connector, stopwatch=None))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    api.url = f"http://{host}:{port}"
    try:
        yield api
    finally:
        await runner.cleanup()


__all__ = ["Json", "Responder", "ScriptedApi", "Seen", "bookmark", "event", "page", "serving", "status", "stream"]

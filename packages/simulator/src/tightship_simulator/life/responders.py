"""Ways in which a Prometheus, or something before it, answers a request: well, badly, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from aiohttp import web

from tightship.kube.host import wall

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers a request."""


def body(*values: str, at: float = 0.0, **more: object) -> dict[str, object]:
    """Return what Prometheus answers with one series for each of *values*, of the time *at*; 0: when it is said."""
    vector = [{"metric": {"n": str(number)}, "value": [at, value]} for number, value in enumerate(values)]
    return {**success(vector), **more}


def success(result: Sequence[object], kind: str = "vector", **more: object) -> dict[str, object]:
    """Return what Prometheus answers with a *result*; a vector's items are ``{"metric": {}, "value": [time, "1"]}``."""
    return {"status": "success", "data": {"resultType": kind, "result": list(result)}, **more}


def says(
    content: object, status: int = 200, content_type: str = "application/json", headers: Mapping[str, str] = {}
) -> Responder:
    """Answer with *content*, as JSON unless it is text or bytes."""

    async def respond(_: web.Request) -> web.StreamResponse:
        raw = content.encode() if isinstance(content, str) else content
        raw = raw if isinstance(raw, bytes) else msgspec.json.encode(_dated(raw))
        return web.Response(body=raw, status=status, content_type=content_type, headers=headers)

    return respond


def _dated(content: object) -> object:
    """Return an answer with the present time where its values have none."""
    data = content.get("data") if isinstance(content, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(content, dict) or not isinstance(data, dict) or not isinstance(result, list):
        return content
    items = [
        {**each, "value": [wall(), each["value"][1]]}
        if isinstance(each, dict) and list(each.get("value", ()))[:1] == [0.0]
        else each
        for each in result
    ]
    return {**content, "data": {**data, "result": items}}


def fails(status: int, kind: str, error: str) -> Responder:
    """Answer with an error; *kind* is its ``errorType``: ``bad_data`` goes with 400, ``execution`` 422, ..."""
    return says({"status": "error", "errorType": kind, "error": error}, status)


def redirects(location: str, status: int = 307) -> Responder:
    """Send whoever asks elsewhere."""
    return says(b"", status, headers={"Location": location})


async def silent(_: web.Request) -> web.StreamResponse:
    """Accept the request and never answer."""
    await asyncio.Event().wait()
    raise AssertionError


def late(seconds: float, responder: Responder) -> Responder:
    """Answer as *responder* does, after so many seconds."""

    async def respond(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await responder(request)

    return respond


async def cut(request: web.Request) -> web.StreamResponse:
    """Break the connection off without an answer."""
    if request.transport is not None:
        request.transport.abort()
    raise web.HTTPServiceUnavailable


def cut_off(content: bytes, size: int) -> Responder:
    """Promise *content*, and break the connection off after *size* bytes of it."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(content))})
        response.content_type = "application/json"
        await response.prepare(request)
        await response.write(content[:size])
        if request.transport is not None:
            request.transport.close()
        return response

    return respond


UNAUTHORIZED = says("Unauthorized\n", 401, "text/plain", {"WWW-Authenticate": "Bearer"})
"""What a gateway says to whom it does not know."""

__all__ = [
    "UNAUTHORIZED",
    "Responder",
    "body",
    "cut",
    "cut_off",
    "fails",
    "late",
    "redirects",
    "says",
    "silent",
    "success",
]

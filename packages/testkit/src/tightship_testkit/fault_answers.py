"""What a fault proxy answers: the server's answer, as much of it as a fault lets through, or one in its place."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping

import aiohttp
from aiohttp import web

from tightship_testkit.client import Json, break_off
from tightship_testkit.faults import Call, Fault, Hang, HeldWatch, Record, ResetMidAnswer, SilentWatch

HOPS = {"connection", "host", "keep-alive", "transfer-encoding", "upgrade"}  # headers of one connection
_FORWARDED = web.ResponseKey("forwarded", bool)


async def dated_by_the_server(_: web.Request, response: web.StreamResponse) -> None:
    """What the proxy says by itself has no date: the machine's clock is none that a test goes by."""
    if _FORWARDED not in response:
        response.headers.pop("Date", None)


async def tell(
    request: web.Request, record: Record, status: int, body: Json, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Answer with a line of JSON in the server's place."""
    text = json.dumps(body) + "\n"
    response = web.Response(status=status, text=text, content_type="application/json", headers=headers)
    await response.prepare(request)
    await response.write_eof()
    record.answered = status
    return response


async def pass_on(
    request: web.Request, record: Record, fault: Fault, answer: aiohttp.ClientResponse, data: bytes | None
) -> web.StreamResponse:
    """Hand the server's answer to the client, up to the point where the fault stops it."""
    kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOPS]
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=kept)
    response[_FORWARDED] = True
    await response.prepare(request)
    if isinstance(fault, SilentWatch):
        for _ in range(fault.events):
            await response.write(await answer.content.readline())
        await asyncio.Event().wait()  # until the client or the proxy ends it
    if isinstance(fault, ResetMidAnswer):
        async for part in _beginning(fault.size, record.call, answer, data):
            await response.write(part)
        await _flushed(request.transport)
        return broken(request, response)
    async for chunk in answer.content.iter_any() if data is None else _one(data):
        if isinstance(fault, HeldWatch):
            await fault.open.wait()
        await response.write(chunk)
    await response.write_eof()
    record.answered = answer.status
    return response


async def _beginning(size: int, call: Call, answer: aiohttp.ClientResponse, data: bytes | None) -> AsyncIterator[bytes]:
    """Yield the first bytes of an answer: of a watch as they come, else less than the whole."""
    if not call.is_watch:
        yield (data if data is not None else await answer.read())[:-1][:size]
        return
    async for chunk in answer.content.iter_any():
        yield chunk[:size]
        size -= len(chunk)
        if size <= 0:
            return


async def _flushed(transport: asyncio.BaseTransport | None) -> None:
    # A connection that is aborted drops what it still holds back.
    def held_back() -> bool:
        if not isinstance(transport, asyncio.Transport) or transport.is_closing():
            return False
        return transport.get_write_buffer_size() > 0

    while held_back():  # noqa: ASYNC110 - a transport tells nobody when it is empty
        await asyncio.sleep(0.001)


async def _one(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def hang(fault: Hang) -> None:
    """Wait until a hanging call is over."""
    release = fault.release or asyncio.Event()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(fault.seconds):
            await release.wait()


async def begun(request: web.Request) -> web.StreamResponse:
    """Begin an answer and break it off."""
    response = web.StreamResponse()
    response.content_length = 2
    await response.prepare(request)
    await response.write(b"{")
    await _flushed(request.transport)
    return broken(request, response)


def broken(request: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """Break the client's connection; what is returned is only what the server's interface asks for."""
    break_off(request.transport)
    return response or web.Response()

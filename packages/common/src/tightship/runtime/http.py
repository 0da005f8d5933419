"""What a controller serves: metrics, probes, and its last plan as JSON and as a page. Nothing here changes anything.

``/liveness``, ``/alive`` and ``/readiness`` are the older controllers' names of the probes. Every port serves all of
it, so that metrics and probes can stay on the ports where they had them.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
import zlib
from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate
from types import TracebackType

from aiohttp import web
from msgspec import Struct
from prometheus_client import CollectorRegistry

from tightship.host import wall
from tightship.kube.errors import one_line
from tightship.observability.metrics import render
from tightship.report.html.model import Page
from tightship.report.html.page import CONTENT_SECURITY_POLICY, page_parts
from tightship.runtime.heartbeat import Heartbeat

_log = logging.getLogger(__name__)

_SHUTDOWN = 1.0

Draw = Callable[[], Page]
"""Makes a page, in a thread: for as long as it is the same object, the page is the same."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Content(Struct, frozen=True):
    """Where what is served comes from. The functions are called on the event loop for each request, so they are quick.

    *heartbeats* are those of all loops that must tick. *not_ready* returns why the replica is not ready, one line each,
    empty where it is (a standby that has synced is). *status* returns JSON, *page* what makes a page of it for people.
    """

    registry: CollectorRegistry
    heartbeats: Sequence[Heartbeat]
    not_ready: Callable[[], Sequence[str]]
    status: Callable[[], bytes]
    page: Callable[[], Draw]


class HttpServer:
    """Serves *content* on every one of *ports* while the asynchronous context lasts; port 0 takes a free one.

    Entering raises :class:`OSError`, which names the address, where a port is taken. *ports* are then the real ones.
    """

    def __init__(self, content: Content, *, host: str, ports: Sequence[int]) -> None:
        self.ports: tuple[int, ...] = tuple(ports)
        self._content = content
        self._host = host
        # Two scrapes at once would only slow each other, and the loop, down.
        self._rendering = asyncio.Lock()
        self._drawing = asyncio.Lock()
        self._drawn: _Drawn | None = None
        app = web.Application(middlewares=[_guarded])
        app.on_response_prepare.append(_dated)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/status", self._status)
        app.router.add_get("/", self._page)
        for path in ("/healthz", "/liveness", "/alive"):
            app.router.add_get(path, self._health)
        for path in ("/readyz", "/readiness"):
            app.router.add_get(path, self._ready)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN)

    async def __aenter__(self) -> HttpServer:
        await self._runner.setup()
        try:
            # dict: two equal numbers, as of settings that name one port twice, are one port.
            for port in dict.fromkeys(self.ports) if all(self.ports) else self.ports:
                await web.TCPSite(self._runner, self._host, port).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self.ports = tuple(address[1] for address in self._runner.addresses)
        _log.info("serving on %s, port %s", self._host, ", ".join(map(str, self.ports)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        accept = ",".join(request.headers.getall("Accept", ()))
        async with self._rendering:
            # Tens of thousands of series take a while, in which the Lease may have to be renewed.
            body, content_type = await asyncio.to_thread(render, self._content.registry, accept)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _health(self, _: web.Request) -> web.Response:
        beats = self._content.heartbeats
        return _verdict(all(each.alive for each in beats), [str(each) for each in beats])

    async def _ready(self, _: web.Request) -> web.Response:
        reasons = self._content.not_ready()
        return _verdict(not reasons, reasons)

    async def _status(self, _: web.Request) -> web.Response:
        return web.Response(body=self._content.status(), content_type="application/json")

    async def _page(self, request: web.Request) -> web.Response:
        draw = self._content.page()
        async with self._drawing:
            if self._drawn is None or self._drawn.by is not draw:
                self._drawn = await asyncio.to_thread(_drawn, draw)
            drawn = self._drawn
        headers = {
            "Content-Security-Policy": CONTENT_SECURITY_POLICY,
            "Referrer-Policy": "no-referrer",
            "ETag": f'"{drawn.version}"',
            "Vary": "Accept-Encoding",
        }
        if any(each.value == drawn.version for each in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        body = drawn.packed
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
        else:
            body = await asyncio.to_thread(gzip.decompress, body)
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)


class _Drawn(Struct, frozen=True):
    """A page as it was drawn last. Only packed is it kept: that of 5,000 nodes is 10 MB, a tenth of it so."""

    by: Draw
    packed: bytes
    version: str


def _drawn(draw: Draw) -> _Drawn:
    # As gzip, part after part; no time is in it: the same page gives the same bytes.
    packer, digest = zlib.compressobj(5, wbits=31), hashlib.sha256()
    packed = bytearray()
    for part in page_parts(draw()):
        content = part.encode()
        digest.update(content)
        packed += packer.compress(content)
    packed += packer.flush()
    return _Drawn(draw, bytes(packed), digest.hexdigest()[:32])


async def _dated(_: web.Request, response: web.StreamResponse) -> None:
    """Date an answer by this host's clock; aiohttp goes by the machine's."""
    response.headers["Date"] = formatdate(wall(), usegmt=True)


def _verdict(good: bool, lines: Sequence[str]) -> web.Response:
    text = "".join(f"{' '.join(line.split())}\n" for line in ("ok" if good else "not ok", *lines))
    return web.Response(text=text, status=200 if good else 503)


@web.middleware
async def _guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer for a handler that fails, and say nothing of what we are made of."""
    response: web.StreamResponse
    try:
        response = await handler(request)
    except web.HTTPException as error:
        response = web.Response(text=f"{error.status} {error.reason}\n", status=error.status)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
    except Exception as error:
        _log.exception("answering %s %s failed: %s", request.method, request.path, one_line(error))
        response = web.Response(text=f"500 {type(error).__name__}; the log says more\n", status=500)
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Server"] = "tightship"
    return response


__all__ = ["Content", "Draw", "HttpServer"]

"""Serves metrics, probes, and the last plan as JSON and as a page. No request changes anything.

``/liveness``, ``/alive`` and ``/readiness`` are the older controllers' names of the probes. The probes have a port of
their own, and are on all other ports too, so that metrics and probes can keep the ports of the older controllers.

The gate in front of the HTTP server: limits on the number of connections, and on the size and time of each.

aiohttp parses and answers requests. It limits neither the number of connections, nor the time in which a request's head
must arrive or the client must read the answer. A connection here carries one request: nothing after the head is read,
and the connection closes after the answer, so there are neither idle nor pipelined connections.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import ssl
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from email.utils import formatdate
from http import HTTPStatus

from aiohttp import web
from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tightship.documents.html.page import CONTENT_SECURITY_POLICY, Page, page_parts
from tightship.kube.host import HOST, wall
from tightship.objects.api_errors import one_line
from tightship.process.access import Denial
from tightship.process.logging import sparing
from tightship.process.loop import Heartbeat
from tightship.process.settings.process import EVERYWHERE

_END_OF_HEAD = b"\r\n\r\n"
_WRITE_BUFFER = 16 * 1024


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """Limits of connections; times are in seconds."""

    connections: int
    """Most connections at once, on all ports of a gate together."""
    head_bytes: int = 16 * 1024
    """Most bytes of the request line and all headers together."""
    head_timeout: float = 5.0
    """Time from the connection until the head is complete, however steadily its bytes arrive: with TLS, the handshake
    included."""
    answer_timeout: float = 30.0
    """Time from then until the client has read the answer and the connection is closed."""


class Gate:
    """Makes the protocols of connections, encrypted with *tls*; *answers* makes the handler of each one's request.

    With one connection too many, the address with the most connections loses its oldest, preferably one without a
    request yet. So an address that opens many connections shuts out nobody else.
    """

    def __init__(
        self,
        answers: Callable[[], asyncio.Protocol],
        limits: ConnectionLimits,
        logger: logging.Logger,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.answers = answers
        self.limits = limits
        self.tls = tls
        self._log = logger
        self._open: dict[_Connection, None] = {}

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Connection(self)

    def __len__(self) -> int:
        """Return how many connections are open."""
        return len(self._open)

    def opened(self, new: _Connection) -> None:
        """Register a connection."""
        self._open[new] = None
        if len(self._open) <= self.limits.connections:
            return
        [(busiest, count)] = Counter(each.address for each in self._open).most_common(1)
        theirs = [each for each in self._open if each.address == busiest]
        self._log.warning(
            "more than %d HTTP connections, %d from %s: closing its oldest", self.limits.connections, count, busiest
        )
        next((each for each in theirs if each is not new and not each.asked), theirs[0]).abort()

    def closed(self, connection: _Connection) -> None:
        """Forget a connection."""
        self._open.pop(connection, None)

    def close_waiting(self) -> None:
        """Abort the connections that have not sent a request yet."""
        for each in [each for each in self._open if not each.asked]:
            each.abort()


class _Connection(asyncio.Protocol):
    """Collects the head of one request, then hands the connection over to the handler."""

    def __init__(self, gate: Gate) -> None:
        self.address = ""
        self._gate = gate
        self._head = bytearray()
        self._answering: asyncio.Protocol | None = None
        self._transport: asyncio.Transport
        self._handshake: asyncio.Task[None] | None = None
        # What has arrived before the encrypted transport is known: an answer must never leave in the clear.
        self._early: bytearray | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def asked(self) -> bool:
        """Whether a whole request has arrived."""
        return self._answering is not None

    def abort(self) -> None:
        """Abort the connection; unsent bytes are lost."""
        self._gate.closed(self)
        self._within(None)
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=_WRITE_BUFFER)
        self._transport = transport
        # A socket of both families shows an IPv4 address in IPv6's form.
        self.address = str((transport.get_extra_info("peername") or ("",))[0]).removeprefix("::ffff:")
        self._within(self._gate.limits.head_timeout)
        self._gate.opened(self)
        if self._gate.tls is not None:
            # Connections count from here on, and not from the end of a handshake that some never finish.
            transport.pause_reading()
            self._early = bytearray()
            self._handshake = asyncio.create_task(self._encrypt(self._gate.tls))

    async def _encrypt(self, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        limit = self._gate.limits.head_timeout
        try:
            encrypted = await loop.start_tls(
                self._transport, self, tls, server_side=True, ssl_handshake_timeout=limit, ssl_shutdown_timeout=1.0
            )
        except OSError:
            encrypted = None
        if encrypted is None:
            # Whoever speaks no TLS, or goes away. No error of ours.
            self.abort()
            return
        encrypted.set_write_buffer_limits(high=_WRITE_BUFFER)
        self._transport = encrypted
        early, self._early = self._early, None
        if early:
            self.data_received(bytes(early))

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early += data
            return
        if self._answering is not None or self._transport.is_closing():
            # A body or another request arrived, and no handler reads either.
            self._transport.pause_reading()
            return
        searched = max(0, len(self._head) - len(_END_OF_HEAD))
        self._head += data
        if not searched:
            # Servers should ignore empty lines before a request.
            self._head = self._head.lstrip(b"\r\n")
        end = self._head.find(_END_OF_HEAD, searched)
        if (len(self._head) if end < 0 else end) > self._gate.limits.head_bytes:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return
        if end < 0:
            return
        head = bytes(self._head[: end + len(_END_OF_HEAD)])
        self._head.clear()
        self._within(self._gate.limits.answer_timeout)
        self._answering = self._gate.answers()
        self._answering.connection_made(self._transport)
        self._answering.data_received(head)

    def eof_received(self) -> bool | None:
        return None if self._answering is None else self._answering.eof_received()

    def pause_writing(self) -> None:
        if self._answering is not None:
            self._answering.pause_writing()

    def resume_writing(self) -> None:
        if self._answering is not None:
            self._answering.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.closed(self)
        self._within(None)
        if self._answering is not None:
            self._answering.connection_lost(exc)

    def _within(self, seconds: float | None) -> None:
        """Abort the connection after so many seconds, replacing any earlier limit."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.abort)

    def _refuse(self, status: HTTPStatus) -> None:
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nServer: tightship\r\nConnection: close\r\n"
        self._transport.write(f"{head}Content-Length: 0\r\n\r\n".encode())
        self._transport.close()


_log = logging.getLogger(__name__)

_SHUTDOWN = 1.0
_PIECE = 16 * 1024
_FOR_ALL = ConnectionLimits(connections=64)
_FOR_PROBES = ConnectionLimits(connections=32, answer_timeout=5.0)

HEALTH = ("/healthz", "/liveness", "/alive")
READY = ("/readyz", "/readiness")

Draw = Callable[[], Page]
"""Draws a page, in a thread. One such object always draws the same page."""
Write = Callable[[], bytes]
"""Writes JSON, in a thread. One such object always writes the same."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Asked = Callable[[str, str], Awaitable[Denial | None]]
"""Says why a request with this header ``Authorization`` may not get this path, ``None`` if it may."""


class Content(Struct, frozen=True):
    """The sources of everything served. Each request calls the functions on the event loop, so they must be quick.

    *heartbeats* belong to the loops that must run. *not_ready* returns why the replica is not ready, one line each; a
    synced standby is ready. *status* returns a function that writes the status as JSON, *page* one that draws it for
    people: few ask for either, so both are made on request.
    """

    registry: CollectorRegistry
    heartbeats: Sequence[Heartbeat]
    not_ready: Callable[[], Sequence[str]]
    status: Callable[[], Write]
    page: Callable[[], Draw]


class HttpServer:
    """Serves *content* on each of *ports* while the asynchronous context lasts; port 0 takes a free one.

    The *host* ``::`` is every address, those of IPv4 too.
    *probe_port* serves only the probes, with connections of its own, so the kubelet gets an answer even if a client
    uses up all other connections. If *probe_port* is one of *ports*, or ``None``, the probes use the shared ports only.
    With *tls*, all ports but *probe_port* serve HTTPS. With *access*, they answer only who may get the path, but for
    probes, which tell no more than whether the controller is well.
    Entering raises :class:`OSError`, which names the address, if a port is taken. Afterwards *ports* and *probe_port*
    hold the real numbers.
    """

    def __init__(
        self,
        content: Content,
        *,
        host: str,
        ports: Sequence[int],
        probe_port: int | None = None,
        tls: ssl.SSLContext | None = None,
        access: Asked | None = None,
    ) -> None:
        self.ports: tuple[int, ...] = tuple(ports)
        # The same number twice is one port, but 0 is another port each time.
        self.probe_port = probe_port if probe_port == 0 or probe_port not in self.ports else None
        self._content = content
        self._host = host
        self._tls = tls
        self._access = access
        self._log = sparing(_log)
        # Two scrapes at once would only slow down each other, and the loop.
        self._metrics_sent = _Shared()
        self._scrape = _Scrape("")
        self._page_sent = _Shared()
        self._status_sent = _Shared()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> HttpServer:
        probes = [(path, self._health) for path in HEALTH] + [(path, self._ready) for path in READY]
        everything = [("/metrics", self._metrics), ("/status", self._status), ("/", self._page), *probes]
        async with AsyncExitStack() as stack:
            # Settings may name one port twice.
            ports = tuple(dict.fromkeys(self.ports)) if all(self.ports) else self.ports
            self.ports = await self._listen(stack, everything, _FOR_ALL, ports, self._tls)
            if self.probe_port is not None:
                [self.probe_port] = await self._listen(stack, probes, _FOR_PROBES, (self.probe_port,))
            self._stack = stack.pop_all()
        how = "HTTP" if self._tls is None else "HTTPS"
        _log.info("serving %s on %s, port %s", how, self._host, ", ".join(map(str, self.ports)))
        if self.probe_port is not None:
            _log.info("serving probes on %s, port %d", self._host, self.probe_port)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _listen(
        self,
        stack: AsyncExitStack,
        routes: Sequence[tuple[str, Handler]],
        limits: ConnectionLimits,
        ports: Sequence[int],
        tls: ssl.SSLContext | None = None,
    ) -> tuple[int, ...]:
        app = web.Application(middlewares=[self._guarded, self._authorized])
        app.on_response_prepare.append(_signed)
        for path, handler in routes:
            app.router.add_get(path, handler)
        # No handler reads a body, so don't unpack a body or wait for one.
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=_SHUTDOWN,
            logger=self._log,
            auto_decompress=False,
            lingering_time=0.0,
            max_line_size=limits.head_bytes,
            max_field_size=limits.head_bytes,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        server = runner.server
        assert server is not None
        gate = Gate(server, limits, self._log, tls)
        # Nobody waits for half a request, but whole ones are still answered.
        stack.callback(gate.close_waiting)
        loop, found = asyncio.get_running_loop(), []
        for port in ports:
            # A simulated host has no sockets, nor families of addresses.
            if self._host == EVERYWHERE and HOST.get().connector is None:
                listener = await loop.create_server(gate, sock=_socket_of_both(port))
            else:
                listener = await loop.create_server(gate, self._host, port)
            stack.callback(listener.close)
            found += [each.getsockname()[1] for each in listener.sockets]
        return tuple(found)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        accept = ",".join(request.headers.getall("Accept", ()))
        encode, kind = choose_encoder(accept)
        if self._scrape.content_type != kind:
            self._scrape = _Scrape(kind)

        def scraped() -> _Body:
            # Later requests want newer values.
            self._scrape = _Scrape(kind)
            return _packed((encode(self._content.registry),))

        # Tens of thousands of series take a while, during which the Lease may need a renewal.
        body = await self._metrics_sent.get(self._scrape, scraped)
        return await _send(request, body, {"Content-Type": kind})

    async def _health(self, _: web.Request) -> web.Response:
        beats = self._content.heartbeats
        return _verdict(all(each.alive for each in beats), [str(each) for each in beats])

    async def _ready(self, _: web.Request) -> web.Response:
        reasons = self._content.not_ready()
        return _verdict(not reasons, reasons)

    async def _status(self, request: web.Request) -> web.StreamResponse:
        write = self._content.status()
        body = await self._status_sent.get(write, lambda: _packed((write(),)))
        return await _send(request, body, {"Content-Type": "application/json"})

    async def _page(self, request: web.Request) -> web.StreamResponse:
        draw = self._content.page()
        body = await self._page_sent.get(draw, lambda: _packed(part.encode() for part in page_parts(draw())))
        headers = {
            "Content-Security-Policy": CONTENT_SECURITY_POLICY,
            "Referrer-Policy": "no-referrer",
            "ETag": f'"{body.version}"',
        }
        if any(each.value == body.version for each in request.if_none_match or ()):
            return web.Response(status=304, headers={**headers, "Vary": "Accept-Encoding"})
        return await _send(request, body, {**headers, "Content-Type": "text/html; charset=utf-8"})

    @web.middleware
    async def _authorized(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer who may get the path."""
        public = request.path in (*HEALTH, *READY) or request.match_info.http_exception is not None
        if self._access is None or public:
            return await handler(request)
        denial = await self._access(request.headers.get("Authorization", ""), request.path)
        if denial is None:
            return await handler(request)
        headers = {"WWW-Authenticate": "Bearer"} if denial.status == HTTPStatus.UNAUTHORIZED else {}
        return web.Response(text=f"{denial.status.value} {denial.text}\n", status=denial.status, headers=headers)

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer for a handler that fails, without revealing internals."""
        try:
            return await handler(request)
        except web.HTTPException as error:
            response = web.Response(text=f"{error.status} {error.reason}\n", status=error.status)
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response
        except ConnectionError:
            # The client is gone.
            raise
        except Exception as error:
            self._log.exception("answering %s %s failed: %s", request.method, request.path, one_line(error))
            return web.Response(text=f"500 {type(error).__name__}; the log says more\n", status=500)


def _socket_of_both(port: int) -> socket.socket:
    """Return a socket that takes connections of IPv6 and IPv4, the latter alone where the system has no IPv6."""
    # For "::" asyncio would take IPv6 alone.
    if socket.has_dualstack_ipv6():
        return socket.create_server((EVERYWHERE, port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("0.0.0.0", port))  # noqa: S104


class _Scrape:
    """One rendering of the metrics, shared by all requests for its type that arrive before it starts."""

    def __init__(self, content_type: str) -> None:
        self.content_type = content_type


class _Body(Struct, frozen=True):
    """A body for all clients, kept in compressed form only: a page of 5,000 nodes is 10 MB, or 1 MB compressed."""

    packed: bytes
    length: int
    version: str


class _Shared:
    """A body that is made once for all clients that request the same."""

    def __init__(self) -> None:
        self._making = asyncio.Lock()
        self._of: object = None
        self._body: _Body | None = None

    async def get(self, of: object, make: Callable[[], _Body]) -> _Body:
        """Return the body that *make* makes of *of* in a thread, or the last one if *of* is the same object."""
        async with self._making:
            if self._body is None or self._of is not of:
                self._body = await asyncio.to_thread(make)
                self._of = of
            return self._body


def _packed(parts: Iterable[bytes]) -> _Body:
    # gzip, part after part, without a time stamp: the same page gives the same bytes.
    packer, digest, length = zlib.compressobj(5, wbits=31), hashlib.sha256(), 0
    packed = bytearray()
    for content in parts:
        length += len(content)
        digest.update(content)
        packed += packer.compress(content)
    packed += packer.flush()
    return _Body(bytes(packed), length, digest.hexdigest()[:32])


async def _send(request: web.Request, body: _Body, headers: Mapping[str, str]) -> web.StreamResponse:
    """Send *body* piece by piece, so that a client that reads slowly, or not at all, holds one piece and no copy."""
    response = web.StreamResponse(headers={**headers, "Vary": "Accept-Encoding"})
    as_it_is = "gzip" in request.headers.get("Accept-Encoding", "")
    if as_it_is:
        response.headers["Content-Encoding"] = "gzip"
    response.content_length = len(body.packed) if as_it_is else body.length
    await response.prepare(request)
    if request.method != "HEAD":
        for piece in _pieces(body.packed) if as_it_is else _unpacked(body.packed):
            await response.write(piece)
    await response.write_eof()
    return response


def _pieces(packed: bytes) -> Iterator[bytes]:
    for start in range(0, len(packed), _PIECE):
        yield packed[start : start + _PIECE]


def _unpacked(packed: bytes) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=31)
    for piece in _pieces(packed):
        rest = piece
        while rest:
            yield unpacker.decompress(rest, _PIECE)
            rest = unpacker.unconsumed_tail
    yield unpacker.flush()


async def _signed(_: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that every answer has."""
    # aiohttp would use the machine's clock instead of this host's.
    response.headers["Date"] = formatdate(wall(), usegmt=True)
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Server"] = "tightship"
    # Nobody asks often, so no connection stays open. aiohttp has already decided about this one.
    response.force_close()
    response.headers["Connection"] = "close"


def _verdict(good: bool, lines: Sequence[str]) -> web.Response:
    text = "".join(f"{' '.join(line.split())}\n" for line in ("ok" if good else "not ok", *lines))
    return web.Response(text=text, status=200 if good else 503)

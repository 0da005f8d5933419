"""The gate in front of the HTTP server: limits on the number of connections, and on the size and time of each.

aiohttp parses and answers requests. It limits neither the number of connections, nor the time in which a request's head
must arrive or the client must read the answer. A connection here carries one request: nothing after the head is read,
and the connection closes after the answer, so there are neither idle nor pipelined connections.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus

from msgspec import Struct

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

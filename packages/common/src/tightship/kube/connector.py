"""Connections that end with the client that made them, whatever the server does."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler

from tightship.host import HOST

IDLE = 60.0
"""Seconds for which a connection is kept for the next request."""


class Connector(aiohttp.TCPConnector):
    """Leaves no socket behind when it is closed. At most *limit* connections at a time, 0 for any number.

    *tls* is for requests that bring no context of their own. aiohttp closes the connection of a request that is
    cancelled or times out, and forgets it; that of one cancelled while it connects it may never have known. Over TLS
    that end is a polite one: the event loop waits until the server has said farewell too, for up to half a minute. A
    client that is done before would leave the socket open, and an event loop that ends then never closes it.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, limit: int = 0) -> None:
        super().__init__(ssl=True if tls is None else tls, limit=limit, keepalive_timeout=IDLE)
        self._made: WeakSet[asyncio.BaseTransport] = WeakSet()
        # aiohttp has no public way to see a connection before its request does.
        self._factory = partial(_remembered, self._made, asyncio.get_running_loop())

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Break off all connections, those too that are on their way to a polite end."""
        for each in self._made:
            if isinstance(each, asyncio.WriteTransport):
                each.abort()
        await super().close(abort_ssl=abort_ssl)
        # A transport gives its socket back in the event loop's next round.
        await asyncio.sleep(0)


def connector(*, tls: ssl.SSLContext | None = None, limit: int = 0) -> aiohttp.BaseConnector:
    """Return what a client opens connections with on this host; *tls* and *limit* are those of :class:`Connector`."""
    made = HOST.get().connector
    return Connector(tls=tls, limit=limit) if made is None else made()


class _Remembered(ResponseHandler):
    """What aiohttp reads answers with; it notes the transport that it is given."""

    def __init__(self, made: WeakSet[asyncio.BaseTransport], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._made.add(transport)


def _remembered(made: WeakSet[asyncio.BaseTransport], loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _Remembered(made, loop)

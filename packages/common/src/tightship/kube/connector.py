"""Connections that end with their client, whatever the server does."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler

from tightship.kube.host import HOST

IDLE = 60.0
"""Seconds after which an idle connection is closed."""


class Connector(aiohttp.TCPConnector):
    """A connector that leaves no socket open when it closes. It opens at most *limit* connections, 0 for any number.

    *tls* serves requests without a context of their own. If a request is cancelled or times out, aiohttp closes its
    connection and forgets it; if a request is cancelled while it connects, aiohttp may never have known the connection.
    Over TLS such a close is graceful: the event loop waits up to half a minute for the server. A client that ends
    earlier would leave the socket open, and an event loop that ends then never closes it.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, limit: int = 0) -> None:
        super().__init__(ssl=True if tls is None else tls, limit=limit, keepalive_timeout=IDLE)
        self._made: WeakSet[asyncio.BaseTransport] = WeakSet()
        # aiohttp has no public hook that sees a connection before its request does.
        self._factory = partial(_remembered, self._made, asyncio.get_running_loop())

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Abort all connections, including those in a graceful close."""
        for each in self._made:
            if isinstance(each, asyncio.WriteTransport):
                each.abort()
        await super().close(abort_ssl=abort_ssl)
        # A transport gives its socket back in the event loop's next round.
        await asyncio.sleep(0)


def connector(*, tls: ssl.SSLContext | None = None, limit: int = 0) -> aiohttp.BaseConnector:
    """Return a connector for this host; *tls* and *limit* are as in :class:`Connector`."""
    made = HOST.get().connector
    return Connector(tls=tls, limit=limit) if made is None else made()


class _Remembered(ResponseHandler):
    """aiohttp's response handler, which also records its transport."""

    def __init__(self, made: WeakSet[asyncio.BaseTransport], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._made.add(transport)


def _remembered(made: WeakSet[asyncio.BaseTransport], loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _Remembered(made, loop)

"""Connections that end with the client that made them, whatever the server does."""

from __future__ import annotations

import asyncio
import ssl
from weakref import WeakSet

import aiohttp
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

IDLE = 60.0
"""Seconds for which a connection is kept for the next request."""


class Connector(aiohttp.TCPConnector):
    """Leaves no socket behind when it is closed. At most *limit* connections at a time, 0 for any number.

    *tls* is for requests that bring no context of their own. aiohttp closes the connection of a request that is
    cancelled or times out, and forgets it. Over TLS that end is a polite one: the event loop waits until the server
    has said farewell too, for up to half a minute. A client that is done before would leave the socket open, and an
    event loop that ends then never closes it.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, limit: int = 0) -> None:
        super().__init__(ssl=True if tls is None else tls, limit=limit, keepalive_timeout=IDLE)
        self._made: WeakSet[asyncio.Transport] = WeakSet()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - as aiohttp names it
    ) -> Connection:
        """Return a connection for a request, as aiohttp does, and remember it for the end."""
        made = await super().connect(req, traces, timeout)
        if made.transport is not None:
            self._made.add(made.transport)
        return made

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Break off all connections, those too that are on their way to a polite end."""
        for each in self._made:
            each.abort()
        await super().close(abort_ssl=abort_ssl)
        # A transport gives its socket back in the event loop's next round.
        await asyncio.sleep(0)

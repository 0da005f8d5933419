"""A relay before a server: says exactly how many requests were on their way at once, and delays answers at will."""

from __future__ import annotations

import asyncio
import threading
import time
from types import TracebackType
from typing import Self, cast


class Relay:
    """Listens on 127.0.0.1 and passes bytes on to *port*, in a thread with a loop of its own.

    A connection has a request on its way from its first byte to the first byte of the answer, or to the end of the
    connection: right for HTTP/1.1 with one request at a time, as its clients here have it. To be set from any thread:
    `delay`, in seconds for each answer from now on, and `most`, the most requests on their way at once.
    """

    def __init__(self, port: int) -> None:
        self.delay = 0.0
        self.most = 0
        self.requests = 0
        """So far."""
        self.last = 0.0
        """When an answer last began, or its connection ended, by the wall clock."""
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self.upstream = port
        self._on_their_way = 0
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        listening = self.loop.create_server(lambda: _Client(self), "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(listening, self.loop).result()
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def began(self) -> None:
        self.requests += 1
        self._on_their_way += 1
        self.most = max(self.most, self._on_their_way)

    def ended(self) -> None:
        self._on_their_way -= 1
        self.last = time.time()


class _Side(asyncio.Protocol):
    """One side of a relayed connection."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class _Client(_Side):
    """The side of who asks."""

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay)
        self._server = _Server(relay, self)
        self._early: list[bytes] = []
        self._connecting: asyncio.Task[None] | None = None
        self._asks = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = self.relay.loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self.relay.loop.create_connection(lambda: self._server, "127.0.0.1", self.relay.upstream)
        except OSError:
            self.close()
            return
        assert self._server.transport is not None
        self._server.transport.writelines(self._early)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if not self._asks:
            self._asks = True
            self.relay.began()
        if self._server.transport is None:
            self._early.append(data)
        else:
            self._server.transport.write(data)

    def answered(self, data: bytes) -> None:
        if self._asks:
            self._asks = False
            self.relay.ended()
        if self.transport is not None:
            self.transport.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._asks:
            self._asks = False
            self.relay.ended()
        self._server.close()


class _Server(_Side):
    """The side of who answers."""

    def __init__(self, relay: Relay, client: _Client) -> None:
        super().__init__(relay)
        self._client = client

    def data_received(self, data: bytes) -> None:
        if self.relay.delay:
            self.relay.loop.call_later(self.relay.delay, self._client.answered, data)
        else:
            self._client.answered(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._client.close()


__all__ = ["Relay"]

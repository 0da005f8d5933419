"""The network of a virtual loop: connections that are two queues, with a delay, and cut when a test says so.

Bytes arrive whole and in their order, after the delay that :attr:`Network.delay` gives; protocols see the same calls as
from a socket. A listener belongs to the process that opened it, or to the world: ``http://NAME:PORT`` reaches the
process of that name, any other name the world.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from tightship_simulator.virtual.process import PROCESS, Process

if TYPE_CHECKING:
    from tightship_simulator.virtual.loop import VirtualLoop

_FIRST_PORT = 40_000
_FOREVER = 1e9
_WORLD = ""


class Network:
    """All listeners and connections of one loop.

    *delay* returns the seconds that the next bytes take; *refuses* whether the process (its name, ``""`` for the world)
    can't reach that port now; *tap* is told all that is written, with the names of who writes and who reads. All may be
    set at any time.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._listeners: dict[tuple[str, int], _Listener] = {}
        self._ends: dict[_End, None] = {}
        self._next_port = _FIRST_PORT
        self.delay: Callable[[], float] = lambda: 0.0
        self.refuses: Callable[[str, int], bool] = lambda _name, _port: False
        self.tap: Callable[[str, str, bytes], object] | None = None

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], port: int) -> asyncio.AbstractServer:
        """Listen for the running process. Raises :class:`OSError` where the port is taken."""
        name = _name(PROCESS.get())
        if not port:
            port, self._next_port = self._next_port, self._next_port + 1
        if (name, port) in self._listeners:
            raise OSError(f"port {port} of {name or 'the world'} is taken")
        listener = self._listeners[name, port] = _Listener(self, factory, name, port)
        return listener

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect to *port* of the process *host*, else of the world. Raises :class:`ConnectionRefusedError`."""
        process = PROCESS.get()
        await asyncio.sleep(self.delay())
        listener = self._listeners.get((host, port)) or self._listeners.get((_WORLD, port))
        if listener is None or self.refuses(_name(process), port) or (process is not None and process.buried):
            raise ConnectionRefusedError(111, f"Connect call failed ({host!r}, {port})")
        client = _End(self, process, copy_context(), (listener.name or "world", port), (_name(process), 0))
        server = _End(self, listener.process, listener.context, (_name(process), 0), (listener.name or "world", port))
        client.peer, server.peer = server, client
        client.protocol = factory()
        client.protocol.connection_made(client)
        self._loop.call_soon(server.begin, listener.factory, context=server.context)
        return client, client.protocol

    def forget(self, listener: _Listener) -> None:
        """Accept no more connections by *listener*."""
        self._listeners.pop((listener.name, listener.port), None)

    def cut(self, process: Process, port: int | None = None) -> None:
        """Reset all connections of *process*, or those to *port*: what is on its way is lost."""
        for end in self._ends_of(process):
            if port in (None, end.peername[1]):
                end.reset()

    def orphan(self, process: Process) -> None:
        """Close what *process* has opened, as an operating system does: what is on its way arrives all the same."""
        for listener in [each for each in self._listeners.values() if each.process is process]:
            self.forget(listener)
        for end in self._ends_of(process):
            end.close()

    def _ends_of(self, process: Process) -> list[_End]:
        return [each for each in self._ends if each.process is process]

    def connector(self) -> aiohttp.BaseConnector:
        """Return what an :class:`aiohttp.ClientSession` needs to use this network."""
        return _Connector(self)

    def opened(self, end: _End) -> None:
        """Take note of a connection's end."""
        self._ends[end] = None

    def closed(self, end: _End) -> None:
        """Forget it."""
        self._ends.pop(end, None)

    @property
    def loop(self) -> VirtualLoop:
        """The loop of which this is the network."""
        return self._loop


class _Listener(asyncio.AbstractServer):
    def __init__(self, network: Network, factory: Callable[[], asyncio.BaseProtocol], name: str, port: int) -> None:
        self.factory = factory
        self.name = name
        self.port = port
        self.process = PROCESS.get()
        self.context = copy_context()
        self._network = network

    @property
    def sockets(self) -> tuple[_Address, ...]:
        return (_Address(self.port),)

    def close(self) -> None:
        self._network.forget(self)

    async def wait_closed(self) -> None:
        pass

    def is_serving(self) -> bool:
        return True

    async def start_serving(self) -> None:
        """It serves from the beginning."""

    async def serve_forever(self) -> None:
        await asyncio.Event().wait()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop


class _Address:
    """What a server tells of a socket."""

    def __init__(self, port: int) -> None:
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self._port


class _End(asyncio.Transport):
    """One end of a connection: what it writes arrives at its peer, *lag* seconds after the network's delay."""

    peer: _End
    protocol: Any

    def __init__(
        self,
        network: Network,
        process: Process | None,
        context: Context,
        peername: tuple[str, int],
        sockname: tuple[str, int],
    ) -> None:
        super().__init__({"peername": peername, "sockname": sockname})
        self.process = process
        self.context = context
        self.peername = peername
        self.protocol = None
        self.lag: Callable[[], float] = lambda: 0.0
        self._network = network
        self._inbox: deque[bytes | None] = deque()
        self._arrived = 0
        self._due = 0.0
        self._paused = False
        self._over = False
        network.opened(self)

    def begin(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Accept the connection."""
        self.protocol = factory()
        self.protocol.connection_made(self)
        self._take()

    # What a protocol asks of its transport.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._over and data:
            if self._network.tap is not None:
                self._network.tap(_name(self.process), _name(self.peer.process), bytes(data))
            self._send(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._network.loop.call_soon(self._take, context=self.context)

    def is_reading(self) -> bool:
        return not self._paused

    def close(self) -> None:
        if not self._over:
            self._send(None)
            self._end(None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._over

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self.protocol
        return protocol

    def reset(self) -> None:
        """Break the connection off for both sides; what is on its way is lost."""
        self._end(None)
        peer = self.peer
        peer._inbox.clear()
        peer._end(ConnectionResetError(104, "Connection reset by peer"))

    # The way between the ends.

    def _send(self, data: bytes | None) -> None:
        loop, peer = self._network.loop, self.peer
        peer._inbox.append(data)
        self._due = max(self._due, loop.time() + self._network.delay() + self.lag())
        # Timers of one moment come in any order, which is why the bytes wait in a queue and not in the timers.
        if self._due <= loop.time():
            loop.call_soon(peer._arrive, context=peer.context)
        else:
            loop.call_at(self._due, peer._arrive, context=peer.context)

    def _arrive(self) -> None:
        self._arrived += 1
        self._take()

    def _take(self) -> None:
        while self._arrived and self._inbox and not (self._paused or self._over or self.protocol is None):
            self._arrived -= 1
            data = self._inbox.popleft()
            if data is None:
                self._end(None)
            else:
                self.protocol.data_received(data)

    def _end(self, error: Exception | None) -> None:
        if not self._over:
            self._over = True
            self._network.closed(self)
            self._network.loop.call_soon(self._lost, error, context=self.context)

    def _lost(self, error: Exception | None) -> None:
        if self.protocol is not None:
            if error is None and hasattr(self.protocol, "eof_received"):
                self.protocol.eof_received()
            self.protocol.connection_lost(error)


class _InOrder(dict[Any, None]):
    """A set in the order of its additions."""

    def add(self, item: object) -> None:
        self[item] = None

    def discard(self, item: object) -> None:
        self.pop(item, None)

    def remove(self, item: object) -> None:
        del self[item]


class _Connector(aiohttp.BaseConnector):
    """Connects as :class:`aiohttp.UnixConnector` does, without a socket."""

    def __init__(self, network: Network) -> None:
        # Idle connections are closed by the server: aiohttp counts their time by the real clock.
        super().__init__(limit=0, keepalive_timeout=_FOREVER)
        self._network = network
        # When the connector is closed they are, one after the other: a set would be in another order in each run.
        self._acquired: Any = _InOrder()

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the signature is aiohttp's
    ) -> ResponseHandler:
        del traces
        try:
            async with asyncio.timeout(timeout.sock_connect):
                _, protocol = await self._network.connect(self._factory, req.url.host or "", req.url.port or 80)
        except ConnectionRefusedError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        assert isinstance(protocol, ResponseHandler)
        return protocol


def _name(process: Process | None) -> str:
    return process.name if process is not None else _WORLD


__all__ = ["Network"]

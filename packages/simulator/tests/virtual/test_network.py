"""Connections without sockets: order, delays, ends of every kind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tightship.kube.host import Host
from tightship_simulator.virtual.loop import VirtualLoop
from tightship_simulator.virtual.network import Network
from tightship_simulator.virtual.process import Process

PORT = 80
Run = Callable[[Callable[[Network], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def within(work: Callable[[Network], Coroutine[Any, Any, Any]]) -> Any:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            return await work(loop.network)

        yield lambda work: runner.run(within(work))


class Peer(asyncio.Protocol):
    """Notes what a transport tells it, with the time."""

    def __init__(self, made: list[Peer] | None = None) -> None:
        self.reported: list[tuple[str, object]] = []
        self.transport: Any = None
        self.data = b""
        if made is not None:
            made.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.reported.append(("made", None))

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.reported.append(("data", data))

    def eof_received(self) -> None:
        self.reported.append(("eof", None))

    def connection_lost(self, error: Exception | None) -> None:
        self.reported.append(("lost", type(error)))

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self.reported]


async def pair(network: Network) -> tuple[Peer, Peer]:
    """Return both ends of a connection: the client's, and the server's."""
    made: list[Peer] = []
    network.listen(lambda: Peer(made), PORT)
    _, client = await network.connect(Peer, "anybody", PORT)
    await asyncio.sleep(0)
    assert isinstance(client, Peer)
    return client, made[0]


def test_bytes_keep_their_order_whatever_the_delays(run: Run) -> None:
    async def work(network: Network) -> None:
        client, server = await pair(network)
        rng = random.Random(5)
        network.delay = lambda: rng.choice([0.0, rng.random()])
        sent = b""
        for number in range(300):
            part = f"{number},".encode()
            sent += part
            client.transport.write(part)
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() / 3)
        client.transport.close()
        await asyncio.sleep(10)
        assert server.data == sent
        assert server.words[-2:] == ["eof", "lost"]

    run(work)


def test_who_pauses_reading_gets_nothing_until_it_resumes_and_then_all(run: Run) -> None:
    async def work(network: Network) -> None:
        client, server = await pair(network)
        server.transport.pause_reading()
        assert not server.transport.is_reading()
        for part in (b"a", b"b", b"c"):
            client.transport.write(part)
        client.transport.close()
        await asyncio.sleep(1)
        assert server.words == ["made"]
        server.transport.resume_reading()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert server.data == b"abc"
        assert server.words[-2:] == ["eof", "lost"]

    run(work)


def test_a_reset_loses_what_is_on_its_way_and_both_hear_of_it(run: Run) -> None:
    async def work(network: Network) -> None:
        client, server = await pair(network)
        network.delay = lambda: 1.0
        client.transport.write(b"lost")
        client.transport.reset()
        await asyncio.sleep(5)
        assert not server.data
        assert server.reported[-1] == ("lost", ConnectionResetError)
        assert client.reported[-1][0] == "lost"
        assert not list(network._ends)

    run(work)


def test_what_a_process_had_written_before_it_was_killed_arrives_all_the_same(run: Run) -> None:
    async def work(network: Network) -> None:
        made: list[Peer] = []
        network.listen(lambda: Peer(made), PORT)
        process = Process(network.loop, "victim", Host())
        network.delay = lambda: 0.5

        async def write() -> None:
            _, mine = await network.connect(Peer, "x", PORT)
            assert isinstance(mine, Peer)
            mine.transport.write(b"the last words")
            await asyncio.Event().wait()

        process.run(write())
        await asyncio.sleep(0.7)
        process.kill()
        assert not made[0].data
        await asyncio.sleep(2)
        assert made[0].data == b"the last words"
        assert made[0].words[-2:] == ["eof", "lost"]
        await process.bury()

    run(work)


def test_what_is_sent_to_a_process_that_was_killed_gets_nowhere_and_its_port_is_free(run: Run) -> None:
    async def work(network: Network) -> None:
        process, made = Process(network.loop, "victim", Host()), list[Peer]()

        async def serve() -> None:
            network.listen(lambda: Peer(made), PORT)
            await asyncio.Event().wait()

        process.run(serve())
        await asyncio.sleep(0)
        _, client = await network.connect(Peer, "victim", PORT)
        assert isinstance(client, Peer)
        await asyncio.sleep(0)
        process.kill()
        client.transport.write(b"anybody there?")
        await asyncio.sleep(1)
        assert not made[0].data
        assert client.reported[-1] == ("lost", type(None))
        with pytest.raises(ConnectionRefusedError):
            await network.connect(Peer, "victim", PORT)
        await process.bury()

    run(work)


def test_cut_resets_the_connections_of_a_process_or_those_to_one_port(run: Run) -> None:
    async def work(network: Network) -> None:
        made: list[Peer] = []
        for port in (80, 81):
            network.listen(lambda: Peer(made), port)
        process, mine = Process(network.loop, "client", Host()), list[Peer]()

        async def dial() -> None:
            for port in (80, 81):
                _, peer = await network.connect(Peer, "x", port)
                assert isinstance(peer, Peer)
                mine.append(peer)

        await process.run(dial())
        await asyncio.sleep(0)
        network.cut(process, 81)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [peer.words[-1] for peer in mine] == ["made", "lost"]
        network.cut(process)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [peer.words[-1] for peer in mine] == ["lost", "lost"]
        assert [peer.reported[-1] for peer in made] == [("lost", ConnectionResetError)] * 2

    run(work)


def test_an_http_client_and_server_talk_over_it_and_an_idle_connection_is_used_again(run: Run) -> None:
    async def work(network: Network) -> None:
        peers: list[object] = []

        async def answer(request: web.Request) -> web.Response:
            assert request.transport is not None
            peers.append(request.transport)
            return web.Response(body=b"x" * 300_000)

        app = web.Application()
        app.router.add_get("/", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", PORT).start()
        async with aiohttp.ClientSession(connector=network.connector()) as session:
            for _ in range(2):
                async with session.get("http://anybody/") as got:
                    assert len(await got.read()) == 300_000
                await asyncio.sleep(10)
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get("http://anybody:81/")
        await runner.cleanup()
        assert peers[0] is peers[1]
        await asyncio.sleep(1)
        assert not list(network._ends)

    run(work)

"""The end of a connection to a server that has fallen silent: no socket outlives the client."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from links import connected

from tightship.kube.connection import Connection
from tightship.kube.credentials import ClusterAccess
from tightship.kube.pacing import RetryPolicy
from tightship.objects.api_errors import ConnectionFailed
from tightship_testkit.credentials import write_key, write_serving_certificate
from tightship_testkit.simulated import until

DEADLINE = 60.0
NODES = "/api/v1/nodes"


@dataclass
class Silent:
    """A TLS server that takes the first bytes of one request, and says nothing from then on: no farewell either."""

    context: ssl.SSLContext
    trust: ssl.SSLContext
    listener: socket.socket
    asked: bytes = b""
    done: threading.Event = field(default_factory=threading.Event)

    def serve(self) -> None:
        raw, _ = self.listener.accept()
        with contextlib.suppress(OSError), raw, self.context.wrap_socket(raw, server_side=True) as held:
            self.asked = held.recv(1 << 16)  # or the client has broken off before
            self.done.wait(DEADLINE)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Silent]:
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    write_serving_certificate(write_key(key), certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE)
        server = Silent(context, ssl.create_default_context(cafile=str(certificate)), listener)
        thread = threading.Thread(target=server.serve)
        thread.start()
        yield server
        server.done.set()
        thread.join()


async def a_cancelled_request(connection: Connection, server: Silent) -> None:
    asking = asyncio.create_task(connection.request("GET", NODES))
    await until(lambda: bool(server.asked))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def a_request_that_times_out(connection: Connection, server: Silent) -> None:
    with pytest.raises(ConnectionFailed):
        await connection.request("GET", NODES, timeout=5)
    assert server.asked


async def a_request_cancelled_just_when_it_is_connected(connection: Connection, server: Silent) -> None:
    class Cancels(ssl.SSLObject):
        def getpeercert(self, binary_form: bool = False) -> Any:
            asking.cancel()  # asked for when the handshake is complete, before the request is told so
            return super().getpeercert(binary_form)

    server.trust.sslobject_class = Cancels
    asking = asyncio.create_task(connection.request("GET", NODES))
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not server.asked


async def a_watch_cancelled_while_it_opens(connection: Connection, server: Silent) -> None:
    async def watch() -> None:
        async with connection.stream(NODES, params={"watch": "true"}, silence=DEADLINE):
            pytest.fail("no answer was sent")

    watching = asyncio.create_task(watch())
    await until(lambda: bool(server.asked))
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


WORK = [
    a_cancelled_request,
    a_request_that_times_out,
    a_request_cancelled_just_when_it_is_connected,
    a_watch_cancelled_while_it_opens,
]


@pytest.mark.parametrize("work", WORK)
def test_no_socket_outlives_its_client(silent: Silent, work: Callable[[Connection, Silent], Awaitable[None]]) -> None:
    host, port = silent.listener.getsockname()
    access = ClusterAccess(f"https://{host}:{port}", tls=silent.trust)

    async def main() -> None:
        async with connected(access, RetryPolicy(attempts=1), DEADLINE) as connection:
            await work(connection, silent)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(main())
        gc.collect()
    assert [str(each.message) for each in warned] == []

"""A proxy between a controller and a server that disturbs chosen calls.

    async with FaultProxy(plane, AtWrite(3, Reset(done=True, after=kill))) as proxy:
        kubeconfig = proxy.kubeconfig(path, base=plane.service_account_kubeconfig("ns", "name"))

It runs in the test's own event loop: what blocks the loop blocks the proxy, so wait for processes in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from tightship.kube.connector import connector
from tightship_testkit.client import break_off, wait_for
from tightship_testkit.credentials import write_in_one_step
from tightship_testkit.fault_answers import HOPS, begun, broken, dated_by_the_server, hang, pass_on, tell
from tightship_testkit.faults import (
    Answer,
    Call,
    Fault,
    Hang,
    Late,
    Plan,
    Record,
    Reset,
    Slow,
    Twice,
    WatchError,
)

T = TypeVar("T")

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
LARGEST_BODY = 64 << 20  # bytes of a request
REBIND = 60.0  # seconds in which the port of an outage must be had again


class Proxy:
    """Forwards to *server* and disturbs what `plan` says. An error in a plan or hook ends up in the test.

    `plan` may be exchanged at any time; None disturbs nothing. Calls with one of *writes*, verbs of HTTP, are carried
    out even when the client is gone meanwhile, as they would be behind a real connection; others end with their client.
    *trust* is for a server that speaks TLS. With *tls* the proxy speaks TLS to its clients, else plain HTTP.
    """

    def __init__(
        self,
        server: str,
        plan: Plan | None = None,
        *,
        writes: frozenset[str] = frozenset(),
        trust: ssl.SSLContext | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.plan = plan
        self.log: list[Record] = []
        self.port = 0
        self._server = server
        self._verbs_of_writes = writes
        self._trust = trust
        self._tls = tls
        self._writes = 0
        self._tasks: set[asyncio.Task[web.StreamResponse]] = set()
        self._failure: Exception | None = None
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/{anything:.*}", self._handle)
        app.on_response_prepare.append(dated_by_the_server)
        # A watch whose client is gone must not stay open at the API server.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        self._listener: asyncio.Server | None = None
        self._session: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        """Where clients find the proxy."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def writes(self) -> list[Record]:
        """The mutating calls so far."""
        return [record for record in self.log if record.call.write_number]

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await self._listen()
        self._session = aiohttp.ClientSession(
            connector=connector(tls=self._trust),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # All of it, also when this is cancelled meanwhile.
        async with contextlib.AsyncExitStack() as ending:
            if self._session:
                ending.push_async_callback(self._session.close)
            ending.push_async_callback(self._runner.cleanup)
            ending.callback(self.cut)
            if self._listener:
                self._listener.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._failure and error is None:
            raise self._failure

    def cut(self) -> None:
        """Break all open connections of clients."""
        for connection in self._runner.server.connections if self._runner.server else ():
            break_off(connection.transport)

    @contextlib.asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Break all connections and refuse new ones for the body's time."""
        if self._listener:
            self._listener.close()
        self.cut()
        try:
            yield
        finally:
            await self._listen()

    async def _listen(self) -> None:
        server = self._runner.server
        assert server is not None

        async def bound() -> asyncio.Server | None:
            try:
                loop = asyncio.get_running_loop()
                return await loop.create_server(server, "127.0.0.1", self.port, ssl=self._tls)
            except OSError:
                return None  # somebody's outgoing connection has our port for the moment

        self._listener = await wait_for(bound, REBIND, f"port {self.port} of the fault proxy")
        assert self._listener is not None
        # The same port after an outage: clients know it.
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        query = dict(request.query)
        is_watch = request.method == "GET" and query.get("watch") in {"true", "1"}
        number = 0
        if request.method in self._verbs_of_writes:
            self._writes += 1
            number = self._writes
        client = request.transport.get_extra_info("peername")[0] if request.transport is not None else ""
        call = Call(
            len(self.log) + 1, number, request.method, request.path, query, body, is_watch, request.headers, client
        )
        record = Record(call)
        self.log.append(record)
        work = asyncio.create_task(self._guarded(request, record))
        self._keep(work)
        return await (asyncio.shield(work) if number else work)

    async def _guarded(self, request: web.Request, record: Record) -> web.StreamResponse:
        try:
            record.fault = await self._described(self.plan(record.call)) if self.plan else None
            return await self._carry_out(request, record, record.fault or Fault())
        except (aiohttp.ClientError, ConnectionError):
            # Either side broke off; what the other would have seen without a proxy is the same.
            return broken(request)
        except Exception as error:
            self._failure = self._failure or error
            return broken(request)

    async def _described(self, said: Awaitable[T]) -> T:
        """Await the test's own code; its errors, of whatever type, are not those of a connection."""
        try:
            return await said
        except Exception as error:
            self._failure = self._failure or error
            raise ConnectionAbortedError from error

    async def _carry_out(self, request: web.Request, record: Record, fault: Fault) -> web.StreamResponse:
        if fault.before:
            await self._described(fault.before())
        match fault:
            case WatchError():
                error = {"type": "ERROR", "object": fault.body()}
                return await tell(request, record, 200, error, fault.headers)
            case Answer():
                retry = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
                return await tell(request, record, fault.status, fault.body(), {**fault.headers, **retry})
            case Slow(done=False):
                await asyncio.sleep(fault.seconds)
            case Hang(done=False):
                await hang(fault)
                return broken(request)
            case Reset(done=False):
                return broken(request)
            case Late():
                self._keep(asyncio.create_task(self._forget(request, record, fault.seconds)))
                return await begun(request)
            case Twice():
                await self._forget(request, record)
        async with self._forwarded(request, record) as answer:
            # Held now: once the answer is whole or closed, it forgets its connection.
            upstream = answer.connection.transport if answer.connection else None
            try:
                return await self._answer(request, record, fault, answer)
            finally:
                if record.call.is_watch or answer.connection is not None:
                    break_off(upstream)

    def _forwarded(self, request: web.Request, record: Record) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        assert self._session is not None
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOPS]
        url = URL(self._server + request.raw_path, encoded=True)
        return self._session.request(
            record.call.verb, url, data=record.call.body or None, headers=headers, allow_redirects=False
        )

    async def _forget(self, request: web.Request, record: Record, seconds: float = 0.0) -> web.StreamResponse:
        """Have the call carried out after so many seconds; nobody hears the answer."""
        await asyncio.sleep(seconds)
        async with self._forwarded(request, record) as answer:
            await answer.read()
            record.status = answer.status
        return web.Response()

    def _keep(self, work: asyncio.Task[web.StreamResponse]) -> None:
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    async def _answer(
        self, request: web.Request, record: Record, fault: Fault, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        record.status = answer.status
        # A write's effect is certain only when its answer is whole; a list is passed on as it comes.
        data = await answer.read() if record.call.write_number else None
        if fault.after:
            await self._described(fault.after())
        match fault:
            case Slow(done=True):
                await asyncio.sleep(fault.seconds)
            case Hang(done=True):
                await hang(fault)
                return broken(request)
            case Reset():
                return broken(request)
        return await pass_on(request, record, fault, answer, data)


class ApiServer(Protocol):
    """An API server with TLS, such as a plane's."""

    @property
    def server(self) -> str: ...

    @property
    def ca_file(self) -> Path: ...

    @property
    def kubeconfig(self) -> Path: ...


class FaultProxy(Proxy):
    """The proxy before a plane's API server: plain HTTP that passes the client's Authorization header on.

    A kubeconfig with a client certificate instead of a token does not work through it.
    """

    def __init__(self, plane: ApiServer, plan: Plan | None = None) -> None:
        trust = ssl.create_default_context(cafile=str(plane.ca_file)) if plane.server.startswith("https") else None
        super().__init__(plane.server, plan, writes=WRITES, trust=trust)
        self._base = plane.kubeconfig

    def kubeconfig(self, path: Path, *, base: Path | None = None) -> Path:
        """Write a kubeconfig like *base* (the administrator's) whose server is the proxy."""
        config = yaml.safe_load((base or self._base).read_text())
        for entry in config["clusters"]:
            entry["cluster"] = {"server": self.url}
        return write_in_one_step(path, config)


# What its log says.


def successful_evictions(records: Iterable[Record]) -> dict[str, int]:
    """Return how often each pod's eviction was granted, by the UID that was asked for, from the log of a proxy."""
    return Counter(_evicted(record) for record in records if _granted(record))


def evicted_again(records: Iterable[Record]) -> set[str]:
    """Return the pods, by UID, whose eviction was granted once more to who had heard that it was, from a proxy's log.

    An eviction whose answer was lost may be asked for again, and is granted again while the pod is on its way.
    """
    heard: set[str] = set()
    again: set[str] = set()
    for record in filter(_granted, records):
        uid = _evicted(record)
        if uid in heard:
            again.add(uid)
        if record.answered is not None:
            heard.add(uid)
    return again


def _granted(record: Record) -> bool:
    return record.call.path.endswith("/eviction") and record.status == 201


def _evicted(record: Record) -> str:
    return str(json.loads(record.call.body)["deleteOptions"]["preconditions"]["uid"])

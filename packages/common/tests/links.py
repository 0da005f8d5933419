"""Clients of an embedded API server, each with a link to it that fails on demand.

Where thousands of interleavings are tried, :class:`Direct` stands in for a connection: no bytes, the same Leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tightship.kube.connection import Connection
from tightship.kube.credentials import ClusterAccess, ClusterCredentials, LoadedAccess
from tightship.kube.leases import Elector
from tightship.kube.pacing import RetryPolicy
from tightship.objects.api_errors import ApiError, ConnectionFailed, api_error
from tightship_simulator.api.answers import encode
from tightship_simulator.api.errors import Refused
from tightship_simulator.api.requests import target_of
from tightship_simulator.api.store import Store
from tightship_simulator.virtual.loop import VirtualLoop
from tightship_testkit.faults import Answer, Call, Fault, Hang, Late, Reset, Twice
from tightship_testkit.simulated import Simulated, simulated, until

T = TypeVar("T")


@dataclass
class Link:
    """*mode* is what happens to requests; *once* goes first, one for each write.

    "up"; "refused" (at once); "hang"; "lost answer" (carried out, then hang); "late" (refused, yet carried out
    *lateness* seconds later); "twice" (as a transport that repeats a PUT); or an HTTP status. Each way takes half of
    *delay*. *sent* has the verbs of all requests.
    """

    mode: str | int = "up"
    once: deque[str | int] = field(default_factory=deque)
    delay: Callable[[], float] = lambda: 0.01
    lateness: float = 1.0
    sent: list[str] = field(default_factory=list)

    async def meets(self, call: Call) -> Fault:
        """Return what becomes of a request."""
        self.sent.append(call.verb)
        mode = self.once.popleft() if self.once and call.verb != "GET" else self.mode
        return replace(self._fault(mode), before=self._halfway, after=self._halfway)

    def _fault(self, mode: str | int) -> Fault:
        match mode:
            case int():
                return Answer(mode, message="as told")
            case "refused":
                return Reset()
            case "hang":
                return Hang()
            case "lost answer":
                return Hang(done=True)
            case "late":
                return Late(self.lateness)
            case "twice":
                return Twice()
        assert mode == "up"
        return Fault()

    async def _halfway(self) -> None:
        await asyncio.sleep(self.delay() / 2)


def connected(access: ClusterAccess, retry: RetryPolicy = RetryPolicy(), timeout: float = 30) -> Connection:
    """Return a connection that needs no kubeconfig."""

    async def load() -> LoadedAccess:
        return LoadedAccess(access)

    return Connection(ClusterCredentials("test", load), access, retry=retry, timeout=timeout)


class Client:
    """A process with a connection, and its link. It bears a name of its own unless it is given one."""

    _numbers = itertools.count()

    def __init__(self, api: Simulated, name: str = "") -> None:
        name = name or f"client-{next(self._numbers)}"
        self.process = api.process(name)
        self.link = Link()
        api.hooks[name] = self.link.meets
        self.connection = self.process.context.run(connected, ClusterAccess(api.url))
        self.process.run(self._hold())

    async def _hold(self) -> None:
        async with self.connection:
            await asyncio.Event().wait()

    async def does(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the process do *work*."""
        return await self.process.run(work)


def answer(store: Store, verb: str, path: str, body: bytes | None) -> bytes:
    """Return what *store* makes of a request for a Lease. Raises :class:`~tightship.objects.api_errors.ApiError`."""
    target = target_of(path)
    sent = msgspec.json.decode(body or b"{}")
    try:
        match verb:
            case "GET":
                found = store.get("Lease", target.name, target.namespace)
            case "POST":
                found = store.create("Lease", sent)
            case "PUT":
                found = store.update("Lease", sent)
    except Refused as refused:
        raise api_error(refused.code, encode(refused.status), verb=verb, path=path, server="store") from refused
    return encode(found)


class Direct:
    """A connection without a network between it and *store*, but with a link."""

    server = "store"

    def __init__(self, store: Store) -> None:
        self.link = Link()
        self._store = store

    async def request(
        self,
        verb: str,
        path: str,
        *,
        body: bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        retry: bool | None = None,
    ) -> bytes:
        assert timeout is not None
        assert timeout < 60
        assert retry is False
        link = self.link
        mode = link.once.popleft() if link.once and verb != "GET" else link.mode
        await asyncio.sleep(link.delay() / 2)
        match mode:
            case int():
                raise api_error(mode, b"{}", verb=verb, path=path, server=self.server)
            case "refused":
                raise ConnectionFailed(verb, path, self.server, "refused")
            case "late":
                asyncio.get_running_loop().call_later(link.lateness, self._unheard, verb, path, body)
                raise ConnectionFailed(verb, path, self.server, "reset")
            case "lost answer":
                self._unheard(verb, path, body)
                await asyncio.Event().wait()
            case "twice":
                self._unheard(verb, path, body)
        heard = answer(self._store, verb, path, body)
        await asyncio.sleep(link.delay() / 2)
        return heard

    def _unheard(self, verb: str, path: str, body: bytes | None) -> None:
        with contextlib.suppress(ApiError):
            answer(self._store, verb, path, body)


async def term(elector: Elector) -> int:
    """Wait until *elector* leads; return its epoch."""
    await until(lambda: elector.is_leader)
    return elector.epoch


def virtually(work: Callable[[Simulated], Coroutine[Any, Any, T]], hours: float = 1) -> T:
    """Run *work* on a cluster with a namespace ``ns`` on virtual time, for at most so many *hours* of it."""

    async def bounded(folder: Path) -> T:
        async with simulated(folder, {"kind": "Namespace", "metadata": {"name": "ns"}}) as api:
            async with asyncio.timeout(hours * 3600):
                return await work(api)

    with (
        tempfile.TemporaryDirectory(prefix="tightship-") as folder,
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
    ):
        return runner.run(bounded(Path(folder)))

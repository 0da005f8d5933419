"""Sends queries to Prometheus servers: many at a time, each once, and none for longer than its share of time.

The client decides nothing: every failure is an outcome. A server that hangs delays only the HPAs that query it. No HPA
delays the others: HPAs take turns, and each has only its share of the time.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import TypeAlias

import aiohttp
import msgspec
from msgspec import Struct

from hpa_scaler.annotations.queries import Failure, Outcome, Query
from hpa_scaler.prometheus.answers import Matrix
from hpa_scaler.prometheus.exchange import RANGE_PATH, Directory, GuardedResolver, QueryForm, exchange
from hpa_scaler.prometheus.servers import Circuit, CircuitState
from tightship import __version__
from tightship.kube.connector import connector
from tightship.kube.host import monotonic
from tightship.kube.server_access import CredentialsError, ServerAccess, ServerCredentials
from tightship.objects.addresses import AllowList
from tightship.objects.query_servers import Server
from tightship.objects.reasons import Reason

Asks = Mapping[str, Sequence[Query]]
"""The queries of each HPA, in the HPA's order."""
NOBODY: Asks = MappingProxyType({})

_IDLE = 75.0
_LIVENESS = "1"
"""The query that tells whether a server is back; an HPA's heavy query must not decide that for all HPAs."""

SHARE = 0.5
"""The share of a cycle's time that the queries of one HPA may take."""

_LONG = 60.0
"""Least seconds for the answer to a query over a range: nobody waits for a cycle."""

_SOON = 3.0
"""Seconds within which any live server answers the small query."""

_BREATH = 0.1
"""Seconds between a server's failure and the next query to that server. Queries then in flight fail at about the same
moment; their failures open the circuit, and no query waits for a second timeout."""

_OUTAGES = frozenset({Reason.CONNECTION_FAILED, Reason.TIMED_OUT, Reason.HTTP_ERROR, Reason.BAD_ANSWER})
"""Failures that are the server's fault rather than the query's, unless the server itself reported them."""

Observer: TypeAlias = Callable[[str, str, float], None]
"""Called for each query: the server, ``answered`` or the reason of the failure, and the seconds it took."""


class Turns:
    """The turns of one cycle. Each HPA has *share* seconds for its queries; HPAs split the time of a shared query."""

    def __init__(self, asks: Asks, share: float, clock: Callable[[], float]) -> None:
        self.share = share
        self._clock = clock
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._askers: defaultdict[Query, list[str]] = defaultdict(list)
        self._ranks: dict[Query, int] = {}
        for who, queries in asks.items():
            for rank, query in enumerate(queries):
                self._askers[query].append(who)
                self._ranks[query] = min(rank, self._ranks.get(query, rank))

    def ordered(self, texts: Mapping[str, Sequence[Query]]) -> list[str]:
        """Return *texts* in turns: the first query of each HPA, then the second of each, and so on.

        Within a turn the order is random, so that a slow query does not always delay the same neighbours.
        """
        mixed = random.sample(sorted(texts), len(texts))
        return sorted(mixed, key=lambda text: min(self._ranks.get(query, 0) for query in texts[text]))

    def who(self, queries: Iterable[Query]) -> set[str]:
        """Return the HPAs that ask *queries*."""
        return {each for query in queries for each in self._askers.get(query, ())}

    def left(self, queries: Iterable[Query]) -> float:
        """Return how many seconds *queries*, which share one text, may still take; 0 or less: none."""
        spent = self._spent
        least = (min((spent[each] for each in self._askers.get(query, ())), default=-math.inf) for query in queries)
        return max((self.share - each for each in least), default=math.inf)

    def spend(self, queries: Iterable[Query], seconds: float) -> None:
        """Record that *queries*, which share one text, took *seconds*."""
        who = self.who(queries)
        for each in who:
            self._spent[each] += seconds / len(who)


class ClientLimits(Struct, frozen=True):
    """The limits for failing servers: a circuit opens after *failures* in a row, for *pause* seconds."""

    failures: int = 3
    pause: float = 30.0


class PrometheusClient:
    """Queries servers within an asynchronous context; for one task at a time.

    *servers* are configured, *allowed* are the other addresses that HPAs may name; :meth:`configure` changes both.
    """

    def __init__(
        self,
        servers: Mapping[str, Server],
        allowed: AllowList = AllowList(),
        *,
        limits: ClientLimits = ClientLimits(),
        observe: Observer | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._directory = Directory(servers, allowed)
        self._limits = limits
        self._observe = observe
        self._clock = clock
        self._circuits: dict[Server, Circuit] = {}
        self._credentials: dict[Server, ServerCredentials] = {}
        self._resolver: GuardedResolver | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> PrometheusClient:
        self._resolver = GuardedResolver(self._directory)
        self._session = aiohttp.ClientSession(
            connector=connector(keepalive_timeout=_IDLE, resolver=self._resolver),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": f"tightship-hpa-scaler/{__version__}",
            },
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    def configure(self, servers: Mapping[str, Server], allowed: AllowList, limits: ClientLimits) -> None:
        """Query these servers from now on. Unchanged servers keep credentials and, with equal *limits*, circuits."""
        self._directory = Directory(servers, allowed, self._directory.by_get)
        if self._resolver is not None:
            self._resolver.directory = self._directory
        if limits != self._limits:
            self._limits = limits
            self._circuits.clear()

    def circuits(self) -> dict[str, CircuitState]:
        """Return the state of the circuit of each server of the last cycle, by server name."""
        return {server.name: circuit.state for server, circuit in self._circuits.items()}

    async def ask(self, queries: Iterable[Query], deadline: float, asks: Asks = NOBODY) -> dict[Query, Outcome]:
        """Return the outcome of each of *queries* within *deadline* seconds.

        Equal queries to one server are sent once, whatever names the server has. *asks* lists the queries of each HPA.
        One HPA's queries take at most half of the *deadline*, and the first query of each HPA goes first.
        """
        turns = Turns(asks, SHARE * deadline, self._clock)
        outcomes: dict[Query, Outcome] = {}
        asked: dict[Server, dict[str, list[Query]]] = {}
        for query in queries:
            server = self._directory.find(query.server)
            if isinstance(server, Failure):
                outcomes[query] = server
            else:
                asked.setdefault(server, {}).setdefault(query.text, []).append(query)
        # Forget servers that nobody queries any more, or that were reconfigured.
        circuits, credentials, limits = self._circuits, self._credentials, self._limits
        self._circuits = {
            each: circuits.get(each) or Circuit(limits.failures, limits.pause, self._clock) for each in asked
        }
        self._credentials = {each: credentials.get(each) or ServerCredentials(each) for each in asked}
        late = Failure(Reason.TIMED_OUT, f"not answered within the {deadline:g} s of the cycle")
        outcomes |= {query: late for texts in asked.values() for same in texts.values() for query in same}
        jobs = [
            asyncio.create_task(self._ask_server(server, texts, turns, outcomes), name=f"queries to {server.name}")
            for server, texts in asked.items()
        ]
        try:
            if jobs:
                await asyncio.wait(jobs, timeout=deadline)
        finally:
            for job in jobs:
                job.cancel()
            ended = await asyncio.gather(*jobs, return_exceptions=True)
        for each in ended:
            if isinstance(each, Exception):
                raise each
        return outcomes

    async def ask_range(self, query: Query, begin: float, end: float, step: float) -> Matrix | Failure:
        """Return the answers to *query* from *begin* to *end*, in seconds since 1970, one for each *step* seconds."""
        server = self._directory.find(query.server)
        if isinstance(server, Failure):
            return server
        assert self._session is not None
        server = msgspec.structs.replace(server, timeout=max(server.timeout, _LONG))
        credentials = self._credentials.setdefault(server, ServerCredentials(server))
        try:
            access = await asyncio.to_thread(credentials.access)
        except CredentialsError as error:
            return Failure(Reason.CREDENTIALS_UNREADABLE, f"{server.name}: {error}")
        times = {"start": f"{begin:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        form = {"query": query.text, **times, "timeout": f"{round(server.timeout)}s"}
        exchanged = await exchange(self._session, self._directory, server, access, QueryForm(form, path=RANGE_PATH))
        assert isinstance(exchanged.outcome, Matrix | Failure)
        return exchanged.outcome

    async def _ask_server(
        self, server: Server, texts: Mapping[str, list[Query]], turns: Turns, outcomes: dict[Query, Outcome]
    ) -> None:
        """Send one server all its queries, a few at a time, for as long as the server answers."""

        def tell(text: str, result: Outcome) -> None:
            outcomes.update(dict.fromkeys(texts[text], result))

        try:
            access = await asyncio.to_thread(self._credentials[server].access)
        except CredentialsError as error:
            for text in texts:
                tell(text, Failure(Reason.CREDENTIALS_UNREADABLE, f"{server.name}: {error}"))
            return
        circuit = self._circuits[server]
        if circuit.state == "half-open":
            await self._ask_one(server, access, _LIVENESS)
        waiting = deque(turns.ordered(texts))
        deciding = asyncio.Lock()
        culprits: set[str] = set()

        async def work() -> None:
            while waiting:
                text = waiting.popleft()
                async with deciding:
                    open_ = circuit.state != "closed"
                if open_:
                    left = f"{server.name} gets no queries for another {max(0.0, circuit.left):.0f} s"
                    tell(text, Failure(Reason.CIRCUIT_OPEN, f"{left}, because it failed: {circuit.why}"))
                    continue
                tell(text, await self._in_turn(server, access, text, texts[text], turns))
                culprits.update(turns.who(texts[text]))
                if not circuit.failing:
                    culprits.clear()
                elif circuit.state != "closed" and 0 < len(culprits) < self._limits.failures and not deciding.locked():
                    async with deciding:
                        # A small query decides whether the circuit stays open: not one HPA's heavy ones for all.
                        with suppress(TimeoutError):
                            async with asyncio.timeout(_SOON):
                                await self._ask_one(server, access, _LIVENESS)
                if circuit.failing:
                    await asyncio.sleep(_BREATH)

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(server.concurrency, len(texts))):
                workers.create_task(work())

    async def _in_turn(
        self, server: Server, access: ServerAccess, text: str, queries: Sequence[Query], turns: Turns
    ) -> Outcome:
        """Send *text* for as long as its HPAs have time left."""
        left = turns.left(queries)
        late = Failure(Reason.TIMED_OUT, f"the queries of this HPA have had their {turns.share:g} s of the cycle")
        if left <= 0:
            return late
        began = self._clock()
        try:
            async with asyncio.timeout(left if left < server.timeout else None):
                return await self._ask_one(server, access, text, labels=any(each.labels for each in queries))
        except TimeoutError:
            return late
        finally:
            turns.spend(queries, self._clock() - began)

    async def _ask_one(self, server: Server, access: ServerAccess, text: str, *, labels: bool = False) -> Outcome:
        assert self._session is not None
        # Without a time, as in the older controller: the server's clock matches its samples, ours may not.
        form = {"query": text, "timeout": f"{max(1, round(server.timeout * 1000))}ms"}
        began = self._clock()
        exchanged = await exchange(self._session, self._directory, server, access, QueryForm(form, labels))
        seconds = self._clock() - began
        assert not isinstance(exchanged.outcome, Matrix)
        failure = exchanged.outcome if isinstance(exchanged.outcome, Failure) else None
        if failure is not None and failure.reason in _OUTAGES and not exchanged.by_server:
            self._circuits[server].failed(failure.detail)
        else:
            self._circuits[server].succeeded()
        if self._observe is not None:
            self._observe(server.name, "answered" if failure is None else failure.reason.value, seconds)
        return msgspec.structs.replace(exchanged.outcome, seconds=round(seconds, 3))

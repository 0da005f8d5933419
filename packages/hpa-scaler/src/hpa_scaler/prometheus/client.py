"""Sends queries to Prometheus servers: many at a time, each once, and none for longer than its share of time.

The client decides nothing: every failure is an outcome. A server that hangs delays only the HPAs that query it. No HPA
delays the others: HPAs take turns, and each has only its share of the time. A query goes to one server at an allowed
address; redirects are followed. Before each hop and each connection, the address is checked against the addresses that
no request may reach.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import random
import socket
import ssl
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from types import MappingProxyType, TracebackType
from typing import Literal, TypeAlias
from urllib.parse import urlencode, urljoin, urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from msgspec import Struct

from hpa_scaler.annotations.queries import Failure, Outcome, Query
from hpa_scaler.annotations.spec import ServerRef
from hpa_scaler.prometheus.answers import Matrix, Moment, matrix, outcome
from tightship import __version__
from tightship.kube.connector import CredentialsError, ServerAccess, ServerCredentials, connector, obstacle, proxy_for
from tightship.kube.host import monotonic, wall
from tightship.objects.api_errors import one_line
from tightship.objects.query_servers import Address, AddressError, AllowList, Server, is_guarded, parse_address
from tightship.objects.reasons import Reason

DEFAULT = "default"
"""The server of HPAs that name none."""

CircuitState = Literal["closed", "open", "half-open"]


class Circuit:
    """The circuit breaker of one server: open after *failures* in a row, for *pause* seconds; then one try decides.

    A success at any time closes the circuit. Not thread-safe.
    """

    def __init__(self, failures: int, pause: float, clock: Callable[[], float] = monotonic) -> None:
        self._most = failures
        self._pause = pause
        self._clock = clock
        self._failures = 0
        self._opened: float | None = None
        self.why = ""
        """The last failure."""

    @property
    def state(self) -> CircuitState:
        """``half-open`` means that the pause is over and nothing is known yet."""
        if self._opened is None:
            return "closed"
        return "half-open" if self.left <= 0 else "open"

    @property
    def failing(self) -> bool:
        """Whether the last recorded result is a failure."""
        return self._failures > 0

    @property
    def left(self) -> float:
        """Seconds until the pause is over."""
        return 0.0 if self._opened is None else self._opened + self._pause - self._clock()

    def succeeded(self) -> None:
        """Record an answer of any content."""
        self._failures = 0
        self._opened = None
        self.why = ""

    def failed(self, why: str) -> None:
        """Record a failure, and *why*."""
        self._failures += 1
        self.why = why
        if self._failures >= self._most:
            self._opened = self._clock()


_log = logging.getLogger(__name__)
PATH = "/api/v1/query"
RANGE_PATH = "/api/v1/query_range"
LARGEST_BODY = 4 << 20
"""Bytes of the largest answer: some 20,000 series, while one is expected."""

MOST_REDIRECTS = 5
_CONNECT = 5.0
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_REFUSE_POST = frozenset({403, 405, 501})
"""Statuses of gateways that let only GET pass; then Prometheus's own client asks by GET, too (``DoGetFallback`` in
client_golang's ``api/prometheus/v1/api.go``). A proxy of the Kubernetes API asks for other rights by POST."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class GuardedAddressError(OSError):
    """A name that resolves only to refused addresses."""


class ServerDirectory:
    """The known servers: the configured servers by name, and the addresses of HPAs within the allow-list."""

    def __init__(self, servers: Mapping[str, Server], allowed: AllowList, by_get: Iterable[Address] = ()) -> None:
        self.servers = servers
        self.by_get = set(by_get)
        """The addresses that have refused POST and answered GET."""
        self._allowed = allowed
        self._by_address = {server.address: server for server in servers.values()}

    def find(self, ref: ServerRef) -> Server | Failure:
        """Return the server for *ref*, or a failure with the reason why *ref* is refused."""
        if not ref.url:
            name = ref.name or DEFAULT
            server = self.servers.get(name)
            if server is not None:
                return server
            known = ", ".join(sorted(self.servers)) or "none"
            hint = "; set PROMETHEUS_SERVER_URL or prometheusServers.default" if name == DEFAULT else ""
            return Failure(Reason.SERVER_UNKNOWN, f"there is no server {name!r}; known are {known}{hint}")
        try:
            address = parse_address(ref.url)
        except AddressError as error:
            return Failure(Reason.SERVER_NOT_ALLOWED, str(error))
        configured = self._by_address.get(address)
        if configured is not None:
            return configured
        why = self.refuses(address)
        return Server(str(address), address) if why is None else Failure(Reason.SERVER_NOT_ALLOWED, why)

    def refuses(self, address: Address, server: Server | None = None) -> str | None:
        """Return why *address*, named by an HPA or by a redirect of *server*, is refused; ``None`` if it is allowed.

        A configured server may redirect within its own scheme, host and port.
        """
        own = server is not None and server.name in self.servers and server.address.origin == address.origin
        if not (own or self._allowed.allows(address)):
            return f"{address} is not in allowedServerURLs"
        if is_guarded(address.host) and not self.lists(address.host):
            return f"{address} is link-local or serves credentials, and is not listed itself"
        return None

    def lists(self, host: str) -> bool:
        """Whether *host*, an IP address, is configured or listed literally."""
        return self._allowed.names(host) or any(server.address.host == host for server in self.servers.values())


class GuardedResolver(AbstractResolver):
    """Resolves names to allowed addresses only: the owner of a name chooses its addresses."""

    def __init__(self, directory: ServerDirectory) -> None:
        self.directory = directory
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        kept = [each for each in found if not is_guarded(each["host"]) or self.directory.lists(each["host"])]
        if found and not kept:
            raise GuardedAddressError(f"{host} resolves to {found[0]['host']}, which is not listed itself")
        return kept

    async def close(self) -> None:
        await self._resolver.close()


class Exchanged(Struct, frozen=True):
    """The outcome of a query; *by_server* says that the server itself reported it and can answer: no outage."""

    outcome: Outcome | Matrix
    by_server: bool = False


class QueryForm(Struct, frozen=True):
    """A query in the form that is sent; *labels* says whether to keep the labels of its series, *path* where to."""

    form: Mapping[str, str]
    labels: bool = False
    path: str = PATH


class _Redirect(Struct, frozen=True):
    status: int
    location: str


class _PostRefused(Struct, frozen=True):
    answer: Exchanged


class _Hop(Struct, frozen=True):
    """The next destination of the query; *address* has no path."""

    address: Address
    path: str
    method: str

    @property
    def url(self) -> str:
        return f"{self.address}{self.path}"


async def exchange(
    session: aiohttp.ClientSession, directory: ServerDirectory, server: Server, access: ServerAccess, asked: QueryForm
) -> Exchanged:
    """Send *asked* to *server*, and return the outcome. Never raises errors of the server or the network."""
    limit = server.timeout + max(1.0, server.timeout / 5)
    try:
        async with asyncio.timeout(limit):
            try:
                return await _by_either(session, directory, server, access, asked)
            except (aiohttp.ClientError, ConnectionResetError) as error:
                # Retry only after the server closed an idle connection, and on a new connection.
                if not _was_idle(error):
                    raise
            return await _by_either(session, directory, server, access, asked)
    except TimeoutError as error:
        why = one_line(error) if str(error) else f"no answer within {limit:g} s"
        return Exchanged(Failure(Reason.TIMED_OUT, f"{server.name}: {why}"))
    except (aiohttp.ClientError, OSError, ssl.CertificateError) as error:
        return Exchanged(_failure(server, error))
    except Exception as error:  # a bug in one query must not cost all others their answers
        _log.exception("a query to %s failed unexpectedly", server.name)
        return Exchanged(
            Failure(Reason.BAD_ANSWER, f"{server.name}: unexpected {type(error).__name__}: {one_line(error)}")
        )


async def _by_either(
    session: aiohttp.ClientSession, directory: ServerDirectory, server: Server, access: ServerAccess, asked: QueryForm
) -> Exchanged:
    """Send *asked* by POST, and by GET to a server that refuses POST."""
    refused = None
    if server.address not in directory.by_get:
        refused = await _followed(session, directory, server, access, asked, "POST")
        if isinstance(refused, Exchanged):
            return refused
    found = await _followed(session, directory, server, access, asked, "GET")
    assert isinstance(found, Exchanged)
    if isinstance(refused, _PostRefused):
        if isinstance(found.outcome, Failure) and found.outcome.reason is Reason.HTTP_ERROR:
            return refused.answer
        directory.by_get.add(server.address)
        _log.info("server %s refuses POST; queries go there by GET from now on", server.name)
    return found


async def _followed(  # noqa: PLR0917
    session: aiohttp.ClientSession,
    directory: ServerDirectory,
    server: Server,
    access: ServerAccess,
    asked: QueryForm,
    method: str,
) -> Exchanged | _PostRefused:
    root = msgspec.structs.replace(server.address, path="")
    hop = _Hop(root, server.address.path + asked.path, method)
    for _ in range(MOST_REDIRECTS + 1):
        answer = await _sent(session, server, access, hop, asked)
        if isinstance(answer, Exchanged | _PostRefused):
            return answer
        try:
            hop = _next(hop, answer)
        except ValueError as error:
            return Exchanged(Failure(Reason.SERVER_NOT_ALLOWED, f"{server.name} redirects: {error}"))
        why = directory.refuses(msgspec.structs.replace(hop.address, path=hop.path), server)
        if why is not None:
            return Exchanged(Failure(Reason.SERVER_NOT_ALLOWED, f"{server.name} redirects: {why}"))
    return Exchanged(Failure(Reason.HTTP_ERROR, f"{server.name}: more than {MOST_REDIRECTS} redirects"))


async def _sent(
    session: aiohttp.ClientSession, server: Server, access: ServerAccess, hop: _Hop, asked: QueryForm
) -> Exchanged | _PostRefused | _Redirect:
    began = wall()
    own = hop.address.origin == server.address.origin
    posts = hop.method == "POST"
    parameters = dict(server.parameters) if own else {}
    async with session.request(
        hop.method,
        hop.url,
        params=parameters if posts else parameters | dict(asked.form),
        # Encoded here: for a mapping, aiohttp prepares a multipart form, which costs more than sending the query.
        data=urlencode(asked.form).encode() if posts else None,
        # After a redirect, no other server gets the credentials.
        headers={**(access.headers if own else {}), **(_FORM if posts else {})},
        ssl=access.tls if own else True,
        server_hostname=access.server_name if own else None,
        proxy=proxy_for(str(hop.address)),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT),
        allow_redirects=False,
    ) as response:
        if response.status in _REDIRECTS and "Location" in response.headers:
            return _Redirect(response.status, response.headers["Location"])
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        if encoding != "identity":
            return Exchanged(Failure(Reason.BAD_ANSWER, f"encoded as {encoding}, which was not requested"))
        body = await _read(response)
    if body is None:
        return Exchanged(
            Failure(Reason.ANSWER_TOO_LARGE, f"more than {LARGEST_BODY >> 20} MiB; aggregate the query"), True
        )
    if asked.path == RANGE_PATH:
        exchanged = Exchanged(matrix(response.status, body), True)
    else:
        result = outcome(response.status, body, Moment(began, wall(), _date(response)), labels=asked.labels)
        from_elsewhere = isinstance(result, Failure) and result.reason in (Reason.HTTP_ERROR, Reason.BAD_ANSWER)
        exchanged = Exchanged(result, not from_elsewhere)
    return _PostRefused(exchanged) if posts and response.status in _REFUSE_POST else exchanged


def _date(response: aiohttp.ClientResponse) -> float | None:
    """Return when *response* was sent by its ``Date`` header, ``None`` if that is unreadable."""
    try:
        return parsedate_to_datetime(response.headers.get("Date", "")[:64]).timestamp()
    except (ValueError, OverflowError):
        return None


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the body; ``None`` if the body is too large, without reading the rest."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > LARGEST_BODY:
            response.close()
            return None
        parts.append(part)
    return b"".join(parts)


def _next(hop: _Hop, redirect: _Redirect) -> _Hop:
    """Return the hop to which *redirect* leads; the hop has our own query, not the redirect's.

    Raises :class:`ValueError` if the target is not an address.
    """
    parts = urlsplit(urljoin(hop.url, redirect.location))
    target = parse_address(parts._replace(query="", fragment="").geturl())
    # Only 303 asks for another method; the other statuses, even those older than 307, may keep the method.
    method = "GET" if redirect.status == 303 else hop.method
    return _Hop(msgspec.structs.replace(target, path=""), target.path, method)


def _was_idle(error: BaseException) -> bool:
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError):
        return True
    return isinstance(error, aiohttp.ClientOSError) and error.errno in (errno.ECONNRESET, errno.EPIPE)


def _failure(server: Server, error: Exception) -> Failure:
    cause: BaseException | None = getattr(error, "os_error", None) or error
    while cause is not None:
        if isinstance(cause, GuardedAddressError):
            return Failure(Reason.SERVER_NOT_ALLOWED, f"{server.name}: {cause}")
        cause = cause.__cause__
    return Failure(Reason.CONNECTION_FAILED, f"{server.name}: {server.address}: {obstacle(error)}")


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
    ) -> None:
        self._directory = ServerDirectory(servers, allowed)
        self._limits = limits
        self._observe = observe
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
        self._directory = ServerDirectory(servers, allowed, self._directory.by_get)
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
        turns = Turns(asks, SHARE * deadline, monotonic)
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
        self._circuits = {each: circuits.get(each) or Circuit(limits.failures, limits.pause) for each in asked}
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
        began = monotonic()
        try:
            async with asyncio.timeout(left if left < server.timeout else None):
                return await self._ask_one(server, access, text, labels=any(each.labels for each in queries))
        except TimeoutError:
            return late
        finally:
            turns.spend(queries, monotonic() - began)

    async def _ask_one(self, server: Server, access: ServerAccess, text: str, *, labels: bool = False) -> Outcome:
        assert self._session is not None
        # Without a time, as in the older controller: the server's clock matches its samples, ours may not.
        form = {"query": text, "timeout": f"{max(1, round(server.timeout * 1000))}ms"}
        began = monotonic()
        exchanged = await exchange(self._session, self._directory, server, access, QueryForm(form, labels))
        seconds = monotonic() - began
        assert not isinstance(exchanged.outcome, Matrix)
        failure = exchanged.outcome if isinstance(exchanged.outcome, Failure) else None
        if failure is not None and failure.reason in _OUTAGES and not exchanged.by_server:
            self._circuits[server].failed(failure.detail)
        else:
            self._circuits[server].succeeded()
        if self._observe is not None:
            self._observe(server.name, "answered" if failure is None else failure.reason.value, seconds)
        return msgspec.structs.replace(exchanged.outcome, seconds=round(seconds, 3))

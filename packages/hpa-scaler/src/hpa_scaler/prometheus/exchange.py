"""Sends one query to one server at an allowed address, follows redirects, and reads the answer, all within its time.

Before each hop and each connection, the address is checked against the addresses that no request may reach.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import urlencode, urljoin, urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from msgspec import Struct

from hpa_scaler.annotations.queries import Failure, Outcome
from hpa_scaler.annotations.spec import ServerRef
from hpa_scaler.prometheus.answers import Matrix, Moment, matrix, outcome
from hpa_scaler.prometheus.servers import DEFAULT
from tightship.kube.connector import obstacle
from tightship.kube.host import wall
from tightship.kube.server_access import ServerAccess, proxy_of
from tightship.objects.addresses import Address, AddressError, AllowList, is_guarded, parse_address
from tightship.objects.api_errors import one_line
from tightship.objects.query_servers import Server
from tightship.objects.reasons import Reason

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


class Directory:
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

    def __init__(self, directory: Directory) -> None:
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
    session: aiohttp.ClientSession, directory: Directory, server: Server, access: ServerAccess, asked: QueryForm
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
    session: aiohttp.ClientSession, directory: Directory, server: Server, access: ServerAccess, asked: QueryForm
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
    directory: Directory,
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
        proxy=proxy_of(hop.address),
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

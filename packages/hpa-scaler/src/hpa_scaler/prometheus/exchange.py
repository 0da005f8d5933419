"""One query to one server: sent, redirects followed, and the answer read, all within its time."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import urlencode, urljoin, urlsplit

import aiohttp
import msgspec
from msgspec import Struct

from hpa_scaler.prometheus.answers import Moment, outcome
from hpa_scaler.prometheus.guard import Directory, GuardedAddressError
from hpa_scaler.prometheus.servers import Access, Server, proxy_of
from hpa_scaler.spec.addresses import Address, parse_address
from hpa_scaler.spec.queries import Failure, Outcome
from tightship.core.api_errors import one_line
from tightship.core.reasons import Reason
from tightship.kube.host import wall

_log = logging.getLogger(__name__)

PATH = "/api/v1/query"
LARGEST_BODY = 4 << 20
"""Bytes of an answer: some 20,000 series, where one is expected."""
MOST_REDIRECTS = 5

_CONNECT = 5.0
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Told(Struct, frozen=True):
    """The outcome of a query, and whether the server itself reported it and can answer: then it is no outage."""

    outcome: Outcome
    by_server: bool = False


class Asked(Struct, frozen=True):
    """A query as it is sent; *labels* says whether the labels of its series are wanted."""

    form: Mapping[str, str]
    labels: bool = False


class _Redirect(Struct, frozen=True):
    status: int
    location: str


class _Hop(Struct, frozen=True):
    """Where the query goes next; *address* has no path."""

    address: Address
    path: str
    method: str

    @property
    def url(self) -> str:
        return f"{self.address}{self.path}"


async def exchange(
    session: aiohttp.ClientSession, directory: Directory, server: Server, access: Access, asked: Asked
) -> Told:
    """Return what *server* answers to *asked*. Never raises errors of the server or the network."""
    limit = server.timeout + max(1.0, server.timeout / 5)
    try:
        async with asyncio.timeout(limit):
            try:
                return await _followed(session, directory, server, access, asked)
            except (aiohttp.ClientError, ConnectionResetError) as error:
                # Only a connection that the server closed while it was idle is worth another try: on a new one.
                if not _was_idle(error):
                    raise
            return await _followed(session, directory, server, access, asked)
    except TimeoutError as error:
        why = one_line(error) if str(error) else f"no answer within {limit:g} s"
        return Told(Failure(Reason.TIMED_OUT, f"{server.name}: {why}"))
    except (aiohttp.ClientError, OSError, ssl.CertificateError) as error:
        return Told(_failure(server, error))
    except Exception as error:  # a defect met by one query must not cost all others their answers
        _log.exception("a query to %s failed unexpectedly", server.name)
        return Told(Failure(Reason.BAD_ANSWER, f"{server.name}: unexpected {type(error).__name__}: {one_line(error)}"))


async def _followed(
    session: aiohttp.ClientSession, directory: Directory, server: Server, access: Access, asked: Asked
) -> Told:
    """Send the query, and send it again wherever the server redirects to."""
    root = msgspec.structs.replace(server.address, path="")
    hop = _Hop(root, server.address.path + PATH, "POST")
    for _ in range(MOST_REDIRECTS + 1):
        answer = await _sent(session, server, access, hop, asked)
        if isinstance(answer, Told):
            return answer
        try:
            hop = _next(hop, answer)
        except ValueError as error:
            return Told(Failure(Reason.SERVER_NOT_ALLOWED, f"{server.name} redirects: {error}"))
        why = directory.refuses(msgspec.structs.replace(hop.address, path=hop.path), server)
        if why is not None:
            return Told(Failure(Reason.SERVER_NOT_ALLOWED, f"{server.name} redirects: {why}"))
    return Told(Failure(Reason.HTTP_ERROR, f"{server.name}: more than {MOST_REDIRECTS} redirects"))


async def _sent(
    session: aiohttp.ClientSession, server: Server, access: Access, hop: _Hop, asked: Asked
) -> Told | _Redirect:
    began = wall()
    own = hop.address.origin == server.address.origin
    posts = hop.method == "POST"
    parameters = dict(server.parameters) if own else {}
    async with session.request(
        hop.method,
        hop.url,
        params=parameters if posts else parameters | dict(asked.form),
        # Encoded here: for a mapping aiohttp prepares a form of several parts, which costs more than sending it.
        data=urlencode(asked.form).encode() if posts else None,
        # Nobody else gets the credentials, wherever we are sent.
        headers={**(access.headers if own else {}), **(_FORM if posts else {})},
        ssl=access.tls if own else True,
        server_hostname=access.server_name if own else None,
        proxy=access.proxy if own else proxy_of(hop.address),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT),
        allow_redirects=False,
    ) as response:
        if response.status in _REDIRECTS and "Location" in response.headers:
            return _Redirect(response.status, response.headers["Location"])
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        if encoding != "identity":
            return Told(Failure(Reason.BAD_ANSWER, f"encoded as {encoding}, which was not requested"))
        body = await _read(response)
    if body is None:
        return Told(Failure(Reason.ANSWER_TOO_LARGE, f"more than {LARGEST_BODY >> 20} MiB; aggregate the query"), True)
    result = outcome(response.status, body, Moment(began, wall(), _date(response)), labels=asked.labels)
    from_elsewhere = isinstance(result, Failure) and result.reason in (Reason.HTTP_ERROR, Reason.BAD_ANSWER)
    return Told(result, not from_elsewhere)


def _date(response: aiohttp.ClientResponse) -> float | None:
    """Return when *response* was sent by its ``Date`` header, ``None`` if that is unreadable."""
    try:
        return parsedate_to_datetime(response.headers.get("Date", "")[:64]).timestamp()
    except (ValueError, OverflowError):
        return None


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the body, ``None`` if it is too large; then the rest is not read."""
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
    """Return where *redirect* leads; our own query goes along, not what the redirect made of it.

    Raises :class:`ValueError` if the target is not an address.
    """
    parts = urlsplit(urljoin(hop.url, redirect.location))
    target = parse_address(parts._replace(query="", fragment="").geturl())
    # 303 alone asks for another method; the others, from before there was 307, may keep it.
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
    return Failure(Reason.CONNECTION_FAILED, f"{server.name}: {one_line(error)}")


__all__ = ["LARGEST_BODY", "MOST_REDIRECTS", "PATH", "Asked", "Told", "exchange"]

"""Requests to one API server: bytes in, bytes out, with one retry layer and a timeout on everything.

Requests ask for no compression. In a cluster or on a loopback the network is faster than gzip, which would cost CPU on
both sides. This module never decodes a body.
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from msgspec import Struct
from multidict import CIMultiDict

from tightship import __version__
from tightship.kube import credentials
from tightship.kube.connector import connector, obstacle
from tightship.kube.credentials import IN_CLUSTER, ClusterAccess, ClusterCredentials
from tightship.kube.host import ServerClock, monotonic
from tightship.kube.pacing import RetryPolicy, transient
from tightship.objects.api_errors import (
    ConnectionFailed,
    KubeError,
    NotSent,
    api_error,
    one_line,
)

CONNECT_TIMEOUT = 10.0
"""Seconds for the TCP and TLS handshakes."""

WRITE_TIMEOUT = 36.0
"""Seconds for a write, which has to outlast admission: a webhook may take 30 s, and the API server gives up any write
after 34 s (``requestTimeoutUpperBound`` of apiserver's endpoints/handlers/rest.go). If we went first, it would drop the
write, and the next one would fare no better.
"""

_READ_BUFFER = 1 << 20


class _Request(Struct, frozen=True):
    method: str
    path: str
    params: Mapping[str, str] | None
    body: bytes | None = None
    content_type: str = ""
    only_if: Callable[[], bool] | None = None


class _WithheldError(Exception):
    """The sender may not write any more."""


class _Guarded(aiohttp.BytesPayload):
    """A body that asks *only_if* in the same step in which it leaves: a connection may have been a long time coming.

    A request without its whole body is none for the server.
    """

    def __init__(self, body: bytes, content_type: str, only_if: Callable[[], bool]) -> None:
        super().__init__(body, content_type=content_type)
        self._only_if = only_if

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if not self._only_if():
            raise _WithheldError
        await super().write_with_length(writer, content_length)


class Connection:
    """One API server and one account, as an asynchronous context manager. All tasks of one loop may share it."""

    def __init__(
        self,
        source: ClusterCredentials,
        access: ClusterAccess,
        *,
        retry: RetryPolicy,
        timeout: float,
        longest: float = math.inf,
    ) -> None:
        self.context = source.context
        self.server = access.origin
        self.clock = ServerClock()
        self._source = source
        self._retry = retry
        self._timeout = timeout
        self._longest = longest
        self._session = aiohttp.ClientSession(
            connector=connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER,
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": f"tightship/{__version__}",
            },
        )

    @property
    def identity(self) -> str:
        """Context and server, for display."""
        return f"context {self.context} at {self.server}"

    @property
    def cluster(self) -> str:
        """A name of the cluster: that of the context, or in a pod, which has none, that of the API server."""
        return self.server if self.context == IN_CLUSTER else self.context

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,  # noqa: ASYNC109 - of each attempt, not of all
        retry: bool | None = None,
        on_head: Callable[[bytes], None] | None = None,
        only_if: Callable[[], bool] | None = None,
    ) -> bytes:
        """Return the body of a 2xx answer.

        *timeout* is in seconds for each attempt; without it a write gets :data:`WRITE_TIMEOUT` at least. If *retry* is
        ``None``, only a GET is retried: a write whose answer got lost may have succeeded, and an eviction's 429 is a
        verdict. Each attempt gives *on_head* the first bytes of the body as soon as they arrive. *only_if* is asked
        when the *body* is about to leave, after every wait. Raises
        :class:`~tightship.objects.api_errors.ApiError` by status, :class:`ConnectionFailed`, or
        :class:`~tightship.objects.api_errors.NotSent` if *only_if* says no.
        """
        usual = self._timeout if method == "GET" else max(self._timeout, WRITE_TIMEOUT)
        given = min(timeout or usual, self._longest)
        limits = aiohttp.ClientTimeout(total=given, sock_connect=min(CONNECT_TIMEOUT, given))
        sent = _Request(method, path, params, body, content_type, only_if)

        async def once() -> bytes:
            with self._translated(method, path, given):
                async with await self._open(sent, limits) as response:
                    if on_head is None:
                        return await response.read()
                    head = await response.content.readany()
                    on_head(head)
                    return head + await response.read()

        if not (method == "GET" if retry is None else retry):
            return await once()
        return await self._retry.retrying(transient)(once)

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a GET whose answer arrives in chunks, and yield an iterator over these chunks.

        After *silence* seconds without a byte the stream is broken (:class:`ConnectionFailed`). Streams are never
        retried, because a watch continues from another resource version.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=silence)
        with self._translated("WATCH", path):
            response = await self._open(_Request("GET", path, params), limits)

        transport = response.connection.transport if response.connection else None

        async def chunks() -> AsyncIterator[bytes]:
            with self._translated("WATCH", path):
                async for chunk in response.content.iter_any():
                    yield chunk

        try:
            yield chunks()
        finally:
            # Don't return the connection to the pool: somebody would have to read the rest of the stream first. Nor
            # close it gracefully: TLS would wait half a minute for a server that has just been found silent.
            response.close()
            if transport is not None:
                transport.abort()

    async def _open(self, request: _Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        access = await self._source.access()
        response = await self._send(access, request, limits)
        if response.status == 401:
            # Tokens rotate, and tokens of plugins expire: try once more with what the files hold now.
            response.release()
            access = await self._source.access(refused=access)
            response = await self._send(access, request, limits)
        if 200 <= response.status < 300:
            return response
        async with response:
            raise api_error(
                response.status,
                await response.read(),
                retry_after=response.headers.get("Retry-After"),
                verb=request.method,
                path=request.path,
                server=self.server,
            )

    async def _send(
        self, access: ClusterAccess, request: _Request, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = CIMultiDict(access.headers)
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        body: bytes | aiohttp.BytesPayload | None = request.body
        if request.body is not None and request.only_if is not None:
            body = _Guarded(request.body, request.content_type, request.only_if)
        sent = monotonic()
        response = await self._session.request(
            request.method,
            access.server + request.path,
            params=request.params,
            data=body,
            headers=headers,
            timeout=limits,
            ssl=access.tls if access.tls is not None else True,
            server_hostname=access.tls_server_name,
            proxy=access.proxy,
            allow_redirects=False,
        )
        if response.status < 300:
            # A proxy may answer by itself, and by its own clock, but not with success.
            self.clock.observe(response.headers.get("Date"), sent)
        return response

    @contextmanager
    def _translated(self, verb: str, path: str, seconds: float | None = None) -> Iterator[None]:
        try:
            yield
        except KubeError:
            raise
        except TimeoutError as error:  # also aiohttp's timeouts, which say which one it was
            late = "no answer in time" if seconds is None else f"no answer in {seconds:g} s"
            problem = one_line(error) if str(error) else late
            raise ConnectionFailed(verb, path, self.server, problem) from error
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error.__cause__, _WithheldError):
                raise NotSent(verb, path, self.server, "the sender may not write any more") from error
            raise ConnectionFailed(verb, path, self.server, obstacle(error)) from error

    async def aclose(self) -> None:
        """Close all connections; open streams end."""
        await self._session.close()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def connect(
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    *,
    retry: RetryPolicy = RetryPolicy(),
    timeout: float = 30.0,  # noqa: ASYNC109 - of later requests
    longest: float = math.inf,
) -> Connection:
    """Return a connection for *kubeconfig* and *context*; see :func:`tightship.kube.credentials.find` for defaults.

    *timeout* is in seconds for each request that names none, *longest* for every request. This function sends nothing.
    Raises :class:`~tightship.objects.api_errors.ConfigError`.
    """
    source = credentials.find(kubeconfig, context)
    return Connection(source, await source.access(), retry=retry, timeout=timeout, longest=longest)

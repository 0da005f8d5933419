"""Connections that end with their client, whatever the server does, also through a SOCKS proxy; and why one failed."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import aiohttp
from aiohappyeyeballs import start_connection
from aiohttp.client_proto import ResponseHandler

from tightship.kube.host import HOST
from tightship.objects.api_errors import one_line

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from yarl import URL

IDLE = 60.0
"""Seconds after which an idle connection is closed."""


class Connector(aiohttp.TCPConnector):
    """A connector that leaves no socket open when it closes. It opens at most *limit* connections, 0 for any number.

    *tls* serves requests without a context of their own. If a request is cancelled or times out, aiohttp closes its
    connection and forgets it; if a request is cancelled while it connects, aiohttp may never have known the connection.
    Over TLS such a close is graceful: the event loop waits up to half a minute for the server. A client that ends
    earlier would leave the socket open, and an event loop that ends then never closes it.

    *options* are those of :class:`aiohttp.TCPConnector`.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, limit: int = 0, **options: Any) -> None:
        super().__init__(ssl=True if tls is None else tls, limit=limit, **{"keepalive_timeout": IDLE, **options})
        self._made: WeakSet[asyncio.BaseTransport] = WeakSet()
        # aiohttp has no public hook that sees a connection before its request does.
        self._factory = partial(_remembered, self._made, asyncio.get_running_loop())

    async def _create_proxy_connection(
        self,
        req: ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's
    ) -> tuple[asyncio.BaseTransport, ResponseHandler]:
        """Connect through a SOCKS proxy, which aiohttp has no hook for."""
        proxy = req.proxy
        if proxy is None or proxy.scheme not in ("socks5", "socks5h"):
            return await super()._create_proxy_connection(req, traces, timeout)
        loop = asyncio.get_running_loop()
        made = None
        try:
            async with asyncio.timeout(timeout.sock_connect):
                made = await _through(loop, proxy, str(req.url.raw_host), req.url.port or 0)
                return await loop.create_connection(
                    self._factory,
                    sock=made,
                    ssl=self._get_ssl_context(req),
                    server_hostname=(req.server_hostname or req.url.host) if req.is_ssl() else None,
                )
        except BaseException as error:
            if made is not None:
                made.close()
            if isinstance(error, ssl.CertificateError):
                raise aiohttp.ClientConnectorCertificateError(req.connection_key, error) from error
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                kind = aiohttp.ClientProxyConnectionError if made is None else aiohttp.ClientConnectorError
                raise kind(req.connection_key, error) from error
            raise

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Abort all connections, including those in a graceful close."""
        for each in self._made:
            if isinstance(each, asyncio.WriteTransport):
                each.abort()
        await super().close(abort_ssl=abort_ssl)
        # A transport gives its socket back in the event loop's next round.
        await asyncio.sleep(0)


def connector(*, tls: ssl.SSLContext | None = None, limit: int = 0, **options: Any) -> aiohttp.BaseConnector:
    """Return a connector for this host; the arguments are those of :class:`Connector`."""
    made = HOST.get().connector
    return Connector(tls=tls, limit=limit, **options) if made is None else made()


_REFUSALS = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "command not supported",
    8: "kind of address not supported",
}
"""What a SOCKS proxy answers (RFC 1928, section 6)."""


async def _through(loop: asyncio.AbstractEventLoop, proxy: URL, host: str, port: int) -> socket.socket:
    """Return a socket that the SOCKS *proxy* has connected to *host*, which it resolves (RFC 1928 and 1929).

    Raises :class:`OSError`.
    """
    found = await loop.getaddrinfo(proxy.host or "", proxy.port or 1080, type=socket.SOCK_STREAM)
    sock = await start_connection(found, happy_eyeballs_delay=0.25, loop=loop)

    async def read(count: int) -> bytes:
        got = b""
        while len(got) < count:
            piece = await loop.sock_recv(sock, count - len(got))
            if not piece:
                raise OSError("it closed the connection; is this a SOCKS proxy?")
            got += piece
        return got

    try:
        name, password = ((each or "").encode() for each in (proxy.user, proxy.password))
        await loop.sock_sendall(sock, b"\x05\x02\x00\x02" if name else b"\x05\x01\x00")
        version, method = await read(2)
        if version != 5:
            raise OSError("it does not speak SOCKS 5")
        if method == 2:
            login = bytes((1, len(name))) + name + bytes((len(password),)) + password
            await loop.sock_sendall(sock, login)
            if (await read(2))[1]:
                raise OSError("it does not accept user name and password")
        elif method:
            raise OSError("it demands a login that the proxy's address does not have")
        await loop.sock_sendall(sock, b"\x05\x01\x00" + _address(host) + port.to_bytes(2))
        _, refusal, _, kind = await read(4)
        if refusal:
            raise OSError(f"{host}:{port}: {_REFUSALS.get(refusal, f'refused with {refusal}')}")
        await read({1: 4, 4: 16}.get(kind) or (await read(1))[0])
        await read(2)
    except BaseException:
        sock.close()
        raise
    return sock


def _address(host: str) -> bytes:
    try:
        packed = ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        name = host.encode()
        return bytes((3, len(name))) + name
    return bytes((1 if len(packed) == 4 else 4,)) + packed


def obstacle(error: Exception) -> str:
    """Return on one line what went wrong, for an error of aiohttp: without its objects, and without a password."""
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"cannot connect to the proxy: {_reason(error)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {_reason(error)}"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answered {error.status}"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"broken HTTP: {_text(error.message)}"
    return _text(one_line(error))


def _reason(error: aiohttp.ClientConnectorError) -> str:
    """Return why a connection failed: what TLS refused, or what the operating system says."""
    cause: object = getattr(error, "certificate_error", None) or error.os_error
    number = getattr(cause, "errno", None)
    if isinstance(cause, ConnectionError) and number:
        return os.strerror(number)
    return _text(str(getattr(cause, "verify_message", "") or getattr(cause, "strerror", "") or cause))


def _text(message: str) -> str:
    # aiohttp quotes the bytes that it did not understand.
    return re.sub(r"\bb(?=['\"])", "", " ".join(message.split())).removesuffix(" ^")


class _Remembered(ResponseHandler):
    """aiohttp's response handler, which also records its transport."""

    def __init__(self, made: WeakSet[asyncio.BaseTransport], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._made.add(transport)


def _remembered(made: WeakSet[asyncio.BaseTransport], loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _Remembered(made, loop)

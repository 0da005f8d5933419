"""Connections that end with their client, whatever the server does, also through a SOCKS proxy; and why one failed.

Also the proxy of a request, by the environment's ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``, and the credentials
for a server that answers queries.

kubectl, Prometheus and nearly every other client in a cluster decide by Go's ``golang.org/x/net/http/httpproxy``. Its
rules differ from those of Python's ``urllib``, so this module follows ``proxy.go`` of that package.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import os
import re
import socket
import ssl
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

import aiohttp
from aiohappyeyeballs import start_connection
from aiohttp.client_proto import ResponseHandler
from msgspec import Struct

from tightship.kube.host import HOST
from tightship.objects.api_errors import one_line
from tightship.objects.query_servers import Server, Tls

SCHEMES = ("http", "https", "socks5", "socks5h")
"""The schemes of proxies. For both of the latter two the proxy resolves the names, as in Go's ``net/http``."""

_DEFAULT_PORTS = {"http": "80", "https": "443"}

_Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class ProxyError(OSError):
    """A proxy that can't be used; the text holds no password."""


def proxy_for(url: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the environment's proxy for *url*, ``None`` if there is none. Raises :class:`ProxyError`."""
    # aiohttp's trust_env would also let an entry of ~/.netrc replace the Authorization header.
    proxy = decide(url, environ)
    return None if proxy is None else checked(proxy, f"{_scheme(url).upper()}_PROXY")


def checked(proxy: str, place: str) -> str:
    """Return *proxy*, which stands in *place*. Raises :class:`ProxyError` unless requests can go through it."""
    scheme = _scheme(proxy)
    allowed = f"allowed are {', '.join(SCHEMES[:-1])} and {SCHEMES[-1]}, as in http://proxy.example.com:3128"
    if scheme not in SCHEMES:
        raise ProxyError(f"{place}: the proxy's scheme is {scheme!r}; {allowed}")
    # Go makes http://http://proxy:port of http://proxy:port, and fails later.
    if _valid(proxy) is None or proxy.count("://") > 1:
        raise ProxyError(f"{place}: the proxy has no valid host or port; {allowed}")
    return proxy


def decide(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy of any scheme for *url* as Go would choose it. Raises :class:`ProxyError`.

    Variables in capitals come first. A value without a scheme is an http proxy, and one that is no URL does not count.
    """
    scheme = _scheme(url)
    if scheme not in _DEFAULT_PORTS:
        return None
    proxy = _proxy(_first(environ, f"{scheme}_proxy"))
    if proxy is None:
        return None
    if scheme == "http" and environ.get("REQUEST_METHOD"):
        # In a CGI program the client sets HTTP_PROXY by a header of its request: https://httpoxy.org
        raise ProxyError("HTTP_PROXY is not used where REQUEST_METHOD is set, as in a CGI program")
    host, port = _target(url)
    return None if _direct(host, port or _DEFAULT_PORTS[scheme], _first(environ, "no_proxy")) else proxy


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower() if "://" in url else ""


def _first(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _proxy(text: str) -> str | None:
    if not text:
        return None
    scheme, _, rest = text.partition("://")
    if rest and (found := _valid(f"{scheme.lower()}://{rest}")) is not None:
        return found
    return _valid(f"http://{text}")


def _valid(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme and parts.hostname and (parts.port is None or parts.port >= 0)
    except ValueError:
        return None
    return url if usable and not any(each.isspace() for each in parts.netloc) else None


def _target(url: str) -> tuple[str, str]:
    """Return host and port of *url* as they are written, but for encoded signs and other alphabets."""
    place = urlsplit(url).netloc.rpartition("@")[2]
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        return unquote(host), rest.removeprefix(":")
    host, _, port = place.partition(":")
    return _ascii(unquote(host)), port


@lru_cache(maxsize=64)
def _direct(host: str, port: str, no_proxy: str) -> bool:
    """Whether requests to *host* go to it directly."""
    if host == "localhost":
        return True
    address = _ip(host)
    if address is not None and address.is_loopback:
        return True
    return any(_matches(each.strip().lower(), host.strip().lower(), port, address) for each in no_proxy.split(","))


def _matches(entry: str, host: str, port: str, address: _Ip | None) -> bool:
    """Whether *entry* of ``NO_PROXY`` names *host*, which may be an *address*."""
    if entry in ("", "*"):
        return entry == "*"
    network = _network(entry)
    if network is not None:
        return address is not None and address in network
    named, its_port = _host_and_port(entry)
    if not named or its_port not in ("", port):
        return False
    its_address = None if "%" in named else _ip(named)
    if its_address is not None or address is not None:
        return its_address == address
    suffix = named.removeprefix("*") if named.startswith("*.") else named
    if suffix.startswith("."):
        return host.endswith(_ascii(suffix))
    return f".{host}".endswith(_ascii(f".{suffix}"))


def _host_and_port(entry: str) -> tuple[str, str]:
    """Return host and port of ``host:port`` or ``[host]:port``, else *entry* and no port (Go: ``SplitHostPort``)."""
    host, colon, port = entry.rpartition(":")
    if host.startswith("["):
        inner = host[1:-1]
        good = len(host) > 1 and host.endswith("]") and not any(each in inner + port for each in "[]")
        return (inner, port) if good else (entry, "")
    good = bool(colon) and not any(each in host for each in ":[]") and not any(each in port for each in "[]")
    return (host, port) if good else (entry, "")


def _ip(text: str) -> _Ip | None:
    """Return the address in *text* without a zone; an IPv4 address in IPv6's form is an IPv4 address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or ipaddress.IPv6Address(int(address))
    return address


def _network(text: str) -> _Network | None:
    """Return the network in CIDR notation, whose address may be any in it."""
    address, _, bits = text.partition("/")
    if not (bits.isascii() and bits.isdigit()) or "%" in address:
        return None
    try:
        found = ipaddress.ip_network((address, int(bits)), strict=False)
    except ValueError:
        return None
    mapped = getattr(found.network_address, "ipv4_mapped", None)
    return found if mapped is None else ipaddress.ip_network((mapped, found.prefixlen - 96))


def _ascii(host: str) -> str:
    """Return *host* in the alphabet of DNS; what is no name there stays as it is."""
    if host.isascii():
        return host
    import idna

    try:
        mapped = idna.uts46_remap(host, std3_rules=True)
        return ".".join(
            idna.encode(each).decode() if each and not each.isascii() else each for each in mapped.split(".")
        )
    except idna.IDNAError:
        return host


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


_log = logging.getLogger(__name__)

_Signature = tuple[tuple[str, int, int, int], ...]


class CredentialsError(Exception):
    """Unreadable credentials; the text names the file."""


class ServerAccess(Struct, frozen=True, eq=False):
    """The headers and the TLS settings of a request."""

    headers: Mapping[str, str]
    tls: ssl.SSLContext | bool = True
    server_name: str | None = None


class ServerCredentials:
    """The access to one server that answers queries, kept up to date with its files.

    Credentials are mounted files that change: whoever asks checks them before each round of queries, and rereads
    changed files. If a file becomes unreadable, the last good content stays in use.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._signature: _Signature | None = None
        self._access: ServerAccess | None = None

    def access(self) -> ServerAccess:
        """Return the access to use now. Reads files, so call this in a thread.

        Raises :class:`CredentialsError` if the credentials have never been readable.
        """
        try:
            signature = self._signed()
            if self._access is None or signature != self._signature:
                self._access = self._read()
                self._signature = signature
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            text = " ".join(str(error).split())
            if self._access is None:
                raise CredentialsError(text) from error
            _log.warning("server %s: keeping the present credentials: %s", self._server.name, text)
        return self._access

    def _signed(self) -> _Signature:
        """Return a value that changes with the files; a mounted Secret changes through a symlink, which ``stat``
        follows.
        """
        server = self._server
        names = (server.token_file, server.password_file, server.tls.ca_file, server.tls.cert_file, server.tls.key_file)
        found = []
        for name in names:
            if name:
                stat = os.stat(name)  # noqa: PTH116 - follows links, one call
                found.append((name, stat.st_mtime_ns, stat.st_ino, stat.st_size))
        return tuple(found)

    def _read(self) -> ServerAccess:
        server = self._server
        headers = dict(server.headers)
        if server.token_file:
            headers["Authorization"] = f"Bearer {_secret(server.token_file)}"
        elif server.username:
            password = _secret(server.password_file) if server.password_file else ""
            pair = base64.b64encode(f"{server.username}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        tls = _context(server.tls) if server.address.scheme == "https" else True
        return ServerAccess(headers, tls, server.tls.server_name or None)


def _secret(name: str) -> str:
    text = Path(name).read_text(encoding="utf-8").strip()
    if not text or not text.isprintable():
        raise ValueError(f"{name}: {'is empty' if not text else 'holds control characters'}")
    return text


def _context(tls: Tls) -> ssl.SSLContext | bool:
    if tls == Tls():
        return True
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
        if tls.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
    except ssl.SSLError as error:
        names = ", ".join(name for name in (tls.ca_file, tls.cert_file, tls.key_file) if name)
        raise ValueError(f"{names}: {error.reason or error}") from error
    return context

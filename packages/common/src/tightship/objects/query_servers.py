"""Servers that answer queries as Prometheus does: their addresses, the allow-list, and how they are configured. Pure.

Anybody who may write an HPA may put a URL into its annotations. The controller may reach more than that person does, so
without an allow-list the person could make the controller send requests to anything.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from msgspec import Struct

from tightship.objects.quoting import quoted

_PORTS = {"http": 80, "https": 443}

METADATA_ADDRESSES = frozenset(
    ipaddress.ip_address(each)
    for each in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16")
)
"""Addresses at which clouds (AWS, Alibaba, Oracle, Azure) hand out credentials to anybody who asks; not all of them are
link-local."""


class AddressError(ValueError):
    """A text that is not the address of a server."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(
            f"{quoted(text)} {why}; allowed is an address such as https://prometheus.monitoring.svc:9090/prefix"
        )


class Address(Struct, frozen=True, order=True):
    """Scheme, host in lower case, port, and the path before ``/api/v1/query``, without a trailing slash."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: addresses with the same origin share credentials."""
        return self.scheme, self.host, self.port

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def parse_address(text: str) -> Address:
    """Return the address in *text*. Raises :class:`AddressError`.

    User names, queries and fragments are refused: a password does not belong in an annotation, and the others have no
    meaning here.
    """
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise AddressError(text, "contains characters that are not allowed in an address")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise AddressError(text, f"is not an address: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise AddressError(text, "is not an http or https address")
    if "@" in parts.netloc:
        raise AddressError(text, "contains a user name")
    if parts.query or parts.fragment:
        raise AddressError(text, "contains a query or a fragment")
    if any(segment in (".", "..") for segment in _segments(parts.path)) or "%" in parts.path:
        raise AddressError(text, "has a path with dots or percent signs")
    return Address(
        scheme=parts.scheme,
        host=parts.hostname.rstrip("."),
        port=_PORTS[parts.scheme] if port is None else port,
        path="".join(f"/{segment}" for segment in _segments(parts.path)),
    )


def parse_server(text: str) -> Address:
    """Return the address of a server in *text*. Raises :class:`AddressError`, for the address of its queries too.

    Consoles show that one (Amazon's "Endpoint - query URL" ends with ``/api/v1/query``).
    """
    address = parse_address(text)
    if address.path.endswith(("/api/v1", "/api/v1/query", "/api/v1/query_range")):
        raise AddressError(text, "is no server but a part of its API; leave out /api/v1 and what follows")
    return address


class AllowList(Struct, frozen=True):
    """Addresses that HPAs may query. A host that begins with ``*.`` matches every name below it."""

    entries: tuple[Address, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> AllowList:
        """Parse *texts*. Raises :class:`AddressError` for the first text that is not an address."""
        return cls(tuple(_entry(text) for text in texts))

    def allows(self, address: Address) -> bool:
        """Whether *address*, or a path above it, is listed."""
        return any(_covers(entry, address) for entry in self.entries)

    def names(self, host: str) -> bool:
        """Whether *host* itself is listed, on any port: such a host may even be link-local."""
        return any(entry.host == host for entry in self.entries)


def _entry(text: str) -> Address:
    entry = parse_address(text)
    if "*" in entry.host.removeprefix("*.") or (entry.host.count(".") < 2 and entry.host.startswith("*")):
        raise AddressError(text, "has a * that is not the first label of a name with two more, as in *.example.com")
    return entry


def _covers(entry: Address, address: Address) -> bool:
    if (entry.scheme, entry.port) != (address.scheme, address.port):
        return False
    if entry.host.startswith("*."):
        if not address.host.endswith(entry.host[1:]):
            return False
    elif entry.host != address.host:
        return False
    wanted = _segments(entry.path)
    return _segments(address.path)[: len(wanted)] == wanted


def _segments(path: str) -> list[str]:
    return [segment for segment in path.split("/") if segment]


def is_guarded(host: str) -> bool:
    """Whether *host* is an IP address that needs an entry of its own: link-local, or of a metadata service.

    A name is never guarded here; the caller checks the addresses of a name when connecting.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if embedded is not None:
            address = embedded
    return address.is_link_local or address in METADATA_ADDRESSES or address.is_unspecified or address.is_multicast


TIMEOUT = 10.0
CONCURRENCY = 8
"""Concurrent queries to one server; Prometheus itself runs 20 at a time by default."""


class Tls(Struct, frozen=True):
    """Paths of the certificate files; *server_name* is the name in the server's certificate, if not the host name."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    insecure: bool = False


class Server(Struct, frozen=True):
    """One server. Each query has the *parameters*, and *timeout* seconds."""

    name: str
    address: Address
    headers: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    token_file: str = ""
    username: str = ""
    password_file: str = ""
    tls: Tls = Tls()
    timeout: float = TIMEOUT
    concurrency: int = CONCURRENCY

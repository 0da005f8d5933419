"""The proxy of a request, by the environment's ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``.

kubectl, Prometheus and nearly every other client in a cluster decide by Go's ``golang.org/x/net/http/httpproxy``. Its
rules differ from those of Python's ``urllib``, so this module follows ``proxy.go`` of that package.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

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

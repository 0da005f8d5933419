"""What nodes cost by OpenCost, as a Prometheus server tells it."""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import msgspec

from tightship.kube.connector import CredentialsError, ServerCredentials, proxy_for
from tightship.objects.money import parse_price
from tightship.objects.query_servers import Server
from tightship.objects.quoting import quoted
from tightship.objects.unreadable import UNREADABLE
from tightship.process.settings.loading import SettingsError

METRIC = "node_total_hourly_cost"
"""OpenCost's price of a node for an hour; the label ``node`` names the node, in older versions ``instance``."""

_MOST = 64 * 2**20


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    data: _Vector


class OpenCost:
    """Asks *server* what nodes cost. Two that ask the same server are equal."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._credentials = ServerCredentials(server)

    def __call__(self) -> Mapping[str, int]:
        return node_costs(self.server, self._credentials)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenCost) and self.server == other.server

    def __hash__(self) -> int:
        return hash(self.server)


def node_costs(server: Server, credentials: ServerCredentials) -> Mapping[str, int]:
    """Return the price of each node for an hour, in millionths, as *server* knows them. Waits, so call it in a thread.

    Of several series of one node the dearest counts. Raises :class:`SettingsError` that names the server.
    """
    query = urllib.parse.urlencode([*server.parameters, ("query", METRIC)])
    try:
        access = credentials.access()
        request = urllib.request.Request(f"{server.address}/api/v1/query?{query}", headers=dict(access.headers))  # noqa: S310 - http only
        if proxy := proxy_for(str(server.address)):
            _through(request, proxy)
        with _opened(request, access.tls, server.timeout) as answer:
            series = msgspec.json.decode(_read(answer), type=_Answer).data.result
    except CredentialsError as error:
        raise _unusable(server, str(error)) from error
    except urllib.error.HTTPError as error:
        error.close()
        raise _unusable(server, f"answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _unusable(server, f"can't be asked: {getattr(error, 'reason', None) or error}") from error
    except (*UNREADABLE, ValueError) as error:
        raise _unusable(server, f"gives no answer of Prometheus: {error}") from error
    found: dict[str, int] = {}
    for each in series:
        name = each.metric.get("node") or each.metric.get("instance", "")
        try:
            found[name] = max(found.get(name, 0), parse_price(each.value[1]))
        except ValueError as error:
            raise _unusable(server, f"{METRIC} of node {quoted(name)}: {error}") from error
    if not found:
        raise _unusable(server, f"has no series {METRIC}; allowed is a Prometheus that scrapes OpenCost")
    return found


class _Here(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: another server must not get the credentials."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _through(request: urllib.request.Request, proxy: str) -> None:
    """Let *request* go through *proxy*. Raises :class:`CredentialsError` for a kind that urllib does not know."""
    parts = urllib.parse.urlsplit(proxy)
    if parts.scheme != "http":
        raise CredentialsError(f"the proxy's scheme is {parts.scheme}; allowed is http here, or the server in NO_PROXY")
    user, _, place = parts.netloc.rpartition("@")
    if user:
        pair = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        request.add_header("Proxy-Authorization", f"Basic {pair}")
    request.set_proxy(place, parts.scheme)


def _opened(request: urllib.request.Request, tls: ssl.SSLContext | bool, timeout: float) -> Any:
    context = tls if isinstance(tls, ssl.SSLContext) else None
    # urllib would choose a proxy by rules of its own.
    handlers = (_Here, urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers).open(request, None, timeout)


def _read(answer: Any) -> bytes:
    body: bytes = answer.read(_MOST + 1)
    if len(body) > _MOST:
        raise ValueError(f"more than {_MOST:,} bytes")
    return body


def _unusable(server: Server, why: str) -> SettingsError:
    return SettingsError([f"openCost {server.address}: {why}"])

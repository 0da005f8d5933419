"""What nodes cost by OpenCost, as a Prometheus server tells it."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import msgspec

from tightship.app.settings.loading import SettingsError
from tightship.core.quoting import quoted
from tightship.planning.prices import parse_price

METRIC = "node_total_hourly_cost"
"""OpenCost's price of a node for an hour; the label ``node`` names the node, in older versions ``instance``."""

TIMEOUT = 30.0
"""Seconds for the whole answer."""

_MOST = 64 * 2**20


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    data: _Vector


def is_address(path: str) -> bool:
    """Whether *path* is the address of a server, not of a file."""
    return path.startswith(("http://", "https://"))


def node_costs(address: str) -> dict[str, int]:
    """Return the price of each node for an hour, in millionths, as the Prometheus server at *address* knows them.

    Of several series of one node the dearest counts. Raises :class:`SettingsError` that names the address.
    """
    query = urllib.parse.urlencode({"query": METRIC})
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/api/v1/query?{query}", timeout=TIMEOUT) as answer:  # noqa: S310 - http only
            series = msgspec.json.decode(_read(answer), type=_Answer).data.result
    except urllib.error.HTTPError as error:
        error.close()
        raise _unusable(address, f"answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _unusable(address, f"can't be asked: {getattr(error, 'reason', None) or error}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise _unusable(address, f"gives no answer of Prometheus: {error}") from error
    found: dict[str, int] = {}
    for each in series:
        name = each.metric.get("node") or each.metric.get("instance", "")
        try:
            found[name] = max(found.get(name, 0), parse_price(each.value[1]))
        except ValueError as error:
            raise _unusable(address, f"{METRIC} of node {quoted(name)}: {error}") from error
    if not found:
        raise _unusable(address, f"has no series {METRIC}; allowed is a Prometheus that scrapes OpenCost")
    return found


def _read(answer: Any) -> bytes:
    body: bytes = answer.read(_MOST + 1)
    if len(body) > _MOST:
        raise ValueError(f"more than {_MOST:,} bytes")
    return body


def _unusable(address: str, why: str) -> SettingsError:
    return SettingsError([f"--prices {quoted(address)}: {why}"])

"""A Prometheus that answers the few queries of its own series, and an honest error to every other.

Understood is a plain selector, ``rate(SELECTOR[RANGE])``, and ``sum(...)`` of either, where a selector is a name with
equality matchers. Series are functions of the moment: there is no storage, and so no range older than now.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from enum import Enum

from aiohttp import web
from msgspec import Struct

Series = Callable[[Mapping[str, str]], float | None]
"""Gives the value for a selector's labels now, ``None`` where there is no such series."""

_SELECTOR = r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>[^{}]*)\})?"
_QUERY = re.compile(rf"\s*(?P<sum>sum\()?(?P<rate>rate\()?{_SELECTOR}(?P<range>\[\d+(?:ms|[smhd])\])?(?P<end>\)*)\s*")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"\s*')


class QueryError(ValueError):
    """A query that is not understood; the text says what is."""


class Outage(Enum):
    """How the server fails: connections are cut, or every result is empty."""

    NONE = "none"
    REFUSES = "refuses"
    EMPTY = "empty"


class Query(Struct, frozen=True):
    """What is asked: the series, its labels, and whether a rate of it."""

    name: str
    labels: Mapping[str, str]
    rate: bool
    summed: bool


def parse(text: str) -> Query:
    """Return the query *text* asks. Raises :class:`QueryError`."""
    found = _QUERY.fullmatch(text)
    allowed = 'allowed are name{label="value"}, rate(SELECTOR[1m]) and sum(...) of either'
    if found is None or found["end"] != ")" * (bool(found["sum"]) + bool(found["rate"])):
        raise QueryError(f"query {text!r} is not understood; {allowed}")
    if bool(found["rate"]) != bool(found["range"]):
        raise QueryError(f"query {text!r}: a range belongs inside rate(), and rate() needs one; {allowed}")
    labels = {}
    for part in filter(str.strip, (found["labels"] or "").split(",")):
        matcher = _LABEL.fullmatch(part)
        if matcher is None:
            raise QueryError(f'query {text!r}: matcher {part.strip()!r} is not understood; allowed is label="value"')
        labels[matcher[1]] = matcher[2]
    return Query(found["name"], labels, bool(found["rate"]), bool(found["sum"]))


class Prometheus:
    """Answers from *rates* (per second, asked by ``rate``) and *gauges*, by name; *outage* may be set at any time.

    *clock* gives the seconds since 1970 that samples and answers bear.
    """

    def __init__(self, rates: Mapping[str, Series] = {}, gauges: Mapping[str, Series] = {}) -> None:
        self._rates = rates
        self._gauges = gauges
        self.outage = Outage.NONE
        self.url = ""
        self.clock: Callable[[], float] = time.time

    def result(self, text: str) -> list[dict[str, object]]:
        """Return the vector that *text* evaluates to. Raises :class:`QueryError`."""
        query = parse(text)
        known = self._rates if query.rate else self._gauges
        series = known.get(query.name)
        if series is None:
            names = ", ".join(sorted(known)) or "none"
            raise QueryError(f"series {query.name!r} is not known here; known to be asked like this: {names}")
        value = series(query.labels)
        if value is None:
            return []
        metric = {} if query.summed else {"__name__": query.name, **query.labels}
        return [{"metric": metric, "value": [self.clock(), f"{value:.6g}"]}]

    async def date(self, _: web.Request, response: web.StreamResponse) -> None:
        """Date an answer."""
        response.headers["Date"] = formatdate(self.clock(), usegmt=True)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer ``/api/v1/query``."""
        if self.outage is Outage.REFUSES:
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPServiceUnavailable
        form = await request.post()
        text = str(form.get("query") or request.query.get("query") or "")
        try:
            result = self.result(text) if self.outage is Outage.NONE else []
        except QueryError as error:
            body = {"status": "error", "errorType": "bad_data", "error": str(error)}
            return web.json_response(body, status=400)
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


@asynccontextmanager
async def serving(prometheus: Prometheus) -> AsyncIterator[Prometheus]:
    """Serve *prometheus* on loopback, on a port of its own that is in its ``url``."""
    app = web.Application()
    app.router.add_route("*", "/api/v1/query", prometheus.answer)
    app.on_response_prepare.append(prometheus.date)
    runner = web.AppRunner(app, shutdown_timeout=0.2, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        prometheus.url = f"http://{host}:{port}"
        yield prometheus
    finally:
        await runner.cleanup()


__all__ = ["Outage", "Prometheus", "Query", "QueryError", "Series", "parse", "serving"]

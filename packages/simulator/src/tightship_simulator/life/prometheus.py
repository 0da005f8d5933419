"""A Prometheus that answers the few queries of its own series, and an honest error to every other.

Understood is a plain selector, ``rate(SELECTOR[RANGE])``, and ``sum(...)`` of either, where a selector is a name with
equality matchers. Series are functions of the moment: there is no storage, and so no range older than now.

A test may have it answer any query in any way: see :attr:`Prometheus.answers`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from tightship.host import wall

Series = Callable[[Mapping[str, str]], float | None]
"""Gives the value for a selector's labels now, ``None`` where there is no such series."""

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers a request, well or badly."""

QUERY_PATH = "/api/v1/query"

_SELECTOR = r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>[^{}]*)\})?"
_QUERY = re.compile(rf"\s*(?P<sum>sum\()?(?P<rate>rate\()?{_SELECTOR}(?P<range>\[\d+(?:ms|[smhd])\])?(?P<end>\)*)\s*")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"\s*')


class QueryError(ValueError):
    """A query that is not understood; the text says what is."""


class Outage(Enum):
    """How the server fails: connections are cut, no request is answered, or every result is empty."""

    NONE = "none"
    REFUSES = "refuses"
    SILENT = "silent"
    EMPTY = "empty"


class Query(Struct, frozen=True):
    """What is asked: the series, its labels, and whether a rate of it."""

    name: str
    labels: Mapping[str, str]
    rate: bool
    summed: bool


class Seen(Struct, frozen=True):
    """A request: *params* are those of its address, *form* is its body."""

    method: str
    path: str
    params: Mapping[str, str]
    form: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def query(self) -> str:
        """The text of its query, empty where there is none."""
        return self.form.get("query") or self.params.get("query") or ""


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


def body(*values: str, at: float = 0.0, **more: object) -> dict[str, object]:
    """Return what Prometheus answers with one series for each of *values*, with a sample of time *at*."""
    vector = [{"metric": {"n": str(number)}, "value": [at, value]} for number, value in enumerate(values)]
    return {**_success(vector), **more}


def says(content: object, status: int = 200) -> Responder:
    """Answer with *content*, as JSON unless it is text or bytes."""
    raw = content.encode() if isinstance(content, str) else content
    raw = raw if isinstance(raw, bytes) else msgspec.json.encode(raw)

    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(body=raw, status=status, content_type="application/json")

    return respond


async def silent(_: web.Request) -> web.StreamResponse:
    """Accept the request and never answer."""
    await asyncio.Event().wait()
    raise AssertionError


class Prometheus:
    """Answers from *rates* (per second, asked by ``rate``) and *gauges*, by name.

    What is in *answers*, by the text of a query, is answered instead, and with *otherwise* everything else. *outage*
    comes before both. All three may be changed at any time. *now* is the time of samples, in seconds since 1970.
    """

    def __init__(
        self,
        rates: Mapping[str, Series] = {},
        gauges: Mapping[str, Series] = {},
        *,
        otherwise: Responder | None = None,
        now: Callable[[], float] = wall,
    ) -> None:
        self._rates = rates
        self._gauges = gauges
        self._now = now
        self.otherwise = otherwise
        self.answers: dict[str, Responder] = {}
        self.outage = Outage.NONE
        self.url = ""
        """Where it is served."""
        self.seen: list[Seen] = []
        """Every request, outages or not."""
        self.most = 0
        """How many requests were on the way at once at most."""
        self._on_the_way = 0

    @property
    def texts(self) -> list[str]:
        """The queries that were asked, in their order."""
        return [each.query for each in self.seen]

    def set(self, query: str, *values: float | str) -> None:
        """Have *query* answered with one series for each of *values* from now on, with none if there are none."""
        texts = [str(value) for value in values]

        async def respond(_: web.Request) -> web.StreamResponse:
            return web.json_response(body(*texts, at=self._now()))

        self.answers[query] = respond

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
        return [{"metric": metric, "value": [self._now(), f"{value:.6g}"]}]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        form = {key: str(value) for key, value in (await request.post()).items()}
        seen = Seen(request.method, request.path, dict(request.query), form, dict(request.headers))
        self.seen.append(seen)
        self._on_the_way += 1
        self.most = max(self.most, self._on_the_way)
        try:
            return await self._responder(seen)(request)
        finally:
            self._on_the_way -= 1

    def _responder(self, seen: Seen) -> Responder:
        match self.outage:
            case Outage.REFUSES:
                return _cut
            case Outage.SILENT:
                return silent
            case Outage.EMPTY:
                return says(_success([]))
        return self.answers.get(seen.query) or self.otherwise or self._evaluated(seen)

    def _evaluated(self, seen: Seen) -> Responder:
        if not seen.path.endswith(QUERY_PATH):
            return says("404 page not found", 404)
        try:
            return says(_success(self.result(seen.query)))
        except QueryError as error:
            return says({"status": "error", "errorType": "bad_data", "error": str(error)}, 400)

    def application(self) -> web.Application:
        """Return what serves it."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        return app


@asynccontextmanager
async def serving(prometheus: Prometheus, tls: ssl.SSLContext | None = None) -> AsyncIterator[Prometheus]:
    """Serve *prometheus* on loopback, on a port of its own that is in its ``url``."""
    runner = web.AppRunner(prometheus.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        host, port = runner.addresses[0][:2]
        prometheus.url = f"{'https' if tls else 'http'}://{host}:{port}"
        yield prometheus
    finally:
        await runner.cleanup()


async def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    raise web.HTTPServiceUnavailable


def _success(vector: list[Any]) -> dict[str, object]:
    return {"status": "success", "data": {"resultType": "vector", "result": vector}}


__all__ = [
    "Outage",
    "Prometheus",
    "Query",
    "QueryError",
    "Responder",
    "Seen",
    "Series",
    "body",
    "parse",
    "says",
    "serving",
    "silent",
]

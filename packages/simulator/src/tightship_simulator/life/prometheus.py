"""A Prometheus that answers the few queries of its own series, and an honest error to every other.

It has one of two kinds of series. With a past (:class:`~tightship_simulator.life.scraping.Past`) it scrapes targets,
keeps the samples, and evaluates what :mod:`tightship_simulator.life.promql` can read as a real one would. Without one
series are functions of the moment; understood is then a plain selector, ``rate(SELECTOR[RANGE])``, and ``sum(...)`` of
either, where a selector is a name with equality matchers.

A test may have it answer any query in any way: see :attr:`Prometheus.answers`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from enum import Enum

from aiohttp import web
from msgspec import Struct

from tightship.kube.host import monotonic, wall
from tightship_simulator.life.evaluation import ExecutionError, evaluate
from tightship_simulator.life.promql import PromQLError
from tightship_simulator.life.promql import parse as parse_promql
from tightship_simulator.life.responders import UNAUTHORIZED, Responder, body, cut, fails, says, silent, success
from tightship_simulator.life.scraping import Past, Places

Series = Callable[[Mapping[str, str]], float | None]
"""Gives the value for a selector's labels now, ``None`` where there is no such series."""

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


class Prometheus:
    """Answers from *rates* (per second, asked by ``rate``) and *gauges*, by name, or from a *past*.

    What is in *answers*, by the text of a query, is answered instead, and with *otherwise* everything else. Before all
    of these come *outage*, and the headers that it *demands*. All may be changed at any time. *now* is the time of
    samples, in seconds since 1970.

    Queries wait for one of its *places*. How many seconds one takes by itself is in *takes*, by its text.
    """

    def __init__(
        self,
        rates: Mapping[str, Series] = {},
        gauges: Mapping[str, Series] = {},
        *,
        past: Past | None = None,
        otherwise: Responder | None = None,
        places: Places = Places(),
        now: Callable[[], float] = wall,
    ) -> None:
        self._rates = rates
        self._gauges = gauges
        self._now = now
        self._places = places
        self._free = asyncio.Semaphore(places.count)
        self.past = past
        self.otherwise = otherwise
        self.answers: dict[str, Responder] = {}
        self.takes: dict[str, float] = {}
        self.demands: Mapping[str, str] = {}
        self.outage = Outage.NONE
        self.url = ""
        """Where it is served."""
        self.seen: list[Seen] = []
        """Every request, outages or not."""
        self.most = 0
        """How many requests were on the way at once at most."""
        self.on_the_way = 0
        """How many are now."""
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._tls: ssl.SSLContext | None = None

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
        """Return the vector that *text* evaluates to without a past. Raises :class:`QueryError`."""
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

    async def date(self, _: web.Request, response: web.StreamResponse) -> None:
        """Date an answer by this server's clock; aiohttp goes by the machine's."""
        response.headers["Date"] = formatdate(self._now(), usegmt=True)

    # Its life.

    async def start(self) -> None:
        """Serve again, at the same address, with the samples that it has."""
        if self._site is not None or self._runner is None:
            return
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        self._site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=self._tls, reuse_address=True)
        await self._site.start()
        if not self.url:
            host, port = self._runner.addresses[0][:2]
            self.url = f"{'https' if self._tls else 'http'}://{host}:{port}"

    async def kill(self) -> None:
        """Cut all connections, refuse new ones, and scrape no more, until the next :meth:`start`."""
        site, self._site = self._site, None
        if site is None or self._runner is None or self._runner.server is None:
            return
        await site.stop()
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        if self.past is not None:
            self.past.restarted()

    @property
    def scrapes(self) -> bool:
        """Whether it is there and not held up."""
        return self._site is not None and self.outage is not Outage.SILENT

    # Answering.

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        form = {key: str(value) for key, value in (await request.post()).items()}
        seen = Seen(request.method, request.path, dict(request.query), form, dict(request.headers))
        self.seen.append(seen)
        self.on_the_way += 1
        self.most = max(self.most, self.on_the_way)
        try:
            match self.outage:
                case Outage.REFUSES:
                    return await cut(request)
                case Outage.SILENT:
                    return await silent(request)
            if any(request.headers.get(name) != value for name, value in self.demands.items()):
                return await UNAUTHORIZED(request)
            return await self._in_turn(seen, request)
        finally:
            self.on_the_way -= 1

    async def _in_turn(self, seen: Seen, request: web.Request) -> web.StreamResponse:
        """Answer once there is a place, as far as there is time."""
        until = monotonic() + min(self._places.timeout, _milliseconds(seen.form.get("timeout", "")))
        try:
            async with asyncio.timeout(until - monotonic()):
                await self._free.acquire()
        except TimeoutError:
            return await fails(400, "bad_data", 'invalid parameter "query": context deadline exceeded')(request)
        try:
            seconds, left = self.takes.get(seen.query, 0.0), until - monotonic()
            await asyncio.sleep(min(seconds, left))
            if seconds > left:
                return await fails(503, "timeout", "query timed out in expression evaluation")(request)
            return await self._responder(seen)(request)
        finally:
            self._free.release()

    def _responder(self, seen: Seen) -> Responder:
        if self.outage is Outage.EMPTY:
            return says(success([]))
        return self.answers.get(seen.query) or self.otherwise or self._evaluated(seen)

    def _evaluated(self, seen: Seen) -> Responder:
        if not seen.path.endswith(QUERY_PATH):
            return says("404 page not found", 404, "text/plain")
        try:
            if self.past is None:
                return says(success(self.result(seen.query)))
            tree = parse_promql(seen.query)
            at = float(seen.form.get("time") or seen.params.get("time") or self._now())
            return says({"status": "success", **evaluate(self.past.samples, tree, at, self.past.lookback)})
        except QueryError as error:
            return fails(400, "bad_data", str(error))
        except PromQLError as error:
            return fails(400, "bad_data", f'invalid parameter "query": {error}')
        except ExecutionError as error:
            return fails(422, "execution", str(error))

    @asynccontextmanager
    async def served(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        """Serve on loopback, on a port of its own, and scrape."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        app.on_response_prepare.append(self.date)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        self._runner, self._tls, self.url = runner, tls, ""
        scraping = None
        try:
            await self.start()
            if self.past is not None:
                scraping = asyncio.create_task(self.past.run(lambda: self.scrapes), name="scraping")
            yield
        finally:
            if scraping is not None:
                scraping.cancel()
                await asyncio.wait([scraping])
            self._site = self._runner = None
            await runner.cleanup()


@asynccontextmanager
async def serving(prometheus: Prometheus, tls: ssl.SSLContext | None = None) -> AsyncIterator[Prometheus]:
    """Serve *prometheus* on loopback, on a port of its own that is in its ``url``."""
    async with prometheus.served(tls):
        yield prometheus


def _milliseconds(text: str) -> float:
    """Return the seconds of a parameter such as ``2500ms``, without end where it has none."""
    digits = text.removesuffix("ms")
    return int(digits) / 1000 if digits != text and digits.isdigit() else 1e9


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

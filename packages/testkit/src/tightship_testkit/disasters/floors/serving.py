"""A Prometheus that answers from what it has scraped, or in one of many wrong ways, and remembers what it answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from tightship_simulator.life.evaluation import ExecutionError, evaluate
from tightship_simulator.life.promql import PromQLError, parse
from tightship_simulator.life.responders import cut, cut_off, fails, says, silent, success
from tightship_testkit.disasters.floors.scraping import Scraper
from tightship_testkit.disasters.floors.spec import Source, query_of

LESS = 0.4
"""The part of the traffic that is in an answer which says that it is not all."""
_GAP = 6.0
"""Seconds that a cycle never waits for an answer before it asks the next query, and that pass between two cycles."""
OLD = 120.0
"""Seconds of a cache that gives out what it has kept too long."""

SIGNED = ("partial", "warnings", "error-beside", "http-203", "http-206")
"""Ways that give a part of the traffic, and say so."""
WAYS = (
    "refused", "hung", "slow", "too-slow", "http-429", "http-503", "garbage", "truncated", "empty", "nan", "inf",
    "negative", "infos", "stale-cache", *SIGNED,
)  # fmt: skip
"""In which ways a server may answer other than well."""


class Answered(Struct, frozen=True):
    """An answer: the query *text* of the process *by*, arrived *at* a time, answered in the *way*, empty for well.

    It is *plain* where nothing about it says that it can't be used. *values* are those of its series. *cycle* is when
    the cycle began that it was asked in.
    """

    at: float
    by: str
    text: str
    way: str
    plain: bool
    values: tuple[float, ...] = ()
    cycle: float = 0.0


class Cycles:
    """When the last cycle of each process began: queries of one follow each other at once, but for what is slow.

    A process that begins a term, at *led_since*, begins a cycle, however short a time after the one of the term before.
    """

    def __init__(self, led_since: Callable[[str], float]) -> None:
        self._led_since = led_since
        self._asked: dict[str, tuple[float, float]] = {}

    def asked(self, by: str, at: float) -> float:
        """Take note that a process has asked a server at a time, and return when its cycle began."""
        began, last = self._asked.get(by, (at, at))
        began = at if at - last > _GAP or last < self._led_since(by) else began
        self._asked[by] = began, at
        return began


class Server:
    """The Prometheus *source* on *port*; *now* is the time of the scenario, *wall* makes seconds since 1970 of one.

    It answers in the last of :attr:`ways`, well without one. While it is not :attr:`up` it refuses connections and
    scrapes nothing. :attr:`refused` has when whom, by a connection that did not come about.
    """

    def __init__(
        self,
        source: Source,
        scraper: Scraper,
        port: int,
        now: Callable[[], float],
        wall: Callable[[float], float],
        *,
        cycles: Cycles,
    ) -> None:
        self.source = source
        self.scraper = scraper
        self.port = port
        self.up = True
        self.ways: list[str] = []
        self.log: list[Answered] = []
        self.refused: list[tuple[float, str]] = []
        self._now = now
        self._wall = wall
        self._cycles = cycles
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Where it is served."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def refuses(self) -> bool:
        """Whether new connections are refused."""
        return not self.up or "refused" in self.ways

    async def start(self) -> None:
        """Serve."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        app.on_response_prepare.append(self._date)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        """Serve no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def _clock(self) -> float:
        """What its clock shows, in seconds since 1970."""
        return self._wall(self._now()) + self.scraper.ahead

    async def _date(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers["Date"] = formatdate(self._clock, usegmt=True)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        by, form = str(peer[0]) if peer else "", await request.post()
        text, at, reported = str(form.get("query") or ""), self._now(), False
        cycle = self._cycles.asked(by, at)
        way = "refused" if self.refuses else self.ways[-1] if self.ways else ""
        try:
            answer, plain, values = await self._respond(request, way, text)
            reported = True
        finally:
            if not reported:
                self.log.append(Answered(at, by, text, way, False, cycle=cycle))
        self.log.append(Answered(at, by, text, way, plain, values, cycle))
        return answer

    async def _respond(
        self, request: web.Request, way: str, text: str
    ) -> tuple[web.StreamResponse, bool, tuple[float, ...]]:
        ways: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            "refused": cut,
            "hung": silent,
            "http-429": fails(429, "too_many_requests", "too many requests"),
            "http-503": fails(503, "unavailable", "query queue is full"),
            "garbage": says("<html><body>Welcome to nginx!</body></html>", 200, "text/html"),
        }
        if way in ways:
            return await ways[way](request), False, ()
        if way in ("slow", "too-slow"):
            await asyncio.sleep(2.0 if way == "slow" else 20.0)
        try:
            found = self._evaluated(text, self._clock - (OLD if way == "stale-cache" else 0.0))
        except (PromQLError, ExecutionError) as error:
            return await fails(400, "bad_data", str(error))(request), False, ()
        spoilt, status = _spoilt(found, way) if query_of(text) is not None else (found, 200)
        content = msgspec.json.encode(spoilt)
        if way == "truncated":
            return await cut_off(content, len(content) // 2)(request), False, ()
        values = _values(spoilt)
        plain = way not in (*SIGNED, "nan", "inf") and bool(values)
        return await says(content, status)(request), plain, values

    def _evaluated(self, text: str, at: float) -> dict[str, Any]:
        self.scraper.until(self._now(), up=self.up)
        lookback = round(self.source.lookback * 1000)
        return {"status": "success", **evaluate(self.scraper.samples, parse(text), at, lookback)}


def _values(found: dict[str, Any]) -> tuple[float, ...]:
    data = found["data"]
    if data["resultType"] == "scalar":
        return (float(data["result"][1]),)
    return tuple(float(each["value"][1]) for each in data["result"])


def _spoilt(found: dict[str, Any], way: str) -> tuple[dict[str, Any], int]:
    """Return the answer *found*, and the HTTP status with it, as it is given in a *way*."""
    factor: dict[str, float | str] = {"nan": "NaN", "inf": "+Inf", "negative": -1.0, **dict.fromkeys(SIGNED, LESS)}
    if way == "empty":
        return success([]), 200
    reported: dict[str, dict[str, Any]] = {
        "partial": {"isPartial": True},
        "warnings": {"warnings": ["No StoreAPIs matched for this query"]},
        "infos": {"infos": ["PromQL info: metric might not be a counter"]},
        "error-beside": {"errorType": "execution", "error": "a shard did not answer"},
    }
    by = factor.get(way, 1.0)
    result = [
        {**each, "value": [each["value"][0], by if isinstance(by, str) else f"{float(each['value'][1]) * by:g}"]}
        for each in found["data"]["result"]
    ]
    status = {"http-203": 203, "http-206": 206}.get(way, 200)
    return {**found, "data": {**found["data"], "result": result}, **reported.get(way, {})}, status


__all__ = ["LESS", "SIGNED", "WAYS", "Answered", "Cycles", "Server"]

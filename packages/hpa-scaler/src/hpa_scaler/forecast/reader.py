"""The pasts that forecasts are learned from: read from servers once, then kept up to date by the answers of cycles.

A key's past is read when an HPA first asks for its forecast: three or four requests for two weeks, two at a time
for all HPAs together. From then on no query is sent. A past that can't be read is asked for again after a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from hpa_scaler.annotations.queries import Expectations, Expected, ForecastKey
from hpa_scaler.forecast.seasons import CELL, SeasonMemory, learn_decision, past_of
from hpa_scaler.judge.decision import FloorDecision
from hpa_scaler.process.forecasts import Forecasts
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.prometheus.ranges import RangeRequest, fetch
from hpa_scaler.prometheus.samples import Trace
from tightship.process.logging import log
from tightship.process.loop import in_thread

CHUNK = 7 * 86_400.0
"""Seconds of one request: some 2,000 points, which no server's limit refuses."""
AT_ONCE = 2
"""Requests in flight."""
AGAIN = 900.0
"""Seconds until a past that could not be read is asked for again."""
_LOOK = 1.0

_READING = Expected(why="the query's past is still being read")


class ForecastReader(Forecasts):
    """Keeps the pasts of the forecasts that HPAs ask for."""

    def __init__(self, client: PrometheusClient, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self._client = client
        self._log = logger
        self._clock = clock
        self._memories: dict[ForecastKey, SeasonMemory] = {}
        self._failed: dict[ForecastKey, tuple[float, str]] = {}
        self._wanted: tuple[ForecastKey, ...] = ()

    def want(self, keys: Iterable[ForecastKey]) -> None:
        """Keep the pasts of *keys* alone, and read those that are new."""
        wanted = dict.fromkeys(keys)
        self._wanted = tuple(wanted)
        self._memories = {key: each for key, each in self._memories.items() if key in wanted}
        self._failed = {key: each for key, each in self._failed.items() if key in wanted}

    def forget(self) -> None:
        """Forget everything: from now on another replica gets the answers."""
        self._wanted = ()
        self._memories = {}
        self._failed = {}

    def expected(self, now: float) -> Expectations:
        """Return all forecasts at *now*."""
        memories = self._memories
        return {key: memories[key].expected(now) if key in memories else self._missing(key) for key in self._wanted}

    def learn(self, decisions: Iterable[FloorDecision]) -> None:
        """Learn the answers that led to *decisions*."""
        memories = self._memories
        if memories:
            for decision in decisions:
                learn_decision(memories, decision)

    def know(self, key: ForecastKey, past: Trace, until: float) -> None:
        """See :meth:`hpa_scaler.process.forecasts.Forecasts.know`."""
        memory = SeasonMemory(key[1])
        memory.learn_trace(past, until)
        self._memories[key] = memory

    async def run(self) -> None:
        """Read one past after the other, until cancelled."""
        while True:
            if not await self.read_next():
                await asyncio.sleep(_LOOK)

    async def read(self, keys: Iterable[ForecastKey], now: float, say: Callable[[str], None]) -> Expectations:
        """Return the forecasts of *keys* at *now*, one read after the other."""
        found = {}
        for key in keys:
            say("reading the past of the forecasts")
            memory, why = await read_past(self._client, key, now, lambda _: None)
            found[key] = Expected(why=why) if memory is None else memory.expected(now)
        return found

    async def read_next(self) -> bool:
        """Read one past that is wanted and not known; return whether there was one."""
        now = self._clock()
        key = next((key for key in self._wanted if key not in self._memories and self._due(key, now)), None)
        if key is None:
            return False
        memory, why = await read_past(self._client, key, now, lambda _: None)
        if memory is None:
            self._failed[key] = self._clock(), why
            log(self._log, logging.WARNING, "no forecast", query=key[0].text, error=why)
        elif key in self._wanted:
            self._memories[key] = memory
        return True

    def _due(self, key: ForecastKey, now: float) -> bool:
        return key not in self._failed or now - self._failed[key][0] >= AGAIN

    def _missing(self, key: ForecastKey) -> Expected:
        failed = self._failed.get(key)
        return _READING if failed is None else Expected(why=f"the query's past could not be read: {failed[1]}")


async def read_past(
    client: PrometheusClient, key: ForecastKey, now: float, say: Callable[[str], None]
) -> tuple[SeasonMemory | None, str]:
    """Return the past of *key* up to *now*; or ``None``, and why it can't be read."""
    query, spec = key
    asking = RangeRequest(now - past_of(spec), now, CELL, chunk=CHUNK, at_once=AT_ONCE)
    recorded = await fetch(client, [query], asking, say)
    trace = recorded.traces.get(query)
    if trace is None:
        return None, recorded.remarks[0]
    memory = SeasonMemory(spec)
    await in_thread(memory.learn_trace, trace, now)
    return memory, ""


def forecasts_of_past(client: PrometheusClient, logger: logging.Logger, clock: Callable[[], float]) -> Forecasts:
    """Return the source of the forecasts that HPAs ask for, learned from what *client* answers."""
    return ForecastReader(client, logger, clock)

"""The pasts that forecasts are learned from: read from servers once, then kept up to date by the answers of cycles.

A key's past is read when an HPA first asks for its forecast: three or four requests for two weeks, two at a time
for all HPAs together. From then on no query is sent. A past that can't be read is asked for again after a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from hpa_scaler.app.fleet import Say
from hpa_scaler.app.past_source import Asking, fetch
from hpa_scaler.decide.cycle import Cycle
from hpa_scaler.decide.forecast import CELL, SeasonMemory, learn_cycle, past_of
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.spec.queries import Expectations, Expected, ForecastKey
from tightship.app.observability.logging import log
from tightship.app.runtime.loop import in_thread

CHUNK = 7 * 86_400.0
"""Seconds of one request: some 2,000 points, which no server's limit refuses."""
AT_ONCE = 2
"""Requests in flight."""
AGAIN = 900.0
"""Seconds until a past that could not be read is asked for again."""
_LOOK = 1.0

_READING = Expected(why="the query's past is still being read")


class ForecastReader:
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
        """Forget everything: from now on another replica hears the answers."""
        self._wanted = ()
        self._memories = {}
        self._failed = {}

    def expected(self, now: float) -> Expectations:
        """Return all forecasts at *now*."""
        memories = self._memories
        return {key: memories[key].expected(now) if key in memories else self._missing(key) for key in self._wanted}

    def learn(self, cycle: Cycle) -> None:
        """Learn the answers of a cycle."""
        memories = self._memories
        if memories:
            for decision in cycle.decisions:
                learn_cycle(memories, decision)

    async def run(self) -> None:
        """Read one past after the other, until cancelled."""
        while True:
            if not await self.read_next():
                await asyncio.sleep(_LOOK)

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
    client: PrometheusClient, key: ForecastKey, now: float, say: Say
) -> tuple[SeasonMemory | None, str]:
    """Return the past of *key* up to *now*; or ``None``, and why it can't be read."""
    query, spec = key
    asking = Asking(now - past_of(spec), now, CELL, chunk=CHUNK, at_once=AT_ONCE)
    recorded = await fetch(client, [query], asking, say)
    trace = recorded.traces.get(query)
    if trace is None:
        return None, recorded.remarks[0]
    memory = SeasonMemory(spec)
    await in_thread(memory.learn_trace, trace, now)
    return memory, ""


async def read_forecasts(client: PrometheusClient, keys: Iterable[ForecastKey], now: float, say: Say) -> Expectations:
    """Return the forecasts of *keys* at *now*, one read after the other."""
    found = {}
    for key in keys:
        say("reading the past of the forecasts")
        memory, why = await read_past(client, key, now, lambda _: None)
        found[key] = Expected(why=why) if memory is None else memory.expected(now)
    return found

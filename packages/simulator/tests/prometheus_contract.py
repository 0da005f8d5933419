"""A Prometheus with a target, as the contract of the stand-in knows it: the stand-in itself, or a real one."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, NamedTuple, Protocol

import aiohttp
from msgspec import Struct

from tightship.kube.connector import connector
from tightship.kube.host import wall
from tightship_simulator.life.prometheus import Outage, Prometheus
from tightship_simulator.life.scraping import Exporter, Past, Places, growing
from tightship_testkit.client import wait_for
from tightship_testkit.virtual import on_virtual_network

Json = dict[str, Any]

INTERVAL = 0.2
"""Seconds between two scrapes."""
DEADLINE = 60.0


class Reply(Struct, frozen=True):
    """What was answered."""

    status: int
    content_type: str
    text: str

    @property
    def document(self) -> Json:
        """The answer as JSON."""
        found: Json = json.loads(self.text)
        return found


class Target(Protocol):
    """What is scraped; see :class:`~tightship_simulator.life.scraping.Exporter`."""

    @property
    def target(self) -> str: ...

    def set(self, name: str, value: float | Callable[[], float], /, *, at: float | None = None, **labels: str) -> None:
        """Show this value from now on."""

    def remove(self, name: str, /, **labels: str) -> None:
        """Show it no more."""

    def stop(self) -> object: ...

    def start(self) -> object: ...


class Made(NamedTuple):
    """A real Prometheus, started, with the exporter that it scrapes. Its methods block, and so do the exporter's."""

    exporter: Target
    server: Any
    slow: str
    growing: Callable[[float], Callable[[], float]]


Real = Callable[..., AbstractContextManager[Made]]
"""Starts a real Prometheus with an interval and flags; see :mod:`tightship_e2e.plugin`."""


class Source:
    """One of the two: *exporter* is its target. Its clock is the test's."""

    def __init__(self, exporter: Target, url: str, slow: str, growing: Callable[[float], Callable[[], float]]) -> None:
        self.exporter = exporter
        self.url = url
        self.slow = slow
        """A query that takes seconds, whatever there is."""
        self.growing = growing

    async def kill(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        """End it in good order."""
        await self.kill()

    async def start(self) -> None:
        raise NotImplementedError

    async def wipe(self) -> None:
        raise NotImplementedError

    async def pause(self) -> None:
        raise NotImplementedError

    async def resume(self) -> None:
        raise NotImplementedError

    async def query(self, text: str, **parameters: str) -> Reply:
        """Ask as the hpa-scaler does. Raises :class:`aiohttp.ClientError`."""
        async with (
            aiohttp.ClientSession(connector=connector(), timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.post(f"{self.url}/api/v1/query", data={"query": text, **parameters}) as answer,
        ):
            return Reply(answer.status, answer.content_type, await answer.text())

    async def vector(self, text: str, **parameters: str) -> list[Json]:
        """Return the series of an answer that is a vector and nothing else."""
        reply = await self.query(text, **parameters)
        assert (reply.status, reply.content_type) == (200, "application/json"), reply
        assert reply.document["status"] == "success"
        assert reply.document["data"]["resultType"] == "vector"
        result: list[Json] = reply.document["data"]["result"]
        return result

    async def value(self, text: str, **parameters: str) -> float | None:
        """Return the one value of an answer, ``None`` where it is an empty vector."""
        reply = await self.query(text, **parameters)
        assert reply.status == 200, reply
        data = reply.document["data"]
        if data["resultType"] == "scalar":
            return float(data["result"][1])
        assert len(data["result"]) <= 1, data
        return float(data["result"][0]["value"][1]) if data["result"] else None

    async def one(self, text: str) -> Json:
        """Return the one series of an answer: waited for, since a scrape that is late ends every series for a while."""

        async def there() -> list[Json]:
            return await self.vector(text)

        [series] = await wait_for(there, DEADLINE, text)
        return series

    async def until(self, text: str, wanted: float | Callable[[float | None], bool] | None) -> float | None:
        """Wait until a query has the value *wanted*, or one that it takes, and return it."""
        last: float | None = None

        async def there() -> bool:
            nonlocal last
            try:
                last = await self.value(text)
            except aiohttp.ClientError:
                return False
            if callable(wanted):
                return wanted(last)
            if last is None or wanted is None:
                return last is wanted
            return last == wanted or (math.isnan(last) and math.isnan(wanted))

        await wait_for(there, DEADLINE, f"{text} is {wanted}")
        return last


class StandIn(Source):
    """The stand-in, on virtual time."""

    def __init__(self, exporter: Exporter, prometheus: Prometheus, slow: str) -> None:
        super().__init__(exporter, prometheus.url, slow, growing)
        self.prometheus = prometheus

    async def kill(self) -> None:
        await self.prometheus.kill()

    async def start(self) -> None:
        await self.prometheus.start()

    async def wipe(self) -> None:
        assert self.prometheus.past is not None
        self.prometheus.past.wipe()

    async def pause(self) -> None:
        self.prometheus.outage = Outage.SILENT

    async def resume(self) -> None:
        self.prometheus.outage = Outage.NONE


class RealOne(Source):
    """A real Prometheus."""

    def __init__(self, made: Made) -> None:
        super().__init__(made.exporter, made.server.url, made.slow, made.growing)
        self.server = made.server

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def stop(self) -> None:
        await asyncio.to_thread(self.server.stop)

    async def start(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def wipe(self) -> None:
        await asyncio.to_thread(self.server.wipe)

    async def pause(self) -> None:
        self.server.pause()

    async def resume(self) -> None:
        self.server.resume()


@contextmanager
def real_one(real: Real, flags: Sequence[str] = ()) -> Iterator[RealOne]:
    """Start a real Prometheus."""
    with real(interval=INTERVAL, flags=flags) as made:
        yield RealOne(made)


SLOW = "vector(1) + vector(1) + vector(1)"


@asynccontextmanager
async def stand_in(*, lookback: float = 300.0, places: Places = Places()) -> AsyncIterator[StandIn]:
    """Serve the stand-in on a virtual loop, with a wall clock that goes with it."""
    with on_virtual_network():
        exporter = Exporter()
        past = Past([exporter], INTERVAL, lookback=lookback, now=wall)
        prometheus = Prometheus(past=past, places=places, now=wall)
        prometheus.takes[SLOW] = 7.0
        async with prometheus.served():
            yield StandIn(exporter, prometheus, SLOW)

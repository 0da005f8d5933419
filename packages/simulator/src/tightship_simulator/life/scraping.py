"""What a Prometheus scrapes, and what it keeps of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from tightship.kube.host import monotonic, wall
from tightship_simulator.life.samples import LOOKBACK, Labels, Samples

Value: TypeAlias = float | Callable[[], float]

_OFFSET = 0.4
"""When a target is scraped, as a share of the interval: Prometheus has it from the target's name."""


class Exporter:
    """A target, called *target*: series that a test sets. While it is stopped nobody can scrape it."""

    def __init__(self, target: str = "exporter:9100") -> None:
        self.target = target
        self.away = False
        self._series: dict[Labels, tuple[Value, float | None]] = {}

    def set(self, name: str, value: Value, /, *, at: float | None = None, **labels: str) -> None:
        """Show this value from now on; a function is asked at each scrape. *at* dates it, in seconds since 1970."""
        self._series[_labels(name, labels)] = (value, at)

    def remove(self, name: str, /, **labels: str) -> None:
        """Show this series no more. Raises :class:`KeyError` when it is not there."""
        del self._series[_labels(name, labels)]

    def stop(self) -> None:
        """Refuse connections until the next :meth:`start`."""
        self.away = True

    def start(self) -> None:
        """Answer again."""
        self.away = False

    def shown(self) -> list[tuple[Labels, float, float | None]]:
        """Return what a scrape gets: labels, value, and the sample's own time if it has one."""
        series = list(self._series.items())  # others may set some meanwhile, in another thread
        return [(labels, float(value() if callable(value) else value), at) for labels, (value, at) in series]


class Past:
    """Scrapes *targets* every *interval* seconds and keeps the samples, for *kept* seconds.

    A series that a target shows no more is ended at once, and so is every one of a target that can't be scraped; one
    whose samples have times of their own ages by the *lookback*. *now* is the clock, in seconds since 1970.
    """

    def __init__(
        self,
        targets: Sequence[Exporter],
        interval: float = 15.0,
        *,
        kept: float = math.inf,
        lookback: float = LOOKBACK / 1000,
        job: str = "e2e",
        now: Callable[[], float] = wall,
    ) -> None:
        self.samples = Samples(kept)
        self.interval = interval
        self.lookback = round(lookback * 1000)
        self._targets = targets
        self._job = job
        self._now = now
        self._open: dict[str, frozenset[Labels]] = {}

    def wipe(self) -> None:
        """Forget all."""
        self.samples.wipe()
        self._open.clear()

    def restarted(self) -> None:
        """Know no more which series were shown last: after a restart none of them is ended."""
        self._open.clear()

    async def run(self, goes_on: Callable[[], bool]) -> None:
        """Scrape while *goes_on* says so, until cancelled."""
        interval = self.interval
        while True:
            at = self._now()
            due = (math.floor(at / interval - _OFFSET) + 1 + _OFFSET) * interval
            await asyncio.sleep(due - at)
            if goes_on():
                self.scrape()

    def scrape(self) -> None:
        """Scrape every target once."""
        at = round(self._now() * 1000)
        for target in self._targets:
            named = (("instance", target.target), ("job", self._job))
            self.samples.add(tuple(sorted((("__name__", "up"), *named))), at, float(not target.away))
            shown = [] if target.away else target.shown()
            open_ = set()
            for own, value, dated in shown:
                labels = tuple(sorted((*own, *named)))
                self.samples.add(labels, at if dated is None else round(dated * 1000), value)
                if dated is None:
                    open_.add(labels)
            for labels in self._open.get(target.target, frozenset()) - open_:
                self.samples.add(labels, at, None)
            self._open[target.target] = frozenset(open_)


class Places(Struct, frozen=True):
    """How many queries a Prometheus evaluates at once, and for how many seconds each at most."""

    count: int = 20
    timeout: float = 120.0


def growing(per_second: float, start: float = 0.0) -> Callable[[], float]:
    """Return a counter for :meth:`Exporter.set` that grows evenly."""
    began = monotonic()
    return lambda: start + per_second * (monotonic() - began)


def _labels(name: str, labels: dict[str, str]) -> Labels:
    return tuple(sorted((("__name__", name), *labels.items())))


__all__ = ["Exporter", "Past", "Places", "Value", "growing"]

"""What a Prometheus has scraped: samples by series, with the marks that end a series. Pure.

Times are whole milliseconds since 1970, as Prometheus keeps them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from tightship_simulator.life.promql import Matcher

Labels = tuple[tuple[str, str], ...]
"""The labels of a series, its name among them as ``__name__``, by their names."""

Points = list[tuple[int, float]]

LOOKBACK = 300_000
"""Milliseconds after which a sample that nothing followed counts no more."""

_REMEMBERED = 500
"""Selectors whose series are remembered until there is a new one."""


class Series:
    """The samples of one series, in the order of their times. ``None`` is the mark that it has ended."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.times: list[int] = []
        self.values: list[float | None] = []

    def append(self, at: int, value: float | None) -> None:
        """Add a sample; one that is not younger than the last is dropped, as Prometheus does."""
        if not self.times or at > self.times[-1]:
            self.times.append(at)
            self.values.append(value)

    def latest(self, at: int, lookback: int = LOOKBACK) -> tuple[int, float] | None:
        """Return the sample that counts at a time: the last one before, unless it is too old or the series ended."""
        index = bisect_right(self.times, at) - 1
        if index < 0 or self.times[index] <= at - lookback:
            return None
        value = self.values[index]
        return None if value is None else (self.times[index], value)

    def within(self, after: int, until: int) -> Points:
        """Return the samples after the one time and until the other, the marks left out."""
        first, end = bisect_right(self.times, after), bisect_right(self.times, until)
        return [
            (at, value)
            for at, value in zip(self.times[first:end], self.values[first:end], strict=True)
            if value is not None
        ]

    def forget(self, before: int) -> None:
        """Drop what is older."""
        gone = bisect_right(self.times, before)
        del self.times[:gone], self.values[:gone]


class Samples:
    """All series of one server. *kept* is how long they are remembered, in seconds."""

    def __init__(self, kept: float = math.inf) -> None:
        self._kept = kept
        self._series: dict[Labels, Series] = {}
        self._by_name: dict[str, list[Series]] = {}
        self._chosen: dict[tuple[Matcher, ...], list[Series]] = {}

    def add(self, labels: Labels, at: int, value: float | None) -> None:
        """Add a sample to a series; ``None`` ends it."""
        found = self._series.get(labels)
        if found is None:
            found = self._series[labels] = Series(labels)
            self._chosen.clear()
            self._by_name.setdefault(dict(labels).get("__name__", ""), []).append(found)
        found.append(at, value)
        if len(found.times) % 1000 == 0 and math.isfinite(self._kept):
            found.forget(at - round(self._kept * 1000))

    def select(self, matchers: Iterable[Matcher]) -> Sequence[Series]:
        """Return the series that all *matchers* take: a subquery asks again at each of its steps."""
        matchers = tuple(matchers)
        found = self._chosen.get(matchers)
        if found is None:
            if len(self._chosen) >= _REMEMBERED:
                self._chosen.clear()
            found = self._chosen[matchers] = [*self._select(matchers)]
        return found

    def _select(self, matchers: tuple[Matcher, ...]) -> Iterator[Series]:
        names = [each.value for each in matchers if (each.label, each.how) == ("__name__", "=")]
        candidates = self._by_name.get(names[0], []) if names else [*self._series.values()]
        for series in candidates:
            labels = dict(series.labels)
            if all(each.takes(labels) for each in matchers):
                yield series

    def wipe(self) -> None:
        """Forget all."""
        self._series.clear()
        self._by_name.clear()
        self._chosen.clear()


__all__ = ["LOOKBACK", "Labels", "Points", "Samples", "Series"]

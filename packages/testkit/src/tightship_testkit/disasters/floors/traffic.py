"""The true traffic of an application: requests per second as a function of time. Pure.

It is level within each second. Times are seconds from the beginning of the scenario; it has a past.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right

from tightship_testkit.disasters.floors.spec import App

PAST = 900
"""Seconds of traffic before the beginning."""


class Traffic:
    """The traffic of *app* until *end*."""

    def __init__(self, app: App, end: float) -> None:
        self._rates = [app.requests * factor_at(app.points, at - PAST) for at in range(PAST + math.ceil(end) + 1)]
        self._sums = [0.0, *itertools.accumulate(self._rates)]

    def rate(self, at: float) -> float:
        """Return the requests per second at a time."""
        return self._rates[self._index(at)]

    def count(self, at: float) -> float:
        """Return how many requests there were by a time: what a counter that was never reset says."""
        index = self._index(at)
        return self._sums[index] + (at + PAST - index) * self._rates[index]

    def least(self, begin: float, end: float) -> float:
        """Return the lowest rate in between."""
        return min(self._rates[self._index(begin) : self._index(end) + 1])

    def most(self, begin: float, end: float) -> float:
        """Return the highest rate in between."""
        return max(self._rates[self._index(begin) : self._index(end) + 1])

    def _index(self, at: float) -> int:
        return max(0, min(len(self._rates) - 1, math.floor(at) + PAST))


def factor_at(points: list[tuple[float, float]], at: float) -> float:
    """Return the factor at a time, 1 without points."""
    if not points:
        return 1.0
    index = bisect_right([time for time, _ in points], at)
    if index in (0, len(points)):
        return points[min(index, len(points) - 1)][1]
    (begin, first), (end, last) = points[index - 1], points[index]
    return first + (last - first) * (at - begin) / (end - begin)


__all__ = ["PAST", "Traffic", "factor_at"]

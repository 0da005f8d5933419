"""What a query will ask for at most in the coming minutes, by the same hours of earlier days or weeks. Pure.

Traffic that rises every morning finds too few replicas every morning: a floor that follows its query starts pods when
the traffic is there. A forecast starts them before. The query's own past is kept in cells of five minutes, the highest
value of each. In each earlier season (a day, or a week) the coming maximum is compared with the level just before; the
median of these ratios (of two the lower), times the level of now, is the forecast. So a changed level counts at once,
and one strange day does not. Only a ramp is forecast: where most seasons rise clearly. On a plateau, following is as
good and cheaper.

The forecasts of the last hours are compared with what came. While they were worse than following alone, as on a
holiday, there is no forecast, and `explain` says why. Without recent answers there is none either: no forecast lives on
from its own past alone.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct

from hpa_scaler.annotations.queries import Expected, ForecastKey, forecast_keys
from hpa_scaler.annotations.spec import FloorSpec, ForecastSpec, Season
from hpa_scaler.judge.decision import DOUBTS, FloorDecision
from hpa_scaler.prometheus.samples import Trace
from tightship.objects.counting import counted
from tightship.objects.times import format_duration

CELL = 300.0
"""Seconds of one cell of the past."""
DAY = 86_400.0


class _Seasons(Struct, frozen=True):
    """A kind of season: its *seconds*, how many of them are *kept*, the *least* needed, and the *name* of one."""

    seconds: float
    kept: int
    least: int
    name: str


_SEASONS: Mapping[Season, _Seasons] = {
    "daily": _Seasons(DAY, 14, 3, "day"),
    "weekly": _Seasons(7 * DAY, 6, 2, "week"),
}

_LEVEL = 9
"""Cells whose mean is the level."""
_SLOPE = 18
"""Cells before and after a moment whose means tell whether a season rises there."""
_RAMP = 1.15
"""By how much most seasons must rise for a forecast."""
_JUDGED = 24
"""Cells, the last two hours, over which forecasts are compared with what came."""
_MISSING = 10.0
"""How many times as bad a missing replica is as one too many."""


def past_of(spec: ForecastSpec) -> float:
    """Return how many seconds of past a forecast learns from."""
    kind = _SEASONS[spec.season]
    return kind.kept * kind.seconds + (_SLOPE + _JUDGED + 2) * CELL + spec.ahead


class SeasonMemory:
    """The past of one query, and its forecasts. Equal pasts give equal forecasts, however they were learned."""

    def __init__(self, spec: ForecastSpec) -> None:
        self._kind = _SEASONS[spec.season]
        self._season = round(self._kind.seconds / CELL)
        self._ahead = math.ceil(spec.ahead / CELL) + 1
        self._size = math.ceil(past_of(spec) / CELL) + 1
        # A ring: the cell of the number n is at n modulo the size, if n is among the newest.
        self._cells = array("f", [math.nan]) * self._size
        self._newest = -1
        self._made: dict[int, Expected] = {}
        self._last: tuple[int, Expected] | None = None

    def learn(self, at: float, value: float) -> None:
        """Learn that the query had *value* at the time *at*; NaN, infinity and negative values count as unknown."""
        if not (math.isfinite(value) and value >= 0 and at >= 0):
            return
        number = int(at // CELL)
        if number > self._newest:
            for between in range(max(self._newest + 1, number - self._size + 1), number + 1):
                self._cells[between % self._size] = math.nan
            self._newest = number
        elif number <= self._newest - self._size:
            return
        elif self._last is not None and number < self._last[0]:
            # Older than what was forecast from: the past came later.
            self._made.clear()
            self._last = None
        present = self._cells[number % self._size]
        if not present >= value:
            self._cells[number % self._size] = value

    def learn_trace(self, trace: Trace, until: float) -> None:
        """Learn the recorded answers before the time *until*, as far as they matter then."""
        first = max(0, math.ceil((until - self._size * CELL - trace.begin) / trace.step))
        for place in range(first, len(trace.values)):
            at = trace.begin + place * trace.step
            if at >= until:
                break
            if trace.counts[place]:
                self.learn(at, trace.values[place])

    def expected(self, now: float) -> Expected:
        """Return the forecast at *now*, from the cells that are over."""
        number = int(now // CELL)
        if self._last is None or self._last[0] != number:
            self._last = number, self._judged(number)
        return self._last[1]

    def _judged(self, number: int) -> Expected:
        found = self._forecast(number)
        if found.value is None:
            return found
        too_much = missing = alone = 0.0
        for made in range(number - _JUDGED - self._ahead, number - self._ahead + 1):
            value, now = self._forecast(made).value, self._at(made - 1)
            came = self._most(made)
            if value is not None and came is not None and math.isfinite(now):
                too_much += max(0.0, max(value, now) - came)
                missing += max(0.0, came - max(value, now))
                alone += max(0.0, came - now)
        if too_much + _MISSING * missing <= _MISSING * alone:
            return found
        spent, saved = f"{too_much:.3g}", f"{alone - missing:.3g}"
        span = format_duration((_JUDGED + self._ahead) * CELL)
        why = f"in the last {span} the forecasts were worse than none: {spent} too much in all, for {saved} that came"
        return Expected(seasons=found.seasons, why=why)

    def _forecast(self, number: int) -> Expected:
        """Return the forecast at the beginning of the cell *number*, by itself."""
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = self._computed(number)
            for old in [each for each in self._made if each < number - 4 * _JUDGED]:
                del self._made[old]
        return made

    def _computed(self, number: int) -> Expected:
        level = self._mean(number - _LEVEL, number)
        if level is None:
            return Expected(why=f"no answers in the last {format_duration(_LEVEL * CELL)}")
        ratios, slopes = [], []
        for back in range(1, self._kind.kept + 1):
            then = number - back * self._season
            before, most = self._mean(then - _LEVEL, then), self._most(then)
            rising, risen = self._mean(then - _SLOPE, then), self._mean(then, then + _SLOPE)
            if before and most is not None and rising and risen is not None:
                ratios.append(most / before)
                slopes.append(risen / rising)
        seasons = len(ratios)
        if seasons < self._kind.least:
            known = counted(seasons, f"earlier {self._kind.name}")
            return Expected(
                seasons=seasons, why=f"{known} known at this time of the {self._kind.name}; {self._kind.least} needed"
            )
        if _usual(slopes) < _RAMP:
            return Expected(seasons=seasons)
        return Expected(level * _usual(ratios), seasons)

    def _at(self, number: int) -> float:
        return self._cells[number % self._size] if self._newest - self._size < number <= self._newest else math.nan

    def _mean(self, begin: int, end: int) -> float | None:
        """Return the mean of the cells from *begin* to before *end*, ``None`` if half of them are unknown."""
        known = [each for each in map(self._at, range(begin, end)) if each == each]  # noqa: PLR0124 - no NaN
        return sum(known) / len(known) if 2 * len(known) > end - begin else None

    def _most(self, begin: int) -> float | None:
        """Return the highest of the cells from *begin* on that a forecast then is about."""
        known = [each for each in map(self._at, range(begin, begin + self._ahead)) if each == each]  # noqa: PLR0124
        return max(known) if 2 * len(known) > self._ahead else None


def _usual(values: Sequence[float]) -> float:
    """Return the median of *values*; of two the lower, since one of them may be of a strange day."""
    return min(values) if len(values) == 2 else median(values)


def learn_decision(memories: Mapping[ForecastKey, SeasonMemory], decision: FloorDecision) -> None:
    """Let *memories* learn the answers of a decision, unless they are missing or doubtful."""
    asked = decision.subject.asked
    if not memories or not isinstance(asked, FloorSpec) or not DOUBTS.isdisjoint(decision.reasons):
        return
    for key, term, outcome in zip(forecast_keys(asked), decision.terms, decision.answers, strict=False):
        if outcome == "answered" and term.value is not None and key in memories:
            memories[key].learn(decision.subject.now, term.value)

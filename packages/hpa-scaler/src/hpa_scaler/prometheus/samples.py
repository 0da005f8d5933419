"""The recorded past of queries: samples at a regular step. Pure.

Whatever is unusable in its source is left out and reported; nothing is filled in.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from hpa_scaler.annotations.queries import Query, QueryAnswer
from tightship.objects.counting import counted, some
from tightship.objects.quoting import quoted
from tightship.objects.times import format_duration, rfc3339

LONGEST = 400 * 86_400.0
"""Seconds that a recording may span, so that a wrong year in one sample does not fill the memory."""
MOST_SAMPLES = 2_000_000
"""The most steps of one trace."""
MOST_SERIES = 255
_NAMED = 10
"""How many series a remark names."""
_FRESH = 1.5
"""Steps for which a sample counts. Prometheus's own answers are already as old as its look-back allows."""
_LATEST = 253_402_300_800.0
"""The first second that no date of four digits can tell."""


class RecordingError(ValueError):
    """An unusable recording; the text names the place, the value and what is allowed."""


class Trace(Struct, frozen=True):
    """The answers of one query, one for each *step* seconds from *begin* on.

    *values* has the highest value of all series, NaN where there is no number; *counts* has the number of series, 0
    where there was no answer.
    """

    begin: float
    step: float
    values: array[float]
    counts: bytearray

    @property
    def end(self) -> float:
        """The time of the last sample."""
        return self.begin + self.step * (len(self.values) - 1)

    def index(self, now: float) -> int | None:
        """Return the place of the sample that counts at *now*, ``None`` without one."""
        place = int((now - self.begin) // self.step)
        if 0 <= place < len(self.values):
            return place
        last = len(self.values) - 1
        return last if place > last >= 0 and now - self.end < _FRESH * self.step else None

    def value(self, now: float) -> float | None:
        """Return the number that counts at *now*, ``None`` without one."""
        place = self.index(now)
        if place is None or not self.counts[place]:
            return None
        found = self.values[place]
        return found if math.isfinite(found) else None

    def answer(self, now: float) -> QueryAnswer:
        """Return the answer to the query at *now*."""
        place = self.index(now)
        count = 0 if place is None else self.counts[place]
        if place is None or not count:
            return QueryAnswer(0)
        value = self.values[place]
        if math.isfinite(value):
            return QueryAnswer(count, value, zeros=int(value == 0))
        return QueryAnswer(count, not_numbers=int(math.isnan(value)), infinite=int(math.isinf(value)))

    def scaled(self, factor: float) -> Trace:
        """Return the trace with all values times *factor*."""
        return Trace(self.begin, self.step, array("d", [each * factor for each in self.values]), self.counts)

    def gaps(self, least: float) -> list[tuple[float, float]]:
        """Return the stretches of at least *least* seconds without a usable number: begin and end of each."""
        found: list[tuple[float, float]] = []
        since: int | None = None
        usable = [count > 0 and math.isfinite(value) for count, value in zip(self.counts, self.values, strict=True)]
        for place, good in enumerate([*usable, True]):
            if not good and since is None:
                since = place
            elif good and since is not None:
                begin, end = self.begin + since * self.step, self.begin + place * self.step
                if end - begin >= least:
                    found.append((begin, end))
                since = None
        return found


NO_TRACE = Trace(0.0, 1.0, array("d"), bytearray())
"""Nothing recorded."""

Recording = Mapping[Query, Trace]


class Recorded(Struct, frozen=True):
    """Traces, and *remarks* about what in their source was unusable."""

    traces: Recording
    remarks: tuple[str, ...] = ()


Samples = Sequence[tuple[float, float]]


def listed(names: Sequence[str]) -> str:
    """Return *names* of series, the first of many."""
    return some(list(map(quoted, names)), _NAMED)


def trace_of(series: Sequence[Samples], about: str, step: float | None = None) -> tuple[Trace, list[str]]:
    """Return the trace of *series*, each with samples in any order, and remarks; *step* is in seconds.

    Without a *step*, the usual distance of two samples counts. Raises :class:`RecordingError` without any sample.
    """
    remarks: list[str] = []
    kept = [_ordered(each, about, remarks) for each in series]
    times = [at for each in kept for at, _ in each]
    if not times:
        raise RecordingError(f"{about}: holds no sample")
    begin, last = min(times), max(times)
    if last - begin > LONGEST:
        raise RecordingError(
            f"{about}: spans {rfc3339(begin)} to {rfc3339(last)}; allowed are {format_duration(LONGEST)}"
        )
    step = _usual_step(kept) if step is None else step
    length = round((last - begin) / step) + 1
    if length > MOST_SAMPLES:
        raise RecordingError(f"{about}: {length:,} steps of {step:g} s; allowed are {MOST_SAMPLES:,}")
    values, counts = array("d", [math.nan]) * length, bytearray(length)
    twice = 0
    for each in kept:
        taken = -1
        for at, value in each:
            place = round((at - begin) / step)
            twice += place == taken
            fresh = place != taken
            taken = place
            counts[place] = min(MOST_SERIES, counts[place] + fresh)
            present = values[place]
            if not fresh or math.isnan(present) or value > present:
                values[place] = value
    if twice:
        remarks.append(f"{about}: {counted(twice, 'sample')} more than one a step of {step:g} s; the last counts")
    several = sum(count > 1 for count in counts)
    if several:
        remarks.append(f"{about}: {counted(several, 'sample')} of several series; the largest counts, as for a floor")
    odd = sum(1 for count, value in zip(counts, values, strict=True) if count and not math.isfinite(value))
    if odd:
        remarks.append(f"{about}: {counted(odd, 'sample')} of NaN or infinity; each counts as no answer")
    remarks += _counter(values, about)
    return Trace(begin, step, values, counts), remarks


def _ordered(samples: Samples, about: str, remarks: list[str]) -> list[tuple[float, float]]:
    good = [(at, value) for at, value in samples if 0 <= at < _LATEST]
    if len(good) < len(samples):
        remarks.append(f"{about}: {counted(len(samples) - len(good), 'sample')} with an impossible time, left out")
    late = sum(after[0] < before[0] for before, after in pairwise(good))
    if late:
        remarks.append(f"{about}: {counted(late, 'sample')} out of order, sorted")
        good.sort(key=lambda each: each[0])
    return good


def _usual_step(series: Iterable[Sequence[tuple[float, float]]]) -> float:
    apart = [after[0] - before[0] for each in series for before, after in pairwise(each) if after > before]
    return max(1.0, round(statistics.median([each for each in apart if each > 0] or [60.0]), 3))


def _counter(values: Sequence[float], about: str) -> list[str]:
    """Return a remark if *values* look like a counter, which no floor should follow."""
    known = [each for each in values if math.isfinite(each)]
    if len(known) < 10 or known[0] == known[-1]:
        return []
    falls = sum(after < before for before, after in pairwise(known))
    rises = sum(after > before for before, after in pairwise(known))
    if rises < len(known) / 2 or falls > len(known) / 100:
        return []
    resets = f", with {counted(falls, 'reset')}" if falls else ""
    return [f"{about}: almost every value is above the one before{resets}: a counter? wrap it in rate()"]

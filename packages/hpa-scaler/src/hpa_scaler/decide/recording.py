"""The recorded past of queries: samples at a regular step, and the files that hold them. Pure.

A file is CSV with a header (a time, a value, and perhaps ``replicas`` and ``wanted``), an answer of Prometheus's
``/api/v1/query_range``, or what ``backtest --save-past`` writes. Whatever is unusable in it is left out and reported;
nothing is filled in.
"""

from __future__ import annotations

import csv
import math
import statistics
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from itertools import pairwise
from typing import Literal

import msgspec
from msgspec import Struct

from hpa_scaler.prometheus.answers import matrix
from hpa_scaler.spec.queries import Failure, Query, QueryAnswer
from hpa_scaler.spec.spec import ServerRef
from hpa_scaler.spec.values import parse_float
from tightship.core.counting import counted
from tightship.core.durations import format_duration
from tightship.core.quoting import quoted
from tightship.core.times import parse_rfc3339, rfc3339
from tightship.report.document import API_VERSION

LONGEST = 400 * 86_400.0
"""Seconds that a recording may span, so that a wrong year in one sample does not fill the memory."""
MOST_SAMPLES = 2_000_000
"""The most steps of one trace."""
MOST_SERIES = 255
_FRESH = 1.5
"""Steps for which a sample counts. Prometheus's own answers are already as old as its look-back allows."""
_LATEST = 253_402_300_800.0
"""The first second that no date of four digits can tell."""

_ABOUT = '{{namespace="{namespace}",horizontalpodautoscaler="{name}"}}'
_CURRENT = "max(kube_horizontalpodautoscaler_status_current_replicas" + _ABOUT + ")"
_LABELS = "metric_name, metric_target_type"
_RATIO = (
    f"max(max by ({_LABELS}) (kube_horizontalpodautoscaler_status_target_metric{_ABOUT})"
    f" / max by ({_LABELS}) (kube_horizontalpodautoscaler_spec_target_metric{_ABOUT}))"
)


def replicas_query(namespace: str, name: str, server: ServerRef = ServerRef()) -> Query:
    """Return the query for the replicas that an HPA had, by kube-state-metrics."""
    return Query(_CURRENT.format(namespace=namespace, name=name), server)


def wanted_query(namespace: str, name: str, server: ServerRef = ServerRef()) -> Query:
    """Return the query for the replicas that an HPA's own metrics asked for, not rounded.

    That is the replicas, times the largest ratio of a metric to its target (kube-state-metrics 2.6 or later).
    """
    return Query(f"{_CURRENT} * {_RATIO}".format(namespace=namespace, name=name), server)


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


def smoothed(trace: Trace, seconds: float) -> Trace:
    """Return *trace* with the mean of the last *seconds* in place of each number; places without a number stay."""
    most = round(seconds / trace.step)
    if most < 2:
        return trace
    values = array("d", trace.values)
    total, known = 0.0, deque[float]()
    for place, value in enumerate(trace.values):
        if not math.isfinite(value):
            total = 0.0
            known.clear()
            continue
        known.append(value)
        total += value
        if len(known) > most:
            total -= known.popleft()
        values[place] = max(0.0, total / len(known)) if value >= 0 else value
    return Trace(trace.begin, trace.step, values, trace.counts)


Recording = Mapping[Query, Trace]


class Recorded(Struct, frozen=True):
    """Traces, and *remarks* about what in their source was unusable."""

    traces: Recording
    remarks: tuple[str, ...] = ()


Samples = Sequence[tuple[float, float]]


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


Column = Literal["value", "replicas", "wanted"]


def read_csv(text: str, name: str) -> tuple[dict[Column, Trace], list[str]]:
    """Return the traces in a CSV file called *name*, by column, and remarks.

    The first column is a time, RFC 3339 or seconds since 1970, the second the value of the query; ``replicas`` and
    ``wanted`` may follow, under these names. Raises :class:`RecordingError`.
    """
    rows = csv.reader(text.splitlines())
    header = [each.strip().lower() for each in next(rows, [])]
    if len(header) < 2 or _time(header[0]) is not None:
        raise RecordingError(f"{name}: line 1: {quoted(','.join(header))}; allowed is a header, such as timestamp,rps")
    places: dict[Column, int] = {"value": 1}
    for column in ("replicas", "wanted"):
        if column in header[2:]:
            places[column] = header.index(column, 2)
    found: dict[Column, list[tuple[float, float]]] = {column: [] for column in places}
    bad: list[str] = []
    for number, row in enumerate(rows, 2):
        at = _time(row[0].strip()) if row else None
        if at is None:
            bad += [f"line {number}: {quoted(','.join(row))}"] if row else []
            continue
        for column, place in places.items():
            cell = row[place].strip() if place < len(row) else ""
            value = parse_float(cell) if cell else None
            if value is not None:
                found[column].append((at, value))
            elif cell:
                bad.append(f"line {number}: {quoted(cell)}")
    remarks = [f"{name}: {counted(len(bad), 'cell')} unreadable and left out, first {bad[0]}"] if bad else []
    traces: dict[Column, Trace] = {}
    for column, samples in found.items():
        if not samples and column != "value":
            continue
        traces[column], told = trace_of([samples], f"{name}: {column}" if column != "value" else name)
        remarks += told
    return traces, remarks


def _time(text: str) -> float | None:
    try:
        return parse_rfc3339(text)
    except ValueError:
        pass
    number = parse_float(text)
    return number if number is not None and math.isfinite(number) else None


def read_range(raw: bytes, name: str) -> tuple[Trace, list[str]]:
    """Return the trace in an answer of ``query_range``, saved as the file *name*. Raises :class:`RecordingError`."""
    found = matrix(HTTPStatus.OK, raw)
    if isinstance(found, Failure):
        raise RecordingError(f"{name}: {found.detail}")
    trace, remarks = trace_of(found.series, name)
    return trace, [*remarks, *(f"{name}: answered with: {each}" for each in found.warnings)]


class _SavedTrace(Struct, omit_defaults=True):
    query: str
    begin: str
    step: float
    values: list[float | str | None]
    server: str = ""
    counts: list[int] | None = None


class _SavedPast(Struct, rename="camel"):
    traces: list[_SavedTrace]
    kind: Literal["QueryPast"] = "QueryPast"
    api_version: Literal["tightship.dev/v1"] = API_VERSION
    remarks: list[str] = []


def encode_past(recorded: Recorded) -> bytes:
    """Return the file that holds *recorded*."""
    saved = []
    for query, trace in sorted(recorded.traces.items()):
        values: list[float | str | None] = [
            None if not count else value if math.isfinite(value) else str(value)
            for count, value in zip(trace.counts, trace.values, strict=True)
        ]
        counts = list(trace.counts) if max(trace.counts, default=0) > 1 else None
        server = query.server.name or query.server.url
        saved.append(_SavedTrace(query.text, rfc3339(trace.begin), trace.step, values, server, counts))
    return msgspec.json.encode(_SavedPast(saved, remarks=list(recorded.remarks))) + b"\n"


def decode_past(raw: bytes, name: str) -> Recorded:
    """Return the contents of a file of :func:`encode_past`. Raises :class:`RecordingError`."""
    try:
        saved = msgspec.json.decode(raw, type=_SavedPast)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(f"{name}: not a recorded past: {error}") from error
    traces = {}
    for number, each in enumerate(saved.traces, 1):
        about = f"{name}: trace {number}"
        if not 1 <= each.step <= LONGEST or len(each.values) > MOST_SAMPLES:
            raise RecordingError(
                f"{about}: step {each.step:g}, {len(each.values):,} values; allowed are steps from 1 s"
            )
        try:
            begin = parse_rfc3339(each.begin)
        except ValueError as error:
            raise RecordingError(f"{about}: begin: {error}") from error
        numbers = [None if value is None else _number(value, about) for value in each.values]
        counts = each.counts or [int(value is not None) for value in numbers]
        if len(counts) != len(numbers) or not all(0 <= count <= MOST_SERIES for count in counts):
            raise RecordingError(f"{about}: counts: allowed is one number of 0 to {MOST_SERIES} for each value")
        server = ServerRef(url=each.server) if "://" in each.server else ServerRef(name=each.server)
        values = array("d", [math.nan if value is None else value for value in numbers])
        traces[Query(each.query, server)] = Trace(begin, each.step, values, bytearray(counts))
    return Recorded(traces, tuple(saved.remarks))


def _number(value: float | str, about: str) -> float:
    number = parse_float(value) if isinstance(value, str) else float(value)
    if number is None:
        raise RecordingError(f"{about}: values: {quoted(str(value))}; allowed are numbers, null, and NaN")
    return number

"""The files that hold a recorded past. Pure.

A file is CSV (:mod:`hpa_scaler.decide.recording_csv`), JSON of Prometheus, promtool, Grafana or VictoriaMetrics, or
what ``backtest --save-past`` writes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from http import HTTPStatus
from typing import Literal

import msgspec
from msgspec import Struct, field

from hpa_scaler.decide.recording import (
    LONGEST,
    MOST_SAMPLES,
    MOST_SERIES,
    Recorded,
    RecordingError,
    Samples,
    Trace,
    listed,
    trace_of,
)
from hpa_scaler.prometheus.answers import labelled, matrix
from hpa_scaler.spec.queries import Failure, Query
from hpa_scaler.spec.spec import ServerRef
from hpa_scaler.spec.values import parse_float
from tightship.core.quoting import quoted
from tightship.core.times import parse_rfc3339, rfc3339
from tightship.core.unreadable import UNREADABLE
from tightship.report.document import API_VERSION

Ranges = list[tuple[str, Samples]]
"""Series by their labels."""

_SERIES_END = "=>"
"""The end of the line with a series' labels, in what ``promtool query range`` prints."""


class _Field(Struct):
    name: str = ""
    type: str = ""
    labels: dict[str, str] = {}
    config: dict[str, object] = {}


class _Schema(Struct):
    fields: list[_Field]


class _Columns(Struct):
    values: list[list[float | str | bool | None]]


class _Frame(Struct):
    """A data frame, as Grafana's inspector and ``/api/ds/query`` write it; times are in milliseconds."""

    table: _Schema = field(name="schema")
    data: _Columns = field()


class _Series(Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


class _Exported(Struct):
    """A line of VictoriaMetrics' ``/api/v1/export``; *timestamps* are in milliseconds."""

    values: list[float | None]
    timestamps: list[float]
    metric: dict[str, str] = {}


class _Response(Struct):
    frames: list[_Frame] = []


class _Responses(Struct):
    results: dict[str, _Response]


def read_json(raw: bytes, name: str, series: str = "") -> tuple[Trace, list[str]]:
    """Return the trace in the JSON file *name*: an answer of ``query_range``, what ``promtool query range -o json``
    prints, data frames of Grafana, or an export of VictoriaMetrics.

    Of several series the one called *series* counts; without one the largest, as for a floor. Raises
    :class:`RecordingError`.
    """
    for read in (_promtool, _frames, _responses, _exported):
        try:
            found = read(raw)
        except UNREADABLE:
            continue
        if found:
            return _of_series(found, name, series)
    answer = matrix(HTTPStatus.OK, raw)
    if isinstance(answer, Failure):
        allowed = "an answer of query_range, promtool's -o json, data frames of Grafana, or VictoriaMetrics' export"
        raise RecordingError(f"{name}: {answer.detail}; allowed is {allowed}")
    trace, remarks = _of_series(list(zip(answer.names, answer.series, strict=True)), name, series)
    return trace, [*remarks, *(f"{name}: answered with: {each}" for each in answer.warnings)]


def read_promtool(text: str, name: str, series: str = "") -> tuple[Trace, list[str]]:
    """Return the trace in what ``promtool query range`` printed to the file *name*. Raises :class:`RecordingError`."""
    found: list[tuple[str, list[tuple[float, float]]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        value, _, at = line.strip().removesuffix("]").partition(" @[")
        if line.rstrip().endswith(_SERIES_END):
            found.append((line.strip().removesuffix(_SERIES_END).rstrip(), []))
        elif found and (seconds := parse_float(at)) is not None:
            found[-1][1].append((seconds, _value(value)))
        elif line.strip():
            raise RecordingError(f"{name}: line {number}: {quoted(line)}; allowed is VALUE @[SECONDS]")
    return _of_series(list(found), name, series)


def is_promtool(text: str) -> bool:
    """Whether *text* begins as what ``promtool query range`` prints."""
    return text.lstrip().partition("\n")[0].rstrip().endswith(_SERIES_END)


def _of_series(found: Ranges, name: str, series: str) -> tuple[Trace, list[str]]:
    names = [each for each, _ in found]
    if series:
        found = [each for each in found if each[0] == series]
        if not found:
            raise RecordingError(f"{name}: holds no series {quoted(series)}; allowed are {listed(names)}")
    trace, remarks = trace_of([samples for _, samples in found], name)
    if len(found) > 1:
        remarks.append(f"{name}: holds {len(found)} series, {listed(names)}; --series NAME reads just one")
    return trace, remarks


def _promtool(raw: bytes) -> Ranges:
    series = msgspec.json.decode(raw, type=list[_Series])
    return [(labelled(each.metric), [(at, _value(text)) for at, text in each.values]) for each in series if each.values]


def _frames(raw: bytes) -> Ranges:
    frames = msgspec.json.decode(raw, type=list[_Frame])
    return [each for frame in frames for each in _of_frame(frame)]


def _responses(raw: bytes) -> Ranges:
    responses = msgspec.json.decode(raw, type=_Responses)
    return [each for one in responses.results.values() for frame in one.frames for each in _of_frame(frame)]


def _of_frame(frame: _Frame) -> Iterator[tuple[str, Samples]]:
    fields = list(zip(frame.table.fields, frame.data.values, strict=False))
    times = next((values for each, values in fields if each.type == "time"), [])
    for each, values in fields:
        if each.type == "number":
            name = labelled(each.labels) if each.labels else str(each.config.get("displayName") or each.name)
            yield (
                name,
                [
                    (at / 1000, float(value) if isinstance(value, int | float) else math.nan)
                    for at, value in zip(times, values, strict=False)
                    if isinstance(at, int | float)
                ],
            )


def _exported(raw: bytes) -> Ranges:
    lines = [msgspec.json.decode(line, type=_Exported) for line in raw.splitlines() if line.strip()]
    return [
        (
            labelled(each.metric),
            [
                (at / 1000, math.nan if value is None else value)
                for at, value in zip(each.timestamps, each.values, strict=False)
            ],
        )
        for each in lines
    ]


def _value(text: str) -> float:
    value = parse_float(text)
    return math.nan if value is None else value


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
    except UNREADABLE as error:
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

"""The files that hold a recorded past.

A file is CSV (:mod:`hpa_scaler.backtest.csv_files`), JSON of Prometheus, promtool, Grafana or VictoriaMetrics, or
what ``backtest --save-past`` writes.
"""

from __future__ import annotations

import math
from array import array
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from http import HTTPStatus
from typing import Literal

import msgspec
from msgspec import Struct, field

from hpa_scaler.annotations.queries import Failure, Query, value_query
from hpa_scaler.annotations.spec import FloorSpec, ServerRef
from hpa_scaler.annotations.values import parse_float
from hpa_scaler.backtest.csv_files import read_csv
from hpa_scaler.backtest.variants import replicas_query, wanted_query
from hpa_scaler.prometheus.answers import labelled, matrix
from hpa_scaler.prometheus.samples import (
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
from tightship.cli.app import CliError
from tightship.cli.documents import DocumentError, unpack
from tightship.cli.object_file import read_bytes
from tightship.documents.document import API_VERSION
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.counting import counted
from tightship.objects.quoting import quoted
from tightship.objects.times import parse_rfc3339, rfc3339
from tightship.objects.unreadable import UNREADABLE

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


def read_pasts(
    paths: Sequence[str],
    hpas: Sequence[tuple[HorizontalPodAutoscaler, FloorSpec | None]],
    zone: tzinfo | None = None,
    series: str = "",
) -> Recorded:
    """Return the past in the files *paths*: what ``--save-past`` wrote, CSV, or JSON with the samples of one query.

    All but the first belong to the one HPA there is, or to the one before an equals sign: ``shop/web=FILE``. *zone* is
    of times without an offset, *series* names one of several. Raises :class:`CliError` and
    :class:`~tightship.cli.object_file.FileError`.
    """
    traces: dict[Query, Trace] = {}
    remarks: list[str] = []
    for path in paths:
        key, file = _named(path)
        raw, name = read_bytes(file)
        try:
            text = unpack(raw)
            if text.lstrip()[:1] == b"{" and b'"QueryPast"' in text:
                found = decode_past(text, name)
                traces |= found.traces
                remarks += found.remarks
                continue
            hpa, spec = _only(key, hpas, name)
            server = spec.queries[0].server
            value = value_query(spec.queries[0])
            # PowerShell and spreadsheets write UTF-16.
            plain = text.decode("utf-16" if text[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig")
            if is_promtool(plain):
                traces[value], more = read_promtool(plain, name, series)
            elif plain.lstrip()[:1] in ("{", "["):
                traces[value], more = read_json(plain.encode(), name, series)
            else:
                columns, more = read_csv(plain, name, zone, series)
                traces[value] = columns["value"]
                others: dict[str, Query] = {
                    "replicas": replicas_query(hpa.namespace, hpa.name, server),
                    "wanted": wanted_query(hpa.namespace, hpa.name, server),
                }
                traces |= {others[column]: trace for column, trace in columns.items() if column in others}
            remarks += more
        except (RecordingError, DocumentError, UnicodeDecodeError) as error:
            raise CliError(str(error) if str(error).startswith(name) else f"{name}: {error}") from error
    return Recorded(traces, tuple(remarks))


def _named(path: str) -> tuple[str, str]:
    key, equals, file = path.partition("=")
    return (key, file) if equals and key.count("/") == 1 else ("", path)


def _only(
    key: str, hpas: Sequence[tuple[HorizontalPodAutoscaler, FloorSpec | None]], name: str
) -> tuple[HorizontalPodAutoscaler, FloorSpec]:
    """Return the HPA whose first query the file called *name* records."""
    found = [each for each in hpas if key in ("", each[0].key)]
    if len(found) != 1:
        raise CliError(
            f"{name}: records one query, and {counted(len(found), 'HPA')} may be meant: write NAMESPACE/NAME=FILE"
        )
    hpa, spec = found[0]
    if spec is None or not spec.queries:
        raise CliError(f"{name}: {hpa.key} has no query that the file could record: give one by --set or an annotation")
    return hpa, spec


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

"""The files that hold a recorded past. Pure.

A file is CSV with a header (a time, a value, and perhaps ``replicas`` and ``wanted``), an answer of Prometheus's
``/api/v1/query_range``, or what ``backtest --save-past`` writes.
"""

from __future__ import annotations

import csv
import math
from array import array
from http import HTTPStatus
from typing import Literal

import msgspec
from msgspec import Struct

from hpa_scaler.decide.recording import (
    LONGEST,
    MOST_SAMPLES,
    MOST_SERIES,
    Recorded,
    RecordingError,
    Trace,
    trace_of,
)
from hpa_scaler.prometheus.answers import matrix
from hpa_scaler.spec.queries import Failure, Query
from hpa_scaler.spec.spec import ServerRef
from hpa_scaler.spec.values import parse_float
from tightship.core.counting import counted
from tightship.core.quoting import quoted
from tightship.core.times import parse_rfc3339, rfc3339
from tightship.report.document import API_VERSION

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

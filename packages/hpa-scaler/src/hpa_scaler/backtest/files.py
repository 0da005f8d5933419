"""Recorded pasts in files: CSV, JSON of Prometheus, promtool, Grafana or VictoriaMetrics, what ``--save-past`` writes,
and decision logs.

A CSV file, as Grafana, spreadsheets and scripts write it, has a header and a column of times; it may begin with
``sep=;``, or with lines of comments. A column of texts names the series of each row. ``replicas`` and ``wanted`` are an
HPA's own, every other column of numbers is a series.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from http import HTTPStatus
from itertools import pairwise
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct, field

from hpa_scaler.annotations.parsing import ANNOTATIONS, name_of
from hpa_scaler.annotations.queries import Failure, Outcome, Query, QueryAnswer, value_query
from hpa_scaler.annotations.spec import ENABLE, Band, FloorSpec, ForecastSpec, PauseSpec, Rules, ServerRef
from hpa_scaler.annotations.values import format_float, parse_float
from hpa_scaler.backtest.replay import BacktestSetup, RecordedHpa
from hpa_scaler.judge.decision_log import DecisionLine, LogError, read_log
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
from tightship.cli.object_file import DocumentError, read_bytes, unpack
from tightship.documents.document import API_VERSION
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.counting import counted
from tightship.objects.quoting import quoted
from tightship.objects.times import parse_rfc3339, rfc3339
from tightship.objects.unreadable import UNREADABLE

_OWN = ("replicas", "wanted")
_SEPARATORS = ",;\t|"
_TIMES = frozenset({"time", "timestamp", "date", "datetime", "_time", "ts", "ds", "zeit", "datum"})
_NOTHING = frozenset({"", "-", "null", "none", "undefined", "n/a", "no data"})
_LOOKED_AT = 200

_ALLOWED_TIMES = "RFC 3339, 2026-03-01 04:00:00, 1.3.2026 04:00, 3/1/2026 4:00 AM, or seconds to nanoseconds since 1970"
_ALLOWED_NUMBERS = "a number such as 1234.5, 1,234.5, 1.234,5 or 12.5 K, with one unit for the whole column"

_DAY = re.compile(
    r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}),? +(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)? *([AaPp])?\.?(?:[Mm]\.?)?"
)
_NAMED = ("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%b %d %Y", "%d %B %Y", "%B %d, %Y", "%a %d %b %Y", "%a, %d %b %Y")
_FORMS = [f"{date} {clock}" for date in _NAMED for clock in ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")]
_EPOCHS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3), (0.0, 1.0))
"""From so much on, a number of a time since 1970 is one of so many parts of a second."""

_CELL = re.compile(r"([+-]?\d[\d.,'\u2019\s]*(?:[eE][+-]?\d+)?|[+-]?[.,]\d+)\s*(\D.*)?")
_GROUPS = re.compile(r"[+-]?\d{1,3}(?:[.,]\d{3})+")
_PREFIXES = {"K": 1e3, "k": 1e3, "Mil": 1e6, "M": 1e6, "Bil": 1e9, "G": 1e9, "Tri": 1e12, "T": 1e12}
"""As Grafana shortens numbers (``packages/grafana-data/src/valueFormats``)."""
_PREFIXED = re.compile(rf"({'|'.join(_PREFIXES)})(?:\s+(.*))?")

_STEP = 15.0
"""Seconds of one step of a trace from a decision log: cycles are not regular."""
_CYCLES = 2.5
"""Cycles for which an answer in a decision log counts."""

_SERIES_END = "=>"
"""The end of the line with a series' labels, in what ``promtool query range`` prints."""


def read_csv(text: str, name: str, zone: tzinfo | None = None, series: str = "") -> tuple[dict[str, Trace], list[str]]:
    """Return the traces in a CSV file called *name*, as ``value``, ``replicas`` and ``wanted``, and remarks.

    Times without an offset are local times of *zone*, UTC without one. Of several series the one called *series*
    counts, without one the first. Raises :class:`RecordingError`.
    """
    separator, header, rows, bad = _table(text, name)
    columns = list(zip(*(row for _, row in rows), strict=True)) or [()] * len(header)
    at = _time_column(header, columns)
    clock = _Clock(columns[at], zone)
    times = [clock.seconds(cell) for cell in columns[at]]
    own = {column: header.index(column) for column in _OWN if column in header and header.index(column) != at}
    free = [place for place in range(len(header)) if place != at and place not in own.values()]
    texts = [place for place in free if _is_text(columns[place])]
    numbers = [place for place in free if place not in texts] or free
    # A column of labels beside one column of numbers: a row for each series.
    keys = [" ".join(row[place] for place in texts) for _, row in rows] if texts and numbers != free else []
    names = list(dict.fromkeys(keys)) if keys else [header[place] for place in numbers]
    _check_series(series, names, name)
    chosen = series or names[0]
    value = numbers[0] if keys else numbers[names.index(chosen)]
    remarks = []
    if len(names) > 1 and not series:
        remark = f"{name}: holds {counted(len(names), 'series', 'series')}, {listed(names)}; the first counts"
        remarks.append(f"{remark}; --series NAME names another")
    found: dict[str, list[tuple[float, float]]] = {}
    for column, place in {"value": value, **own}.items():
        taken = [not keys or place != value or key == chosen for key in keys or times]
        cells = zip((line for line, _ in rows), times, columns[place], taken, strict=True)
        found[column] = list(_samples(cells, _numbers(columns[place], separator), bad))
    for (line, row), seconds in zip(rows, times, strict=True):
        if seconds is None:
            bad.append((line, f"{quoted(row[at])} is no time; allowed is {_ALLOWED_TIMES}"))
    bad.sort(key=lambda each: each[0])
    first = f"line {bad[0][0]}: {bad[0][1]}" if bad else ""
    if bad and not found["value"]:
        raise RecordingError(f"{name}: {first}")
    if bad:
        remarks.append(f"{name}: {counted(len(bad), 'cell')} unreadable and left out, first {first}")
    remarks += [f"{name}: {each}" for each in clock.remarks]
    traces: dict[str, Trace] = {}
    for column, samples in found.items():
        if samples or column == "value":
            traces[column], more = trace_of([samples], f"{name}: {column}" if column != "value" else name)
            remarks += more
    return traces, remarks


def _table(text: str, name: str) -> tuple[str, list[str], list[tuple[int, list[str]]], list[tuple[int, str]]]:
    """Return the separator, the header, the rows below it and what is unreadable, with the number of each line."""
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.strip() and line[0] != "#"), len(lines))
    given = re.fullmatch(r'"?sep=(.)"?', lines[start].strip(" ")) if start < len(lines) else None
    start += given is not None
    first = lines[start] if start < len(lines) else ""
    separator = given[1] if given is not None else max(_SEPARATORS, key=re.sub(r'"[^"]*"', "", first).count)
    cells = [[cell.strip() for cell in row] for row in csv.reader(lines[start:], delimiter=separator)]
    header = [cell if cell.lower() not in _OWN else cell.lower() for cell in cells[0]] if cells else []
    if len(header) < 2 or all(_is_number(cell) or _is_time(cell) for cell in header):
        where = f"{name}: line {start + 1}: {quoted(first)}"
        raise RecordingError(f"{where}; allowed is a header of two columns or more, such as timestamp,rps")
    rows, bad = [], []
    for line, row in enumerate(cells[1:], start + 2):
        if len(row) > len(header) and any(row[len(header) :]):
            wide = f"{quoted(separator.join(row))} has {len(row)} cells; allowed are {len(header)}, as in the header"
            bad.append((line, wide))
        elif any(row):
            rows.append((line, [*row, *[""] * (len(header) - len(row))][: len(header)]))
    return separator, header, rows, bad


def _time_column(header: Sequence[str], columns: Sequence[Sequence[str]]) -> int:
    """Return the column of times: one that is called so, else the first that can be one."""
    named = [place for place, cell in enumerate(header) if cell.lower() in _TIMES]
    for place in named or range(len(header)):
        cells = [cell for cell in columns[place][:_LOOKED_AT] if cell]
        if sum(map(_is_time, cells)) * 2 > len(cells):
            return place
    return next(iter(named), 0)


def _is_text(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells[:_LOOKED_AT] if cell.lower() not in _NOTHING]
    return bool(known) and not any(_is_number(cell) for cell in known)


def _is_number(cell: str) -> bool:
    return parse_float(cell) is not None or _CELL.fullmatch(cell) is not None


def _is_time(cell: str) -> bool:
    return _Clock([cell], UTC).seconds(cell) is not None


class _Clock:
    """Reads the times of one column, which are all written alike."""

    def __init__(self, cells: Sequence[str], zone: tzinfo | None) -> None:
        self._zone = zone or UTC
        self._has_zone = zone is not None
        self._last = -math.inf
        self.remarks: list[str] = []
        days = [match for cell in cells if (match := _DAY.fullmatch(cell)) is not None and match[2] != "."]
        firsts, seconds = {int(each[1]) for each in days}, {int(each[3]) for each in days}
        # The number that changes more often is the day.
        self._day_first = max(firsts, default=0) > 12 or (
            max(seconds, default=0) <= 12 and len(firsts) > len(seconds) and not any(each[8] for each in days)
        )
        if days and max(firsts | seconds) <= 12 and len(firsts) == len(seconds):
            self.remarks.append(f"{quoted(days[0][0])} is read as month/day/year; write 2026-03-01 if it is not")

    def seconds(self, cell: str) -> float | None:
        """Return the seconds since 1970 of the time in *cell*, ``None`` if that is none."""
        if (number := parse_float(cell)) is not None:
            return next((number / parts for least, parts in _EPOCHS if number >= least), None)
        try:
            moment = self._date(cell)
        except ValueError:
            return None
        if moment is None or moment.tzinfo is not None:
            return None if moment is None else moment.timestamp()
        if not self._has_zone:
            self._has_zone = True
            self.remarks.append("the times have no offset and are read as UTC; --time-zone names another zone")
        moment = moment.replace(tzinfo=self._zone)
        # When clocks are set back, an hour of local times comes twice.
        if moment.timestamp() <= self._last < moment.replace(fold=1).timestamp():
            moment = moment.replace(fold=1)
        self._last = moment.timestamp()
        return self._last

    def _date(self, cell: str) -> datetime | None:
        if (match := _DAY.fullmatch(cell)) is not None:
            day, month = (1, 3) if self._day_first or match[2] == "." else (3, 1)
            hour = int(match[5]) % 12 + 12 * (match[8] in ("p", "P")) if match[8] else int(match[5])
            return datetime(int(match[4]), int(match[month]), int(match[day]), hour, int(match[6]), int(match[7] or 0))  # noqa: DTZ001 - the zone follows
        plain = re.sub(r" ?(?:UTC|GMT|Z)$", "+00:00", re.sub(r" ([+-]\d{4})(?: [A-Z]{3,4})?$", r"\1", cell))
        try:
            return datetime.fromisoformat(plain.replace("/", "-") if plain[4:5] == "/" else plain)
        except ValueError:
            pass
        for form in _FORMS:
            try:
                return datetime.strptime(cell, form)  # noqa: DTZ007 - the zone follows
            except ValueError:
                continue
        return None


def _numbers(cells: Sequence[str], separator: str) -> Callable[[str], float | None]:
    """Return what reads the numbers of the column *cells*: one decimal sign, and the unit of the first number."""
    comma = _decimal_comma([match[1] for cell in cells if (match := _CELL.fullmatch(cell)) is not None], separator)
    unit: str | None = None

    def read(cell: str) -> float | None:
        nonlocal unit
        if not comma and (value := parse_float(cell)) is not None:
            return value
        if (match := _CELL.fullmatch(cell)) is None:
            return None
        rest = match[2] or ""
        short = _PREFIXED.fullmatch(rest)
        factor, of = (1.0, rest.strip()) if short is None else (_PREFIXES[short[1]], (short[2] or "").strip())
        unit = of if unit is None else unit
        plain = re.sub(r"[\s'\u2019]", "", match[1])
        plain = plain.replace(".", "").replace(",", ".") if comma else plain.replace(",", "")
        value = parse_float(plain)
        return None if value is None or of != unit else value * factor

    return read


def _samples(
    cells: Iterable[tuple[int, float | None, str, bool]],
    read: Callable[[str], float | None],
    bad: list[tuple[int, str]],
) -> Iterator[tuple[float, float]]:
    """Yield the samples in *cells*, each with its line, its time and whether it counts; note in *bad* what is none."""
    for line, at, cell, counts in cells:
        if at is None or not counts or cell.lower() in _NOTHING:
            continue
        if (value := read(cell)) is None:
            bad.append((line, f"{quoted(cell)}; allowed is {_ALLOWED_NUMBERS}"))
        else:
            yield at, value


def _decimal_comma(texts: Sequence[str], separator: str) -> bool:
    """Whether a comma, and not a point, separates the decimals of the numbers *texts* of one column."""
    both = next((text for text in texts if "." in text and "," in text), None)
    if both is not None:
        return both.rindex(",") > both.rindex(".")
    commas = [text for text in texts if "," in text]
    if any(text.count(",") > 1 for text in commas):
        return False
    # 1,234 is one thousand and more, unless commas are free because something else separates the cells.
    grouped = separator == "," and all(_GROUPS.fullmatch(text) for text in commas)
    return any(text.count(".") > 1 for text in texts) or (bool(commas) and not grouped)


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

    def series(self) -> Iterator[tuple[str, Samples]]:
        """Yield each column of numbers by its labels or its name."""
        columns = list(zip(self.table.fields, self.data.values, strict=False))
        times = next((values for each, values in columns if each.type == "time"), [])
        for each, values in columns:
            if each.type == "number":
                name = labelled(each.labels) if each.labels else str(each.config.get("displayName") or each.name)
                yield name, _in_milliseconds(times, values)


class _Response(Struct):
    frames: list[_Frame] = []


class _Responses(Struct):
    results: dict[str, _Response]


class _Series(Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


class _Exported(Struct):
    """A line of VictoriaMetrics' ``/api/v1/export``; *timestamps* are in milliseconds."""

    values: list[float | None]
    timestamps: list[float]
    metric: dict[str, str] = {}


def _in_milliseconds(times: Sequence[object], values: Sequence[object]) -> Samples:
    return [
        (at / 1000, float(value) if isinstance(value, int | float) else math.nan)
        for at, value in zip(times, values, strict=False)
        if isinstance(at, int | float)
    ]


def _value(text: str) -> float:
    value = parse_float(text)
    return math.nan if value is None else value


def _json_series(raw: bytes) -> list[tuple[str, Samples]]:
    """Return the series in the first form of JSON that fits *raw*, by their labels; none if none does."""
    decode = msgspec.json.decode
    forms: tuple[Callable[[], list[tuple[str, Samples]]], ...] = (
        lambda: [
            (labelled(each.metric), [(at, _value(text)) for at, text in each.values])
            for each in decode(raw, type=list[_Series])
            if each.values
        ],
        lambda: [each for frame in decode(raw, type=list[_Frame]) for each in frame.series()],
        lambda: [
            each
            for response in decode(raw, type=_Responses).results.values()
            for frame in response.frames
            for each in frame.series()
        ],
        lambda: [
            (labelled(each.metric), _in_milliseconds(each.timestamps, each.values))
            for each in (decode(line, type=_Exported) for line in raw.splitlines() if line.strip())
        ],
    )
    for form in forms:
        try:
            if found := form():
                return found
        except UNREADABLE:
            continue
    return []


def read_json(raw: bytes, name: str, series: str = "") -> tuple[Trace, list[str]]:
    """Return the trace in the JSON file *name*: an answer of ``query_range``, what ``promtool query range -o json``
    prints, data frames of Grafana, or an export of VictoriaMetrics.

    Of several series the one called *series* counts; without one the largest, as for a floor. Raises
    :class:`RecordingError`.
    """
    if found := _json_series(raw):
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
    return _of_series(found, name, series)


def _of_series(found: Sequence[tuple[str, Samples]], name: str, series: str) -> tuple[Trace, list[str]]:
    names = [each for each, _ in found]
    _check_series(series, names, name)
    found = [each for each in found if series in ("", each[0])]
    trace, remarks = trace_of([samples for _, samples in found], name)
    if len(found) > 1:
        remarks.append(f"{name}: holds {len(found)} series, {listed(names)}; --series NAME reads just one")
    return trace, remarks


def _check_series(series: str, names: Sequence[str], name: str) -> None:
    if series and series not in names:
        raise RecordingError(f"{name}: holds no series {quoted(series)}; allowed are {listed(names)}")


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
        counts = each.counts or [int(value is not None) for value in each.values]
        values = array("d")
        for value in each.values:
            known = parse_float(value) if isinstance(value, str) else math.nan if value is None else value
            if known is None:
                raise RecordingError(f"{about}: values: {quoted(str(value))}; allowed are numbers, null, and NaN")
            values.append(known)
        if len(counts) != len(values) or not all(0 <= count <= MOST_SERIES for count in counts):
            raise RecordingError(f"{about}: counts: allowed is one number of 0 to {MOST_SERIES} for each value")
        server = ServerRef(url=each.server) if "://" in each.server else ServerRef(name=each.server)
        traces[Query(each.query, server)] = Trace(begin, each.step, values, bytearray(counts))
    return Recorded(traces, tuple(saved.remarks))


def read_pasts(
    paths: Sequence[str],
    hpas: Sequence[tuple[HorizontalPodAutoscaler, FloorSpec]],
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
        key, equals, file = path.partition("=")
        if not equals or key.count("/") != 1:
            key, file = "", path
        raw, name = read_bytes(file)
        try:
            text = unpack(raw)
            if text.lstrip()[:1] == b"{" and b'"QueryPast"' in text:
                saved = decode_past(text, name)
                traces |= saved.traces
                remarks += saved.remarks
                continue
            hpa, spec = _recorded_by(name, [each for each in hpas if key in ("", each[0].key)])
            # PowerShell and spreadsheets write UTF-16.
            plain = text.decode("utf-16" if text[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig")
            found: dict[str, Trace] = {}
            if plain.lstrip().partition("\n")[0].rstrip().endswith(_SERIES_END):
                found["value"], more = read_promtool(plain, name, series)
            elif plain.lstrip()[:1] in ("{", "["):
                found["value"], more = read_json(plain.encode(), name, series)
            else:
                found, more = read_csv(plain, name, zone, series)
        except (RecordingError, DocumentError, UnicodeDecodeError) as error:
            raise CliError(str(error) if str(error).startswith(name) else f"{name}: {error}") from error
        queries = {"value": value_query(spec.queries[0])} | own_queries(hpa, spec.queries[0].server)
        traces |= {queries[column]: trace for column, trace in found.items()}
        remarks += more
    return Recorded(traces, tuple(remarks))


def _recorded_by(
    name: str, hpas: Sequence[tuple[HorizontalPodAutoscaler, FloorSpec]]
) -> tuple[HorizontalPodAutoscaler, FloorSpec]:
    """Return the one of *hpas* whose first query the file called *name* records."""
    if len(hpas) != 1:
        raise CliError(
            f"{name}: records one query, and {counted(len(hpas), 'HPA')} may be meant: write NAMESPACE/NAME=FILE"
        )
    hpa, spec = hpas[0]
    if not spec.queries:
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


_ABOUT = '{{namespace="{namespace}",horizontalpodautoscaler="{name}"}}'
_SCRAPED = "instance, pod, endpoint, service, job, node, uid, prometheus, prometheus_replica, replica, __replica__"
"""Labels of who was scraped and who scraped, not of the HPA. Every other one, as ``cluster``, tells HPAs apart."""
_OTHERS = f"{_SCRAPED}, container, exported_container"
_CURRENT = f"max without ({_OTHERS}) (kube_horizontalpodautoscaler_status_current_replicas{_ABOUT})"
_RATIO = (
    f"max without ({_OTHERS}, metric_name, metric_target_type) ("
    f"max without ({_SCRAPED}) (kube_horizontalpodautoscaler_status_target_metric{_ABOUT})"
    f" / max without ({_SCRAPED}) (kube_horizontalpodautoscaler_spec_target_metric{_ABOUT}))"
)
_OWN_QUERIES = {
    "replicas": _CURRENT,
    "wanted": f"{_CURRENT} * {_RATIO}",
    "floor": f"max without ({_OTHERS}) (kube_horizontalpodautoscaler_spec_min_replicas{_ABOUT})",
}


def own_queries(hpa: HorizontalPodAutoscaler, server: ServerRef) -> dict[str, Query]:
    """Return the queries, by kube-state-metrics, for what *hpa* itself was and asked for.

    These are the ``replicas`` that the HPA had; those ``wanted`` by its own metrics, not rounded: the replicas times
    the largest ratio of a metric to its target (kube-state-metrics 2.6 or later); and its ``floor``, ``minReplicas``.
    There is a series for each HPA of that name, as in a server of several clusters. Metrics of one name and type, as of
    two containers, are one series until kube-state-metrics tells them apart (its issues #2403 and #2405).
    """
    names = {"namespace": hpa.namespace, "name": hpa.name}
    return {what: Query(text.format(**names), server) for what, text in _OWN_QUERIES.items()}


def pasts_of_log(lines: Iterable[bytes]) -> tuple[list[RecordedHpa], BacktestSetup]:
    """Return the past of each HPA in a decision log, and the stretch that the log spans.

    An HPA has the annotations of its last line, and the bounds of its user. Raises :class:`LogError` for an unreadable
    line, and if the log holds no judged HPA.
    """
    logged: dict[str, list[DecisionLine]] = {}
    for _, line in read_log(lines):
        if isinstance(line, DecisionLine) and line.spec is not None and not line.cycle.endswith("-again"):
            logged.setdefault(line.hpa.key, []).append(line)
    if not logged:
        raise LogError("holds no HPA that was judged")
    times = sorted({line.now for each in logged.values() for line in each})
    if times[-1] - times[0] > LONGEST:
        raise LogError(f"spans {rfc3339(times[0])} to {rfc3339(times[-1])}, which is more than a year")
    apart = [after - before for before, after in pairwise(times)]
    interval = min(3600.0, max(5.0, round(median(apart)) if apart else 75.0))
    rules = next(iter(logged.values()))[-1].rules
    setup = BacktestSetup(rules=rules, begin=times[0], end=times[-1] + interval, interval=interval)
    return [_logged(each, interval, rules) for each in logged.values()], setup


def _logged(lines: list[DecisionLine], interval: float, rules: Rules) -> RecordedHpa:
    last, first = lines[-1], lines[0]
    assert last.spec is not None
    notes = {name_of(rules.prefix, name): text for name, text in texts_of(last.spec).items()}
    minimum, maximum = last.history.original_min, last.history.original_max
    hpa = msgspec.structs.replace(
        last.hpa,
        annotations={f"{rules.prefix}/{ENABLE}": "true", **notes},
        min_replicas=first.hpa.min_replicas if minimum is None else minimum,
        max_replicas=first.hpa.max_replicas if maximum is None else maximum,
    )
    outcomes = [(line.now, dict(line.outcomes)) for line in lines]
    queries = {query for _, each in outcomes for query in each if not query.labels}
    traces = {query: _held([(at, each.get(query)) for at, each in outcomes], interval) for query in queries}
    running = [(line.now, line.hpa.current_replicas) for line in lines]
    replicas = _held([(at, None if each is None else QueryAnswer(1, float(each))) for at, each in running], interval)
    return RecordedHpa(
        hpa, {query: trace for query, trace in traces.items() if any(trace.counts)}, last.spec, replicas=replicas
    )


def _held(outcomes: Sequence[tuple[float, Outcome | None]], interval: float) -> Trace:
    """Return the answers at regular steps: each counts until the next, for a few cycles at most."""
    begin, end = outcomes[0][0], outcomes[-1][0] + interval
    length = int((end - begin) // _STEP) + 1
    values, counts = array("d", [math.nan]) * length, bytearray(length)
    for (at, outcome), (after, _) in pairwise([*outcomes, (end, None)]):
        if isinstance(outcome, QueryAnswer):
            until = min(after, at + _CYCLES * interval)
            for place in range(math.ceil((at - begin) / _STEP), min(length, math.ceil((until - begin) / _STEP))):
                counts[place] = min(255, outcome.series)
                values[place] = math.nan if outcome.highest is None else outcome.highest
    return Trace(begin, _STEP, values, counts)


def texts_of(spec: FloorSpec) -> dict[str, str]:
    """Return annotations by their names after ``hpa-scaler-``; reading them again gives *spec*."""
    usual, hold, forecast = FloorSpec(), spec.hold, spec.forecast
    found = {
        each.name: _text(getattr(spec, each.field))
        for each in ANNOTATIONS
        if each.field and getattr(spec, each.field) != getattr(usual, each.field)
    }
    for number, query in enumerate(spec.queries, 1):
        suffix = "" if number == 1 else f"-{number}"
        found[f"prometheus-query{suffix}"] = query.text
        found[f"requests-per-replica{suffix}"] = format_float(query.per_replica)
        found[f"delta{suffix}"] = format_float(query.delta)
        if query.server.name:
            found[f"prometheus-server{suffix}"] = query.server.name
        elif query.server.url:
            found[f"prometheus-server-url{suffix}"] = query.server.url
    if spec.missing != usual.missing:
        found |= {"missing-data": str(spec.missing), "missing-data-after": str(spec.missing.after)}
    if forecast is not None:
        found["forecast"] = forecast.season
        if forecast != ForecastSpec(forecast.season):
            found["forecast-ahead"] = format_float(forecast.ahead)
    if hold is not None:
        found |= {"hold-query": hold.text, "hold-cool-down": format_float(hold.cool_down)}
        if hold.server.name:
            found["hold-query-server"] = hold.server.name
    return found


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float() | int():
            return format_float(value)
        case Band():
            return f"{format_float(round(value.share * 100, 9))}%" if value.share else str(value.pods)
        case PauseSpec():
            return rfc3339(value.until) if value.on and value.until is not None else _text(value.on)
        case _:
            return str(value)

"""A recorded past in CSV, as Grafana, spreadsheets and scripts write it. Pure.

A file has a header and a column of times; it may begin with ``sep=;``, or with lines of comments. A column of texts
names the series of each row. ``replicas`` and ``wanted`` are an HPA's own, every other column of numbers is a series.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Literal

from msgspec import Struct

from hpa_scaler.annotations.values import parse_float
from hpa_scaler.prometheus.samples import RecordingError, Trace, listed, trace_of
from tightship.objects.counting import counted
from tightship.objects.quoting import quoted

Column = Literal["value", "replicas", "wanted"]

_OWN: tuple[Column, ...] = ("replicas", "wanted")
_SEPARATORS = ",;\t|"
_TIMES = frozenset({"time", "timestamp", "date", "datetime", "_time", "ts", "ds", "zeit", "datum"})
_NOTHING = frozenset({"", "-", "null", "none", "undefined", "n/a", "no data"})
_LOOKED_AT = 200

ALLOWED_TIMES = "RFC 3339, 2026-03-01 04:00:00, 1.3.2026 04:00, 3/1/2026 4:00 AM, or seconds to nanoseconds since 1970"
ALLOWED_NUMBERS = "a number such as 1234.5, 1,234.5, 1.234,5 or 12.5 K, with one unit for the whole column"

_DAY = re.compile(
    r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}),? +(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)? *([AaPp])?\.?(?:[Mm]\.?)?"
)
_NAMED = ("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%b %d %Y", "%d %B %Y", "%B %d, %Y", "%a %d %b %Y", "%a, %d %b %Y")
_CLOCKS = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
_EPOCHS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""Above so much, a number of a time since 1970 is one of so many parts of a second."""

_CELL = re.compile(r"([+-]?\d[\d.,'\u2019\s]*(?:[eE][+-]?\d+)?|[+-]?[.,]\d+)\s*(\D.*)?")
_GROUPS = re.compile(r"[+-]?\d{1,3}(?:[.,]\d{3})+")
_PREFIXES = {"K": 1e3, "k": 1e3, "Mil": 1e6, "M": 1e6, "Bil": 1e9, "G": 1e9, "Tri": 1e12, "T": 1e12}
"""As Grafana shortens numbers (``packages/grafana-data/src/valueFormats``)."""
_PREFIXED = re.compile(rf"({'|'.join(_PREFIXES)})(?:\s+(.*))?")


class _Table(Struct):
    """The *rows* of a file below its *header*, each with its line, and what is unreadable in them."""

    name: str
    separator: str
    header: list[str]
    rows: list[tuple[int, list[str]]]
    bad: list[str] = []

    def cells(self, place: int) -> list[str]:
        return [row[place] for _, row in self.rows]


def read_csv(
    text: str, name: str, zone: tzinfo | None = None, series: str = ""
) -> tuple[dict[Column, Trace], list[str]]:
    """Return the traces in a CSV file called *name*, by column, and remarks.

    Times without an offset are local times of *zone*, UTC without one. Of several series the one called *series*
    counts, without one the first. Raises :class:`RecordingError`.
    """
    table = _table(text, name)
    at = _time_column(table)
    clock = _Clock(table.cells(at), zone)
    times = [clock.seconds(cell) for cell in table.cells(at)]
    others = [place for place in range(len(table.header)) if place != at]
    own = {column: table.header.index(column) for column in _OWN if column in [table.header[each] for each in others]}
    free = [place for place in others if place not in own.values()]
    texts = [place for place in free if _is_text(table.cells(place))]
    columns = [place for place in free if place not in texts] or free
    # A column of labels beside one column of numbers: a row for each series.
    keys = [" ".join(row[place] for place in texts) for _, row in table.rows] if texts and columns != free else []
    names = list(dict.fromkeys(keys)) if keys else [table.header[place] for place in columns]
    if series and series not in names:
        raise RecordingError(f"{name}: holds no series {quoted(series)}; allowed are {listed(names)}")
    chosen = series or names[0]
    value = columns[0] if keys else columns[names.index(chosen)]
    remarks = []
    if len(names) > 1 and not series:
        remark = f"{name}: holds {counted(len(names), 'series', 'series')}, {listed(names)}; the first counts"
        remarks.append(f"{remark}; --series NAME names another")
    found: dict[Column, list[tuple[float, float]]] = {}
    for column, place in {"value": value, **own}.items():
        of_series = [not keys or place != value or key == chosen for key in keys or table.rows]
        found[column] = list(_samples(table, times, place, of_series))
    for (line, row), seconds in zip(table.rows, times, strict=True):
        if seconds is None:
            table.bad.append(f"line {line}: {quoted(row[at])} is no time; allowed is {ALLOWED_TIMES}")
    table.bad.sort(key=lambda each: int(each.removeprefix("line ").partition(":")[0]))
    if table.bad and not found["value"]:
        raise RecordingError(f"{name}: {table.bad[0]}")
    if table.bad:
        remarks.append(f"{name}: {counted(len(table.bad), 'cell')} unreadable and left out, first {table.bad[0]}")
    remarks += [f"{name}: {each}" for each in clock.remarks]
    traces: dict[Column, Trace] = {}
    for column, samples in found.items():
        if samples or column == "value":
            about = f"{name}: {column}" if column != "value" else name
            traces[column], more = trace_of([samples], about)
            remarks += more
    return traces, remarks


def _table(text: str, name: str) -> _Table:
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.strip() and line[0] != "#"), len(lines))
    given = re.fullmatch(r'"?sep=(.)"?', lines[start].strip(" ")) if start < len(lines) else None
    start += given is not None
    first = lines[start] if start < len(lines) else ""
    separator = given[1] if given is not None else max(_SEPARATORS, key=re.sub(r'"[^"]*"', "", first).count)
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines[start:], delimiter=separator)]
    header = [cell if cell.lower() not in _OWN else cell.lower() for cell in rows[0]] if rows else []
    if len(header) < 2 or all(_number(cell) or _is_time(cell) for cell in header):
        where = f"{name}: line {start + 1}: {quoted(first)}"
        raise RecordingError(f"{where}; allowed is a header of two columns or more, such as timestamp,rps")
    table = _Table(name, separator, header, [])
    for line, row in enumerate(rows[1:], start + 2):
        if len(row) > len(header) and any(row[len(header) :]):
            remark = f"{quoted(separator.join(row))} has {len(row)} cells; allowed are {len(header)}, as in the header"
            table.bad.append(f"line {line}: {remark}")
        elif any(row):
            table.rows.append((line, [*row, *[""] * (len(header) - len(row))][: len(header)]))
    return table


def _time_column(table: _Table) -> int:
    """Return the column of times: one that is called so, else the first that can be one."""
    named = [place for place, cell in enumerate(table.header) if cell.lower() in _TIMES]
    for place in named or range(len(table.header)):
        cells = [cell for cell in table.cells(place)[:_LOOKED_AT] if cell]
        if sum(map(_is_time, cells)) * 2 > len(cells):
            return place
    return next(iter(named), 0)


def _is_text(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells[:_LOOKED_AT] if cell.lower() not in _NOTHING]
    return bool(known) and not any(_number(cell) for cell in known)


def _number(cell: str) -> bool:
    return parse_float(cell) is not None or _CELL.fullmatch(cell) is not None


def _is_time(cell: str) -> bool:
    return _Clock([cell], UTC).seconds(cell) is not None


class _Clock:
    """Reads the times of one column, which are all written alike."""

    def __init__(self, cells: Sequence[str], zone: tzinfo | None) -> None:
        self._zone = zone or UTC
        self._has_zone = zone is not None
        self._last = float("-inf")
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
        number = parse_float(cell)
        if number is not None:
            return (
                next((number / parts for least, parts in _EPOCHS if number >= least), number) if number >= 0 else None
            )
        try:
            moment = self._date(cell)
        except ValueError:
            return None
        if moment is None:
            return None
        if moment.tzinfo is None:
            if not self._has_zone:
                self._has_zone = True
                self.remarks.append("the times have no offset and are read as UTC; --time-zone names another zone")
            moment = moment.replace(tzinfo=self._zone)
            # When clocks are set back, an hour of local times comes twice.
            if moment.timestamp() <= self._last < moment.replace(fold=1).timestamp():
                moment = moment.replace(fold=1)
            self._last = moment.timestamp()
        return moment.timestamp()

    def _date(self, cell: str) -> datetime | None:
        plain = re.sub(r" ?(?:UTC|GMT|Z)$", "+00:00", re.sub(r" ([+-]\d{4})(?: [A-Z]{3,4})?$", r"\1", cell))
        if (match := _DAY.fullmatch(cell)) is not None:
            day, month = (1, 3) if self._day_first or match[2] == "." else (3, 1)
            hour = int(match[5]) % 12 + 12 * (match[8] in ("p", "P")) if match[8] else int(match[5])
            return datetime(int(match[4]), int(match[month]), int(match[day]), hour, int(match[6]), int(match[7] or 0))  # noqa: DTZ001 - the zone follows
        try:
            return datetime.fromisoformat(plain.replace("/", "-") if plain[4:5] == "/" else plain)
        except ValueError:
            pass
        for form in (f"{date} {clock}" for date in _NAMED for clock in _CLOCKS):
            try:
                return datetime.strptime(cell, form)  # noqa: DTZ007 - the zone follows
            except ValueError:
                continue
        return None


def _samples(
    table: _Table, times: Sequence[float | None], place: int, wanted: Sequence[bool]
) -> Iterator[tuple[float, float]]:
    """Yield the samples in the column at *place*, and note what is unreadable."""
    cells = table.cells(place)
    numbers = [match[1] for cell in cells if (match := _CELL.fullmatch(cell)) is not None]
    comma = _decimal_comma(numbers, table.separator)
    unit: str | None = None
    for (line, _), cell, at, take in zip(table.rows, cells, times, wanted, strict=True):
        if at is None or not take or cell.lower() in _NOTHING:
            continue
        value = parse_float(cell) if not comma else None
        if value is None and (match := _CELL.fullmatch(cell)) is not None:
            factor, of = _unit(match[2] or "")
            unit = of if unit is None else unit
            if of == unit:
                value = _plain(match[1], comma)
                value = None if value is None else value * factor
        if value is None:
            table.bad.append(f"line {line}: {quoted(cell)}; allowed is {ALLOWED_NUMBERS}")
        else:
            yield at, value


def _unit(text: str) -> tuple[float, str]:
    """Return the factor that a unit begins with, and the rest of the unit."""
    match = _PREFIXED.fullmatch(text)
    return (1.0, text.strip()) if match is None else (_PREFIXES[match[1]], (match[2] or "").strip())


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


def _plain(text: str, comma: bool) -> float | None:
    plain = re.sub(r"[\s'\u2019]", "", text)
    plain = plain.replace(".", "").replace(",", ".") if comma else plain.replace(",", "")
    return parse_float(plain)

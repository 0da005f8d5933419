"""Freeze calendars: iCalendar (RFC 5545) as spans of time in which nothing begins. Read by the library ``ical``.

Calendars of Google, Outlook and others have much that the library refuses. It gets what tells times alone: events and
time zones, each zone by its IANA name where it has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from zoneinfo import ZoneInfo

from msgspec import Struct

from tightship.objects.quoting import quoted
from tightship.rules.windows import HORIZON, Span

MOST = 10_000
"""Events, each repetition counted, that a calendar may have within a year."""

_LINE = re.compile(r"""\A([A-Za-z-]+)((?:;[\w-]+=(?:"[^"]*"|[^";:])*)*):(.*)""", re.DOTALL)
_PARAMETER = re.compile(r""";([\w-]+)=((?:"[^"]*"|[^";:])*)""")
_UNTIL = re.compile(r"UNTIL=(\d{8})(?:T(\d{6})(Z?))?")
_OBSERVANCE = ("DTSTART", "TZOFFSETFROM", "TZOFFSETTO", "RRULE", "RDATE")
_TOLD = {
    "VEVENT": ("UID", "DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID", "SUMMARY", "STATUS"),
    "VTIMEZONE": ("TZID",),
    "STANDARD": _OBSERVANCE,
    "DAYLIGHT": _OBSERVANCE,
}
"""The properties that tell times, by component."""
_PARAMETERS = frozenset({"VALUE", "TZID", "RANGE"})
_UNKNOWN = re.compile(r"RANGE=THISANDFUTURE|RSCALE=(?!GREGORIAN)\w+", re.IGNORECASE)
"""What moves events to other times, and the library passes over (sections 3.2.13, and RFC 7529)."""


class CalendarError(ValueError):
    """The text is no calendar, or has an event that can't close windows."""


def freeze_spans(text: str, zone: str, now: float) -> tuple[Span, ...]:
    """Return the events of the calendar *text* that last at *now* or begin within a year, each with its name.

    Times without a zone, and whole days, are those of *zone*; a day without an end is that day. Cancelled events do not
    count. An event counts whether others see its owner as busy or not. An event that is no longer than a moment, as a
    time without DTEND or DURATION is by section 3.6.1, would freeze nothing, and is refused while it is to come.
    Raises :class:`CalendarError`.
    """
    from ical.calendar_stream import IcsCalendarStream
    from ical.exceptions import CalendarError as IcalError
    from ical.exceptions import CalendarParseError

    place = ZoneInfo(zone)
    try:
        calendar = IcsCalendarStream.calendar_from_ics("\n".join(_essence(text, place)))
        begin = datetime.fromtimestamp(now, place)
        found = calendar.timeline_tz(place).overlapping(begin, begin + timedelta(seconds=HORIZON))
        events = list(islice(found, MOST + 1))
    except CalendarParseError as error:
        detail = " ".join(str(error.detailed_error or error).split()).partition(" [type=")[0]
        raise CalendarError(f"not a calendar by RFC 5545: {detail[:300]}") from error
    except CalendarError:
        raise
    except (IcalError, ValueError, OverflowError, TypeError, AttributeError) as error:
        raise CalendarError(f"the calendar can't be followed: {error}") from error
    if len(events) > MOST:
        raise CalendarError(f"the calendar has more than {MOST} events within a year")
    spans = []
    for each in events:
        if each.status is not None and each.status.value == "CANCELLED":
            continue
        span = each.timespan_of(place)
        if span.start >= span.end:
            name = quoted(each.summary or each.uid)
            raise CalendarError(f"event {name} has no end after its beginning: DTEND or DURATION is needed")
        end = span.end.timestamp()
        if each.duration is not None:  # days are those of a calendar, hours pass (section 3.3.6), also past a change
            days = timedelta(days=each.duration.days)
            end = (span.start + days).timestamp() + (each.duration - days).total_seconds()
        spans.append(Span(span.start.timestamp(), end, each.summary or "an event of the calendar"))
    return tuple(sorted(spans))


class _Property(Struct, frozen=True):
    name: str
    parameters: Mapping[str, str]
    value: str

    def __str__(self) -> str:
        return "".join((self.name, *(f";{key}={text}" for key, text in self.parameters.items()), ":", self.value))

    def changed(self, value: str) -> _Property:
        return _Property(self.name, self.parameters, value)


def _essence(text: str, place: ZoneInfo) -> Iterator[str]:
    """Yield the lines of one calendar with what the events and time zones of all in *text* tell of times."""
    components = list(_components(text))
    series: dict[str, _Property] = {}
    for _, held in components:
        known = {each.name: each for each in held}
        if "DTSTART" in known and "RECURRENCE-ID" not in known:
            series[_value(held, "UID")] = known["DTSTART"]
    yield from ("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:tightship")
    for name, held in components:
        if name == "VEVENT":
            yield from _event(held, series.get(_value(held, "UID")), place)
        elif _value(held, "TZID") and _iana(_value(held, "TZID")) is None:
            yield from (str(each) for each in held)
    yield "END:VCALENDAR"


def _components(text: str) -> Iterator[tuple[str, list[_Property]]]:
    """Yield each event and time zone of *text* with its properties. Raises :class:`CalendarError`."""
    lines = [line.strip("\r") for line in re.sub(r"\r?\n[ \t]|\ufeff", "", text).split("\n")]
    _check_whole([line.strip().upper() for line in lines])
    inside: list[str] = []
    held: list[_Property] = []
    for line in lines:
        if (found := _LINE.fullmatch(line)) is None:
            continue
        name, value = found[1].upper(), found[3].strip()
        part = value.upper()
        if name == "BEGIN":
            inside.append(part)
            if part in ("VEVENT", "VTIMEZONE"):
                held = []
        elif name == "END" and part in inside:
            del inside[inside.index(part) :]
            if part in ("VEVENT", "VTIMEZONE"):
                yield part, [_Property("BEGIN", {}, part), *held, _Property("END", {}, part)]
        if inside and name in _TOLD.get(inside[-1], ()):
            parameters = {key.upper(): text for key, text in _PARAMETER.findall(found[2]) if key.upper() in _PARAMETERS}
            if (zone := _iana(parameters.get("TZID", ""))) is not None:
                parameters["TZID"] = zone
            held.append(_Property(name, parameters, part if name in ("RRULE", "STATUS") else value))
            if name == "DTSTART" and inside[-1] in ("STANDARD", "DAYLIGHT"):
                held.append(_Property("RDATE", {}, value))  # the library counts repetitions only
        elif part in ("STANDARD", "DAYLIGHT") and name in ("BEGIN", "END"):
            held.append(_Property(name, {}, part))


def _check_whole(lines: list[str]) -> None:
    if "BEGIN:VCALENDAR" not in lines:
        raise CalendarError("no BEGIN:VCALENDAR: not a calendar by RFC 5545")
    for part in ("VCALENDAR", "VEVENT"):
        begins, ends = lines.count(f"BEGIN:{part}"), lines.count(f"END:{part}")
        if begins != ends:
            raise CalendarError(f"the calendar is not whole: {begins} times BEGIN:{part}, {ends} times END:{part}")


def _event(held: list[_Property], series: _Property | None, place: ZoneInfo) -> Iterator[str]:
    """Yield the lines of an event as the library reads it; *series* is the first time of its series.

    Raises :class:`CalendarError`.
    """
    known = {each.name: each for each in held}
    start = known.get("DTSTART")
    name = quoted(_value(held, "SUMMARY") or _value(held, "UID"))
    if start is None:
        raise CalendarError(f"event {name} has no DTSTART")
    if found := next(filter(None, map(_UNKNOWN.search, map(str, held))), None):
        raise CalendarError(f"event {name} has {found[0]}, which is not supported")
    periods: list[tuple[_Property, str]] = []
    held = [each for each in held if not _superfluous(each, start, "DTEND" in known)]
    known = {each.name: each for each in held}
    for each in held:
        match each.name:
            case "RRULE":
                rule = each.value.replace(" ", "").strip(";")
                yield str(each.changed(_UNTIL.sub(lambda found: _until(found, start, place), rule)))
            case "RECURRENCE-ID":
                moved = _in_zone_of(series or start, each, place)
                yield str(moved.changed(moved.value.rstrip("Z")))  # the library compares local times
            case "RDATE" if each.parameters.get("VALUE", "").upper() == "PERIOD":
                periods += [(each, text) for text in each.value.split(",")]
            case "EXDATE" | "RDATE":
                yield str(_in_zone_of(start, each, place))
                if each.name == "RDATE" and "RRULE" not in known:
                    yield str(_Property("RDATE", start.parameters, start.value))  # which the library forgets
            case "DTEND" if each.value.startswith("9999"):
                yield str(each.changed(f"9998{each.value[4:]}"))  # never: the library knows no later time
            case _:
                yield str(each)
    for number, (each, text) in enumerate(periods):
        begin, _, end = text.partition("/")
        key = "DURATION" if end.startswith("P") else "DTEND"
        own = {"TZID": each.parameters["TZID"]} if "TZID" in each.parameters else {}
        yield from map(str, (held[0], _Property("UID", {}, f"{_value(held, 'UID')}/{number}")))
        yield from map(str, (_Property("DTSTART", own, begin), _Property(key, own if key == "DTEND" else {}, end)))
        yield from (str(known[each]) for each in ("SUMMARY", "STATUS") if each in known)
        yield str(held[-1])


def _superfluous(each: _Property, start: _Property, ends: bool) -> bool:
    """Whether *each* is what others write beside what counts, and the library refuses."""
    match each.name:
        case "STATUS":
            return each.value != "CANCELLED"  # some have words of their own
        case "DURATION":
            return ends
        case "DTEND":
            return "T" not in start.value and each.value == start.value  # a day
        case _:
            return False


def _until(found: re.Match[str], start: _Property, place: ZoneInfo) -> str:
    """Return the end of repetitions as *start* needs it: in UTC if it has a zone, without one if it has none.

    An end by date has that whole day.
    """
    day, clock, utc = found.groups()
    aware = _aware(start)
    if "T" not in start.value or (clock and bool(utc) == aware):
        return found[0]
    zone = UTC if utc else _zone(start, place) or place
    local = datetime.strptime(f"{day}{clock or '235959'}", "%Y%m%d%H%M%S").replace(tzinfo=zone)
    return f"UNTIL={local.astimezone(UTC if aware else place):%Y%m%dT%H%M%S}{'Z' if aware else ''}"


def _in_zone_of(start: _Property, each: _Property, place: ZoneInfo) -> _Property:
    """Return the times in *each* in the zone of *start*, which they are in if they name none."""
    if "T" not in start.value or "T" not in each.value:
        return each
    zone, own = _zone(start, place), _zone(each if _aware(each) else start, place)
    times = [text.strip() for text in each.value.split(",")]
    if zone is not None and own is not None:
        local = (datetime.strptime(text.rstrip("Z"), "%Y%m%dT%H%M%S").replace(tzinfo=own) for text in times)
        times = [f"{at.astimezone(zone):%Y%m%dT%H%M%S}{start.value[15:]}" for at in local]
    elif _aware(each):
        return each
    return _Property(each.name, start.parameters, ",".join(times))


def _aware(each: _Property) -> bool:
    return each.value.endswith("Z") or "TZID" in each.parameters


def _zone(each: _Property, place: ZoneInfo) -> tzinfo | None:
    """Return the zone of the times in *each*, *place* without any; ``None`` if only the calendar knows it."""
    if each.value.endswith("Z"):
        return UTC
    name = _iana(each.parameters["TZID"]) if "TZID" in each.parameters else place.key
    return None if name is None else ZoneInfo(name)


def _iana(name: str) -> str | None:
    """Return the IANA zone called *name*, as Windows calls it, or as a path that ends in it."""
    from ical.tzif.extended_timezones import EXTENDED_TIMEZONES

    name = name.strip('"')
    parts = EXTENDED_TIMEZONES.get(name, name.replace("tzone://Microsoft/Utc", "UTC")).strip("/").split("/")
    for at in range(len(parts)):
        try:
            return ZoneInfo("/".join(parts[at:])).key
        except (ValueError, OSError, KeyError):
            continue
    return None


def _value(held: list[_Property], name: str) -> str:
    return next((each.value for each in held if each.name == name), "")

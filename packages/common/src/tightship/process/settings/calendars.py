"""Freeze calendars: iCalendar (RFC 5545) as spans of time in which nothing begins. Read by the library ``ical``."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from tightship.objects.quoting import quoted
from tightship.rules.windows import HORIZON, Span

if TYPE_CHECKING:
    from ical.event import Event

MOST = 10_000
"""Events, each repetition counted, that a calendar may have within a year."""


class CalendarError(ValueError):
    """The text is no calendar, or has an event that can't close windows."""


def freeze_spans(text: str, zone: str, now: float) -> tuple[Span, ...]:
    """Return the events of the calendar *text* that last at *now* or begin within a year, each with its name.

    Times without a zone, and whole days, are those of *zone*. Cancelled events do not count. An event counts whether
    others see its owner as busy or not. A repetition that a ``RECURRENCE-ID`` in UTC has moved counts at both times,
    since the library finds the first one by local time only. Raises :class:`CalendarError`.
    """
    from ical.calendar_stream import IcsCalendarStream
    from ical.exceptions import CalendarParseError

    lines = [line.strip().upper() for line in text.splitlines()]
    if "BEGIN:VCALENDAR" not in lines:
        raise CalendarError("no BEGIN:VCALENDAR: not a calendar by RFC 5545")
    for part in ("VCALENDAR", "VEVENT"):
        begins, ends = lines.count(f"BEGIN:{part}"), lines.count(f"END:{part}")
        if begins != ends:
            raise CalendarError(f"the calendar is not whole: {begins} times BEGIN:{part}, {ends} times END:{part}")
    try:
        calendar = IcsCalendarStream.calendar_from_ics(text)
        for event in calendar.events:
            _check(event)
        place = ZoneInfo(zone)
        begin = datetime.fromtimestamp(now, place)
        found = calendar.timeline_tz(place).overlapping(begin, begin + timedelta(seconds=HORIZON))
        events = list(islice(found, MOST + 1))
    except CalendarParseError as error:
        detail = " ".join(str(error.detailed_error or error).split())
        raise CalendarError(f"not a calendar by RFC 5545: {detail[:300]}") from error
    except CalendarError:
        raise
    except (ValueError, OverflowError, TypeError) as error:
        raise CalendarError(f"the calendar can't be followed: {error}") from error
    if len(events) > MOST:
        raise CalendarError(f"the calendar has more than {MOST} events within a year")
    return tuple(sorted(_span(each, place) for each in events if not _cancelled(each)))


def _check(event: Event) -> None:
    if event.dtend is None and event.duration is None and isinstance(event.dtstart, datetime):
        raise CalendarError(f"event {quoted(event.summary or event.uid)} has no end: DTEND or DURATION is needed")


def _cancelled(event: Event) -> bool:
    return event.status is not None and event.status.value == "CANCELLED"


def _span(event: Event, zone: ZoneInfo) -> Span:
    span = event.timespan_of(zone)
    return Span(span.start.timestamp(), span.end.timestamp(), event.summary or "an event of the calendar")

"""Schedules in the form of cron, in UTC, as Karpenter's budgets have them (``ParseStandard`` of robfig/cron v3)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from msgspec import Struct

from tightship.objects.quoting import quoted

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 6))
_LONGEST = 366 * 86400.0
"""Seconds that a window is looked for back; a window that is longer counts as always open."""


class CronError(ValueError):
    """The text is not a schedule."""


class Schedule(Struct, frozen=True):
    """When something begins. *any_day* and *any_weekday* say that a field is ``*``: only the other one counts then."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def began_within(self, seconds: float, now: float) -> bool:
        """Whether the schedule has a beginning in the last *seconds* before *now* (seconds since 1970), *now* included.

        A beginning exactly *seconds* ago is over.
        """
        if seconds <= 0:
            return False
        if seconds > _LONGEST:
            return True
        end = datetime.fromtimestamp(now, UTC)
        start = end - timedelta(seconds=seconds)
        day = end.date()
        while day >= start.date():
            midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
            if any(start < midnight + timedelta(minutes=each) <= end for each in self.minutes_of(day)):
                return True
            day -= timedelta(days=1)
        return False

    def minutes_of(self, day: date) -> list[int]:
        """Return the minutes of *day* at which something begins."""
        return sorted(60 * hour + minute for hour in self.hours for minute in self.minutes) if self._on(day) else []

    def _on(self, day: date) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        fits = of_month and of_week if self.any_day or self.any_weekday else of_month or of_week
        return fits and day.month in self.months


def parse_schedule(text: str) -> Schedule:
    """Return the schedule in *text*: five fields, or a word such as ``@daily``. Raises :class:`CronError`."""
    parts = _MACROS.get(text.strip(), text).split()
    if len(parts) != len(_FIELDS):
        raise CronError(f"{quoted(text)} is not a schedule; allowed are the five fields of cron, or a word like @daily")
    try:
        minutes, hours, days, months, weekdays = (
            _field(part, low, high, name) for part, (name, low, high) in zip(parts, _FIELDS, strict=True)
        )
    except ValueError as error:
        raise CronError(f"{quoted(text)} is not a schedule: {error}") from error
    return Schedule(minutes, hours, days, months, weekdays, any_day=_any(parts[2]), any_weekday=_any(parts[4]))


def _any(part: str) -> bool:
    # A step makes a field a choice of days (robfig/cron#70): "0 0 */10 * sun" begins on those days and on Sundays.
    return any(each in ("*", "?", "*/1", "?/1") for each in part.split(","))


def _field(part: str, low: int, high: int, name: str) -> frozenset[int]:
    found: set[int] = set()
    for each in part.split(","):
        span, slash, step = each.partition("/")
        first, dash, last = span.partition("-")
        if first in ("*", "?") and not dash:
            begin, end = low, high
        else:
            begin = _number(first, name)
            end = _number(last, name) if dash else high if slash else begin
        every = _number(step, "step") if slash else 1
        if not (low <= begin <= end <= high) or every < 1:
            sunday = "; Sunday is 0" if high == 6 else ""
            raise ValueError(f"{each} is no {name} from {low} to {high}{sunday}")
        found.update(range(begin, end + 1, every))
    return frozenset(found)


def _number(word: str, name: str) -> int:
    names, first = {"month": (_MONTHS, 1), "day of the week": (_DAYS, 0)}.get(name, ((), 0))
    if word.lower() in names:
        return names.index(word.lower()) + first
    if not (word.isascii() and word.isdigit()):
        allowed = f"numbers, {names[0]} to {names[-1]}" if names else "numbers"
        raise ValueError(f"{quoted(word)} is no {name}; allowed are {allowed}, *, lists, ranges and steps")
    return int(word)

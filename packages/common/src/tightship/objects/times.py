"""Times as people and APIs write them (RFC 3339), durations (``10m``, ``1h30m``, ``90s``), and waits that grow."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

from tightship.objects.quoting import quoted


def rfc3339(seconds: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC, to the second."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_ms(seconds: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def recorded_time(text: str) -> float:
    """Return the seconds since 1970 of a time that one of our own records holds. Raises :class:`ValueError`."""
    time = datetime.fromisoformat(str(text))
    if time.tzinfo is None:
        raise ValueError(f"{text!r} is not an RFC 3339 time")
    return time.timestamp()


def with_times(value: Any, names: Collection[str], turn: Callable[[Any], object]) -> Any:
    """Return plain data with *turn* applied to what stands under one of *names*, at any depth, but for nulls.

    So structs with times in seconds are stored with times that people read. Raises what *turn* raises.
    """
    if isinstance(value, dict):
        return {
            name: turn(each) if name in names and isinstance(each, str | int | float) else with_times(each, names, turn)
            for name, each in value.items()
        }
    return [with_times(each, names, turn) for each in value] if isinstance(value, list | tuple) else value


def parse_rfc3339(text: str) -> float:
    """Return the seconds since 1970 of an RFC 3339 time. Raises :class:`ValueError` with what is allowed."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or "T" not in text.upper():
        raise ValueError(f"{quoted(text)} is not a time; allowed is RFC 3339 such as 2026-03-01T04:00:00Z")
    return moment.timestamp()


_PART = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)(ms|s|m|h|d)", re.ASCII)
_PARTS = re.compile(r"(?:\d{1,20}(?:\.\d{1,20})?(?:ms|s|m|h|d))++", re.ASCII)
_PLAIN = re.compile(r"\d{1,20}(?:\.\d{1,20})?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

ALLOWED_FORMS = "a duration such as 90s, 10m, 1h30m or 1d"


class DurationError(ValueError):
    """The text is not a duration."""

    def __init__(self, text: object, plain: str) -> None:
        also = f", or a plain number of {plain}" if plain else ""
        super().__init__(f"{quoted(text)} is not a duration; allowed is {ALLOWED_FORMS}{also}")


def parse_duration(text: str, plain_unit: str = "") -> float:
    """Return *text* in seconds.

    *plain_unit* (``s``, ``m`` or ``h``) is the unit of a plain number, for settings of the older controllers. Without
    *plain_unit*, ``0`` is the only plain number allowed. Raises :class:`DurationError`.
    """
    stripped = text.strip()
    names = {"s": "seconds", "m": "minutes", "h": "hours"}
    if _PLAIN.fullmatch(stripped):
        if plain_unit:
            return float(stripped) * _SECONDS[plain_unit]
        if float(stripped) == 0:
            return 0.0
    if not _PARTS.fullmatch(stripped):
        raise DurationError(text, names.get(plain_unit, ""))
    return float(sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(stripped)))


def spell_duration(seconds: float) -> str:
    """Return *seconds* exactly, as :func:`parse_duration` reads them: ``8m30s``, ``1h``, ``0.5s`` or ``0``."""
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (left, "s"))
    return "".join(f"{number:.15g}{unit}" for number, unit in parts if number) or "0"


def format_duration(seconds: float) -> str:
    """Return *seconds* as kubectl writes an age, with at most two units: ``3d4h`` or ``90s``."""
    left = int(max(0, seconds))
    if left < 120:
        return f"{left}s"
    days, rest = divmod(left, 86400)
    hours, rest = divmod(rest, 3600)
    minutes = rest // 60
    if days:
        return f"{days}d{hours}h" if hours and days < 10 else f"{days}d"
    if hours:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    return f"{minutes}m"


def doubled(first: float, longest: float, times: int) -> float:
    """Return *first* seconds, doubled *times* times, and at most *longest*."""
    return min(longest, first * 2.0 ** min(times, 32))

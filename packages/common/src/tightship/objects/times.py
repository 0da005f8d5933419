"""Times as people and APIs write them: RFC 3339."""

from __future__ import annotations

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

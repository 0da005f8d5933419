"""Durations as people write them: ``10m``, ``1h30m``, ``90s``, or a plain number in a given unit."""

from __future__ import annotations

import re

from tightship.objects.quoting import quoted

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

"""Values of annotations: each reader returns what a text means, or raises :class:`ValueError` saying what is allowed.

Texts of the older controller's annotations are read as Go reads them. Where the older controller silently used a
default, an unreadable text is an error here: a default that nobody wrote must not move a floor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeVar

from hpa_scaler.spec.addresses import parse_address
from hpa_scaler.spec.golang import INT32_MAX, parse_float
from hpa_scaler.spec.spec import Band, MissingData, Pause
from tightship.core.durations import ALLOWED_FORMS, DurationError, parse_duration
from tightship.core.times import parse_rfc3339

LONGEST_WINDOW = 24 * 3600.0
"""Seconds: longer windows would need more memory in the state annotation than they are worth."""

LONGEST_QUERY = 8192
"""Bytes: nobody reads a longer query, and every cycle looks at each query several times."""

_WHOLE = re.compile(r"[0-9]{1,10}", re.ASCII)
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)%", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)

_T = TypeVar("_T")


def query(text: str) -> str:
    """Return a query of at most :data:`LONGEST_QUERY` bytes unchanged."""
    size = len(text.encode())
    if size > LONGEST_QUERY:
        raise ValueError(f"is a query of {size} bytes, and at most {LONGEST_QUERY} are allowed: use a recording rule")
    return text


def switch(text: str) -> bool:
    """Read ``true`` or ``false``."""
    if text not in ("true", "false"):
        raise ValueError("allowed are true and false")
    return text == "true"


def number(text: str) -> float:
    """Read a finite number as Go does."""
    value = parse_float(text)
    if value is None or not math.isfinite(value):
        raise ValueError("allowed is a number such as 2, -0.5 or 1e3, without blanks or a unit")
    return value


def positive(text: str) -> float:
    """Read a finite number above 0."""
    value = parse_float(text)
    if value is None or not math.isfinite(value) or value <= 0:
        raise ValueError("allowed is a number above 0 such as 2.5, without blanks or a unit")
    return value


def ratio(text: str) -> float:
    """Read a finite number of at least 0; above 1 it is no limit."""
    value = parse_float(text)
    if value is None or not math.isfinite(value) or value < 0:
        raise ValueError("allowed is a number from 0 on such as 0.2, without blanks or a unit")
    return value


def whole(least: int) -> Callable[[str], int]:
    """Return a reader of whole numbers of at least *least*."""

    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= INT32_MAX:
            raise ValueError(f"allowed is a whole number from {least} on")
        return int(text)

    return read


def one_of(*words: str) -> Callable[[str], str]:
    """Return a reader of *words*."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"allowed are {', '.join(words)}")
        return text

    return read


def duration(text: str) -> float:
    """Read a duration of no more than a day; a plain number is in seconds."""
    try:
        seconds = parse_duration(text, plain_unit="s")
    except DurationError:
        seconds = math.inf
    if text != text.strip() or not seconds <= LONGEST_WINDOW:
        raise ValueError(f"allowed is {ALLOWED_FORMS}, or a plain number of seconds, and no more than a day")
    return seconds


def band(text: str) -> Band:
    """Read a number of pods, or a percentage below 100."""
    if (percent := _PERCENT.fullmatch(text)) is not None and float(percent[1]) < 100:
        return Band(share=float(percent[1]) / 100)
    if _WHOLE.fullmatch(text):
        return Band(pods=int(text))
    raise ValueError("allowed is a number of pods such as 1, or a percentage of the floor below 100 such as 5%")


def pause(text: str) -> Pause:
    """Read ``true``, ``false``, or the time at which a pause ends."""
    if text in ("true", "false"):
        return Pause(text == "true")
    try:
        return Pause(True, parse_rfc3339(text))
    except ValueError as error:
        allowed = "allowed are true, false, and the time at which it ends, RFC 3339 such as 2026-03-01T04:00:00Z"
        raise ValueError(allowed) from error


def missing_data(text: str) -> MissingData:
    """Read the rule for missing data, ``after`` left at its default."""
    rule, sign, replicas = text.partition("=")
    match rule:
        case "hold" | "zero" | "current" | "currentIfHigher" if not sign:
            return MissingData(rule)
        case "replicas" if _WHOLE.fullmatch(replicas) and int(replicas) <= INT32_MAX:
            return MissingData("replicas", replicas=int(replicas))
        case _:
            raise ValueError("allowed are hold, zero, replicas=N, current and currentIfHigher")


def server_name(text: str) -> str:
    """Read the name of a server; whether that server exists is checked later."""
    if not _NAME.fullmatch(text):
        raise ValueError("allowed is the name of a server in prometheusServers: letters, digits, '-', '_' and '.'")
    return text


def url(text: str) -> str:
    """Read the address of a server, in its canonical form; whether it is allowed is checked later."""
    return str(parse_address(text))


__all__ = [
    "band",
    "duration",
    "missing_data",
    "number",
    "one_of",
    "pause",
    "positive",
    "query",
    "ratio",
    "server_name",
    "switch",
    "url",
    "whole",
]

"""Readers for the values of annotations: each returns a value, or raises :class:`ValueError` with the allowed texts.

The older controller is written in Go, and its annotations must keep their meaning, so these readers follow Go.
``strconv.ParseFloat(s, 64)`` and ``ParseInt(s, 0, 32)`` accept other texts than Python: no blanks, no digits of other
scripts, but ``0x1p4``, ``1_000`` and ``010`` for 8. A number out of range is an error, not infinity. Where the older
controller silently used a default, an unreadable text is an error here: a default that nobody wrote must not move a
floor.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from zoneinfo import ZoneInfo

from hpa_scaler.annotations.spec import Band, MissingData, PauseSpec, Season
from tightship.objects.query_servers import parse_server
from tightship.objects.times import ALLOWED_FORMS, DurationError, parse_duration, parse_rfc3339
from tightship.rules.windows import Windows, parse_window

_FLOAT = re.compile(
    r"[+-]?(?:0[xX](?P<hexadecimal>[0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?)[pP][+-]?[0-9][0-9_]*"
    r"|(?P<decimal>[0-9_]*(?:\.[0-9_]*)?)(?:[eE][+-]?[0-9][0-9_]*)?)",
    re.ASCII,
)
_INFINITY = re.compile(r"(?P<sign>[+-]?)inf(?:inity)?", re.ASCII | re.IGNORECASE)
_INTEGER = re.compile(
    r"(?P<sign>[+-]?)(?:0[xX](?P<x>[0-9a-fA-F_]+)|0[bB](?P<b>[01_]+)|0[oO](?P<o>[0-7_]+)|0(?P<old>[0-7_]*)"
    r"|(?P<ten>[1-9][0-9_]*))",
    re.ASCII,
)
_BASES = {"x": 16, "b": 2, "o": 8, "old": 8, "ten": 10}

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

_SMALLEST_PLAIN, _LARGEST_PLAIN = 1e-6, 1e21
"""Go's encoding/json writes floats outside this range with an exponent."""

LONGEST_WINDOW = 24 * 3600.0
LONGEST_AHEAD = 6 * 3600.0
"""Seconds. Longer windows would fill the state annotation for little benefit."""

LONGEST_QUERY = 8192
"""Bytes. Nobody reads a longer query, and every cycle scans each query several times."""

_WHOLE = re.compile(r"[0-9]{1,10}", re.ASCII)
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)%", re.ASCII)
SERVER_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)


def parse_float(text: str) -> float | None:
    """Parse *text* like ``strconv.ParseFloat(text, 64)``; return ``None`` for an error.

    The result may be NaN or infinite if the text says so (``NaN``, ``-Inf``).
    """
    if text.lower() == "nan" and text.isascii():
        return math.nan
    if (infinity := _INFINITY.fullmatch(text)) is not None:
        return -math.inf if infinity["sign"] == "-" else math.inf
    match = _FLOAT.fullmatch(text)
    if match is None or not _underscores_ok(text):
        return None
    hexadecimal = match["hexadecimal"]
    digits = match["decimal"] if hexadecimal is None else hexadecimal
    if not digits or not any(each.isalnum() for each in digits):
        return None
    plain = text.replace("_", "")
    try:
        value = float(plain) if hexadecimal is None else float.fromhex(plain)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def parse_int32(text: str) -> int | None:
    """Parse *text* like ``strconv.ParseInt(text, 0, 32)``; return ``None`` for an error."""
    match = _INTEGER.fullmatch(text)
    if match is None or not _underscores_ok(text):
        return None
    base = next(name for name in _BASES if match[name] is not None)
    digits = match[base].replace("_", "").lstrip("0") or "0"
    if len(digits) > 32:
        return None
    value = int(match["sign"] + digits, _BASES[base])
    return value if INT32_MIN <= value <= INT32_MAX else None


def _underscores_ok(text: str) -> bool:
    """Whether each underscore stands between two digits, or between the letter of the base and a digit."""
    if "_" not in text:
        return True
    plain = text.lstrip("+-")
    digits = "0-9"
    if plain[:2].lower() in ("0x", "0b", "0o"):
        # The prefix counts as a digit, so that an underscore may follow it.
        digits = "0-9a-fA-F" if plain[1] in "xX" else digits
        plain = "0" + plain[2:]
    return not re.search(rf"(?<![{digits}])_|_(?![{digits}])", plain)


def format_float(value: float) -> str:
    """Return a finite *value* as Go's ``encoding/json`` writes it: ``1``, ``2.5``, ``1e-7``, ``1e+21``.

    Raises :class:`ValueError` for NaN and infinity, which JSON can't represent.
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} can't be written in JSON")
    negative, numbers, exponent = Decimal(repr(value)).normalize().as_tuple()
    sign, digits = "-" * negative, "".join(map(str, numbers))
    if value == 0:
        return sign + "0"
    point = len(digits) + int(exponent)  # where the decimal point is in the digits
    if _SMALLEST_PLAIN <= abs(value) < _LARGEST_PLAIN:
        return sign + _plain(digits, point)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    power = point - 1
    return f"{sign}{digits[0]}{fraction}e{'+' if power >= 0 else '-'}{abs(power):02d}".replace("e-0", "e-")


def _plain(digits: str, point: int) -> str:
    if point <= 0:
        return "0." + "0" * -point + digits
    if point >= len(digits):
        return digits + "0" * (point - len(digits))
    return f"{digits[:point]}.{digits[point:]}"


def quote(text: str) -> str:
    r"""Return *text* as Go's ``encoding/json`` writes it: ``<``, ``>`` and ``&`` as ``\u003c`` and so on."""
    quoted = json.dumps(text, ensure_ascii=False)
    for each in "<>&\u2028\u2029":
        quoted = quoted.replace(each, f"\\u{ord(each):04x}")
    return quoted


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
    return _number(text, "a number such as 2, -0.5 or 1e3")


def positive(text: str) -> float:
    """Read a finite number above 0."""
    return _number(text, "a number above 0 such as 2.5", lambda value: value > 0)


def ratio(text: str) -> float:
    """Read a finite number of at least 0; a ratio above 1 is no limit."""
    return _number(text, "a number from 0 on such as 0.2", lambda value: value >= 0)


def _number(text: str, allowed: str, takes: Callable[[float], bool] = lambda _: True) -> float:
    value = parse_float(text)
    if value is None or not math.isfinite(value) or not takes(value):
        raise ValueError(f"allowed is {allowed}, without blanks or a unit")
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


def season(text: str) -> Season | None:
    """Read the kind of a forecast, ``None`` for none."""
    match text:
        case "daily" | "weekly":
            return text
        case "off":
            return None
    raise ValueError("allowed are off, daily and weekly")


def ahead(text: str) -> float:
    """Read how far a forecast looks, of 1 minute to 6 hours; a plain number is in seconds."""
    seconds = duration(text)
    if not 60 <= seconds <= LONGEST_AHEAD:
        raise ValueError("allowed is 1m to 6h")
    return seconds


def band(text: str) -> Band:
    """Read a number of pods, or a percentage below 100."""
    if (percent := _PERCENT.fullmatch(text)) is not None and float(percent[1]) < 100:
        return Band(share=float(percent[1]) / 100)
    if _WHOLE.fullmatch(text):
        return Band(pods=int(text))
    raise ValueError("allowed is a number of pods such as 1, or a percentage of the floor below 100 such as 5%")


def pause(text: str) -> PauseSpec:
    """Read ``true``, ``false``, or the time at which a pause ends."""
    if text in ("true", "false"):
        return PauseSpec(text == "true")
    try:
        return PauseSpec(True, parse_rfc3339(text))
    except ValueError as error:
        allowed = "allowed are true, false, and the time at which it ends, RFC 3339 such as 2026-03-01T04:00:00Z"
        raise ValueError(allowed) from error


def windows(text: str) -> Windows:
    """Read windows and perhaps their time zone, such as ``Mon-Fri 20:00-06:00; Sat,Sun; Europe/Berlin``."""
    *parts, last = [each.strip() for each in text.split(";")]
    zone = last if parts and (last == "UTC" or "/" in last) else ""
    parts = parts if zone else [*parts, last]
    try:
        ZoneInfo(zone or "UTC")
        return Windows(allow=tuple(map(parse_window, parts)), zone=zone or "UTC")
    except (OSError, KeyError) as error:
        raise ValueError(f"time zone {zone} is unknown; allowed are IANA names, such as Europe/Berlin") from error


def missing_data(text: str) -> MissingData:
    """Read the rule for missing data; ``after`` keeps its default."""
    rule, sign, replicas = text.partition("=")
    match rule:
        case "hold" | "zero" | "current" | "currentIfHigher" if not sign:
            return MissingData(rule)
        case "replicas" if _WHOLE.fullmatch(replicas) and int(replicas) <= INT32_MAX:
            return MissingData("replicas", replicas=int(replicas))
        case _:
            raise ValueError("allowed are hold, zero, replicas=N, current and currentIfHigher")


def server_name(text: str) -> str:
    """Read the name of a server; a later check finds names without a server."""
    if not SERVER_NAME.fullmatch(text):
        raise ValueError("allowed is the name of a server in prometheusServers: letters, digits, '-', '_' and '.'")
    return text


def url(text: str) -> str:
    """Read the address of a server, in its canonical form; a later check finds addresses that are not allowed."""
    return str(parse_server(text))

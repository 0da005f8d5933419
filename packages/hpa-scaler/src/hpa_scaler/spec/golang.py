"""Texts as Go reads and writes them: the older controller is written in it, and annotations must keep their meaning.

``strconv.ParseFloat(s, 64)`` and ``ParseInt(s, 0, 32)`` accept other texts than Python: no blanks, no digits of other
scripts, but ``0x1p4``, ``1_000`` and ``010`` for 8. A number that is out of range is an error, not infinity.
"""

from __future__ import annotations

import json
import math
import re

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
"""Go's encoding/json writes floats outside these with an exponent."""


def parse_float(text: str) -> float | None:
    """Return what ``strconv.ParseFloat(text, 64)`` returns, ``None`` if that is an error.

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
    """Return what ``strconv.ParseInt(text, 0, 32)`` returns, ``None`` if that is an error."""
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

    Raises :class:`ValueError` for what JSON has no form for.
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} can't be written in JSON")
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return sign + "0"
    mantissa, _, exponent = f"{abs(value)!r}e0".partition("e")
    digits, point = _digits(mantissa, int(exponent.partition("e")[0]))
    if _SMALLEST_PLAIN <= abs(value) < _LARGEST_PLAIN:
        return sign + _plain(digits, point)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    power = point - 1
    return f"{sign}{digits[0]}{fraction}e{'+' if power >= 0 else '-'}{abs(power):02d}".replace("e-0", "e-")


def _digits(mantissa: str, exponent: int) -> tuple[str, int]:
    """Return the significant digits of the shortest form, and where the point stands among them."""
    whole, _, fraction = mantissa.partition(".")
    joined = whole + fraction
    digits = joined.lstrip("0")
    point = len(whole) + exponent - (len(joined) - len(digits))
    return digits.rstrip("0"), point


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


__all__ = ["INT32_MAX", "INT32_MIN", "format_float", "parse_float", "parse_int32", "quote"]

"""How far back a PromQL query looks: range selectors, subqueries and offsets, found in its text.

A scanner, no parser: it follows parentheses, skips strings, comments and label matchers, and adds up what nests. So
``max_over_time(rate(x[5m])[1h:1m] offset 1d)`` looks back a day, an hour and five minutes. What a recording rule hides
can't be seen here. Told as well is whether a query falls back to a value, as ``sum(x) or vector(0)`` does.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0, "y": 365 * 86400.0}
_DURATION = r"(?:[0-9]+(?:ms|[smhdwy]))+|[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(r"([0-9]+)(ms|[smhdwy])", re.ASCII)
_PLAIN = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_STAND_INS = frozenset({"vector", "absent", "absent_over_time"})
"""Functions that answer where there are no data."""

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<comment>\#[^\n]*)
    |(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
    |(?P<at>@\s*(?:[+-]?\s*[0-9][0-9a-fA-FxX_.eE]*|(?i:start|end)\s*\(\s*\)))
    |(?P<offset>(?i:offset)\b\s*(?P<sign>[+-]?)\s*(?P<by>"""
    + _DURATION
    + r""")?)
    |(?P<word>[A-Za-z_:][A-Za-z0-9_:]*)
    |(?P<number>[0-9][0-9A-Za-z_.]*|\.[0-9][0-9A-Za-z_]*)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class Lookback(Struct, frozen=True):
    """How far back a query looks, in *seconds*. Not *readable* where a range or an offset could not be understood.

    One that *falls_back* is answered also where there are no data.
    """

    seconds: float
    readable: bool = True
    falls_back: bool = False


REMEMBERED = 16_384
LONGEST_REMEMBERED = 1024
"""Texts whose look-back is remembered, and characters of one: every query is looked at several times in each cycle."""


def lookback(text: str) -> Lookback:
    """Return how far back the query *text* looks."""
    return _remembered(text) if len(text) <= LONGEST_REMEMBERED else _scanned(text)


@lru_cache(REMEMBERED)
def _remembered(text: str) -> Lookback:
    return _scanned(text)


def _scanned(text: str) -> Lookback:
    scanner = _Scanner()
    for token in _TOKEN.finditer(text):
        scanner.take(token)
    return scanner.result()


class _Scanner:
    """*_here* is the look-back of the expression that has just ended, *_open* the largest of each open parenthesis."""

    def __init__(self) -> None:
        self._here = 0.0
        self._open = [0.0]
        self._readable = True
        self._bracket: list[str] | None = None
        self._in_matchers = False
        self._last_word = ""
        self._either = False
        self._stands_in = False

    def take(self, token: re.Match[str]) -> None:
        kind, text = token.lastgroup, token[0]
        if kind in ("space", "comment"):
            return
        if self._in_matchers:
            self._in_matchers = text != "}"
        elif self._bracket is not None:
            self._in_bracket(text)
        elif token["offset"] is not None:
            self._offset(token)
        elif text == "{":
            self._in_matchers = True
        elif text == "[":
            self._bracket = []
        elif token["at"] is None:
            self._plain(text)

    def result(self) -> Lookback:
        self._fold()
        falls_back = self._either and self._stands_in
        return Lookback(max(self._open), self._readable and self._bracket is None, falls_back)

    def _plain(self, text: str) -> None:
        self._fold()
        self._either |= text.lower() == "or"
        self._stands_in |= text == "(" and self._last_word in _STAND_INS
        self._last_word = text
        if text == "(":
            self._open.append(0.0)
        elif text == ")" and len(self._open) > 1:
            self._here = self._open.pop()

    def _fold(self) -> None:
        self._open[-1] = max(self._open[-1], self._here)
        self._here = 0.0

    def _in_bracket(self, text: str) -> None:
        assert self._bracket is not None
        if text != "]":
            self._bracket.append(text)
            return
        # The resolution of a subquery makes no difference.
        self._add("".join(self._bracket).partition(":")[0])
        self._bracket = None

    def _offset(self, token: re.Match[str]) -> None:
        if token["sign"] != "-":
            self._add(token["by"] or "")

    def _add(self, text: str) -> None:
        seconds = _seconds(text)
        self._readable &= seconds is not None
        self._here += seconds or 0.0


def _seconds(text: str) -> float | None:
    if _PLAIN.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return float(sum(int(number) * _UNITS[unit] for number, unit in parts))


__all__ = ["Lookback", "lookback"]

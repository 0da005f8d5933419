"""How far back a PromQL query looks, and which targets it is about, found in its text.

This is a scanner, not a parser: it follows parentheses, skips strings and comments, and adds up nested ranges,
subqueries and offsets. So ``max_over_time(rate(x[5m])[1h:1m] offset 1d)`` looks back a day, an hour and five minutes.
The range of a recording rule is read from its name, if the name has one (``app:requests:rate5m``). The scanner also
reports whether a query falls back to a value, as ``sum(x) or vector(0)`` does. It takes one step for each character,
whatever the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0, "y": 365 * 86400.0}
_UNIT = r"(?:ms|[smhdwy])"
_PART = re.compile(rf"([0-9]{{1,12}})({_UNIT})", re.ASCII)
_PARTS = re.compile(rf"(?:[0-9]{{1,12}}{_UNIT})++", re.ASCII)
_PLAIN = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?", re.ASCII)
_AT_THE_END = re.compile(rf"(?:^|[^0-9.])((?:[0-9]{{1,12}}{_UNIT}){{1,4}})$", re.ASCII)
_LONGEST_RANGE = 24
"""Characters at the end of a rule's name that are searched for a range."""

_STAND_INS = frozenset({"vector", "absent", "absent_over_time"})
"""Functions that return a value without data."""

# No part gives back what it has taken ("++"), and what is left open ends with the text: so no text is read twice.
_TOKEN = re.compile(
    rf"""(?P<space>\s++)
    |(?P<comment>\#[^\n]*+)
    |(?P<string>"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|`[^`]*+(?:`|\Z))
    |(?P<at>@\s*+(?:[+-]?\s*+[0-9][0-9a-fA-FxX_.eE]*+|(?i:start|end)\s*+\(\s*+\)))
    |(?P<offset>(?i:offset)\b\s*+(?P<sign>[+-]?+)\s*+(?P<by>(?:[0-9]++{_UNIT})++|[0-9]++(?:\.[0-9]++)?+)?+)
    |(?P<word>[A-Za-z_:][A-Za-z0-9_:]*+)
    |(?P<number>[0-9][0-9A-Za-z_.]*+|\.[0-9][0-9A-Za-z_]*+)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)

Matcher: TypeAlias = tuple[str, str, str]
"""A label, its operator, and the value as it is written, in its quotes."""

MOST_SELECTORS = 4
"""Selectors of one query that are kept."""
_MOST_MATCHERS = 16


class Lookback(Struct, frozen=True):
    """How far back a query looks, in *seconds*. Not *readable* if a range or an offset could not be understood.

    A query that *falls_back* returns a value even without data. *hidden* says that the query reads a recording rule
    whose name does not show how far the rule looks back. *selectors* are the label matchers of its first selectors.
    """

    seconds: float
    readable: bool = True
    falls_back: bool = False
    hidden: bool = False
    selectors: tuple[tuple[Matcher, ...], ...] = ()


LONGEST_REMEMBERED = 1024
"""Characters of a text beyond which fewer are remembered: every query is looked at several times in each cycle."""


def lookback(text: str) -> Lookback:
    """Return how far back the query *text* looks."""
    return _remembered(text) if len(text) <= LONGEST_REMEMBERED else _long_remembered(text)


def _scanned(text: str) -> Lookback:
    scanner = _Scanner()
    for token in _TOKEN.finditer(text):
        scanner.take(token)
    return scanner.result()


_remembered = lru_cache(16_384)(_scanned)
_long_remembered = lru_cache(512)(_scanned)


class _Scanner:
    """*_here* is the look-back of the expression that has just ended, *_open* the largest of each open parenthesis."""

    def __init__(self) -> None:
        self._here = 0.0
        self._open = [0.0]
        self._readable = True
        self._hidden = False
        self._bracket: list[str] | None = None
        self._matchers: list[str] | None = None
        self._selectors: list[tuple[Matcher, ...]] = []
        self._last_word = ""
        self._either = False
        self._stands_in = False

    def take(self, token: re.Match[str]) -> None:
        kind, text = token.lastgroup, token[0]
        if kind in ("space", "comment"):
            return
        if self._matchers is not None:
            self._in_matchers(text)
        elif self._bracket is not None:
            self._in_bracket(text)
        elif token["offset"] is not None:
            self._offset(token)
        elif text == "{":
            self._matchers = []
        elif text == "[":
            self._bracket = []
        elif token["at"] is None:
            self._plain(text)
            if token["word"] is not None and ":" in text:
                self._rule(text)

    def result(self) -> Lookback:
        self._fold()
        readable = self._readable and self._bracket is None and self._matchers is None
        falls_back = self._either and self._stands_in
        return Lookback(max(self._open), readable, falls_back, self._hidden, tuple(self._selectors))

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

    def _rule(self, name: str) -> None:
        """Take the range of the recording rule *name* from its last part, as the naming convention has it."""
        found = _AT_THE_END.search(name.rpartition(":")[2][-_LONGEST_RANGE:])
        if found is None:
            self._hidden = True
        else:
            self._add(found[1])

    def _in_matchers(self, text: str) -> None:
        assert self._matchers is not None
        if text != "}":
            self._matchers.append(text)
            return
        found = _matchers(self._matchers)
        for label, operator, value in found:
            if label == "__name__" and ":" in value:
                self._rule(value[1:-1] if operator == "=" else "")
        if len(self._selectors) < MOST_SELECTORS:
            self._selectors.append(tuple(found[:_MOST_MATCHERS]))
        self._matchers = None

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


def _matchers(tokens: list[str]) -> list[Matcher]:
    """Return the matchers of the *tokens* between two braces; a quoted text alone is the metric's name."""
    found: list[Matcher] = []
    parts: list[str] = []
    for text in (*tokens, ","):
        if text != ",":
            parts.append(text)
            continue
        if len(parts) == 1:
            found.append(("__name__", "=", parts[0]))
        elif len(parts) > 2 and parts[-1][0] in "\"'`":
            found.append((parts[0], "".join(parts[1:-1]), parts[-1]))
        parts = []
    return found


def _seconds(text: str) -> float | None:
    if _PLAIN.fullmatch(text):
        return float(text)
    if not _PARTS.fullmatch(text):
        return None
    return float(sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text)))


__all__ = ["Lookback", "Matcher", "lookback"]

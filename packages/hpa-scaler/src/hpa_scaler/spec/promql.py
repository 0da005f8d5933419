"""Reads a PromQL query's look-back, the targets it selects, and its fallback from its text.

These are scanners, not parsers: they follow parentheses, skip strings and comments, and take one step for each
character of any text.

The look-back adds up nested ranges, subqueries and offsets. So ``max_over_time(rate(x[5m])[1h:1m] offset 1d)`` looks
back a day, an hour and five minutes. The range of a recording rule comes from its name, if the name has one
(``app:requests:rate5m``).

A fallback makes a query return a value even without data, as ``sum(x) or vector(0)`` does. Such an answer does not
distinguish a missing exporter from traffic that ended, so the controller also sends the query without its fallback. A
fallback follows ``or``, or MetricsQL's ``default``, up to the end of its parentheses, and needs no data of the query's
own: a number, ``vector(...)``, ``absent(...)``, or a product with 0 such as ``sum(up)*0``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
"""How many characters at the end of a rule's name are searched for a range."""

_STAND_INS = frozenset({"vector", "absent", "absent_over_time"})
"""Functions that return a value without data."""

# The tokens of all readers. Possessive quantifiers ("++"), and open strings that end with the text: so nothing is read
# twice.
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
"""A label, its operator, and the value as written, with its quotes."""

MOST_SELECTORS = 4
"""How many selectors of one query are kept."""
_MOST_MATCHERS = 16

LONGEST_REMEMBERED = 1024
"""Characters of the longest text in the large cache; longer texts share a small one. Each cycle needs each query
often."""

_EITHER = re.compile(r"\b(?:or|default)\b", re.IGNORECASE | re.ASCII)
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_SIGNS = frozenset("+-()")
_HOLDS = {"{": "}", "[": "]"}


class Lookback(Struct, frozen=True):
    """How far back a query looks, in *seconds*. Not *readable* if a range or an offset can't be parsed.

    A query that *falls_back* returns a value even without data. *hidden* says that the query reads a recording rule
    whose name shows no range. *selectors* are the label matchers of its first selectors.
    """

    seconds: float
    readable: bool = True
    falls_back: bool = False
    hidden: bool = False
    selectors: tuple[tuple[Matcher, ...], ...] = ()


def lookback(text: str) -> Lookback:
    """Return how far back the query *text* looks."""
    return _remembered(text) if len(text) <= LONGEST_REMEMBERED else _long_remembered(text)


def _scanned(text: str) -> Lookback:
    scanner = _Scanner()
    for token in _tokens(text):
        scanner.take(token)
    return scanner.result()


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of *text* without blanks and comments."""
    return (token for token in _TOKEN.finditer(text) if token.lastgroup not in ("space", "comment"))


_remembered = lru_cache(16_384)(_scanned)
_long_remembered = lru_cache(512)(_scanned)


class _Scanner:
    """*_here* is the look-back of the expression that has just ended, *_open* the largest in each open parenthesis.

    *_held* are the tokens since a bracket or a brace that *_closes* will end.
    """

    def __init__(self) -> None:
        self._here = 0.0
        self._open = [0.0]
        self._readable = True
        self._hidden = False
        self._closes = ""
        self._held: list[str] = []
        self._selectors: list[tuple[Matcher, ...]] = []
        self._last_word = ""
        self._either = False
        self._stands_in = False

    def take(self, token: re.Match[str]) -> None:
        text = token[0]
        if self._closes == text:
            self._close()
        elif self._closes:
            self._held.append(text)
        elif token["offset"] is not None:
            if token["sign"] != "-":
                self._add(token["by"] or "")
        elif text in _HOLDS:
            self._closes, self._held = _HOLDS[text], []
        elif token["at"] is None:
            self._plain(text)
            if token["word"] is not None and ":" in text:
                self._rule(text)

    def result(self) -> Lookback:
        self._fold()
        falls_back = self._either and self._stands_in
        readable = self._readable and not self._closes
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
        """Add the range in the last part of the recording rule's *name*, where the naming convention puts it."""
        found = _AT_THE_END.search(name.rpartition(":")[2][-_LONGEST_RANGE:])
        if found is None:
            self._hidden = True
        else:
            self._add(found[1])

    def _close(self) -> None:
        """Read what is held in brackets or braces."""
        closes, self._closes = self._closes, ""
        if closes == "]":
            # The resolution of a subquery does not matter.
            self._add("".join(self._held).partition(":")[0])
            return
        found = _matchers(self._held)
        for label, operator, value in found:
            if label == "__name__" and ":" in value:
                self._rule(value[1:-1] if operator == "=" else "")
        if len(self._selectors) < MOST_SELECTORS:
            self._selectors.append(tuple(found[:_MOST_MATCHERS]))

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


class Bare(Struct, frozen=True):
    """A query without its fallbacks; *whole* says that a fallback may be the whole answer, not only a part."""

    text: str
    whole: bool


class _Operand:
    """The operand read so far: whether it has numbers only, calls a stand-in, and is a product with 0."""

    def __init__(self) -> None:
        self.numbers_only = True
        self.stands_in = False
        self.last = ""
        self._zero = False
        self._adds = False

    @property
    def needs_no_data(self) -> bool:
        return self.last != "" and (self.numbers_only or self.stands_in or (self._zero and not self._adds))

    def take(self, word: str, *, number: bool) -> None:
        last, self.last = self.last, word
        self._zero |= (last == "*" and _is_zero(word)) or (word == "*" and _is_zero(last))
        self._adds |= word in ("+", "-") and last not in ("", "*", "/", "(")
        self.numbers_only &= number or word in _SIGNS
        self.stands_in |= word == "(" and last in _STAND_INS

    def enclose(self, inner: _Operand) -> None:
        """Count an operand in parentheses."""
        self.numbers_only &= inner.numbers_only
        self.stands_in |= inner.stands_in
        self._zero |= inner._zero and not inner._adds


class _Scope:
    """The text or an open parenthesis: *all* of it, and the *operand* after the last ``or``, at *begin* if there is
    one.
    """

    def __init__(self) -> None:
        self.all = _Operand()
        self.operand = _Operand()
        self.begin: int | None = None

    def start(self, at: int | None) -> None:
        """Start an operand; *at* is the position of the ``or`` before it, if any."""
        self.begin, self.operand = at, _Operand()

    def take(self, word: str, *, number: bool) -> None:
        for each in (self.all, self.operand):
            each.take(word, number=number)

    def enclose(self, inner: _Scope) -> None:
        """Count a scope in parentheses."""
        for each in (self.all, self.operand):
            each.enclose(inner.all)

    @property
    def falls_back(self) -> bool:
        return self.begin is not None and self.operand.needs_no_data


def without_fallback(text: str) -> Bare | None:
    """Return the query *text* without its fallbacks, ``None`` if *text* has none."""
    return _found(text) if _EITHER.search(text) else None


@lru_cache(4096)
def _found(text: str) -> Bare | None:
    cuts: list[tuple[int, int]] = []
    scopes = [_Scope()]
    whole = False
    for token in _tokens(text):
        word, at, inner = token[0], token.start(), scopes[-1]
        ends = word in _CLOSE or word == "," or (token.lastgroup == "word" and word.lower() in ("or", "default"))
        if ends and inner.falls_back:
            assert inner.begin is not None
            cuts.append((inner.begin, at))
            whole |= len(scopes) == 1
        if word in _CLOSE:
            if len(scopes) > 1:
                closed = scopes.pop()
                scopes[-1].enclose(closed)
                scopes[-1].take(word, number=False)
        elif word == ",":
            inner.start(None)
        elif ends:
            inner.start(at)
            inner.all.take(word, number=False)
        else:
            inner.take(word, number=token.lastgroup == "number")
            if word in _OPEN:
                scopes.append(_Scope())
    if scopes[0].falls_back and len(scopes) == 1:
        assert scopes[0].begin is not None
        cuts.append((scopes[0].begin, len(text)))
        whole = True
    return Bare(_without(text, cuts), whole) if cuts else None


def _is_zero(word: str) -> bool:
    return bool(word) and word[0] in "0." and not word.strip("0.")


def _without(text: str, cuts: list[tuple[int, int]]) -> str:
    """Return *text* without the *cuts*; a cut may lie within another that ends later."""
    kept, end = [], 0
    for begin, until in sorted(cuts, key=lambda cut: (cut[0], -cut[1])):
        if begin >= end:
            kept.append(text[end:begin])
            end = until
    return ("".join(kept) + text[end:]).strip()

"""Queries that return a value even without data, such as ``sum(x) or vector(0)``, and the same queries without that.

Nothing in such an answer distinguishes an exporter that is away from traffic that ended, so the controller also sends
the query without its fallback. A fallback is what follows ``or``, or MetricsQL's ``default``, up to the end of its
parentheses, and needs no data of the query's own: a number, ``vector(...)``, ``absent(...)``, or a product with 0 such
as ``sum(up)*0``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

# No part gives back what it has taken ("++"), so that no text is read twice.
_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*+(?:\n|\Z))++)
    |(?P<string>"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|`[^`]*+(?:`|\Z))
    |(?P<word>[A-Za-z_:][A-Za-z0-9_:.]*+)
    |(?P<number>[0-9.][0-9A-Za-z_.]*+)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_EITHER = re.compile(r"\b(?:or|default)\b", re.IGNORECASE | re.ASCII)
_STAND_INS = frozenset({"vector", "absent", "absent_over_time"})
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_SIGNS = frozenset("+-()")


class Bare(Struct, frozen=True):
    """A query without its fallbacks; *whole* says that a fallback may be the whole answer, not only a part of it."""

    text: str
    whole: bool


class _Operand:
    """What has been read of one: whether it is made of numbers only, calls a stand-in, and is a product with 0."""

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
        """Count a token that belongs to it."""
        last, self.last = self.last, word
        self._zero |= (last == "*" and _is_zero(word)) or (word == "*" and _is_zero(last))
        self._adds |= word in ("+", "-") and last not in ("", "*", "/", "(")
        self.numbers_only &= number or word in _SIGNS
        self.stands_in |= word == "(" and last in _STAND_INS

    def enclose(self, inner: _Operand) -> None:
        """Count what was in parentheses."""
        self.numbers_only &= inner.numbers_only
        self.stands_in |= inner.stands_in
        self._zero |= inner._zero and not inner._adds


class _Scope:
    """What is open: all of it, and the operand of an ``or`` that stands at *begin*, if there was one."""

    def __init__(self) -> None:
        self.all = _Operand()
        self.operand = _Operand()
        self.begin: int | None = None

    def start(self, at: int | None) -> None:
        """Begin an operand behind an ``or`` that stands *at* a place."""
        self.begin, self.operand = at, _Operand()

    def take(self, word: str, *, number: bool) -> None:
        """Count a token that belongs to it."""
        for each in (self.all, self.operand):
            each.take(word, number=number)

    def enclose(self, inner: _Scope) -> None:
        """Count what was in parentheses."""
        for each in (self.all, self.operand):
            each.enclose(inner.all)

    @property
    def falls_back(self) -> bool:
        return self.begin is not None and self.operand.needs_no_data


def without_fallback(text: str) -> Bare | None:
    """Return the query *text* without its fallbacks, ``None`` if it has none."""
    return _found(text) if _EITHER.search(text) else None


@lru_cache(4096)
def _found(text: str) -> Bare | None:
    cuts: list[tuple[int, int]] = []
    scopes = [_Scope()]
    whole = False
    for token in _TOKEN.finditer(text):
        word, at = token[0], token.start()
        if token.lastgroup == "space":
            continue
        inner = scopes[-1]
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
    """Return *text* without the *cuts*, of which one may lie within another that ends later."""
    kept, end = [], 0
    for begin, until in _outermost(cuts):
        kept.append(text[end:begin])
        end = until
    return ("".join(kept) + text[end:]).strip()


def _outermost(cuts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for begin, until in sorted(cuts, key=lambda cut: (cut[0], -cut[1])):
        if not found or begin >= found[-1][1]:
            found.append((begin, until))
    return found


__all__ = ["Bare", "without_fallback"]

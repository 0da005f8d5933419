"""The grammar of the queries that the hpa-scaler and its tests ask of a Prometheus: from a text to a tree. Pure.

Selectors with ``=``, ``!=``, ``=~`` and ``!~``, ranges, subqueries and ``@``; numbers and strings; ``+ - * /``, ``<``
and ``>`` before a number, ``and`` and ``or``, with ``on()``, ``ignoring()``, ``group_left`` and ``group_right``; the
functions and aggregations that :mod:`tightship_simulator.life.evaluation` knows. What else PromQL has is an error that
says so.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

FUNCTIONS = frozenset(
    (
        "avg_over_time", "clamp_min", "count_over_time", "increase", "max_over_time", "min_over_time", "rate", "scalar",
        "time", "timestamp", "vector",
    )
)  # fmt: skip
AGGREGATIONS = frozenset({"count", "max", "min", "quantile", "sum"})


class PromQLError(ValueError):
    """A text that is no query; the text says why."""


class Matcher(Struct, frozen=True):
    """What a label's value must be."""

    label: str
    how: str
    value: str

    def takes(self, labels: dict[str, str]) -> bool:
        """Whether series with *labels* are meant; a label that is absent is empty."""
        found = labels.get(self.label, "")
        same = bool(re.fullmatch(self.value, found)) if "~" in self.how else found == self.value
        return same != self.how.startswith("!")


class Number(Struct, frozen=True):
    """A number."""

    value: float


class Text(Struct, frozen=True):
    """A string."""

    value: str


class Selector(Struct, frozen=True):
    """Series as they are at one moment, *at* seconds since 1970 or when it is asked."""

    matchers: tuple[Matcher, ...]
    at: float | None = None


class Range(Struct, frozen=True):
    """The samples of series in the last *seconds*."""

    of: Selector
    seconds: float


class Subquery(Struct, frozen=True):
    """An expression at each multiple of *step* seconds in the last *seconds*."""

    of: Node
    seconds: float
    step: float


class Call(Struct, frozen=True):
    """A function of its *arguments*."""

    name: str
    arguments: tuple[Node, ...]


class Aggregation(Struct, frozen=True):
    """One series for each group of series that are alike in the labels *by*."""

    name: str
    of: Node
    by: tuple[str, ...] = ()
    parameter: Node | None = None


class Binary(Struct, frozen=True):
    """Two expressions: series are alike by the labels *on*, or by all but those that are *ignored*."""

    operator: str
    left: Node
    right: Node
    on: tuple[str, ...] | None = None
    ignored: tuple[str, ...] = ()
    many: Literal["", "left", "right"] = ""


Node: TypeAlias = Number | Text | Selector | Range | Subquery | Call | Aggregation | Binary

_TOKEN = re.compile(
    r"""\s*(?:\#[^\n]*+\s*)*(?:
      (?P<duration>(?:\d+(?:ms|[smhdwy]))+)(?![\w.])
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?!\w)
    | (?P<name>[a-zA-Z_][\w:]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<sign>=~|!~|!=|[-+*/<>(){}\[\],:=@])
    )""",
    re.VERBOSE,
)
_END = re.compile(r"\s*(?:#[^\n]*+\s*)*")
_DURATION = re.compile(r"(\d+)(ms|[smhdwy])")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_BINDS = {"or": 1, "and": 2, "<": 3, ">": 3, "+": 4, "-": 4, "*": 5, "/": 5}


@lru_cache(maxsize=256)
def parse(text: str) -> Node:
    """Return the tree of a query. Raises :class:`PromQLError`."""
    reader = _Reader(text)
    found = reader.expression(0)
    if reader.kind:
        raise PromQLError(f"1:{reader.start + 1}: parse error: unexpected {reader.shown}")
    return found


class _Reader:
    """Reads one text, a token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = 0
        self.kind = self.word = ""
        self.start = 0
        self._advance()

    @property
    def shown(self) -> str:
        return repr(self.word) if self.kind else "end of input"

    def _advance(self) -> None:
        found = _TOKEN.match(self._text, self._next)
        if found is None:
            end = _END.match(self._text, self._next)
            self.start = self._next if end is None else end.end()
            if self.start < len(self._text):
                raise PromQLError(f"1:{self.start + 1}: parse error: unexpected character: {self._text[self.start]!r}")
            self.kind = self.word = ""
            return
        self.kind = str(found.lastgroup)
        self.word, self.start = found[self.kind], found.start(self.kind)
        self._next = found.end()

    def _is(self, *words: str) -> bool:
        return self.kind in ("sign", "name") and self.word in words

    def _took(self, *words: str) -> str:
        """Take one of *words* if it is next, and return it."""
        if not self._is(*words):
            return ""
        word = self.word
        self._advance()
        return word

    def _must(self, *words: str) -> str:
        if word := self._took(*words):
            return word
        raise PromQLError(f"1:{self.start + 1}: parse error: unexpected {self.shown}, expected {' or '.join(words)}")

    # Expressions.

    def expression(self, binds: int) -> Node:
        left = self._unary()
        while self._is(*_BINDS) and _BINDS[self.word] > binds:
            operator = self._took(*_BINDS)
            on, ignored, many = self._matching()
            left = Binary(operator, left, self.expression(_BINDS[operator]), on, ignored, many)
        return left

    def _matching(self) -> tuple[tuple[str, ...] | None, tuple[str, ...], Literal["", "left", "right"]]:
        on: tuple[str, ...] | None = None
        ignored: tuple[str, ...] = ()
        match self._took("on", "ignoring"):
            case "on":
                on = self._labels()
            case "ignoring":
                ignored = self._labels()
        if group := self._took("group_left", "group_right"):
            if self._is("("):
                self._labels()
            return on, ignored, "left" if group == "group_left" else "right"
        return on, ignored, ""

    def _unary(self) -> Node:
        match self._took("-", "+"):
            case "-":
                return Binary("*", Number(-1.0), self.expression(_BINDS["*"]))
            case "+":
                return self.expression(_BINDS["*"])
        return self._modified(self._primary())

    def _modified(self, of: Node) -> Node:
        while self._is("[", "@"):
            if self._took("@"):
                if not isinstance(of, Selector):
                    raise PromQLError(f"1:{self.start + 1}: @ is known here for selectors only")
                of = Selector(of.matchers, self._number())
                continue
            self._must("[")
            seconds = self._duration()
            if self._took(":"):
                of = Subquery(of, seconds, self._duration())
            elif isinstance(of, Selector):
                of = Range(of, seconds)
            else:
                raise PromQLError(f"1:{self.start + 1}: parse error: ranges only allowed for vector selectors")
            self._must("]")
        return of

    def _primary(self) -> Node:
        match self.kind:
            case "number" | "duration":
                return Number(self._number())
            case "string":
                return Text(self._string())
            case "name" if self.word in AGGREGATIONS:
                return self._aggregation()
            case "name" if self.word.lower() in ("nan", "inf"):
                value = math.nan if self.word.lower() == "nan" else math.inf
                self._advance()
                return Number(value)
            case "name":
                return self._named()
        if self._took("("):
            inner = self.expression(0)
            self._must(")")
            return inner
        if self._is("{"):
            return Selector(self._matchers())
        raise PromQLError(f"1:{self.start + 1}: parse error: unexpected {self.shown}")

    def _named(self) -> Node:
        name, at = self.word, self.start
        self._advance()
        if not self._is("("):
            named = Matcher("__name__", "=", name)
            return Selector((named, *(self._matchers() if self._is("{") else ())))
        if name not in FUNCTIONS:
            raise PromQLError(f"1:{at + 1}: parse error: unknown function with name {name!r}, or one not known here")
        return Call(name, self._arguments())

    def _arguments(self) -> tuple[Node, ...]:
        self._must("(")
        found: list[Node] = []
        while not self._took(")"):
            found.append(self.expression(0))
            if not self._is(")"):
                self._must(",")
        return tuple(found)

    def _aggregation(self) -> Node:
        name, at = self.word, self.start
        self._advance()
        by = self._labels() if self._took("by") else ()
        arguments = self._arguments()
        if self._took("by"):
            by = self._labels()
        expected = 2 if name == "quantile" else 1
        if len(arguments) != expected:
            raise PromQLError(f"1:{at + 1}: parse error: wrong number of arguments for aggregate expression provided")
        return Aggregation(name, arguments[-1], by, arguments[0] if expected > 1 else None)

    # Their parts.

    def _labels(self) -> tuple[str, ...]:
        self._must("(")
        found: list[str] = []
        while not self._took(")"):
            found.append(self._label())
            if not self._is(")"):
                self._must(",")
        return tuple(found)

    def _label(self) -> str:
        if self.kind != "name":
            raise PromQLError(f"1:{self.start + 1}: parse error: unexpected {self.shown}, expected a label")
        word = self.word
        self._advance()
        return word

    def _matchers(self) -> tuple[Matcher, ...]:
        self._must("{")
        found: list[Matcher] = []
        while not self._took("}"):
            label = self._label()
            found.append(Matcher(label, self._must("=", "!=", "=~", "!~"), self._string()))
            if not self._is("}"):
                self._must(",")
        return tuple(found)

    def _string(self) -> str:
        if self.kind != "string":
            raise PromQLError(f"1:{self.start + 1}: parse error: unexpected {self.shown}, expected a string")
        inside = self.word[1:-1]
        self._advance()
        return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), inside)

    def _number(self) -> float:
        if self.kind == "duration":
            return self._duration()
        if self.kind != "number":
            raise PromQLError(f"1:{self.start + 1}: parse error: unexpected {self.shown}, expected a number")
        value = float(self.word)
        self._advance()
        return value

    def _duration(self) -> float:
        if self.kind == "number":
            return self._number()
        if self.kind != "duration":
            raise PromQLError(f"1:{self.start + 1}: parse error: unexpected {self.shown}, expected a duration")
        seconds = sum(int(count) * _SECONDS[unit] for count, unit in _DURATION.findall(self.word))
        self._advance()
        return seconds


__all__ = [
    "AGGREGATIONS",
    "FUNCTIONS",
    "Aggregation",
    "Binary",
    "Call",
    "Matcher",
    "Node",
    "Number",
    "PromQLError",
    "Range",
    "Selector",
    "Subquery",
    "Text",
    "parse",
]

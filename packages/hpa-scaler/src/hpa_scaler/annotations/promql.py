"""Reads the text of a query into a small syntax tree: PromQL as Prometheus 3 parses it, and MetricsQL. Pure.

The sources of the grammar are ``promql/parser/generated_parser.y`` and ``lex.go`` of Prometheus, experimental features
included, and ``parser.go`` of VictoriaMetrics/metricsql. The reader knows no types and no list of functions: what a
server rejects for these, the server itself says. A tree has no parentheses and no templates: ``WITH`` is expanded.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.syntax import (
    COMPARISONS,
    Expression,
    Kind,
    Matcher,
    PromqlError,
    make,
    number_of,
    tokens,
    wrapped,
)

LONGEST_REMEMBERED = 1024
"""Characters of the longest text in the large cache; longer texts share a small one. Each cycle needs each query
often."""

DEEPEST = 100
"""How deep a query may nest."""
_MOST_EXPANSIONS = 500

PARAMETRIC = frozenset(["topk", "bottomk", "count_values", "quantile", "limitk", "limit_ratio"])
"""The aggregations of Prometheus that take a parameter."""
AGGREGATES = PARAMETRIC | {"sum", "avg", "count", "min", "max", "group", "stddev", "stdvar"}
"""The aggregations of Prometheus; MetricsQL's others are calls with a grouping."""
_LEVELS = (("default",), ("if", "ifnot"), ("or",), ("and", "unless"), (*COMPARISONS, "</", ">/"))
_LEVEL: dict[str, int] = {operator: level for level, each in enumerate(_LEVELS) for operator in each}
_LEVEL |= {"+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "atan2": 6, "^": 7}
_NO_NAMES = frozenset(["bool", "on", "ignoring", "group_left", "group_right", "atan2"])
_FILLS = frozenset(["fill", "fill_left", "fill_right"])
_MATCHES = frozenset(["=", "!=", "=~", "!~"])
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_AFTER = frozenset(["keep_metric_names", "anchored", "smoothed"])


def parse(text: str) -> Expression | None:
    """Return the tree of the query *text*, ``None`` if *text* is none, or too large."""
    return _remembered(text) if len(text) <= LONGEST_REMEMBERED else _long_remembered(text)


def _parsed(text: str) -> Expression | None:
    try:
        return _Parser(text).query()
    except PromqlError:
        return None


_remembered = lru_cache(16_384)(_parsed)
_long_remembered = lru_cache(512)(_parsed)


class _Template(Struct):
    """What ``WITH`` names: its parameters, where its body starts, and the names that its body may use; or its tree."""

    parameters: tuple[str, ...] = ()
    start: int = 0
    names: dict[str, _Template] = {}
    node: Expression | None = None


class _Parser:
    """Reads the tokens from left to right; *_at* is the place of the next."""

    def __init__(self, text: str) -> None:
        self._tokens = [*tokens(text), ("end", "")]
        self._at = self._depth = self._expansions = 0
        self._names: dict[str, _Template] = {}

    def query(self) -> Expression:
        """Return the tree of the whole text."""
        found = self._expression()
        if self._kind != "end":
            raise self._unexpected()
        return found

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _word(self) -> str:
        """The next token, in lower case; a string has its quotes."""
        return self._tokens[self._at][1].lower()

    def _take(self, *allowed: str) -> str:
        """Take the next token; with *allowed*, which may be kinds too, raise :class:`PromqlError` for any other."""
        kind, text = self._tokens[self._at]
        if kind == "end" or (allowed and kind not in allowed and text.lower() not in allowed):
            raise self._unexpected()
        self._at += 1
        return text

    def _taken(self, *words: str) -> bool:
        """Take the next token if it is one of *words*."""
        if self._kind == "string" or self._word not in words:
            return False
        self._at += 1
        return True

    def _unexpected(self) -> PromqlError:
        return PromqlError(f"{self._tokens[self._at][1]!r} is not expected there")

    def _expression(self, least: int = 0) -> Expression:
        self._depth += 1
        if self._depth > DEEPEST:
            raise PromqlError("the query nests too deep to be read")
        left = self._operand()
        while self._kind != "string" and _LEVEL.get(self._word, -1) >= least:
            operator = self._take().lower()
            modifiers = self._modifiers()
            level = _LEVEL[operator]
            right = self._expression(level if operator == "^" else level + 1)
            left = make(Expression("binary", operator, "", modifiers=modifiers), left, right)
        self._depth -= 1
        return left

    def _modifiers(self) -> str:
        found = ["bool"] if self._taken("bool") else []
        if self._word in ("on", "ignoring"):
            found.append(f"{self._take().lower()} {self._labels()}")
            if self._word in ("group_left", "group_right"):
                found.append(self._take().lower())
                found[-1] += f" {self._labels()}" if self._word == "(" else ""
                found += [f"prefix {self._take('string')}"] if self._taken("prefix") else []
        while self._word in _FILLS and self._tokens[self._at + 1][1] == "(":
            name = self._take().lower()
            self._take("(")
            sign = self._take() if self._word in ("+", "-") else ""
            found.append(f"{name} ({sign}{self._take('number')})")
            self._take(")")
        return " ".join(found)

    def _labels(self) -> str:
        self._take("(")
        found = []
        while not self._taken(")"):
            found.append(self._take("word", "string", "*"))
            if self._word != ")":
                self._take(",")
        return f"({', '.join(found)})"

    def _operand(self) -> Expression:
        if self._kind != "string" and self._word in ("+", "-"):
            # A sign binds as tightly as a product: -x^2 is -(x^2).
            return make(Expression("unary", self._take(), ""), self._expression(7))
        node = self._primary()
        while self._kind in ("word", "mark"):
            word = self._word
            if word == "[":
                node = self._range(node)
            elif word == "offset":
                node = self._offset(node)
            elif word == "@":
                self._take()
                sign = self._take() if self._word in ("+", "-") else ""
                node = make(_after(node, f"@ {sign}{wrapped(self._primary())}"), *node.args)
            elif word in _AFTER:
                node = make(_after(node, self._take().lower()), *node.args)
            else:
                break
        return node

    def _offset(self, node: Expression) -> Expression:
        self._take()
        sign = self._take() if self._word in ("+", "-") else ""
        by = self._primary()
        seconds = number_of(by)
        if seconds is not None:
            seconds = max(0.0, -seconds if sign == "-" else seconds)
        whole = None if seconds is None or node.seconds is None else node.seconds + seconds
        shifted = msgspec.structs.replace(node, seconds=whole)
        return make(_after(shifted, f"offset {sign}{wrapped(by)}"), *node.args)

    def _range(self, node: Expression) -> Expression:
        self._take("[")
        by = None if self._word == ":" else self._expression()
        step = ""
        subquery = self._taken(":")
        if subquery and self._word != "]":
            step = self._expression().text
        self._take("]")
        if by is None and not subquery:
            raise self._unexpected()
        seconds = 0.0 if by is None else number_of(by)
        if seconds is not None and seconds <= 0 and by is not None:
            raise PromqlError(f"{by.text} is no range")
        written = f"[{'' if by is None else by.text}{':' if subquery else ''}{step}]"
        return make(Expression("range", "", "", modifiers=written, seconds=seconds), node)

    def _primary(self) -> Expression:
        kind, text = self._tokens[self._at]
        word = text.lower()
        following = self._tokens[self._at + 1][1] if kind != "end" else ""
        if kind in ("string", "number"):
            return make(Expression("string" if kind == "string" else "number", self._take(), ""))
        if word == "(":
            args = self._arguments()
            return args[0] if len(args) == 1 else make(Expression("call", "union", ""), *args)
        if word == "{":
            return self._selector("")
        if kind != "word":
            raise self._unexpected()
        if text in self._names:
            return self._expanded(self._names[text])
        if word == "with" and following == "(":
            return self._with()
        if following == "(" or (word in AGGREGATES and following.lower() in ("by", "without")):
            return self._call(word if word in AGGREGATES else text)
        if word in ("inf", "nan"):
            return make(Expression("number", self._take(), ""))
        if word in _NO_NAMES:
            raise self._unexpected()
        return self._selector(self._take())

    def _call(self, name: str) -> Expression:
        self._take()
        grouping = self._grouping()
        args = self._arguments()
        grouping = grouping or self._grouping()
        after = f" limit {self._take('number')}" if name in AGGREGATES and self._taken("limit") else ""
        kind: Kind = "aggregate" if name in AGGREGATES or grouping else "call"
        return make(Expression(kind, name, "", modifiers=grouping, after=after), *args)

    def _grouping(self) -> str:
        return f"{self._take().lower()} {self._labels()}" if self._word in ("by", "without") else ""

    def _arguments(self) -> list[Expression]:
        self._take("(")
        found = []
        while not self._taken(")"):
            found.append(self._expression())
            if self._word != ")":
                self._take(",")
        return found

    def _selector(self, name: str, matchers: tuple[Matcher, ...] = ()) -> Expression:
        found = list(matchers)
        if self._taken("{"):
            while not self._taken("}"):
                found += self._matcher()
                if self._word != "}":
                    self._take(",", "or")
        return make(Expression("selector", name, "", matchers=tuple(found)))

    def _matcher(self) -> list[Matcher]:
        quoted = self._kind == "string"
        label = self._take("word", "string")
        if self._kind == "mark" and self._word in _MATCHES:
            plain = label[1:-1] if quoted and _LABEL.fullmatch(label[1:-1]) else label
            return [(plain, self._take(), self._take("string"))]
        if quoted:
            return [("__name__", "=", label)]
        if label not in self._names:
            raise self._unexpected()
        self._at -= 1
        return list(self._expanded(self._names[label]).matchers)

    def _with(self) -> Expression:
        before = self._names
        self._take()
        self._take("(")
        while not self._taken(")"):
            name = self._take("word")
            parameters: tuple[str, ...] = ()
            if self._word == "(":
                parameters = tuple(each.strip() for each in self._labels()[1:-1].split(",") if each)
            self._take("=")
            self._names = {**self._names, name: _Template(parameters, self._at, self._names)}
            self._skip()
            if self._word != ")":
                self._take(",")
        found = self._expression()
        self._names = before
        return found

    def _skip(self) -> None:
        """Take what comes before the next comma, or the end of the parentheses."""
        depth = 0
        while depth or self._word not in (",", ")"):
            word = self._take() if self._kind != "string" else self._take()[:1]
            depth += (word in "([{") - (word in ")]}")

    def _expanded(self, template: _Template) -> Expression:
        """Take the name of *template*, with its arguments or matchers, and return what it stands for."""
        self._expansions += 1
        if self._expansions > _MOST_EXPANSIONS:
            raise PromqlError("the templates are too many to be read")
        self._take()
        if template.node is not None:
            node = template.node
        else:
            args = self._arguments() if self._word == "(" else []
            if len(args) != len(template.parameters):
                raise self._unexpected()
            given = {name: _Template(node=arg) for name, arg in zip(template.parameters, args, strict=True)}
            at, names = self._at, self._names
            self._at, self._names = template.start, template.names | given
            node = self._expression()
            self._at, self._names = at, names
        if node.kind == "selector" and self._word == "{":
            return self._selector(node.name, node.matchers)
        return node


def _after(node: Expression, text: str) -> Expression:
    return msgspec.structs.replace(node, after=f"{node.after} {text}")

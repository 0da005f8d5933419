"""Reads queries, in PromQL as Prometheus 3 parses it or in MetricsQL: how far back one looks, which targets it selects,
and which of its data may go missing unseen. Pure.

The sources of the grammar are ``promql/parser/generated_parser.y`` and ``lex.go`` of Prometheus, experimental features
included, and ``parser.go`` of VictoriaMetrics/metricsql. The reader knows no types and no list of functions: what a
server rejects for these, the server itself says. A tree has no parentheses and no templates: ``WITH`` is expanded.

The look-back adds up nested ranges, subqueries and offsets. So ``max_over_time(rate(x[5m])[1h:1m] offset 1d)`` looks
back a day, an hour and five minutes. The range of a recording rule comes from its name, if the name has one
(``app:requests:rate5m``).

A fallback makes a query return a value even without data, as ``sum(x) or vector(0)`` does. Such an answer does not
distinguish a missing exporter from traffic that ended. So the controller also asks for each operand that a fallback
hides: what stands on either side of ``or`` and MetricsQL's ``default``, of an operator with ``fill()``, what
``scalar()`` turns into NaN, and what a comparison, ``and``, ``unless``, ``if`` or ``ifnot`` filters below any of these.
Numbers, functions of the time, ``vector()`` of a number and products with 0 such as ``sum(up)*0`` are no data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

Matcher: TypeAlias = tuple[str, str, str]
"""A label, its operator, and the value as written, with its quotes."""

_HIGHEST = 250
"""The height of the largest tree, as of a sum of so many parts."""
_LARGEST = 20_000
"""Characters of the longest query, templates expanded."""

COMPARISONS = frozenset(["==", "!=", "<", ">", "<=", ">="])

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0, "y": 365 * 86400.0}
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,12})?)(ms|[smhdwyi])", re.ASCII)
DURATION = re.compile(rf"(?:{_PART.pattern})++", re.ASCII)
_PLAIN = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12}", re.ASCII)

_NUMBER = re.compile(
    r"0x[0-9a-f_]+|\$__(?:rate_)?interval|inf|nan"
    r"|[0-9][0-9_]*(?:\.[0-9_]*)?(?:e[+-]?[0-9]+)?(?:[kmgt]i?b?)?|\.[0-9_]+(?:e[+-]?[0-9]+)?",
    re.ASCII | re.IGNORECASE,
)
# Possessive quantifiers ("++"), and open strings that end with the text: so nothing is read twice. Within brackets a
# colon is no part of a word.
_LEXEMES = r"""(?P<space>(?:\s|\#[^\n]*+)++)
    |(?P<string>"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|`[^`]*+(?:`|\Z))
    |(?P<word>(?:[A-Za-z_%s\u0080-\U0010ffff]|\\.)(?:[A-Za-z0-9_%s\u0080-\U0010ffff]|\\.)*+)
    |(?P<number>\$__(?:rate_)?interval|0[xX][0-9a-fA-F_]++
        |(?:[0-9][0-9_]*+\.?+[0-9_]*+|\.[0-9][0-9_]*+)(?:[eE][+-]?+[0-9]++)?+[0-9A-Za-z_.]*+)
    |(?P<mark>[=!]~|[=!<>]=|</|>/|[-+*/%%^<>=(){}\[\],:@])"""
_OUTSIDE = re.compile(_LEXEMES % (":", ":"), re.VERBOSE | re.DOTALL | re.ASCII)
INSIDE = re.compile(_LEXEMES % ("", ""), re.VERBOSE | re.DOTALL | re.ASCII)

Kind: TypeAlias = Literal["number", "string", "selector", "range", "call", "aggregate", "binary", "unary"]


class PromqlError(ValueError):
    """A text that is no query."""


class Expression(Struct, frozen=True):
    """An expression: *text* is its normal form, without needless parentheses.

    *name* is the function, the operator, the metric, or the text of a literal; *args* are the operands. *modifiers*
    stand after an operator, or are the grouping of an aggregation, or a range in its brackets. *after* are an offset,
    an ``@`` and the like. *seconds* is how far back the expression looks by its own range and offset, ``None`` if that
    is unknown.
    """

    kind: Kind
    name: str
    text: str
    args: tuple[Expression, ...] = ()
    matchers: tuple[Matcher, ...] = ()
    modifiers: str = ""
    after: str = ""
    seconds: float | None = 0.0
    height: int = 1

    @property
    def function(self) -> str:
        """The function or aggregation, in lower case as VictoriaMetrics reads it, "" if this is no call."""
        return self.name.lower() if self.kind in ("call", "aggregate") else ""

    @property
    def operator(self) -> str:
        """The operator between two expressions, "" if this has none."""
        return self.name if self.kind == "binary" else ""

    @property
    def filters(self) -> bool:
        """Whether this is a comparison that leaves series out."""
        return self.operator in COMPARISONS and "bool" not in self.modifiers.split()


def make(node: Expression, *args: Expression) -> Expression:
    """Return *node* with *args*, and with its text and height. Raises :class:`PromqlError` if it is too large."""
    inner = ", ".join(each.text for each in args)
    modifiers = f" {node.modifiers}" if node.modifiers else ""
    if node.kind == "binary":
        text = f"{wrapped(args[0])} {node.name}{modifiers} {wrapped(args[1])}"
    elif node.kind == "unary":
        text = f"{node.name}{wrapped(args[0])}"
    elif node.kind == "range":
        text = f"{wrapped(args[0])}{node.modifiers}"
    elif node.kind in ("call", "aggregate"):
        text = f"{node.name}{modifiers}{' ' if modifiers else ''}({inner})"
    elif node.kind == "selector":
        written = ",".join(label + operator + value for label, operator, value in node.matchers)
        text = f"{node.name}{{{written}}}" if node.matchers or not node.name else node.name
    else:
        text = node.name
    if node.after:
        text = f"({text}){node.after}" if node.kind in ("binary", "unary") else f"{text}{node.after}"
    height = 1 + max((each.height for each in args), default=0)
    if height > _HIGHEST or len(text) > _LARGEST:
        raise PromqlError("the query is too large to be read")
    return msgspec.structs.replace(node, args=args, text=text, height=height)


def wrapped(node: Expression) -> str:
    """Return the text of *node* as an operand."""
    return f"({node.text})" if node.kind in ("binary", "unary") or "keep_metric" in node.after else node.text


def number_of(node: Expression) -> float | None:
    """Return the value of *node* where no series has data, ``None`` if there is none or it is unknown."""
    if node.kind == "number":
        return _seconds(node.name)
    found = [number_of(each) for each in node.args]
    known = [each for each in found if each is not None]
    if node.kind == "unary" and known:
        return -known[0] if node.name == "-" else known[0]
    if node.operator in ("or", "default"):
        return known[0] if known else None
    if len(known) == 2 and node.operator in ("+", "-", "*", "/"):
        left, right = known
        if node.name == "/":
            return left / right if right else None
        return left + right if node.name == "+" else left - right if node.name == "-" else left * right
    if node.function in ("clamp_min", "clamp_max") and len(known) == 2:
        return max(known) if node.function == "clamp_min" else min(known)
    same = node.function in ("sum", "avg", "min", "max", "vector", "ceil", "floor", "round", "sort", "label_replace")
    return known[0] if same and len(known) == 1 else None


def _seconds(text: str) -> float | None:
    """Return the number or the duration *text*, in seconds."""
    text = text.lower()
    if _PLAIN.fullmatch(text):
        return float(text)
    if not DURATION.fullmatch(text) or text.endswith("i"):
        return None
    return sum(float(number) * _UNITS.get(unit, 0.0) for number, unit in _PART.findall(text))


def tokens(text: str) -> list[tuple[str, str]]:
    """Return kind and text of each token; the kinds are those of ``_LEXEMES``. Raises :class:`PromqlError`."""
    if len(text) > _LARGEST:
        raise PromqlError("the query is too long to be read")
    found: list[tuple[str, str]] = []
    at = depth = 0
    while at < len(text):
        token = (INSIDE if depth else _OUTSIDE).match(text, at)
        if token is None:
            raise PromqlError(f"{text[at]!r} is nothing that a query has")
        at, kind, word = token.end(), token.lastgroup or "", token[0]
        depth += (word == "[") - (word == "]" and depth > 0)
        if kind == "string" and (len(word) < 2 or word[-1] != word[0] or ("\n" in word and word[0] != "`")):
            raise PromqlError(f"{word!r} is not closed")
        if kind == "number" and not (_NUMBER.fullmatch(word) or DURATION.fullmatch(word.lower())):
            raise PromqlError(f"{word!r} is no number")
        if kind != "space":
            found.append((kind, word))
    return found


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


MOST_SELECTORS = 4
"""How many selectors of one query are kept."""
_MOST_MATCHERS = 16
MOST_OPERANDS = 12
"""How many operands of one query are asked for one by one; the others are asked for together."""

_AT_THE_END = re.compile(r"(?:^|[^0-9.])((?:[0-9]{1,12}(?:ms|[smhdwy])){1,4})$", re.ASCII)
_LONGEST_RANGE = 24
"""How many characters at the end of a rule's name are searched for a range."""

_ABSENT = frozenset(["absent", "absent_over_time"])
_NO_DATA = frozenset(["ALERTS", "ALERTS_FOR_STATE"])
"""Series that Prometheus writes only while an alert is pending or firing."""
_EITHER = frozenset(["or", "default"])
_FILL = re.compile(r"\bfill(?:_left|_right)? \(")
_SETS = frozenset(["and", "unless", "if", "ifnot"])


class Lookback(Struct, frozen=True):
    """How far back a query looks, in *seconds*. Not *readable* if the text, a range or an offset can't be read.

    *hidden* says that the query reads a recording rule whose name shows no range. *selectors* are the label matchers of
    its first selectors that have some.
    """

    seconds: float = 0.0
    readable: bool = True
    hidden: bool = False
    selectors: tuple[tuple[Matcher, ...], ...] = ()


class Operand(Struct, frozen=True):
    """A part of a query whose data may go missing unseen: *text* is what to ask for them, *part* how the query has it.

    Operands of one *group* are alternatives: ``new or old``. An *optional* operand only has to exist at times, as a
    flag after ``and`` does. A *single* number is there unless the number is NaN.
    """

    text: str
    part: str
    group: str = ""
    optional: bool = False
    single: bool = False


class Fallbacks(Struct, frozen=True):
    """The *operands* that fallbacks hide, and whether the query *needs data* besides to return anything."""

    operands: tuple[Operand, ...] = ()
    needs_data: bool = True

    @property
    def answer(self) -> bool:
        """Whether a fallback may answer, and not only another operand."""
        return not self.needs_data or not all(each.group for each in self.operands)


@lru_cache(16_384)
def lookback(text: str) -> Lookback:
    """Return how far back the query *text* looks."""
    tree = parse(text) if text.strip() else None
    if tree is None:
        return Lookback(readable=not text.strip())
    nodes = list(_all(tree))
    rules = [name for each in nodes if each.kind == "selector" for name in _rules(each)]
    return Lookback(
        seconds=_seconds_back(tree),
        readable=all(each.seconds is not None for each in nodes),
        hidden=any(_rule_range(name) is None for name in rules),
        selectors=tuple(each.matchers[:_MOST_MATCHERS] for each in nodes if each.matchers)[:MOST_SELECTORS],
    )


def _all(node: Expression) -> Iterator[Expression]:
    yield node
    for each in node.args:
        yield from _all(each)


def _seconds_back(node: Expression) -> float:
    own = (node.seconds or 0.0) + max((_rule_range(name) or 0.0 for name in _rules(node)), default=0.0)
    return own + max((_seconds_back(each) for each in node.args), default=0.0)


def _rules(node: Expression) -> list[str]:
    """Return the names of recording rules that a selector may read; "" for a pattern."""
    if node.kind != "selector":
        return []
    named = [("=", f"'{node.name}'"), *((how, value) for label, how, value in node.matchers if label == "__name__")]
    return [value[1:-1] if how == "=" else "" for how, value in named if ":" in value]


def _rule_range(name: str) -> float | None:
    """Return the range in the last part of a recording rule's *name*, where the naming convention puts it."""
    found = _AT_THE_END.search(name.rpartition(":")[2][-_LONGEST_RANGE:])
    return None if found is None else number_of(Expression("number", found[1], found[1]))


def _constant(node: Expression) -> bool:
    """Whether *node* needs no data, or has always the same value: numbers, functions of the time, products with 0."""
    if node.kind == "selector":
        return node.name in _NO_DATA
    return all(map(_constant, node.args)) or node.function in _ABSENT or _zero(node)


def _selects(node: Expression) -> bool:
    """Whether *node* has series only where others have some, even if their value is always the same."""
    if node.kind == "selector":
        return node.name not in _NO_DATA
    return node.function not in _ABSENT and any(_selects(each) for each in node.args)


def _zero(node: Expression) -> bool:
    """Whether *node* is 0 where its data are there, as ``sum(up)*0`` is."""
    if node.operator == "-":
        return node.args[0].text == node.args[1].text
    if node.operator not in ("*", "/") and node.function != "clamp_max":
        return False
    zeros = [number_of(each) == 0 and _constant(each) for each in node.args]
    return zeros[0] if node.operator == "/" else any(zeros)


def _alternatives(node: Expression) -> tuple[Expression, ...]:
    """Return the expressions of which *node* has the series, one in place of the other; none if it is no such thing."""
    if node.operator in _EITHER:
        return (*(_alternatives(node.args[0]) or node.args[:1]), *(_alternatives(node.args[1]) or node.args[1:]))
    several = len(node.args) > 1 and node.function in AGGREGATES - PARAMETRIC | {"union"}
    return node.args if several else ()


def _needs_data(node: Expression) -> bool:
    """Whether *node* has no series where its data have none."""
    if _constant(node) or node.function == "scalar":
        return False
    if node.kind == "selector":
        return True
    found = [_needs_data(each) for each in node.args]
    if _alternatives(node) or _fills(node):
        return all(found)
    return any(found[:1] if node.operator in ("unless", "ifnot") else found)


def _fills(node: Expression) -> bool:
    return node.kind == "binary" and _FILL.search(node.modifiers) is not None


def _plain(node: Expression) -> bool:
    """Whether *node* loses series only with its data."""
    hides = node.filters or node.operator in _SETS or node.function in ("scalar", *_ABSENT) or _fills(node)
    return not hides and not _alternatives(node) and all(_plain(each) for each in node.args)


class _Place(Struct, frozen=True):
    """Where an expression stands: whether a fallback hides it, and the offset of the subqueries around it.

    It *decides* if another alternative answers where it has no series, and may answer less, whatever its own value.
    """

    hidden: bool = False
    shift: str = ""
    group: str = ""
    optional: bool = False
    decides: bool = False


def _operands(node: Expression, place: _Place) -> Iterator[Operand]:
    """Yield the operands in *node* that a fallback hides."""
    name, decides = node.function or node.operator, place.decides and _selects(node)
    constant = _constant(node) and not decides
    single = name == "scalar" and not constant and all(_plain(each) for each in node.args)
    if single or (place.hidden and not constant and _plain(node)):
        text = node.text if single else _counted(node)
        if place.shift:
            text = f"last_over_time(({text})[1m:1m]{place.shift})"
        yield Operand(text, node.text, place.group, place.optional, single)
        return
    if _zero(node) and not decides:
        return
    alternatives = _alternatives(node)
    several = sum(not _constant(each) for each in alternatives) > 1
    below = _Place(
        hidden=place.hidden or bool(alternatives) or name == "scalar" or _fills(node),
        shift=f"{node.after}{place.shift}" if node.kind == "range" else place.shift,
        group=place.group or (node.text if several else ""),
        optional=(place.optional or name in _ABSENT) and not node.filters,
        decides=place.decides,
    )
    condition = _Place(below.hidden, below.shift, optional=True)
    deciding = msgspec.structs.replace(below, decides=True)
    for number, each in enumerate(alternatives or node.args):
        if name in _SETS and number:
            yield from _operands(each, condition)
        elif name in _EITHER and number + 1 < len(alternatives) and not _zero(each):
            yield from _operands(each, deciding)
        elif name != "info" or not number:
            yield from _operands(each, below)


def _counted(node: Expression) -> str:
    """Return a query that has few series, and has some if *node* has."""
    if node.kind == "range":
        return f"count(count_over_time({node.text}))"
    return f"count({node.text})" if _many(node) else node.text


def _many(node: Expression) -> bool:
    if node.kind == "aggregate":
        return bool(node.modifiers) or node.function in PARAMETRIC - {"quantile"}
    return node.kind == "selector" or any(_many(each) for each in node.args)


@lru_cache(16_384)
def fallbacks(text: str) -> Fallbacks:
    """Return the operands of the query *text* that a fallback hides."""
    tree = parse(text)
    if tree is None:
        return Fallbacks()
    # An operand that stands in several places has to be there if it has to be in one of them.
    every = sorted(_operands(tree, _Place()), key=lambda each: (each.optional, bool(each.group)))
    found = list({each.text: each for each in reversed(every)}.values())[::-1]
    first, rest = found[:MOST_OPERANDS], found[MOST_OPERANDS:]
    if rest:
        together = " and on () ".join(f"({each.text})" for each in rest if not each.single)
        first.append(Operand(together, f"each of {len(rest)} other operands"))
    return Fallbacks(tuple(first), _needs_data(tree))


def without_fallbacks(node: Expression) -> Expression:
    """Return *node* without what stands in for data."""
    if node.operator in _EITHER:
        data = [without_fallbacks(each) for each in node.args if not _constant(each)]
        if len(data) < 2:
            return data[0] if data else node
    args = [without_fallbacks(each) for each in node.args]
    return make(node, *args) if args else node


def normal(text: str) -> str:
    """Return the query *text* in its normal form."""
    tree = parse(text)
    return text if tree is None else tree.text

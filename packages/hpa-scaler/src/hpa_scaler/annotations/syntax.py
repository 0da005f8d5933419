"""The tokens and the syntax tree of a query. Pure.

A tree has no parentheses and no templates; see :mod:`hpa_scaler.annotations.promql`, which reads it from a text.
"""

from __future__ import annotations

import re
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
    can't be told.
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
    """Return the value of *node* where no series has data, ``None`` if there is none or it can't be told."""
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

"""How far back a query looks, which targets it selects, and which of its data may go missing unseen. Pure.

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

from msgspec import Struct

from hpa_scaler.annotations.promql import AGGREGATES, PARAMETRIC, parse
from hpa_scaler.annotations.syntax import Expression, Matcher, make, number_of

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
        seconds=_seconds(tree),
        readable=all(each.seconds is not None for each in nodes),
        hidden=any(_rule_range(name) is None for name in rules),
        selectors=tuple(each.matchers[:_MOST_MATCHERS] for each in nodes if each.matchers)[:MOST_SELECTORS],
    )


def _all(node: Expression) -> Iterator[Expression]:
    yield node
    for each in node.args:
        yield from _all(each)


def _seconds(node: Expression) -> float:
    own = (node.seconds or 0.0) + max((_rule_range(name) or 0.0 for name in _rules(node)), default=0.0)
    return own + max((_seconds(each) for each in node.args), default=0.0)


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
    constants = [_constant(each) for each in node.args]
    return all(constants) or node.function in _ABSENT or _zero(node, constants)


def _zero(node: Expression, constants: list[bool]) -> bool:
    """Whether *node* is 0 where its data are there, as ``sum(up)*0`` is; *constants* says which operands need none."""
    if node.operator == "-":
        return node.args[0].text == node.args[1].text
    if node.operator not in ("*", "/") and node.function != "clamp_max":
        return False
    zeros = [constant and number_of(each) == 0 for each, constant in zip(node.args, constants, strict=True)]
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
    """Where an expression stands: whether a fallback hides it, and the offset of the subqueries around it."""

    hidden: bool = False
    shift: str = ""
    group: str = ""
    optional: bool = False


def _operands(node: Expression, place: _Place) -> Iterator[Operand]:
    """Yield the operands in *node* that a fallback hides."""
    name, constant = node.function or node.operator, _constant(node)
    single = name == "scalar" and not constant and all(_plain(each) for each in node.args)
    if single or (place.hidden and not constant and _plain(node)):
        text = node.text if single else _counted(node)
        if place.shift:
            text = f"last_over_time(({text})[1m:1m]{place.shift})"
        yield Operand(text, node.text, place.group, place.optional, single)
        return
    if _zero(node, [_constant(each) for each in node.args]):
        return
    alternatives = _alternatives(node)
    several = sum(not _constant(each) for each in alternatives) > 1
    below = _Place(
        hidden=place.hidden or bool(alternatives) or name == "scalar" or _fills(node),
        shift=f"{node.after}{place.shift}" if node.kind == "range" else place.shift,
        group=place.group or (node.text if several else ""),
        optional=(place.optional or name in _ABSENT) and not node.filters,
    )
    condition = _Place(below.hidden, below.shift, optional=True)
    for number, each in enumerate(alternatives or node.args):
        if name in _SETS and number:
            yield from _operands(each, condition)
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

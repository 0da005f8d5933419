"""Answers PromQL over series that are made up, at any moment, without a Prometheus: as much of it as a bench asks.

Samples are `SCRAPE` seconds apart. A counter is read as Prometheus does, with its extrapolation (promql/functions.go,
extrapolatedRate), without resets. A series that ends is gone with the next scrape (a stale marker), and its samples
stay in the ranges that still reach back to them. A vector is a dict by labels, without the metric's name.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from hpa_scaler.annotations.promql import Expression, number_of, parse

SCRAPE = 15.0
"""Seconds between two samples."""

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]
Value: TypeAlias = Vector | float

NONE: Labels = frozenset()


@dataclass(frozen=True)
class Series:
    """A metric's series: its *value* by the time, and the last moment *until* which it is scraped."""

    name: str
    labels: Mapping[str, str]
    value: Callable[[float], float]
    until: float = math.inf


def answer(text: str, series: Sequence[Series], at: float) -> Vector:
    """Return what the query *text* has at the time *at*, a scalar without labels.

    Raises :class:`ValueError` for a text that can't be read, :class:`KeyError` for a function that is not known here.
    """
    tree = parse(text)
    if tree is None:
        raise ValueError(f"{text!r} can't be read")
    return _Instant(series).vector(tree, at)


class _Instant:
    def __init__(self, series: Sequence[Series]) -> None:
        self._series = series

    def value(self, node: Expression, at: float) -> Value:
        at -= _offset(node)
        if node.kind == "number":
            return _number(node.name)
        if node.kind == "selector":
            return {_labels(each): each.value(last) for each in self._chosen(node) if (last := _last(at)) <= each.until}
        if node.kind == "unary":
            return _each(self.value(node.args[0], at), operator.neg if node.name == "-" else operator.pos)
        if node.kind == "binary":
            return _binary(node, self.value(node.args[0], at), self.value(node.args[1], at))
        if node.kind == "aggregate":
            return self._aggregated(node, at)
        return self._called(node, at)

    def vector(self, node: Expression, at: float) -> Vector:
        found = self.value(node, at)
        return {NONE: found} if isinstance(found, float) else found

    def _chosen(self, node: Expression) -> Iterator[Series]:
        matchers = [*node.matchers, *([("__name__", "=", f"'{node.name}'")] if node.name else [])]
        for each in self._series:
            labels = {**each.labels, "__name__": each.name}
            if all(_matches(how, text[1:-1], labels.get(label, "")) for label, how, text in matchers):
                yield each

    def _aggregated(self, node: Expression, at: float) -> Vector:
        *parameter, of = node.args
        by = re.findall(r"\w+", node.modifiers.partition("(")[2])
        groups: dict[Labels, Vector] = {}
        for labels, value in self.vector(of, at).items():
            groups.setdefault(frozenset(each for each in labels if each[0] in by), {})[labels] = value
        if node.name == "topk":
            most = int(_scalar(self.value(parameter[0], at)))
            return {key: one[key] for one in groups.values() for key in sorted(one, key=lambda key: -one[key])[:most]}
        if node.name == "quantile":
            share = _scalar(self.value(parameter[0], at))
            return {key: _quantile(share, sorted(one.values())) for key, one in groups.items()}
        return {key: _REDUCED[node.name](list(one.values())) for key, one in groups.items()}

    def _called(self, node: Expression, at: float) -> Value:
        name, args = node.function, node.args
        if name == "hour":
            return {NONE: float(at % 86400 // 3600)}
        if name == "time":
            return at
        if name == "rate":
            return self._rates(args[0], at)
        if name.endswith("_over_time"):
            reduced = _REDUCED[name.removesuffix("_over_time")]
            return {labels: reduced(values) for labels, values in self._windows(args[0], at).items()}
        first = self.value(args[0], at)
        if name == "timestamp":
            return _each(first, lambda _: _last(at))
        if name == "vector":
            return {NONE: _scalar(first)}
        if name == "scalar":
            return _scalar(first)
        if name == "absent":
            named = args[0].matchers if args[0].kind == "selector" else ()
            labels = frozenset((label, text[1:-1]) for label, how, text in named if how == "=" and label != "__name__")
            return {} if first else {labels: 1.0}
        if name in ("clamp_min", "clamp_max"):
            bound, choose = _scalar(self.value(args[1], at)), max if name == "clamp_min" else min
            return _each(first, lambda value: choose(value, bound))
        if name == "ceil":
            return _each(first, lambda value: float(math.ceil(value)))
        if name == "label_replace" and not isinstance(first, float):
            target, to, source, pattern = (each.name[1:-1] for each in args[1:])
            return {_relabelled(labels, target, to, source, pattern): value for labels, value in first.items()}
        raise KeyError(name)

    def _rates(self, node: Expression, at: float) -> Vector:
        seconds, _ = _range(node)
        end = at - _offset(node) - _offset(node.args[0])
        found: Vector = {}
        for each in self._chosen(node.args[0]):
            first, last = _last(end - seconds) + SCRAPE, _last(min(end, each.until))
            if last <= first:
                continue
            most = 1.1 * SCRAPE
            before, after = first - (end - seconds), end - last
            covered = last - first + (before if before < most else SCRAPE / 2) + (after if after < most else SCRAPE / 2)
            rise = each.value(last) - each.value(first)
            found[_labels(each)] = rise * covered / (last - first) / seconds
        return found

    def _windows(self, node: Expression, at: float) -> dict[Labels, list[float]]:
        seconds, step = _range(node)
        end, found, of = at - _offset(node), dict[Labels, list[float]](), node.args[0]
        newest = math.floor(end / step)
        moments = [number * step for number in range(newest, math.floor((end - seconds) / step), -1)]
        if of.kind == "selector" and not of.after and step == SCRAPE:
            for each in self._chosen(of):
                if there := [each.value(moment) for moment in moments if moment <= each.until]:
                    found[_labels(each)] = there
            return found
        for moment in moments:
            for labels, value in self.vector(of, moment).items():
                found.setdefault(labels, []).append(value)
        return found


def _range(node: Expression) -> tuple[float, float]:
    """Return the seconds of a range, and of its step."""
    by, _, step = node.modifiers[1:-1].partition(":")
    return _number(by), _number(step) if step else SCRAPE


def _offset(node: Expression) -> float:
    found = re.search(r"offset (\w+)", node.after)
    return 0.0 if found is None else _number(found[1])


def _number(text: str) -> float:
    tree = parse(text)
    found = None if tree is None else number_of(tree)
    if found is None:
        raise ValueError(f"{text!r} is no number")
    return found


def _last(at: float) -> float:
    return math.floor(at / SCRAPE) * SCRAPE


def _labels(each: Series) -> Labels:
    return frozenset(each.labels.items())


def _matches(how: str, text: str, value: str) -> bool:
    same = bool(re.fullmatch(text, value)) if "~" in how else text == value
    return same is not how.startswith("!")


def _scalar(value: Value) -> float:
    if isinstance(value, float):
        return value
    return next(iter(value.values())) if len(value) == 1 else math.nan


def _each(value: Value, change: Callable[[float], float]) -> Value:
    return change(value) if isinstance(value, float) else {labels: change(one) for labels, one in value.items()}


def _quantile(share: float, values: list[float]) -> float:
    rank = share * (len(values) - 1)
    low, high = values[math.floor(rank)], values[math.ceil(rank)]
    return low + (high - low) * (rank % 1)


def _relabelled(labels: Labels, target: str, to: str, source: str, pattern: str) -> Labels:
    now = dict(labels)
    found = re.fullmatch(pattern, now.get(source, ""))
    if found is not None:
        now[target] = found.expand(re.sub(r"\$(\d)", r"\\\1", to))
    return frozenset(each for each in now.items() if each[1])


def _binary(node: Expression, left: Value, right: Value) -> Value:
    name = node.name
    if name in ("and", "or", "unless"):
        if isinstance(left, float) or isinstance(right, float):
            raise ValueError(f"{node.text}: {name} is for vectors")
        ours, theirs = {_key(node, each) for each in left}, {_key(node, each) for each in right}
        if name == "or":
            return left | {each: value for each, value in right.items() if _key(node, each) not in ours}
        return {each: value for each, value in left.items() if (_key(node, each) in theirs) is (name == "and")}
    if isinstance(left, float) and isinstance(right, float):
        return float(_OPERATORS[name](left, right))
    if isinstance(right, float):
        pairs = [(labels, value, right) for labels, value in left.items()]  # type: ignore[union-attr]
    elif isinstance(left, float):
        pairs = [(labels, left, value) for labels, value in right.items()]
    else:
        other = {_key(node, labels): value for labels, value in right.items()}
        many = "group_left" in node.modifiers or node.filters
        pairs = [
            (labels if many else _key(node, labels), value, other[_key(node, labels)])
            for labels, value in left.items()
            if _key(node, labels) in other
        ]
    made = {labels: (one, float(_OPERATORS[name](one, two))) for labels, one, two in pairs}
    if node.filters:
        return {labels: one for labels, (one, result) in made.items() if result}
    return {labels: result for labels, (_, result) in made.items()}


def _key(node: Expression, labels: Labels) -> Labels:
    """Return what *labels* are matched by."""
    found = re.search(r"(on|ignoring) \(([^)]*)\)", node.modifiers)
    how, names = ("ignoring", "") if found is None else (found[1], found[2])
    return frozenset(each for each in labels if (each[0] in names.split(", ")) is (how == "on"))


def _divided(one: float, two: float) -> float:
    return one / two if two else math.nan if not one else math.copysign(math.inf, one)


def _furthest(choose: Callable[[list[float]], float], values: list[float]) -> float:
    """Return the highest or the lowest of *values*, NaN only where all are."""
    return choose([each for each in values if not math.isnan(each)] or values)


_OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divided,
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_REDUCED: Mapping[str, Callable[[list[float]], float]] = {
    "sum": math.fsum, "max": partial(_furthest, max), "min": partial(_furthest, min),
    "count": lambda values: float(len(values)),
    "avg": lambda values: math.fsum(values) / len(values), "last": lambda values: values[0], "group": lambda _: 1.0,
}  # fmt: skip

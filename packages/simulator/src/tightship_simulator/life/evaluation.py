"""What a query comes to, by the samples of a server: as Prometheus 3 evaluates it. Pure.

Ranges and the lookback are open at their beginning. ``rate()`` extrapolates to the ends of its range as
``promql/functions.go`` does; nothing is said of data that are not there.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Struct

from tightship_simulator.life.promql import (
    Aggregation,
    Binary,
    Call,
    Node,
    Number,
    PromQLError,
    Range,
    Selector,
    Subquery,
    Text,
)
from tightship_simulator.life.samples import LOOKBACK, Labels, Points, Samples

Vector: TypeAlias = list[tuple[Labels, float]]
Matrix: TypeAlias = list[tuple[Labels, Points]]

NAME = "__name__"
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_NEAR = 1.1
"""How many average pauses between two samples the end of a range may be away from them to be counted as covered."""


class ExecutionError(ValueError):
    """A query that can be read and not evaluated; the text says why."""


class Ranges(Struct, frozen=True):
    """Samples of series within *begin* and *end*, in milliseconds."""

    series: Matrix
    begin: int
    end: int


Value: TypeAlias = float | str | Vector | Ranges


class Evaluation:
    """Evaluates at one moment, *at* seconds since 1970. *warnings* are what is to be said beside the result."""

    def __init__(self, samples: Samples, at: float, lookback: int = LOOKBACK) -> None:
        self._samples = samples
        self._at = round(at * 1000)
        self._lookback = lookback
        self.warnings: list[str] = []

    def of(self, node: Node) -> Value:
        """Return what *node* comes to. Raises :class:`ExecutionError` and :class:`PromQLError`."""
        return self._value(node, self._at)

    def _value(self, node: Node, now: int) -> Value:
        match node:
            case Number() | Text():
                return node.value
            case Selector():
                return [(labels, value) for labels, _, value in self._chosen(node, now)]
            case Range():
                end = now if node.of.at is None else round(node.of.at * 1000)
                begin = end - round(node.seconds * 1000)
                found = [(each.labels, each.within(begin, end)) for each in self._samples.select(node.of.matchers)]
                return Ranges([(labels, points) for labels, points in found if points], begin, end)
            case Subquery():
                return self._subquery(node, now)
            case Call():
                return self._call(node, now)
            case Aggregation():
                return self._aggregated(node, now)
            case Binary():
                return self._binary(node, self._value(node.left, now), self._value(node.right, now))

    def _chosen(self, node: Selector, now: int) -> list[tuple[Labels, int, float]]:
        at = now if node.at is None else round(node.at * 1000)
        chosen = ((each.labels, each.latest(at, self._lookback)) for each in self._samples.select(node.matchers))
        return [(labels, *found) for labels, found in chosen if found is not None]

    def _subquery(self, node: Subquery, now: int) -> Ranges:
        begin, step = now - round(node.seconds * 1000), round(node.step * 1000)
        series: dict[Labels, Points] = {}
        for at in range((begin // step + 1) * step, now + 1, step):
            found = self._value(node.of, at)
            for labels, value in [((), found)] if isinstance(found, float) else _vector(found):
                series.setdefault(labels, []).append((at, value))
        return Ranges([*series.items()], begin, now)

    # Functions.

    def _call(self, node: Call, now: int) -> Value:
        match node.name, node.arguments:
            case "time", ():
                return now / 1000
            case "timestamp", (Selector() as selector,):
                return [(_nameless(labels), at / 1000) for labels, at, _ in self._chosen(selector, now)]
        arguments = [self._value(each, now) for each in node.arguments]
        match node.name, arguments:
            case "timestamp", [found]:
                return [(_nameless(labels), now / 1000) for labels, _ in _vector(found)]
            case "vector", [float() as number]:
                return [((), number)]
            case "scalar", [found]:
                vector = _vector(found)
                return vector[0][1] if len(vector) == 1 else math.nan
            case "clamp_min", [found, float() as least]:
                return [
                    (_nameless(labels), value if math.isnan(value) else max(value, least))
                    for labels, value in _vector(found)
                ]
            case "rate" | "increase", [Ranges() as ranges]:
                grown = [(_nameless(labels), increase(points, ranges)) for labels, points in ranges.series]
                seconds = (ranges.end - ranges.begin) / 1000 if node.name == "rate" else 1.0
                return [(labels, value / seconds) for labels, value in grown if value is not None]
            case name, [Ranges() as ranges] if name in _OVER_TIME:
                over = _OVER_TIME[name]
                return [(_nameless(labels), over([value for _, value in points])) for labels, points in ranges.series]
        raise PromQLError(f"parse error: expected other arguments in call to function {node.name!r}")

    def _aggregated(self, node: Aggregation, now: int) -> Vector:
        groups: dict[Labels, list[float]] = {}
        for labels, value in _vector(self._value(node.of, now)):
            groups.setdefault(_only(labels, node.by), []).append(value)
        if node.name == "quantile":
            wanted = self._value(node.parameter, now) if node.parameter is not None else None
            if not isinstance(wanted, float):
                raise PromQLError("parse error: expected type scalar in aggregation parameter")
            if groups and not 0 <= wanted <= 1:
                self.warnings.append(f"PromQL warning: quantile value should be between 0 and 1, got {wanted:g}")
            return [(labels, quantile(wanted, values)) for labels, values in groups.items()]
        aggregate: Mapping[str, Callable[[list[float]], float]] = {
            "sum": sum,
            "count": lambda values: float(len(values)),
            "min": lambda values: _extreme(values, min),
            "max": lambda values: _extreme(values, max),
        }
        return [(labels, aggregate[node.name](values)) for labels, values in groups.items()]

    # Two sides.

    def _binary(self, node: Binary, left: Value, right: Value) -> Value:
        if node.operator == "or":
            ours = _vector(left)
            taken = {_alike(labels, node) for labels, _ in ours}
            return [*ours, *(each for each in _vector(right) if _alike(each[0], node) not in taken)]
        if node.operator == "and":
            there = {_alike(labels, node) for labels, _ in _vector(right)}
            return [each for each in _vector(left) if _alike(each[0], node) in there]
        if node.operator in ("<", ">"):
            if not isinstance(right, float):
                raise PromQLError("a comparison is known here with a number at its right only")
            return [each for each in _vector(left) if (each[1] < right if node.operator == "<" else each[1] > right)]
        match left, right:
            case float(), float():
                return _arithmetic(node.operator, left, right)
            case float(), list():
                return [(_nameless(labels), _arithmetic(node.operator, left, value)) for labels, value in right]
            case list(), float():
                return [(_nameless(labels), _arithmetic(node.operator, value, right)) for labels, value in left]
        return self._matched(node, _vector(left), _vector(right))

    def _matched(self, node: Binary, left: Vector, right: Vector) -> Vector:
        many, one = (right, left) if node.many == "right" else (left, right)
        side = "left" if node.many == "right" else "right"
        ones: dict[Labels, float] = {}
        for labels, value in one:
            key = _alike(labels, node)
            if key in ones:
                raise ExecutionError(
                    f"found duplicate series for the match group {_shown(key)} on the {side} hand-side of the "
                    f"operation: [{_shown(labels)}];many-to-many matching not allowed: matching labels must be unique "
                    "on one side"
                )
            ones[key] = value
        found: Vector = []
        seen: set[Labels] = set()
        for labels, value in many:
            key = _alike(labels, node)
            if key not in ones:
                continue
            if not node.many:
                if key in seen:
                    raise ExecutionError(
                        "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                    )
                seen.add(key)
            pair = (ones[key], value) if node.many == "right" else (value, ones[key])
            found.append((_nameless(labels) if node.many else key, _arithmetic(node.operator, *pair)))
        return found


_OVER_TIME: Mapping[str, Callable[[list[float]], float]] = {
    "avg_over_time": lambda values: math.fsum(values) / len(values),
    "count_over_time": lambda values: float(len(values)),
    "max_over_time": lambda values: _extreme(values, max),
    "min_over_time": lambda values: _extreme(values, min),
}


def increase(points: Points, ranges: Ranges) -> float | None:
    """Return by how much a counter grew in a range, as far as its samples tell; ``None`` with less than two of them."""
    if len(points) < 2:
        return None
    (first, least), (last, _) = points[0], points[-1]
    grown = points[-1][1] - least
    for (_, before), (_, after) in itertools.pairwise(points):
        if after < before:
            grown += before
    sampled = (last - first) / 1000
    pause = sampled / (len(points) - 1)
    to_start, to_end = (first - ranges.begin) / 1000, (ranges.end - last) / 1000
    if to_start >= pause * _NEAR:
        to_start = pause / 2
    # A counter was never below zero.
    if grown > 0 and least >= 0:
        to_start = min(to_start, sampled * (least / grown))
    if to_end >= pause * _NEAR:
        to_end = pause / 2
    return grown * ((sampled + to_start + to_end) / sampled)


def quantile(wanted: float, values: list[float]) -> float:
    """Return a quantile of values as Prometheus does."""
    if not values or math.isnan(wanted):
        return math.nan
    if not 0 <= wanted <= 1:
        return math.copysign(math.inf, wanted)
    ordered = sorted(values, key=lambda value: (not math.isnan(value), value))
    rank = wanted * (len(ordered) - 1)
    below, above = max(0, math.floor(rank)), min(len(ordered) - 1, math.floor(rank) + 1)
    weight = rank - math.floor(rank)
    return ordered[below] * (1 - weight) + ordered[above] * weight


def evaluate(samples: Samples, node: Node, at: float, lookback: int = LOOKBACK) -> dict[str, Any]:
    """Return what Prometheus answers to *node*: ``data``, and ``warnings`` where there are any.

    Raises :class:`ExecutionError` and :class:`~tightship_simulator.life.promql.PromQLError`.
    """
    evaluation = Evaluation(samples, at, lookback)
    found = evaluation.of(node)
    time = round(at, 3)
    match found:
        case float():
            data: dict[str, Any] = {"resultType": "scalar", "result": [time, number(found)]}
        case str():
            data = {"resultType": "string", "result": [time, found]}
        case Ranges():
            series: list[Any] = [
                {"metric": dict(labels), "values": [[point / 1000, number(value)] for point, value in points]}
                for labels, points in found.series
            ]
            data = {"resultType": "matrix", "result": series}
        case list():
            series = [{"metric": dict(labels), "value": [time, number(value)]} for labels, value in found]
            data = {"resultType": "vector", "result": series}
    reported = {"warnings": sorted(set(evaluation.warnings))} if evaluation.warnings else {}
    return {"data": data, **reported}


def number(value: float) -> str:
    """Return a number as Prometheus writes it."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if value and not 1e-6 <= abs(value) < 1e21:
        return repr(value)
    return format(Decimal(repr(value)), "f").removesuffix(".0")


def _vector(found: Value) -> Vector:
    if isinstance(found, list):
        return found
    kind = {float: "scalar", str: "string", Ranges: "range vector"}[type(found)]
    raise PromQLError(f"parse error: expected type instant vector, got {kind}")


def _arithmetic(sign: str, left: float, right: float) -> float:
    if sign != "/":
        return _ARITHMETIC[sign](left, right)
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _extreme(values: list[float], pick: Callable[[list[float]], float]) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return pick(numbers) if numbers else math.nan


def _alike(labels: Labels, node: Binary) -> Labels:
    if node.on is not None:
        return _only(labels, node.on)
    return tuple((name, value) for name, value in labels if name != NAME and name not in node.ignored)


@lru_cache(maxsize=4096)
def _only(labels: Labels, names: tuple[str, ...]) -> Labels:
    return tuple((name, value) for name, value in labels if name in names)


@lru_cache(maxsize=4096)
def _nameless(labels: Labels) -> Labels:
    return tuple((name, value) for name, value in labels if name != NAME)


def _shown(labels: Labels) -> str:
    inside = ", ".join(f'{name}="{value}"' for name, value in labels)
    return f"{{{inside}}}"


__all__ = ["Evaluation", "ExecutionError", "Ranges", "Value", "Vector", "evaluate", "increase", "number", "quantile"]

"""The queries to Prometheus for an HPA, their outcomes, and what they are expected to answer soon. Pure.

:mod:`hpa_scaler.prometheus` sends the queries.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

from hpa_scaler.annotations.promql import Operand, fallbacks, lookback, normal, number_of, parse, without_fallbacks
from hpa_scaler.annotations.spec import FloorSpec, ForecastSpec, HoldSpec, QuerySpec, SeriesRule, ServerRef
from tightship.objects.reasons import Reason, Refusal

UNREADABLE_RANGE = 3600.0
"""The assumed look-back of a query whose text can't be parsed, in seconds."""
RULE_RANGE = 300.0
"""The assumed look-back of a recording rule whose name shows none, in seconds."""
LEAST_RANGE = 120.0
"""The least assumed look-back of a query without a range, or with a fallback, in seconds: time for two scrapes of every
target. A server that has just started knows only some of its targets, and answers with the fallback before its first
scrape."""

NOTHING = 1e-6
"""How far rounding of sums and differences may push a value below zero."""

NO_SERIES = "look at the targets of Prometheus; if no series means no traffic, set missing-data: zero"
"""The advice for an answer without a series."""

_STEPS = 20

RangeFrom: TypeAlias = Literal["text", "query-range", "rule", "default", "unreadable"]
"""The source of a query's look-back: its own text, the annotation, or a default. Defaults apply to a recording rule
without a range in its name, to a query without a range, to a query whose range is too short for its fallback, and to a
text that can't be parsed."""


class Query(Struct, frozen=True, order=True, omit_defaults=True):
    """A query to one server; *labels* says whether to keep the labels of its series."""

    text: str
    server: ServerRef = ServerRef()
    labels: bool = False


class QueryAnswer(Struct, frozen=True, omit_defaults=True, rename="camel", tag="answer"):
    """A result, reduced to the needs of judgements: the number of *series*, their *highest* finite value, and counts of
    NaN, infinite and zero values. *targets* are the labels of the first series, if requested. *seconds* is the
    duration.
    """

    series: int
    highest: float | None = None
    not_numbers: int = 0
    infinite: int = 0
    zeros: int = 0
    warnings: tuple[str, ...] = ()
    targets: tuple[dict[str, str], ...] = ()
    seconds: float = 0.0


class Failure(Struct, frozen=True, omit_defaults=True, tag="failure"):
    """No usable result; *reason* is one of :data:`tightship.objects.reasons.QUERY_FAILURES`."""

    reason: Reason
    detail: str = ""
    seconds: float = 0.0


Outcome: TypeAlias = QueryAnswer | Failure
Outcomes: TypeAlias = Mapping[Query, Outcome]


class Expected(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The highest *value* that a query is expected to have soon, by so many *seasons*.

    Without a value there is no ramp ahead or, if *why* says so, no usable forecast.
    """

    value: float | None = None
    seasons: int = 0
    why: str = ""


ForecastKey: TypeAlias = tuple[Query, ForecastSpec]
Expectations: TypeAlias = Mapping[ForecastKey, Expected]

NOTHING_FORECAST: Expectations = MappingProxyType({})
NOT_FORECAST = Expected(why="the query's past was not asked for")

_NOT_ASKED = Failure(Reason.NOT_ASKED, "there is no recorded outcome of this query")


class Reading(Struct, frozen=True):
    """The reading of one query: its *value*, ``None`` without one, and the *causes* to report.

    Only a *complete* reading may lower a floor.
    """

    value: float | None
    causes: tuple[Refusal, ...] = ()

    @property
    def complete(self) -> bool:
        return self.value is not None and not self.causes


def answer_of(values: Sequence[float], warnings: tuple[str, ...] = ()) -> QueryAnswer:
    """Return the answer with one series for each of *values*."""
    return QueryAnswer(
        series=len(values),
        highest=max((each for each in values if math.isfinite(each)), default=None),
        not_numbers=sum(1 for each in values if math.isnan(each)),
        infinite=sum(1 for each in values if math.isinf(each)),
        zeros=sum(1 for each in values if each == 0),
        warnings=warnings,
    )


def of_data(warnings: Iterable[str]) -> list[str]:
    """Return the *warnings* that say something of the data, and not of how the query is written.

    A note begins with ``PromQL info:``. Prometheus 2.54 and newer has ``infos`` for notes; older ones, and Thanos
    (thanos-io/thanos#7597), put notes among the warnings.
    """
    return [each for each in warnings if not each.startswith("PromQL info:")]


def outcome_of(query: Query, outcomes: Outcomes) -> Outcome:
    """Return the outcome of *query*; a query that was never sent is a failure like any other."""
    return outcomes.get(query, _NOT_ASKED)


def read(outcome: Outcome, series: SeriesRule, about: str = "query") -> Reading:
    """Return the reading of *outcome*; the rule *series* applies to an answer with several series.

    The largest number of several series counts even if others are not numbers: it may raise a floor, but not lower it.
    """
    if isinstance(outcome, Failure):
        detail = f"{about}: {outcome.detail}" if outcome.detail else f"{about} failed"
        return Reading(None, (Refusal(outcome.reason, detail=detail),))
    if not outcome.series:
        cause = Refusal(Reason.EMPTY_RESULT, detail=f"{about} answered with no series", fix=NO_SERIES)
        return Reading(None, (cause,))
    if outcome.series > 1 and series == "error":
        detail = f"{about} answered with {outcome.series} series, but only one is allowed"
        return Reading(
            None, (Refusal(Reason.SEVERAL_SERIES, detail=detail, fix="sum the series, or set several-series: max"),)
        )
    causes = []
    of = f" in {outcome.series} series" if outcome.series > 1 else ""
    if outcome.highest is not None and outcome.highest < -NOTHING:
        fix = "check the sign; if negative values are expected, wrap the query in clamp_min(..., 0)"
        causes.append(Refusal(Reason.NEGATIVE, detail=f"{about} answered {outcome.highest:g}", fix=fix))
    if outcome.not_numbers:
        fix = "guard the denominator, as in x / (y > 0)"
        causes.append(Refusal(Reason.NOT_A_NUMBER, detail=f"{about} answered NaN{of}", fix=fix))
    if outcome.infinite:
        causes.append(
            Refusal(Reason.INFINITE, detail=f"{about} answered with infinity{of}", fix="guard the denominator")
        )
    if warnings := of_data(outcome.warnings):
        causes.append(Refusal(Reason.ANSWER_WITH_WARNINGS, detail=f"{about} was answered with: {warnings[0]}"))
    return Reading(outcome.highest, tuple(causes))


def firing(outcome: Outcome) -> bool | None:
    """Return whether a hold query reports an incident, ``None`` if that is unknown.

    An empty answer is no incident, as with ``errors > 0.05`` or ``ALERTS{...}``; a series with the value zero is none
    either.
    """
    if isinstance(outcome, Failure):
        return None
    if outcome.series > outcome.zeros + outcome.not_numbers:
        return True
    return None if outcome.not_numbers or of_data(outcome.warnings) else False


def range_from(query: QuerySpec, spec: FloorSpec) -> RangeFrom:
    """Return the source of the look-back of *query*."""
    found = lookback(query.text)
    if not found.readable:
        return "unreadable"
    if spec.query_range is not None and spec.query_range >= found.seconds:
        return "query-range"
    if found.hidden:
        return "rule"
    return "text" if found.seconds and range_of(query, spec, math.inf) == found.seconds else "default"


def range_of(query: QuerySpec, spec: FloorSpec, longest: float) -> float:
    """Return the look-back of *query* in seconds, at most *longest*."""
    found = lookback(query.text)
    said = spec.query_range
    if said is None:
        least = LEAST_RANGE if fallbacks(query.text).answer or not found.seconds else 0.0
        said = RULE_RANGE if found.hidden else least
    return min(longest, max(found.seconds, said, 0.0 if found.readable else UNREADABLE_RANGE))


def value_query(query: QuerySpec) -> Query:
    """Return the query for a value."""
    return Query(query.text, query.server)


def operand_queries(query: QuerySpec) -> Iterator[tuple[Operand, Query]]:
    """Yield each operand of *query* that a fallback hides, and the query for its data."""
    return ((each, Query(each.text, query.server)) for each in fallbacks(query.text).operands)


def recorded_instead(spec: FloorSpec, recorded: Collection[Query]) -> Iterator[tuple[Query, Query, QuerySpec | None]]:
    """Yield each query for an operand that is not *recorded*, and what is recorded in its place.

    That is the operand in other words, or else the whole query without its fallbacks; the query comes with the latter.
    """
    known = {(normal(each.text), each.server): each for each in recorded}
    for query in spec.queries:
        tree = parse(query.text)
        for operand, asked in operand_queries(query) if tree is not None else ():
            whole = None if tree is None else known.get((without_fallbacks(tree).text, query.server))
            part = known.get((normal(operand.part), query.server))
            if asked not in recorded and part is not None:
                yield asked, part, None
            elif asked not in recorded and whole is not None:
                yield asked, whole, query


def operand_answer(whole: Outcome, query: QuerySpec, value: Outcome | None) -> Outcome:
    """Return the answer for an operand of *query* that *whole*, the answer without the fallbacks, leaves open.

    If any of several operands is missing, *whole* has no series, or is NaN. The *value* of *query* that its fallbacks
    alone have tells that all are missing.
    """
    tree, alone = parse(query.text), len(fallbacks(query.text).operands) == 1
    if isinstance(whole, Failure):
        return whole
    same = isinstance(value, QueryAnswer) and tree is not None and value.highest == number_of(tree)
    missing = whole.series <= whole.not_numbers and (alone or same)
    return QueryAnswer(0 if missing else 1)


def forecast_keys(spec: FloorSpec) -> tuple[ForecastKey, ...]:
    """Return what to forecast for *spec*: each of its queries; nothing if there is no forecast."""
    forecast = spec.forecast
    return () if forecast is None else tuple((value_query(query), forecast) for query in spec.queries)


def hold_query(hold: HoldSpec) -> Query:
    """Return the query for an incident."""
    return Query(hold.text, hold.server)


@lru_cache(maxsize=1024)
def age_query(template: str, query: QuerySpec, seconds: float) -> Query:
    """Return the query for the age of the data behind *query*; *seconds* is the look-back."""
    step = age_step(seconds)
    text = template.replace("{range}", str(math.ceil(seconds))).replace("{step}", str(step))
    return Query(text, query.server)


def age_step(seconds: float) -> int:
    """Return the resolution, in seconds, of the query for the age of data."""
    return max(1, math.ceil(seconds / _STEPS))


def queries_of(spec: FloorSpec, template: str, longest: float) -> tuple[Query, ...]:
    """Return every query that a judgement of *spec* needs, each once.

    *template* is the query for the age of data (empty: not sent), *longest* the limit of its range in seconds.
    """
    asked: dict[Query, None] = {}
    for query in spec.queries:
        asked[value_query(query)] = None
        asked |= dict.fromkeys(each for _, each in operand_queries(query))
        seconds = range_of(query, spec, longest)
        if template and seconds > 0:
            asked[age_query(template, query, seconds)] = None
    if spec.hold is not None:
        asked[hold_query(spec.hold)] = None
    return tuple(asked)

"""What a server knows of its own gaps: targets that it can't scrape, and samples that come late. Pure.

Both make a query read low, and nothing in its answer says so. A server is asked once for all HPAs that ask it. Which
targets a query is about follows from its selectors, as far as a target has their labels: what a label of the metric
alone selects is not known of a target.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import msgspec

from hpa_scaler.promql import Matcher, lookback
from hpa_scaler.queries import Answer, Outcome, Outcomes, Query, outcome_of, range_of
from hpa_scaler.reasons import Cause, Reason
from hpa_scaler.rules import Rules
from hpa_scaler.spec import QuerySpec, Spec
from tightship.counting import counted
from tightship.durations import format_duration

LATE = 1.5
"""Pauses between two scrapes after which the newest sample of all targets is late; one is what it is at most."""

_ANYWHERE = frozenset(
    {"__name__", "cluster", "env", "environment", "prometheus", "prometheus_replica", "region", "replica"}
)
"""Labels by which so many targets are alike that they don't tell whose they are."""

_LITERAL = re.compile(r"[A-Za-z0-9_:/ -]+", re.ASCII)
_MOST = 20
"""Targets of one HPA that are kept."""
_SHOWN = 3
_LONGEST_VALUE = 60


def evidence_queries(spec: Spec, rules: Rules) -> Iterator[Query]:
    """Yield what is asked for *spec* besides its queries and their ages."""
    if not rules.cold_guard:
        return
    for query in spec.queries:
        if rules.late_query:
            yield _late_query(query, rules)
        if rules.failed_query and _selects(query):
            yield _failed_query(query, spec, rules)


def doubts(spec: Spec, outcomes: Outcomes, rules: Rules) -> list[Cause]:
    """Return what servers know against lowering anything by the answers to the queries of *spec*, each once."""
    found: dict[Cause, None] = {}
    if not rules.cold_guard:
        return []
    for query in spec.queries:
        for cause in (_late(query, outcomes, rules), _failed(query, spec, outcomes, rules)):
            if cause is not None:
                found[cause] = None
    return list(found)


def own(spec: Spec, query: Query, outcome: Outcome) -> Outcome:
    """Return *outcome* with the targets of *spec* alone: a judgement and its record need no others.

    Where they are too many to be kept, or were not all told, it has none, and counts for all.
    """
    if not query.labels or not isinstance(outcome, Answer) or outcome.series > len(outcome.targets):
        return outcome if not isinstance(outcome, Answer) else msgspec.structs.replace(outcome, targets=())
    selectors = [each for asked in spec.queries for each in lookback(asked.text).selectors]
    mine = tuple(target for target in outcome.targets if any(_concerns(target, each) for each in selectors))
    return msgspec.structs.replace(outcome, series=len(mine), targets=mine if len(mine) <= _MOST else ())


def _late_query(query: QuerySpec, rules: Rules) -> Query:
    return Query(rules.late_query, query.server)


def _failed_query(query: QuerySpec, spec: Spec, rules: Rules) -> Query:
    seconds = math.ceil(max(1.0, range_of(query, spec, rules.longest_guard)))
    return Query(rules.failed_query.replace("{range}", str(seconds)), query.server, labels=True)


def _late(query: QuerySpec, outcomes: Outcomes, rules: Rules) -> Cause | None:
    if not rules.late_query:
        return None
    told = outcome_of(_late_query(query, rules), outcomes)
    if not isinstance(told, Answer) or told.highest is None or told.highest <= LATE:
        return None
    detail = f"the newest sample of server {query.server} is {told.highest:.1f} scrape intervals old"
    return Cause(Reason.LATE_SAMPLES, detail, "see why the server scrapes late or receives samples late")


def _failed(query: QuerySpec, spec: Spec, outcomes: Outcomes, rules: Rules) -> Cause | None:
    if not rules.failed_query or not _selects(query):
        return None
    asked = _failed_query(query, spec, rules)
    told = outcome_of(asked, outcomes)
    if not isinstance(told, Answer) or not told.series:
        return None
    seconds = format_duration(range_of(query, spec, rules.longest_guard))
    if told.series > len(told.targets):
        targets = counted(told.series, "target")
        detail = f"{targets} of server {query.server} could not always be scraped within {seconds}"
        return Cause(Reason.FAILED_SCRAPES, detail, _MEND)
    selectors = lookback(query.text).selectors
    mine = [target for target in told.targets if any(_concerns(target, selector) for selector in selectors)]
    if not mine:
        return None
    names = ", ".join(_shown(target) for target in mine[:_SHOWN])
    more = f" and {len(mine) - _SHOWN} more" if len(mine) > _SHOWN else ""
    targets = counted(len(mine), "target")
    detail = f"{targets} of the query could not always be scraped within {seconds}: {names}{more}"
    return Cause(Reason.FAILED_SCRAPES, detail, _MEND)


_MEND = "repair the targets; after an hour, failed scrapes no longer hold the floor"


def _selects(query: QuerySpec) -> bool:
    """Whether the selectors of *query* may say whose targets it is about."""
    return any(
        operator in ("=", "=~") and label not in _ANYWHERE
        for selector in lookback(query.text).selectors
        for label, operator, _ in selector
    )


def _concerns(target: Mapping[str, str], selector: tuple[Matcher, ...]) -> bool:
    """Whether *target* is one that *selector* is about: a label of it says so, and no other denies it."""
    about = False
    for label, operator, text in selector:
        value = target.get(label)
        if value is None or label == "__name__":
            continue
        same = _matches(text, value, pattern="~" in operator)
        if same is None:
            continue
        if same is operator.startswith("!"):
            return False
        about |= not operator.startswith("!") and label not in _ANYWHERE
    return about


def _matches(text: str, value: str, *, pattern: bool) -> bool | None:
    """Return whether a label's *value* is what *text* says in its quotes, ``None`` where that can't be told.

    Patterns of users are never run: of them only words, a beginning, and a choice of words are understood.
    """
    wanted = text[1:-1]
    if "\\" in wanted and text[0] != "`":
        return None
    if not pattern:
        return wanted == value
    beginning = wanted.removesuffix(".*").removesuffix(".+")
    if _LITERAL.fullmatch(wanted):
        return wanted == value
    if beginning != wanted and (not beginning or _LITERAL.fullmatch(beginning)):
        return value.startswith(beginning) if beginning else None
    words = wanted.removeprefix("(").removesuffix(")").split("|")
    return value in words if all(_LITERAL.fullmatch(word) for word in words) else None


def _shown(target: Mapping[str, str]) -> str:
    named = target.get("instance") or next(iter(target.values()), "")
    job = target.get("job", "")
    return f"{job} {named}".strip()[:_LONGEST_VALUE]


__all__ = ["LATE", "doubts", "evidence_queries", "own"]

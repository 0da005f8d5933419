"""What a server knows about its own gaps: targets that it can't scrape, and samples that come late. Pure.

Both make a query read low, and nothing in its answer says so. The controller asks each server once for all HPAs. The
selectors of a query tell which targets it is about, as far as a target has their labels: a label that only the metric
has tells nothing about targets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import msgspec

from hpa_scaler.spec.promql import Matcher, lookback
from hpa_scaler.spec.queries import Outcome, Outcomes, Query, QueryAnswer, outcome_of, range_of
from hpa_scaler.spec.spec import QuerySpec, Rules, Spec
from tightship.core.counting import counted
from tightship.core.durations import format_duration
from tightship.core.reasons import Reason, Refusal

LATE = 1.5
"""Scrape intervals after which the newest sample of all targets is late; normally its age is one at most."""

_ANYWHERE = frozenset(
    {"__name__", "cluster", "env", "environment", "prometheus", "prometheus_replica", "region", "replica"}
)
"""Labels that so many targets share that they don't identify a query's targets."""

_LITERAL = re.compile(r"[A-Za-z0-9_:/ -]+", re.ASCII)
_MOST = 20
"""Targets of one HPA that are kept."""
_SHOWN = 3
_LONGEST_VALUE = 60


def evidence_queries(spec: Spec, rules: Rules) -> Iterator[Query]:
    """Yield the queries to send for *spec* in addition to its own queries and their ages."""
    if not rules.cold_guard:
        return
    for query in spec.queries:
        if rules.late_query:
            yield _late_query(query, rules)
        if rules.failed_query and _selects(query):
            yield _failed_query(query, spec, rules)


def doubts(spec: Spec, outcomes: Outcomes, rules: Rules) -> list[Refusal]:
    """Return the servers' reasons not to lower anything by the answers to the queries of *spec*, each once."""
    found: dict[Refusal, None] = {}
    if not rules.cold_guard:
        return []
    for query in spec.queries:
        for cause in (_late(query, outcomes, rules), _failed(query, spec, outcomes, rules)):
            if cause is not None:
                found[cause] = None
    return list(found)


def own(spec: Spec, query: Query, outcome: Outcome) -> Outcome:
    """Return *outcome* with the targets of *spec* alone: a judgement and its record need no others.

    If there are too many to keep, or the server did not list all of them, the outcome has no targets and counts for
    all.
    """
    if not query.labels or not isinstance(outcome, QueryAnswer) or outcome.series > len(outcome.targets):
        return outcome if not isinstance(outcome, QueryAnswer) else msgspec.structs.replace(outcome, targets=())
    selectors = [each for asked in spec.queries for each in lookback(asked.text).selectors]
    mine = tuple(target for target in outcome.targets if any(_concerns(target, each) for each in selectors))
    return msgspec.structs.replace(outcome, series=len(mine), targets=mine if len(mine) <= _MOST else ())


def _late_query(query: QuerySpec, rules: Rules) -> Query:
    return Query(rules.late_query, query.server)


def _failed_query(query: QuerySpec, spec: Spec, rules: Rules) -> Query:
    seconds = math.ceil(max(1.0, range_of(query, spec, rules.longest_guard)))
    return Query(rules.failed_query.replace("{range}", str(seconds)), query.server, labels=True)


def _late(query: QuerySpec, outcomes: Outcomes, rules: Rules) -> Refusal | None:
    if not rules.late_query:
        return None
    told = outcome_of(_late_query(query, rules), outcomes)
    if not isinstance(told, QueryAnswer) or told.highest is None or told.highest <= LATE:
        return None
    detail = f"the newest sample of server {query.server} is {told.highest:.1f} scrape intervals old"
    return Refusal(Reason.LATE_SAMPLES, detail=detail, fix="see why the server scrapes late or receives samples late")


def _failed(query: QuerySpec, spec: Spec, outcomes: Outcomes, rules: Rules) -> Refusal | None:
    if not rules.failed_query or not _selects(query):
        return None
    asked = _failed_query(query, spec, rules)
    told = outcome_of(asked, outcomes)
    if not isinstance(told, QueryAnswer) or not told.series:
        return None
    seconds = format_duration(range_of(query, spec, rules.longest_guard))
    if told.series > len(told.targets):
        targets = counted(told.series, "target")
        detail = f"{targets} of server {query.server} could not always be scraped within {seconds}"
        return Refusal(Reason.FAILED_SCRAPES, detail=detail, fix=_MEND)
    selectors = lookback(query.text).selectors
    mine = [target for target in told.targets if any(_concerns(target, selector) for selector in selectors)]
    if not mine:
        return None
    names = ", ".join(_shown(target) for target in mine[:_SHOWN])
    more = f" and {len(mine) - _SHOWN} more" if len(mine) > _SHOWN else ""
    targets = counted(len(mine), "target")
    detail = f"{targets} of the query could not always be scraped within {seconds}: {names}{more}"
    return Refusal(Reason.FAILED_SCRAPES, detail=detail, fix=_MEND)


_MEND = "repair the targets; after an hour, failed scrapes no longer hold the floor"


def _selects(query: QuerySpec) -> bool:
    """Whether the selectors of *query* may tell which targets it is about."""
    return any(
        operator in ("=", "=~") and label not in _ANYWHERE
        for selector in lookback(query.text).selectors
        for label, operator, _ in selector
    )


def _concerns(target: Mapping[str, str], selector: tuple[Matcher, ...]) -> bool:
    """Whether *selector* is about *target*: one of the target's labels says so, and no other denies it."""
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
    """Return whether a label's *value* matches the quoted *text*, ``None`` if that is unknown.

    Users' patterns are never executed; only words, a prefix, and a choice of words are understood.
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

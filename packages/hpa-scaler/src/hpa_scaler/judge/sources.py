"""The queries of one HPA, read together: the answer, whether it is complete, and for how long. Pure.

Failed scrapes and late samples make a query read low, and its answer does not show them. The controller asks each
server about them once for all HPAs. The selectors of a query tell which targets the query concerns, as far as a target
has their labels: a label that only the metric has tells nothing about targets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal
from zlib import crc32

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.promql import Matcher, Operand, fallbacks, lookback
from hpa_scaler.annotations.queries import (
    NO_SERIES,
    Failure,
    Outcome,
    Outcomes,
    Query,
    QueryAnswer,
    Reading,
    age_query,
    age_step,
    operand_queries,
    outcome_of,
    range_of,
    read,
    value_query,
)
from hpa_scaler.annotations.spec import FloorSpec, QuerySpec, Rules
from hpa_scaler.judge.floors import QueryTerm
from hpa_scaler.judge.history import FloorHistory, with_gap
from tightship.objects.counting import counted, some
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration, rfc3339

HANDOVER = 3600.0
"""Seconds for which the floor is held after one of two alternatives, such as a metric's old name, has lost its data."""

_KnownBy = Literal["server", "gap", "us"]
"""The source of the data's age: the server's report, a gap that we saw, or our own first answer."""


class Sources(Struct, frozen=True):
    """The queries of an HPA, read.

    *terms* and *causes* cover all queries; *answers* says for each whether it was answered, or the reason without a
    usable answer; *substitute* is the number of replicas in place of missing answers. The queries *allow_lower* if
    each has a usable answer without a warning, or the rule for missing data replaces it. *history* includes this
    cycle. *age* is for how many seconds the data are known to be complete, ``None`` if no query looks back. *cold*
    says why that is too short to lower anything, and *whole* when it no longer is, in seconds since 1970. *split*
    that one series became several, *largest* that only one of several counts, *doubts* which gaps the servers know
    of.
    """

    terms: tuple[QueryTerm, ...]
    causes: tuple[Refusal, ...]
    allow_lower: bool
    history: FloorHistory
    substitute: int | None = None
    age: float | None = None
    cold: Refusal | None = None
    whole: float | None = None
    split: Refusal | None = None
    largest: Refusal | None = None
    doubts: tuple[Refusal, ...] = ()
    answers: tuple[str, ...] = ()

    @property
    def holds(self) -> tuple[Refusal, ...]:
        """Everything that keeps complete answers from lowering anything."""
        return tuple(cause for cause in (self.cold, self.split, *self.doubts) if cause is not None)


def lowering_window(spec: FloorSpec, rules: Rules) -> float:
    """Return for how many seconds a wanted floor is kept.

    By default, this is the look-back of the queries plus the time that two cycles may be apart. When the target of a
    ``rate()`` goes away, the answers fall to nothing within the range before they vanish. They look like traffic that
    ends. The window keeps the earlier floor until the answers vanish, and then the floor is held. So no query lowers
    anything by one answer: the answers of several cycles must agree.
    """
    if spec.window is not None:
        return spec.window
    if not spec.queries or not rules.cold_guard:
        return 0.0
    return longest_look(spec, rules) + rules.longest_gap


def longest_look(spec: FloorSpec, rules: Rules) -> float:
    """Return how far back the queries of *spec* look, in seconds."""
    return max((range_of(query, spec, rules.longest_guard) for query in spec.queries), default=0.0)


def outage(asked: object, outcomes: Outcomes) -> bool:
    """Whether a query of *asked*, if that is a spec, was sent, and has no complete answer."""
    if not isinstance(asked, FloorSpec):
        return False
    sent = (outcomes.get(value_query(each)) for each in asked.queries)
    return any(each is not None and not read(each, asked.series).complete for each in sent)


def read_sources(
    spec: FloorSpec,
    outcomes: Outcomes,
    history: FloorHistory,
    *,
    rules: Rules,
    minimum: int,
    replicas: int | None,
    now: float,
) -> Sources:
    """Return the reading of *outcomes* for *spec* at *now*; rules for missing data may use *minimum* and *replicas*."""
    several = len(spec.queries) > 1
    readings: list[Reading] = []
    answers: list[str] = []
    for number, query in enumerate(spec.queries, 1):
        about = f"query {number}" if several else "the query"
        reading = _reading(query, outcome_of(value_query(query), outcomes), spec, about)
        answers.append(reading.causes[0].reason.value if reading.causes else "answered")
        fallback = _fallback(query, outcomes, history, about, now) if reading.complete else ()
        readings.append(Reading(reading.value, (*reading.causes, *fallback)))
    complete = all(reading.complete for reading in readings)
    history = _counted(history, complete=complete, now=now)
    causes = tuple(cause for reading in readings for cause in reading.causes)
    history, split, largest = _with_series(history, spec, outcomes)
    history = msgspec.structs.replace(history, met=_met(history, spec, outcomes, now))
    if complete:
        found = Sources(_terms(spec, readings), causes, True, history, split=split)
        found = _aged(found, spec, outcomes, rules, now)
    else:
        substitutes = {
            "replicas": spec.missing.replicas,
            "current": replicas,
            "currentIfHigher": None if replicas is None else max(minimum, replicas),
        }
        found = _without_data(spec, readings, causes, history, substitutes.get(spec.missing.rule))
    return msgspec.structs.replace(
        found, answers=tuple(answers), doubts=tuple(doubts(spec, outcomes, rules)), largest=largest
    )


def _reading(query: QuerySpec, outcome: Outcome, spec: FloorSpec, about: str) -> Reading:
    reading = read(outcome, spec.series, about)
    if reading.value is not None and QueryTerm(reading.value, query.per_replica, query.delta).replicas is None:
        detail = f"{about} answered {reading.value:g}, from which no number of replicas follows"
        return Reading(reading.value, (*reading.causes, Refusal(Reason.OUT_OF_RANGE, detail=detail)))
    return reading


def _fallback(
    query: QuerySpec, outcomes: Outcomes, history: FloorHistory, about: str, now: float
) -> tuple[Refusal, ...]:
    """Return the cause if a fallback hides that *query* has lost data.

    An operand that had series and has none is lost. One that never had any, such as a counter of errors before the
    first error, counts as lost only if the query has no other data either: its label may be misspelt. Where an
    alternative answers, or where an operand only has to exist at times, the loss counts for :data:`HANDOVER` seconds.
    """
    found = {operand: outcomes.get(asked) for operand, asked in operand_queries(query)}
    for operand, outcome in found.items():
        if isinstance(outcome, Failure):
            detail = f"{about}: {operand.part}: {outcome.detail or 'failed'}"
            return (Refusal(outcome.reason, detail=detail),)
    absent = [each for each, outcome in found.items() if outcome is not None and not _has_series(each, outcome)]
    answering = {each.group for each in found if each not in absent}
    lost = []
    for operand in absent:
        last = history.met.get(_mark(operand.part))
        brief = operand.optional or (operand.group and operand.group in answering)
        if last is not None and (not brief or now - last < HANDOVER):
            lost.append(operand)
    if not lost and len(absent) == len(found) and not fallbacks(query.text).needs_data:
        lost = [each for each in absent if not each.optional or _mark(each.part) not in history.met]
    if not lost:
        return ()
    last = history.met.get(_mark(lost[0].part))
    since = "" if last is None else f" since {rfc3339(last)}"
    more = f", nor has {counted(len(lost) - 1, 'other operand')}" if len(lost) > 1 else ""
    detail = f"{about} was answered by its fallback: {lost[0].part} has no series{since}{more}"
    return (Refusal(Reason.FALLBACK_ANSWER, detail=detail, fix=f"{NO_SERIES}; remove what will not return"),)


def _has_series(operand: Operand, outcome: Outcome | None) -> bool:
    if not isinstance(outcome, QueryAnswer):
        return False
    return outcome.series > (outcome.not_numbers if operand.single else 0)


def _terms(spec: FloorSpec, readings: list[Reading]) -> tuple[QueryTerm, ...]:
    return tuple(
        QueryTerm(reading.value, query.per_replica, query.delta)
        for query, reading in zip(spec.queries, readings, strict=True)
    )


def _counted(history: FloorHistory, *, complete: bool, now: float) -> FloorHistory:
    gaps = with_gap(history.gaps, complete=complete)
    if not complete:
        failing = history.failing if history.failures else now
        failures = history.failures + 1
        return msgspec.structs.replace(
            history, failures=failures, failing=failing, gaps=gaps, answered=None, recovering=True
        )
    answered = now if history.answered is None else min(history.answered, now)
    return msgspec.structs.replace(history, failures=0, failing=None, gaps=gaps, answered=answered)


def _with_series(
    history: FloorHistory, spec: FloorSpec, outcomes: Outcomes
) -> tuple[FloorHistory, Refusal | None, Refusal | None]:
    """Return *history* with the number of series of each query, the cause if that number holds the floor, and a remark.

    If one series became several, for example because of a new label, the largest of them is less than the whole. Where
    several came from the first answer on, the largest is probably meant; the remark says so.
    """
    kept: list[int] = []
    split = largest = None
    for query in spec.queries:
        mark = _mark(query.text)
        outcome = outcome_of(value_query(query), outcomes)
        count = outcome.series if isinstance(outcome, QueryAnswer) else 0
        known = next((each for each in history.series if abs(each) == mark), 0)
        if known or count:
            kept.append(known or (mark if count == 1 else -mark))
        if known > 0 and count > 1 and spec.series == "hold" and split is None:
            detail = f"a query that returned one series now returns {count}, and the largest is less than their sum"
            fix = "sum the series, or set several-series: max if the largest is meant"
            split = Refusal(Reason.SERIES_SPLIT, detail=detail, fix=fix)
        elif known <= 0 and count > 1 and spec.series == "hold" and largest is None:
            detail = f"the query answered with {count} series, and only the largest counts"
            fix = "sum the series if their sum is meant, or set several-series: max if the largest is"
            largest = Refusal(Reason.LARGEST_OF_SERIES, detail=detail, fix=fix)
    return msgspec.structs.replace(history, series=tuple(dict.fromkeys(kept))), split, largest


def _met(history: FloorHistory, spec: FloorSpec, outcomes: Outcomes, now: float) -> dict[int, int]:
    """Return when each operand that a fallback hides last had series."""
    found: dict[int, int] = {}
    for query in spec.queries:
        for operand, asked in operand_queries(query):
            mark = _mark(operand.part)
            if _has_series(operand, outcomes.get(asked)):
                found[mark] = int(now)
            elif mark in history.met:
                found[mark] = history.met[mark]
    return found


def _without_data(
    spec: FloorSpec, readings: list[Reading], causes: tuple[Refusal, ...], history: FloorHistory, stands: int | None
) -> Sources:
    """Apply the rule for missing data after enough cycles without an answer; *stands* is its substitute."""
    rule = spec.missing
    if rule.rule == "hold" or history.failures < rule.after:
        return Sources(_terms(spec, readings), causes, False, history)
    after = f"after {counted(history.failures, 'cycle')}"
    if rule.rule == "zero":
        # An empty answer means the end of traffic; a missing answer means an outage.
        read_as = [Reading(reading.value or 0.0) if _empty(reading) else reading for reading in readings]
        if read_as != readings:
            word = Refusal(Reason.MISSING_DATA_POLICY, detail=f"missing-data zero: an empty answer counts as 0 {after}")
            causes = (*causes, word)
        return Sources(_terms(spec, read_as), causes, all(each.complete for each in read_as), history)
    if stands is None or all(cause.reason is Reason.ANSWER_WITH_WARNINGS for cause in causes):
        return Sources(_terms(spec, readings), causes, False, history)
    word = Refusal(Reason.MISSING_DATA_POLICY, detail=f"missing-data {rule} makes it {stands} {after}")
    warned = any(cause.reason is Reason.ANSWER_WITH_WARNINGS for cause in causes)
    allow_lower = rule.rule != "currentIfHigher" and not warned
    return Sources(_terms(spec, readings), (*causes, word), allow_lower, history, stands)


def _empty(reading: Reading) -> bool:
    return [cause.reason for cause in reading.causes] in ([Reason.EMPTY_RESULT], [Reason.FALLBACK_ANSWER])


def _mark(text: str) -> int:
    return crc32(text.encode())


def _aged(sources: Sources, spec: FloorSpec, outcomes: Outcomes, rules: Rules, now: float) -> Sources:
    """Add the age of the data, and whether the age covers the look-back of the queries.

    A server that lost its data, or was away, reported with low rates until their range is full again. So the controller
    asks the server for the age of its data. After an outage that we saw, the whole range must pass without another.
    """
    ranges = [(query, range_of(query, spec, rules.longest_guard)) for query in spec.queries]
    looks = [(query, seconds, _asked_age(query, seconds, outcomes, rules)) for query, seconds in ranges if seconds > 0]
    history = _with_ages(sources.history, [asked for _, _, asked in looks], rules, now)
    since = now - (now if history.answered is None else history.answered)
    ages: list[float] = []
    colds: list[Refusal] = []
    longest = left = 0.0
    for query, seconds, asked in looks:
        longest = max(longest, seconds)
        reported = asked.highest if isinstance(asked, QueryAnswer) else None
        young = reported is not None and reported < seconds - age_step(seconds)
        # Until we see an outage, the server's own report of the age is enough.
        unproved = since < seconds and (history.recovering or reported is None)
        known = [since] if reported is None else [reported, since] if history.recovering else [reported]
        ages.append(min(known))
        if young or unproved:
            known_by: _KnownBy = "server" if young else "gap" if history.recovering else "us"
            colds.append(_cold(ages[-1], seconds, query, known_by))
            left = max(left, seconds - ages[-1])
    if since >= longest:
        history = msgspec.structs.replace(history, recovering=False)
    return msgspec.structs.replace(
        sources,
        history=history,
        age=min(ages, default=None),
        cold=colds[0] if colds and rules.cold_guard else None,
        whole=now + left if colds and rules.cold_guard else None,
    )


def _asked_age(query: QuerySpec, seconds: float, outcomes: Outcomes, rules: Rules) -> Outcome | None:
    """Return what the server says of the age of its data, ``None`` if nobody asks."""
    return outcome_of(age_query(rules.age_query, query, seconds), outcomes) if rules.age_query else None


def _with_ages(history: FloorHistory, answers: Sequence[Outcome | None], rules: Rules, now: float) -> FloorHistory:
    """Return *history* with the number of queries whose server reported the age of its data.

    A server that reported the age before and now finds nothing has lost its data, and has not scraped since. A query
    with a fallback still gets an answer. Nevertheless the loss counts as a gap in the answers.
    """
    if not rules.age_query:
        return history
    aged = sum(isinstance(each, QueryAnswer) and each.highest is not None for each in answers)
    failed = sum(isinstance(each, Failure) for each in answers)
    if aged + failed < min(history.aged, len(answers)):
        return msgspec.structs.replace(history, answered=now, recovering=True, aged=aged)
    return msgspec.structs.replace(history, aged=max(aged, min(history.aged, aged + failed)))


def _cold(age: float, seconds: float, query: QuerySpec, known_by: _KnownBy) -> Refusal:
    old = format_duration(age)
    why = {
        "server": f"the data of server {query.server} go back only {old}",
        "gap": f"server {query.server} has answered without a gap for only {old}",
        "us": f"server {query.server} does not say how old its data are, and has answered for {old}",
    }[known_by]
    looks = "looks back" if lookback(query.text).seconds >= seconds else "counts as looking back"
    detail = f"the query {looks} {format_duration(seconds)}, and {why}"
    return Refusal(Reason.COLD_SOURCE, detail=detail)


LATE = 1.5
"""Scrape intervals after which the newest sample of all targets is late; its normal age is at most one."""

_ANYWHERE = frozenset(
    {"__name__", "cluster", "env", "environment", "prometheus", "prometheus_replica", "region", "replica"}
)
"""Labels that so many targets share that they don't identify a query's targets."""

_NAMESPACES = frozenset({"namespace", "exported_namespace", "kubernetes_namespace"})
_OF_TARGETS = frozenset({"app", "container", "endpoint", "instance", "job", "node", "pod", "service"}) | {
    "app_kubernetes_io_instance",
    "app_kubernetes_io_name",
    "kubernetes_name",
    "kubernetes_pod_name",
}
"""Labels that the operator and the usual scrape configurations give to targets. One without them is another's: a
finished Job's pod, a proxy."""

_LITERAL = re.compile(r"[A-Za-z0-9_:/ -]+", re.ASCII)
_MOST = 20
"""How many targets of one HPA are kept."""
_SHOWN = 3
_LONGEST_VALUE = 60


def evidence_queries(spec: FloorSpec, rules: Rules) -> Iterator[Query]:
    """Yield the queries about gaps to send for *spec*, besides its own queries and the queries for ages."""
    if not rules.cold_guard:
        return
    for query in spec.queries:
        if rules.late_query:
            yield _late_query(query, rules)
        if rules.failed_query and _selects(query):
            yield _failed_query(query, spec, rules)


def doubts(spec: FloorSpec, outcomes: Outcomes, rules: Rules) -> list[Refusal]:
    """Return, each once, the servers' reasons not to lower anything by their answers to *spec*."""
    if not rules.cold_guard:
        return []
    causes = (
        each
        for query in spec.queries
        for each in (_late(query, outcomes, rules), _failed(query, spec, outcomes, rules))
    )
    return list(dict.fromkeys(cause for cause in causes if cause is not None))


def own(spec: FloorSpec, query: Query, outcome: Outcome) -> Outcome:
    """Return *outcome* with the targets of *spec* alone: a judgement and its record need no others.

    With too many targets to keep, or with an incomplete list from the server, the outcome has no targets and counts for
    all.
    """
    if not isinstance(outcome, QueryAnswer):
        return outcome
    if not query.labels or outcome.series > len(outcome.targets):
        return msgspec.structs.replace(outcome, targets=())
    mine = tuple(_targets_of(spec.queries, outcome))
    return msgspec.structs.replace(outcome, series=len(mine), targets=mine if len(mine) <= _MOST else ())


def _late_query(query: QuerySpec, rules: Rules) -> Query:
    return Query(rules.late_query, query.server)


def _failed_query(query: QuerySpec, spec: FloorSpec, rules: Rules) -> Query:
    seconds = math.ceil(max(1.0, range_of(query, spec, rules.longest_guard)))
    return Query(rules.failed_query.replace("{range}", str(seconds)), query.server, labels=True)


def _late(query: QuerySpec, outcomes: Outcomes, rules: Rules) -> Refusal | None:
    if not rules.late_query:
        return None
    answer = outcome_of(_late_query(query, rules), outcomes)
    if not isinstance(answer, QueryAnswer) or answer.highest is None or answer.highest <= LATE:
        return None
    detail = f"the newest sample of server {query.server} is {answer.highest:.1f} scrape intervals old"
    return Refusal(Reason.LATE_SAMPLES, detail=detail, fix="see why the server scrapes late or receives samples late")


def _failed(query: QuerySpec, spec: FloorSpec, outcomes: Outcomes, rules: Rules) -> Refusal | None:
    if not rules.failed_query or not _selects(query):
        return None
    answer = outcome_of(_failed_query(query, spec, rules), outcomes)
    if not isinstance(answer, QueryAnswer) or not answer.series:
        return None
    seconds = format_duration(range_of(query, spec, rules.longest_guard))
    if answer.series > len(answer.targets):
        number, of, named = answer.series, f"server {query.server}", ""
    else:
        mine = _targets_of([query], answer)
        if not mine:
            return None
        number, of, named = len(mine), "the query", f": {some(list(map(_shown, mine)), _SHOWN)}"
    detail = f"{counted(number, 'target')} of {of} could not always be scraped within {seconds}{named}"
    fix = "repair the targets; after an hour, failed scrapes no longer hold the floor"
    return Refusal(Reason.FAILED_SCRAPES, detail=detail, fix=fix)


def _targets_of(queries: Iterable[QuerySpec], answer: QueryAnswer) -> list[dict[str, str]]:
    """Return the targets in *answer* that *queries* concern."""
    selectors = [each for query in queries for each in lookback(query.text).selectors]
    return [target for target in answer.targets if any(_concerns(target, each) for each in selectors)]


def _selects(query: QuerySpec) -> bool:
    """Whether the selectors of *query* may identify its targets."""
    return any(
        operator in ("=", "=~") and label not in _ANYWHERE
        for selector in lookback(query.text).selectors
        for label, operator, _ in selector
    )


def _concerns(target: Mapping[str, str], selector: tuple[Matcher, ...]) -> bool:
    """Whether *selector* concerns *target*: a label of the target matches, none contradicts, and none is missing.

    A label that only the metric has, such as ``code``, is missing on each target. So only what targets usually have
    must be there, and every label where nothing but the namespace matches: a namespace has many targets.
    """
    found, missing = set[str](), set[str]()
    for label, operator, text in selector:
        if label == "__name__":
            continue
        value = target.get(label)
        if value is None:
            missing |= {label} if operator == "=" and text[1:-1] and label not in _ANYWHERE else set()
            continue
        same = _matches(text, value, pattern="~" in operator)
        if same is None:
            continue
        if same is operator.startswith("!"):
            return False
        if not operator.startswith("!") and label not in _ANYWHERE:
            found.add(label)
    return bool(found) and missing.isdisjoint(_OF_TARGETS) and not (missing and found <= _NAMESPACES)


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

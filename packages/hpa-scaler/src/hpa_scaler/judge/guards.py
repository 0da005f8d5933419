"""Guards that keep a floor from following its queries at once: a server's known gaps, and limits of one step up. Pure.

Failed scrapes and late samples make a query read low, and its answer does not show them. The controller asks each
server about them once for all HPAs. The selectors of a query tell which targets the query concerns, as far as a target
has their labels: a label that only the metric has tells nothing about targets.

The API server accepts a ``minReplicas`` beyond the HPA's own ``behavior.scaleUp``, even with ``selectPolicy:
Disabled``. So the hpa-scaler enforces the user's limits itself, as Kubernetes computes them, with its own raises as the
scaling events. An HPA may also have limits for the floor alone. Raising a floor to the running replicas starts no pods,
and is never limited.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from hpa_scaler.annotations.fallbacks import lookback
from hpa_scaler.annotations.queries import Outcome, Outcomes, Query, QueryAnswer, outcome_of, range_of
from hpa_scaler.annotations.spec import FloorSpec, QuerySpec, Rules
from hpa_scaler.annotations.syntax import Matcher
from hpa_scaler.judge.floors import Limit
from hpa_scaler.judge.history import Raise
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.autoscaling import ScalingPolicy, ScalingRules
from tightship.objects.counting import counted
from tightship.objects.durations import format_duration
from tightship.objects.horizontal import DEFAULT_UP
from tightship.objects.reasons import Reason, Refusal

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
        more = f" and {len(mine) - _SHOWN} more" if len(mine) > _SHOWN else ""
        number, of, named = len(mine), "the query", f": {', '.join(map(_shown, mine[:_SHOWN]))}{more}"
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


def limits(
    spec: FloorSpec, behavior: ScalingRules | None, raises: tuple[Raise, ...], running: int, now: float
) -> list[Limit]:
    """Return the limits of a step up from *running*, the larger of the floor and the present replicas."""
    found: list[Limit] = []
    if spec.up_pods is not None:
        detail = f"scale-up-max-pods allows {spec.up_pods} more than {running}"
        found.append((running + spec.up_pods, Refusal(Reason.STEP_LIMIT, detail=detail)))
    if spec.up_ratio is not None:
        step = max(1, math.floor(running * spec.up_ratio))
        detail = f"scale-up-max-ratio {spec.up_ratio:g} allows {step} more than {running}"
        found.append((running + step, Refusal(Reason.STEP_LIMIT, detail=detail)))
    if behavior is not None and _counts(spec, behavior):
        found.append(_by_behavior(behavior, raises, running, now))
    return found


def longest_period(spec: FloorSpec, behavior: ScalingRules | None) -> float:
    """Return for how many seconds to remember our own raises."""
    if behavior is None or not _counts(spec, behavior):
        return 0.0
    return float(max((each.period_seconds for each in _policies(behavior)), default=0))


def with_raise(raises: Iterable[Raise], pods: int, now: float, longest: float) -> tuple[Raise, ...]:
    """Return *raises* plus one of *pods* at *now*, without raises older than the *longest* period of a policy."""
    kept = tuple(each for each in raises if now - each.at < longest)
    return (*kept, Raise(int(now), pods)) if pods > 0 and longest > 0 else kept


def raised_within(raises: Iterable[Raise], now: float, period: float) -> int:
    """Return how many pods our own raises started within the last *period* seconds."""
    return sum(each.pods for each in raises if now - each.at < period)


def _counts(spec: FloorSpec, behavior: ScalingRules) -> bool:
    """Whether *behavior* limits the floor: not if the HPA opts out, nor if the API server filled it in.

    The API server does so as soon as somebody writes a ``scaleDown``. Nobody asked for these limits: without any
    behavior there are none either.
    """
    filled_in = behavior.select_policy in (None, "Max") and set(_policies(behavior)) == set(DEFAULT_UP)
    return spec.honour_behavior and not filled_in


def _by_behavior(behavior: ScalingRules, raises: tuple[Raise, ...], running: int, now: float) -> Limit:
    if behavior.select_policy == "Disabled":
        return running, Refusal(Reason.BEHAVIOR_LIMIT, detail="behavior.scaleUp is Disabled")
    allowed = {}
    for each in _policies(behavior):
        start = max(0, running - raised_within(raises, now, each.period_seconds))
        percent = each.type == "Percent"
        allowed[each] = math.ceil(start * (1 + each.value / 100)) if percent else start + each.value
    choose = min if behavior.select_policy == "Min" else max
    policy = choose(allowed, key=lambda each: allowed[each])
    value = f"{policy.value} %" if policy.type == "Percent" else counted(policy.value, "pod")
    detail = f"behavior.scaleUp allows {value} in {policy.period_seconds} s"
    return max(running, allowed[policy]), Refusal(Reason.BEHAVIOR_LIMIT, detail=detail)


def _policies(behavior: ScalingRules) -> tuple[ScalingPolicy, ...]:
    return behavior.policies or DEFAULT_UP


def known_replicas(hpa: HorizontalPodAutoscaler) -> int | None:
    """Return the present replicas, ``None`` if the HPA controller can't read the scale and the status is outdated."""
    able = hpa.condition("AbleToScale")
    if able is not None and able.status == "False" and able.reason == "FailedGetScale":
        return None
    return hpa.current_replicas


_INACTIVE: Mapping[str, str] = {
    "FailedGetScale": "correct scaleTargetRef: the target is not there, or Kubernetes can't read its scale",
    "FailedUpdateScale": "see why Kubernetes can't write the scale of the target",
    "AmbiguousSelector": "keep one HPA for these pods",
    "InvalidSelector": "give the target a selector that selects its pods",
    "FailedGetResourceMetric": "see that metrics-server runs, and that each container requests the resource",
    "FailedGetContainerResourceMetric": "see that metrics-server runs, and that the container is there and requests it",
    "FailedGetPodsMetric": "see that the adapter of custom.metrics.k8s.io serves the metric",
    "FailedGetObjectMetric": "see that the adapter of custom.metrics.k8s.io serves the metric",
    "FailedGetExternalMetric": "see that the adapter of external.metrics.k8s.io serves the metric",
    "InvalidMetricSourceType": "correct the type of the metric in the HPA",
}
"""What to do by the reason of an HPA's condition (kubernetes/pkg/controller/podautoscaler/horizontal.go)."""


def inactive(hpa: HorizontalPodAutoscaler) -> Refusal | None:
    """Return why Kubernetes does not scale by *hpa*, ``None`` as far as its conditions say that it does."""
    for kind in ("AbleToScale", "ScalingActive"):
        found = hpa.condition(kind)
        if found is None or found.status != "False" or found.reason == "ScalingDisabled":
            continue
        if kind == "ScalingActive" or found.reason in _INACTIVE:
            what = f"{kind} is False ({found.reason or 'no reason given'})"
            detail = f"Kubernetes does not scale {hpa.target} by this HPA's metrics: {what}"
            fix = _INACTIVE.get(found.reason, "see the message of the condition: kubectl describe hpa")
            return Refusal(Reason.HPA_INACTIVE, detail=detail, fix=fix)
    return None

"""The metrics of the hpa-scaler: the older controller's four metrics under their old names, and new ones.

Each cycle replaces all series of the cycle before, so an HPA that was deleted or opted out vanishes. A standby replica
exports none. With 10,000 HPAs you can switch off the series of each HPA (``perHPAMetrics``).
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hpa_scaler.judge.decision import GUARDS, Action, FloorDecision, Guard
from hpa_scaler.judge.judge import Cycle
from hpa_scaler.judge.ownership import ENDINGS, Ending
from hpa_scaler.prometheus.client import CircuitState
from tightship.objects.reasons import Reason
from tightship.process.metrics import NamedCounter, OlderName, SnapshotGauge

BY_URL = "by-url"
"""The server label of all queries to addresses that HPAs name; otherwise each address would have its own series."""

QUERY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_ACTIONS: tuple[Action, ...] = Action.__args__  # type: ignore[attr-defined]
_STATES: tuple[CircuitState, ...] = CircuitState.__args__  # type: ignore[attr-defined]


class _Shown(Struct, frozen=True):
    """What the gauges show of a cycle, beside its decisions: the HPAs not opted in, and the circuits by label."""

    cycle: Cycle
    not_enabled: int
    unreadable: int
    circuits: Mapping[str, CircuitState]

    @property
    def reasons(self) -> Mapping[str, int]:
        """How many HPAs have each reason."""
        found = Count(reason.value for each in self.cycle.decisions for reason in each.reasons)
        return found + Count({Reason.UNREADABLE.value: self.unreadable})


_Series: TypeAlias = Callable[[_Shown], Mapping[tuple[str, ...], float]]


def _actions(shown: _Shown) -> Mapping[tuple[str, ...], float]:
    actions = Count(each.action for each in shown.cycle.decisions)
    return {(each,): actions[each] for each in _ACTIONS} | {("not-enabled",): shown.not_enabled}


_OF_CYCLE: tuple[tuple[str, str, tuple[str, ...], _Series], ...] = (
    (
        "tightship_hpas",
        "HPAs by action of the last cycle: raise, lower, hold or skip; not-enabled HPAs are not opted in.",
        ("action",),
        _actions,
    ),
    (
        "tightship_hpas_by_reason",
        "HPAs of the last cycle, by reason; an HPA counts once for each of its reasons.",
        ("reason",),
        lambda shown: {(reason,): number for reason, number in shown.reasons.items()},
    ),
    (
        "tightship_hpa_floor_replicas",
        "The sum of minReplicas of all opted-in HPAs: now, and as the last cycle decided.",
        ("which",),
        lambda shown: {
            ("now",): sum(each.minimum for each in shown.cycle.decisions),
            ("wanted",): sum(each.target for each in shown.cycle.decisions),
        },
    ),
    (
        "tightship_hpa_server_circuit",
        "The circuit breaker of each server queried in the last cycle: 1 for its present state.",
        ("server", "state"),
        lambda shown: {(server, each): each == state for server, state in shown.circuits.items() for each in _STATES},
    ),
    (
        "tightship_hpas_dropping",
        "HPAs with answered queries (counted), and those that would drop (dropping); equal queries count once.",
        ("which",),
        lambda shown: {("counted",): shown.cycle.count.counted, ("dropping",): shown.cycle.count.dropping},
    ),
)
"""The gauges about a cycle: name, help, labels, series."""


def _request_rate(decision: FloorDecision, _: bool) -> float | None:
    usable = [term for term in decision.terms if term.replicas is not None and term.value is not None]
    return max(usable, key=lambda term: term.replicas or 0).value if usable else None


def _would_be(decision: FloorDecision, dry: bool) -> float | None:
    return decision.target if (dry or decision.dry_run) and decision.target != decision.minimum else None


def _raised(decision: FloorDecision, _: bool) -> float | None:
    raised = 0 if decision.inputs is None else decision.target_maximum - decision.inputs.own_maximum
    return raised if raised > 0 else None


_OF_HPA: tuple[tuple[str, str, Callable[[FloorDecision, bool], float | None]], ...] = (
    (
        "tightship_hpa_min_replicas",
        "The minReplicas that the last cycle decided on, whether it could be set or not.",
        lambda decision, _: decision.target,
    ),
    (
        "tightship_hpa_replicas",
        "The replicas that the HPA's status shows.",
        lambda decision, _: decision.subject.hpa.current_replicas,
    ),
    (
        "tightship_hpa_query_value",
        "The value of the query that asks for the most replicas.",
        _request_rate,
    ),
    (
        "tightship_hpa_would_be_min_replicas",
        "The minReplicas that an HPA in dry run would get, if different from its own.",
        _would_be,
    ),
    (
        "tightship_hpa_max_replicas_raised",
        "By how much maxReplicas, raised with the floor, is above the user's own value.",
        _raised,
    ),
)
"""The gauges about each HPA of a cycle: name, help, and the value for a decision, if any, in a dry run or not."""

_OLDER = {
    "estafette_hpa_scaler_min_replicas": "tightship_hpa_min_replicas",
    "estafette_hpa_scaler_actual_replicas": "tightship_hpa_replicas",
    "estafette_hpa_scaler_request_rate": "tightship_hpa_query_value",
}
"""estafette-k8s-hpa-scaler's metrics of an HPA, each with the native name."""

_COUNTERS: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("tightship_hpa_decisions", "Decisions of all cycles, by action.", ("action",), _ACTIONS),
    ("tightship_hpa_writes", "Changes of HPAs sent to the API server, by result.", ("result",), ENDINGS),
    (
        "tightship_hpa_rejudged",
        "Changes that were judged again because the HPA had changed since the decision.",
        (),
        (),
    ),
    ("tightship_hpa_reactions", "Floors raised again between two cycles because somebody had lowered them.", (), ()),
    ("tightship_hpa_changed_by_others", "Bounds set by hpa-scaler that somebody else has changed.", (), ()),
    (
        "tightship_hpa_queries",
        "Queries, by server and outcome: answered, or the reason without an answer.",
        ("server", "outcome"),
        (),
    ),
    (
        "tightship_hpa_caution_replica_hours",
        "Replica-hours that guards kept at most above a floor that waits for nothing, by guard.",
        ("guard",),
        GUARDS,
    ),
)
"""The counters: name, help, labels, and the values of the label with a series from the start. A series that appears
with its first count hides that count from rate()."""


class ScalerMetrics:
    """The metrics that only the hpa-scaler has; create it once for a *registry*. Not thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._totals = NamedCounter(
            "estafette_hpa_scaler_totals",
            "HPAs seen in each cycle, by outcome.",
            ("namespace", "status", "initiator"),
            registry=registry,
        )
        self._gauges = {
            name: SnapshotGauge(name, text, labels, registry=registry)
            for name, text, labels in (
                *((name, text, ("hpa", "namespace")) for name, text, _ in _OF_HPA),
                *((name, text, labels) for name, text, labels, _ in _OF_CYCLE),
            )
        }
        for older, name in _OLDER.items():
            OlderName(self._gauges[name], older, registry=registry)
        self._counters = {name: Counter(name, text, labels, registry=registry) for name, text, labels, _ in _COUNTERS}
        for name, _, _, known in _COUNTERS:
            for value in known:
                self._counters[name].labels(value)
        self._seconds = Histogram(
            "tightship_hpa_query_duration_seconds",
            "The duration of queries, including failed ones.",
            ("server",),
            buckets=QUERY_BUCKETS,
            registry=registry,
        )
        self._drop = Gauge(
            "tightship_hpa_correlated_drop",
            "1 while so many floors would drop at once that none is lowered (CorrelatedDrop).",
            registry=registry,
        )
        self._named: frozenset[str] = frozenset()

    def serve(self, named: Iterable[str]) -> None:
        """Record the servers that the configuration names."""
        self._named = frozenset(named)

    def asked(self, server: str, outcome: str, seconds: float) -> None:
        """Count a query; see :data:`hpa_scaler.prometheus.client.Observer`."""
        label = self._label(server)
        self._counters["tightship_hpa_queries"].labels(label, outcome).inc()
        self._seconds.labels(label).observe(seconds)

    def wrote(self, ending: Ending, *, again: bool) -> None:
        """Count a write that was sent, or left undone."""
        self._counters["tightship_hpa_writes"].labels(ending).inc()
        if again:
            self._counters["tightship_hpa_rejudged"].inc()

    def cautioned(self, spent: Mapping[Guard, float]) -> None:
        """Count what guards have cost in a cycle, in replica-seconds."""
        for guard, seconds in spent.items():
            self._counters["tightship_hpa_caution_replica_hours"].labels(guard).inc(seconds / 3600)

    def reacted(self) -> None:
        """Count a floor that was raised again between two cycles."""
        self._counters["tightship_hpa_reactions"].inc()

    def counted(self, cycle: Cycle, passed_over: Mapping[str, int], endings: Mapping[str, Ending]) -> None:
        """Count a finished cycle; *endings* says how its writes ended, by uid; see :meth:`show` for *passed_over*."""
        totals: Count[tuple[str, str]] = Count()
        for decision in cycle.decisions:
            totals[decision.namespace, _status(decision, endings.get(decision.uid))] += 1
            self._counters["tightship_hpa_decisions"].labels(decision.action).inc()
            if Reason.CHANGED_BY_OTHERS in decision.reasons:
                self._counters["tightship_hpa_changed_by_others"].inc()
        for namespace, count in passed_over.items():
            totals[namespace, "skipped"] += count
        namespaces = {namespace for namespace, _ in totals}
        self._totals.keep(lambda values: values[0] in namespaces)
        for (namespace, status), count in totals.items():
            self._totals.inc(namespace, status, "poller", by=count)

    def show(
        self,
        cycle: Cycle,
        *,
        passed_over: Mapping[str, int],
        unreadable: int,
        circuits: Mapping[str, CircuitState],
        each: bool,
        dry: bool,
    ) -> None:
        """Replace all series of one cycle.

        *passed_over* counts HPAs that are not opted in, by namespace; *unreadable* counts HPAs that could not be
        decoded. *each* says whether HPAs have series of their own, *dry* that nothing is written at all.
        """
        by_label = {self._label(server): state for server, state in circuits.items()}
        shown = _Shown(cycle, sum(passed_over.values()), unreadable, by_label)
        for name, _, _, series in _OF_CYCLE:
            self._gauges[name].replace(series(shown))
        decisions = cycle.decisions if each else ()
        for name, _, value in _OF_HPA:
            values = (((made.name, made.namespace), value(made, dry)) for made in decisions)
            self._gauges[name].replace({labels: number for labels, number in values if number is not None})
        self._drop.set(cycle.verdict.cause is not None)

    def clear(self) -> None:
        """Remove the series of all cycles: another replica exports them."""
        for gauge in self._gauges.values():
            gauge.replace({})
        self._drop.set(0)
        self._totals.keep(lambda _: False)

    def _label(self, server: str) -> str:
        return server if server in self._named else BY_URL


def _status(decision: FloorDecision, ending: Ending | None) -> str:
    """Return the older controller's word for the result of an HPA."""
    if ending == "written":
        return "succeeded"
    if ending in ("refused", "failed", "unheard"):
        return "failed"
    return "failed" if decision.unanswered else "skipped"

"""The metrics of plans and drains, with the same names for every controller of nodes.

Each pass replaces all series of the last plan, so objects that are gone from the cluster leave the metrics.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Histogram

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.drain.answers import EvictionAnswer
from tightship.drain.events import DrainEvent, EventKind
from tightship.draining.extensions import Landed
from tightship.objects.drain_record import IDLE_PHASES, DrainRecord, Ending, Phase
from tightship.objects.money import MICROS
from tightship.objects.reasons import NODE_REASONS, Refusal
from tightship.planning.evaluate import Facts
from tightship.planning.plan import Plan
from tightship.planning.savings import Saved
from tightship.process.metrics import PREFIX, Row, counters, gauges, snapshots
from tightship.rules.nodes import drain_record

PHASE_BUCKETS = (1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 21600.0)
"""Seconds, from settling after a claim to an empty node that waits for the autoscaler."""

CLAIMED, TAKEN_OVER = "claimed", "taken_over"

_OWNING = tuple(phase for phase in Phase if phase not in IDLE_PHASES)
_REASONS = frozenset(reason.value for reason in NODE_REASONS)

_SNAPSHOTS: Mapping[str, Row] = {
    "nodes_refused": (
        "Nodes that stay, by reason; a node counts once for each of its reasons.",
        "controller",
        "reason",
        "pool",
    ),
    "nodes_planned": ("Nodes that the last plan would remove.", "pool"),
    "price_per_month": (
        "Price of the nodes with a price for a month of 730 hours, in units of the currency.",
        "pool",
        "currency",
    ),
    "planned_savings_per_month": (
        "The part of tightship_price_per_month that the last plan would remove.",
        "pool",
        "currency",
    ),
    "nodes_without_price": ("Nodes without a price, by pool.", "pool"),
    "saved_node_hours": (
        "Hours of nodes that drains of all controllers with this ledger have saved since the first.",
        "pool",
    ),
    "saved_money": (
        "What those hours would have cost, in units of the currency; nodes without a price count for nothing.",
        "pool",
        "currency",
    ),
    "drains_in_phase": ("Nodes that this controller drains, by phase.", "phase"),
}
_GAUGES = {
    "evictions_planned": "Evictions that the last plan needs.",
    "pods_planned": "Different pods that the last plan evicts.",
    "drain_oldest_seconds": "Age in seconds of this controller's oldest drain under way; 0 without one.",
    "cluster_unhealthy": "1 while the health brake stops all new drains (ClusterUnhealthy).",
    "drains_claimed_elsewhere": "Drains of other controllers with their claims in another Lease: they share no budget "
    "with this one.",
    "other_installations": "Other live installations of this controller that share its claims, as far as a leader "
    "knows.",
}
_COUNTERS: Mapping[str, Row] = {
    "evictions": ("Answers to evictions, by meaning.", "answer"),
    "drains": ("Drains that ended, by ending and reason.", "ending", "reason"),
    "claims": ("Nodes claimed or taken over, and claims refused, by reason.", "result"),
    "landings": ("Replacements of evicted pods that were led to a node, by where they landed.", "result"),
}
_SERIES: Mapping[str, Iterable[Row]] = {
    "evictions": [(answer.value,) for answer in EvictionAnswer],
    "claims": [(CLAIMED,), (TAKEN_OVER,)],
    "landings": [(landed.value,) for landed in Landed],
    "drains": [
        *((ending.value, "") for ending in Ending),
        *((Ending.RESTORED.value, reason) for reason in sorted(_REASONS)),
    ],
}


class ConsolidationMetrics:
    """The metrics of one *controller* of nodes; create them once for a *registry*. Not thread-safe."""

    def __init__(self, registry: CollectorRegistry, controller: str) -> None:
        self._controller = controller
        self._of_pass = snapshots(PREFIX, _SNAPSHOTS, registry)
        self._gauges = gauges(PREFIX, _GAUGES, registry)
        self._counters = counters(PREFIX, _COUNTERS, _SERIES, registry)
        self._phase_seconds = Histogram(
            "tightship_drain_phase_seconds",
            "Seconds that drains spent in each phase, observed when they leave the phase.",
            ("phase",),
            buckets=PHASE_BUCKETS,
            registry=registry,
        )
        for phase in _OWNING:
            self._phase_seconds.labels(phase.value)

    def update(
        self,
        facts: Facts,
        plan: Plan,
        snapshot: Snapshot,
        now: float,
        unhealthy: Refusal | None = None,
    ) -> None:
        """Replace all values of the last pass; *unhealthy* is the refusal of the health brake, if any."""
        refused: Count[tuple[str, ...]] = Count()
        for name, refusals in plan.refusals.items():
            pool = facts[name].pool if name in facts else ""
            refused.update(
                (self._controller, reason.value, pool) for reason in dict.fromkeys(each.reason for each in refusals)
            )
        self._of_pass["nodes_refused"].replace(refused)
        planned = Count(facts[each.node].pool for each in plan.removals if each.node in facts)
        pools = dict.fromkeys(fact.pool for fact in facts.values())
        self._of_pass["nodes_planned"].replace({(pool,): float(planned[pool]) for pool in pools})
        self._gauges["evictions_planned"].set(plan.evictions)
        self._gauges["pods_planned"].set(plan.pods)
        self._tell_money(facts, plan)
        self._tell_drains(snapshot, now)
        self._gauges["cluster_unhealthy"].set(unhealthy is not None)

    def news(self, news: DrainEvent) -> None:
        """Count what a drain reports."""
        match news.kind:
            case EventKind.EVICTION if news.answer is not None:
                self._counters["evictions"].labels(news.answer.value).inc()
            case EventKind.ENDED if news.ending is not None:
                self._counters["drains"].labels(news.ending.value, _reason(news.record)).inc()
            case EventKind.CLAIMED:
                self._counters["claims"].labels(CLAIMED).inc()
            case EventKind.TAKEN_OVER:
                self._counters["claims"].labels(TAKEN_OVER).inc()
            case EventKind.PHASE:
                self._left(news.before, news.record)
            case _:
                pass

    def claimed(self, refusal: Refusal | None) -> None:
        """Count a refused claim; the drain itself reports a successful one."""
        if refusal is not None:
            self._counters["claims"].labels(refusal.reason.value).inc()

    def landed(self, result: Landed) -> None:
        """Count where a replacement landed."""
        self._counters["landings"].labels(result.value).inc()

    def saved(self, pools: Mapping[str, Saved]) -> None:
        """Replace what drains have saved, by pool."""
        self._of_pass["saved_node_hours"].replace({(pool,): each.node_hours for pool, each in pools.items()})
        money: dict[tuple[str, ...], float] = {
            (pool, name): micros / MICROS for pool, each in pools.items() for name, micros in each.micros.items()
        }
        self._of_pass["saved_money"].replace(money)

    def claimed_elsewhere(self, drains: int) -> None:
        """Set how many drains of other controllers have no claim in this controller's ledger."""
        self._gauges["drains_claimed_elsewhere"].set(drains)

    def beside(self, beside: Beside) -> None:
        """Set how many other installations there are."""
        self._gauges["other_installations"].set(len(beside.others()))

    def _left(self, before: Phase | None, record: DrainRecord | None) -> None:
        if before is None or before in IDLE_PHASES or record is None or record.phase is before:
            return
        since, until = record.entered(before), record.entered(record.phase)
        if since is not None and until is not None:
            self._phase_seconds.labels(before.value).observe(max(0.0, until - since))

    def _tell_money(self, facts: Facts, plan: Plan) -> None:
        removed = {each.node for each in plan.removals}
        price: dict[tuple[str, ...], float] = {}
        savings: dict[tuple[str, ...], float] = {}
        unpriced: Count[tuple[str, ...]] = Count()
        for name, fact in facts.items():
            if fact.price is None:
                unpriced[fact.pool,] += 1
                continue
            unpriced[fact.pool,] += 0
            series, month = (fact.pool, fact.price.currency), fact.price.monthly / MICROS
            price[series] = price.get(series, 0.0) + month
            savings[series] = savings.get(series, 0.0) + (month if name in removed else 0.0)
        self._of_pass["price_per_month"].replace(price)
        self._of_pass["planned_savings_per_month"].replace(savings)
        self._of_pass["nodes_without_price"].replace(unpriced)

    def _tell_drains(self, snapshot: Snapshot, now: float) -> None:
        phases: dict[tuple[str, ...], float] = {(phase.value,): 0.0 for phase in _OWNING}
        began: list[float] = []
        for view in snapshot.nodes.values():
            record = drain_record(view.node)
            if record is None or not record.owns_node:
                continue
            # An unreadable record names no controller, so every controller shows it.
            theirs = record.controller != self._controller or snapshot.beside.foreign(record.lease)
            if theirs and record.phase is not Phase.UNKNOWN:
                continue
            phases[record.phase.value,] += 1
            since = record.entered(Phase.CLAIMED)
            began += [since] if since is not None else []
        self._of_pass["drains_in_phase"].replace(phases)
        self._gauges["drain_oldest_seconds"].set(max(0.0, now - min(began, default=now)))


def _reason(record: DrainRecord | None) -> str:
    """Return the first word of a record's reason if it is one of ours: each other text would add a series."""
    word = record.reason.partition(" ")[0] if record is not None else ""
    return word if word in _REASONS else ""

"""The metrics of plans and drains, with the same names for every controller of nodes.

Each pass replaces all series of the last plan, so objects that are gone from the cluster leave the metrics.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.drain.answers import EvictionAnswer
from tightship.drain.events import DrainEvent, EventKind
from tightship.drain.landings import Landed
from tightship.objects.drain_record import IDLE_PHASES, DrainRecord, Ending, Phase
from tightship.objects.money import MICROS
from tightship.objects.reasons import NODE_REASONS, Refusal
from tightship.planning.evaluate import Facts
from tightship.planning.plan import Plan
from tightship.planning.savings import Saved
from tightship.process.metrics import SnapshotGauge
from tightship.rules.nodes import drain_record

PHASE_BUCKETS = (1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 21600.0)
"""Seconds, from settling after a claim to an empty node that waits for the autoscaler."""

CLAIMED, TAKEN_OVER = "claimed", "taken_over"


class ConsolidationMetrics:
    """The metrics of one *controller* of nodes; create them once for a *registry*. Not thread-safe."""

    def __init__(self, registry: CollectorRegistry, controller: str) -> None:
        snapshot = partial(SnapshotGauge, registry=registry)
        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        self._controller = controller
        self._refused = snapshot(
            "tightship_nodes_refused",
            "Nodes that stay, by reason; a node counts once for each of its reasons.",
            ("controller", "reason", "pool"),
        )
        self._planned = snapshot("tightship_nodes_planned", "Nodes that the last plan would remove.", ("pool",))
        self._evictions_planned = gauge("tightship_evictions_planned", "Evictions that the last plan needs.")
        self._pods_planned = gauge("tightship_pods_planned", "Different pods that the last plan evicts.")
        self._price = snapshot(
            "tightship_price_per_month",
            "Price of the nodes with a price for a month of 730 hours, in units of the currency.",
            ("pool", "currency"),
        )
        self._savings = snapshot(
            "tightship_planned_savings_per_month",
            "The part of tightship_price_per_month that the last plan would remove.",
            ("pool", "currency"),
        )
        self._unpriced = snapshot("tightship_nodes_without_price", "Nodes without a price, by pool.", ("pool",))
        self._saved_hours = snapshot(
            "tightship_saved_node_hours",
            "Hours of nodes that drains of all controllers with this ledger have saved since the first.",
            ("pool",),
        )
        self._saved_money = snapshot(
            "tightship_saved_money",
            "What those hours would have cost, in units of the currency; nodes without a price count for nothing.",
            ("pool", "currency"),
        )
        self._in_phase = snapshot(
            "tightship_drains_in_phase", "Nodes that this controller drains, by phase.", ("phase",)
        )
        self._oldest = gauge(
            "tightship_drain_oldest_seconds",
            "Age in seconds of this controller's oldest drain under way; 0 without one.",
        )
        self._unhealthy = gauge(
            "tightship_cluster_unhealthy", "1 while the health brake stops all new drains (ClusterUnhealthy)."
        )
        self._phase_seconds = Histogram(
            "tightship_drain_phase_seconds",
            "Seconds that drains spent in each phase, observed when they leave the phase.",
            ("phase",),
            buckets=PHASE_BUCKETS,
            registry=registry,
        )
        self._evictions = counter("tightship_evictions", "Answers to evictions, by meaning.", ("answer",))
        self._drains = counter("tightship_drains", "Drains that ended, by ending and reason.", ("ending", "reason"))
        self._claims = counter(
            "tightship_claims", "Nodes claimed or taken over, and claims refused, by reason.", ("result",)
        )
        self._elsewhere = gauge(
            "tightship_drains_claimed_elsewhere",
            "Drains of other controllers with their claims in another Lease: they share no budget with this one.",
        )
        self._installations = gauge(
            "tightship_other_installations",
            "Other live installations of this controller that share its claims, as far as a leader knows.",
        )
        self._landings = counter(
            "tightship_landings",
            "Replacements of evicted pods that were led to a node, by where they landed.",
            ("result",),
        )
        # A series that appears with its first count hides that count from rate().
        for answer in EvictionAnswer:
            self._evictions.labels(answer.value)
        for result in (CLAIMED, TAKEN_OVER):
            self._claims.labels(result)
        for landed in Landed:
            self._landings.labels(landed.value)
        for phase in Phase:
            if phase not in IDLE_PHASES:
                self._phase_seconds.labels(phase.value)
        for ending in Ending:
            self._drains.labels(ending.value, "")
        for reason in sorted(_REASONS):
            self._drains.labels(Ending.RESTORED.value, reason)

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
        self._refused.replace(refused)
        planned = Count(facts[each.node].pool for each in plan.removals if each.node in facts)
        pools = dict.fromkeys(fact.pool for fact in facts.values())
        self._planned.replace({(pool,): float(planned[pool]) for pool in pools})
        self._evictions_planned.set(plan.evictions)
        self._pods_planned.set(plan.pods)
        self._tell_money(facts, plan)
        self._tell_drains(snapshot, now)
        self._unhealthy.set(unhealthy is not None)

    def news(self, news: DrainEvent) -> None:
        """Count what a drain reports."""
        match news.kind:
            case EventKind.EVICTION if news.answer is not None:
                self._evictions.labels(news.answer.value).inc()
            case EventKind.ENDED if news.ending is not None:
                self._drains.labels(news.ending.value, _reason(news.record)).inc()
            case EventKind.CLAIMED:
                self._claims.labels(CLAIMED).inc()
            case EventKind.TAKEN_OVER:
                self._claims.labels(TAKEN_OVER).inc()
            case EventKind.PHASE:
                self._left(news.before, news.record)
            case _:
                pass

    def claimed(self, refusal: Refusal | None) -> None:
        """Count a refused claim; the drain itself reports a successful one."""
        if refusal is not None:
            self._claims.labels(refusal.reason.value).inc()

    def landed(self, result: Landed) -> None:
        """Count where a replacement landed."""
        self._landings.labels(result.value).inc()

    def saved(self, pools: Mapping[str, Saved]) -> None:
        """Replace what drains have saved, by pool."""
        self._saved_hours.replace({(pool,): each.node_hours for pool, each in pools.items()})
        money: dict[tuple[str, ...], float] = {
            (pool, name): micros / MICROS for pool, each in pools.items() for name, micros in each.micros.items()
        }
        self._saved_money.replace(money)

    def claimed_elsewhere(self, drains: int) -> None:
        """Set how many drains of other controllers have no claim in this controller's ledger."""
        self._elsewhere.set(drains)

    def beside(self, beside: Beside) -> None:
        """Set how many other installations there are."""
        self._installations.set(len(beside.others()))

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
        self._price.replace(price)
        self._savings.replace(savings)
        self._unpriced.replace(unpriced)

    def _tell_drains(self, snapshot: Snapshot, now: float) -> None:
        phases: dict[tuple[str, ...], float] = {(phase.value,): 0.0 for phase in Phase if phase not in IDLE_PHASES}
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
        self._in_phase.replace(phases)
        self._oldest.set(max(0.0, now - min(began, default=now)))


_REASONS = frozenset(reason.value for reason in NODE_REASONS)


def _reason(record: DrainRecord | None) -> str:
    """Return the first word of a record's reason if it is one of ours: each other text would add a series."""
    word = record.reason.partition(" ")[0] if record is not None else ""
    return word if word in _REASONS else ""

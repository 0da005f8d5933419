"""The metrics of plans and drains by name, label and value; what is gone from the cluster is gone from them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from tightship.cluster import Snapshot
from tightship.drain.answers import EvictionAnswer
from tightship.drain.events import DrainEvent, EventKind
from tightship.nodes.metrics import ConsolidationMetrics
from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Ending, Phase, encode_record
from tightship.objects.money import HOURLY_PRICE
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.facts import FactRules, gather
from tightship.planning.plan import Move, Plan, Removal
from tightship_testkit.builders import NOW, node, pod, pod_of, snapshot

from .toy import NAME

Json = dict[str, Any]
NOTHING = Plan("toy", "likely", (), {})


def record(phase: str, since: dict[str, float], controller: str = NAME, reason: str = "") -> DrainRecord:
    return DrainRecord(phase=Phase(phase), controller=controller, op="x", since=since, reason=reason)


def noted(found: DrainRecord) -> Json:
    return {DRAIN_ANNOTATION: encode_record(found)}


class Scraped:
    """A registry after passes over clusters; the pool of a node is the first letter of its name."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = ConsolidationMetrics(self.registry, NAME)

    def update(self, cluster: Snapshot, unhealthy: Refusal | None = None, plan: Plan = NOTHING) -> None:
        known = gather(cluster, FactRules(), NOW)
        facts = {name: msgspec.structs.replace(fact, pool=name[0]) for name, fact in known.items()}
        self.metrics.update(facts, plan, cluster, NOW, unhealthy)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def series(self, name: str) -> int:
        families = self.registry.collect()
        return sum(sample.name == name for family in families for sample in family.samples)


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def cluster() -> Snapshot:
    return snapshot(*(node(name) for name in ("a1", "a2", "b1")), pod(on="a1"))


def test_refusals_by_reason_and_what_is_planned(scraped: Scraped) -> None:
    why = (
        Refusal(Reason.NOT_REPLICATED, "shop/x"),
        Refusal(Reason.NOT_REPLICATED, "shop/y"),
        Refusal(Reason.CORDONED, "a2"),
    )
    moved = Move(pod_of(cluster()), "a1", "b1")
    gone = Refusal(Reason.UNREADABLE, "z9")
    plan = Plan("toy", "likely", (Removal("a1", 1, (moved,)),), {"a2": why, "z9": (gone,)})
    scraped.update(cluster(), plan=plan)
    for reason, pool in (("NotReplicated", "a"), ("Cordoned", "a"), ("Unreadable", "")):
        refused = scraped.value("tightship_nodes_refused", controller=NAME, reason=reason, pool=pool)
        assert refused == 1, "a node counts once"
    assert scraped.value("tightship_nodes_planned", pool="a") == 1
    assert scraped.value("tightship_nodes_planned", pool="b") == 0
    assert scraped.value("tightship_evictions_planned") == 1
    scraped.update(snapshot(node("a2")))
    assert scraped.series("tightship_nodes_refused") == 0
    assert scraped.value("tightship_nodes_planned", pool="b") is None
    assert scraped.value("tightship_evictions_planned") == 0


def test_the_price_of_a_month_and_what_the_plan_would_save(scraped: Scraped) -> None:
    priced = {HOURLY_PRICE: "0.1"}
    held = snapshot(node("a1", notes=priced), node("a2", notes=priced), node("a3"), node("b1", notes=priced))
    scraped.update(held, plan=Plan("toy", "likely", (Removal("a1", 1, ()), Removal("a3", 1, ())), {}))
    assert scraped.value("tightship_price_per_month", pool="a", currency="USD") == pytest.approx(146)
    assert scraped.value("tightship_planned_savings_per_month", pool="a", currency="USD") == pytest.approx(73)
    assert scraped.value("tightship_planned_savings_per_month", pool="b", currency="USD") == 0
    assert scraped.value("tightship_nodes_without_price", pool="a") == 1
    assert scraped.value("tightship_nodes_without_price", pool="b") == 0
    scraped.update(cluster())
    assert scraped.series("tightship_price_per_month") == 0


def test_drains_under_way_by_phase_and_the_oldest(scraped: Scraped) -> None:
    scraped.update(cluster())
    assert scraped.value("tightship_drains_in_phase", phase="Evicting") == 0
    assert scraped.value("tightship_drain_oldest_seconds") == 0
    evicting = noted(record("Evicting", {"Claimed": NOW - 90, "Evicting": NOW - 30}))
    drained = noted(record("Drained", {"Claimed": NOW - 900, "Drained": NOW - 30}))
    theirs = noted(record("Evicting", {"Claimed": NOW - 9000}, "node-sibling"))
    failed = noted(record("Backoff", {"Claimed": NOW - 9000, "Backoff": NOW - 8000}))
    scraped.update(
        snapshot(
            node("n1", notes=evicting),
            node("n2", notes=drained),
            node("n3", notes=theirs),
            node("n4", notes=failed),
            node("n5", notes={DRAIN_ANNOTATION: json.dumps({"v": 99})}),
        )
    )
    phases = {phase: scraped.value("tightship_drains_in_phase", phase=phase) for phase in Phase}
    assert {phase: count for phase, count in phases.items() if count} == {"Evicting": 1, "Drained": 1, "Unknown": 1}
    assert phases[Phase.BACKOFF] is None, "nobody drains such a node"
    assert scraped.value("tightship_drain_oldest_seconds") == 900


def test_the_health_brake(scraped: Scraped) -> None:
    scraped.update(cluster(), Refusal(Reason.CLUSTER_UNHEALTHY, "cluster"))
    assert scraped.value("tightship_cluster_unhealthy") == 1
    scraped.update(cluster())
    assert scraped.value("tightship_cluster_unhealthy") == 0


def news(reported: EventKind, **more: Any) -> DrainEvent:
    [view] = snapshot(node()).nodes.values()
    return DrainEvent(kind=reported, node=view.node, record=more.pop("record", None), **more)


def test_evictions_by_answer(scraped: Scraped) -> None:
    for answer in (EvictionAnswer.ACCEPTED, EvictionAnswer.ACCEPTED, EvictionAnswer.BUDGET):
        scraped.metrics.news(news(EventKind.EVICTION, answer=answer))
    assert scraped.value("tightship_evictions_total", answer="accepted") == 2
    assert scraped.value("tightship_evictions_total", answer="budget") == 1
    assert scraped.value("tightship_evictions_total", answer="busy") == 0, "there before its first count"


def test_drains_by_ending_and_reason(scraped: Scraped) -> None:
    given_up = record("Backoff", {}, reason="PodStuck shop/web-1: late")
    scraped.metrics.news(news(EventKind.ENDED, ending=Ending.RESTORED, record=given_up))
    scraped.metrics.news(news(EventKind.ENDED, ending=Ending.HANDED_OVER, record=record("Drained", {})))
    scraped.metrics.news(news(EventKind.ENDED, ending=Ending.NODE_GONE))
    scraped.metrics.news(news(EventKind.ENDED, ending=Ending.RESTORED, record=record("Backoff", {}, reason="by hand")))
    assert scraped.value("tightship_drains_total", ending="restored", reason="PodStuck") == 1
    assert scraped.value("tightship_drains_total", ending="handed_over", reason="") == 1
    assert scraped.value("tightship_drains_total", ending="node_gone", reason="") == 1
    assert scraped.value("tightship_drains_total", ending="restored", reason="") == 1, "no word of ours, no series"


def test_claims_by_result_each_counted_once(scraped: Scraped) -> None:
    scraped.metrics.news(news(EventKind.CLAIMED))
    scraped.metrics.claimed(None)
    scraped.metrics.news(news(EventKind.TAKEN_OVER, before=Phase.EVICTING))
    scraped.metrics.claimed(Refusal(Reason.BUDGET_EXHAUSTED, "n1"))
    for result in ("claimed", "taken_over", "BudgetExhausted"):
        assert scraped.value("tightship_claims_total", result=result) == 1


def test_the_time_in_a_phase_is_observed_when_it_is_left(scraped: Scraped) -> None:
    claimed = record("Claimed", {"Claimed": NOW})
    evicting = record("Evicting", {"Claimed": NOW, "Evicting": NOW + 6})
    scraped.metrics.news(news(EventKind.CLAIMED, record=claimed))
    scraped.metrics.news(news(EventKind.PHASE, before=Phase.CLAIMED, record=evicting))
    scraped.metrics.news(news(EventKind.PHASE, before=Phase.EVICTING, record=evicting))
    scraped.metrics.news(news(EventKind.PHASE, before=Phase.BACKOFF, record=claimed))
    scraped.metrics.news(news(EventKind.PHASE, before=Phase.YIELDED))
    name = "tightship_drain_phase_seconds"
    assert scraped.value(f"{name}_sum", phase="Claimed") == 6
    assert scraped.value(f"{name}_count", phase="Claimed") == 1
    assert scraped.value(f"{name}_count", phase="Evicting") == 0


def test_trouble_is_no_metric_of_its_own(scraped: Scraped) -> None:
    before = generate_latest(scraped.registry)
    scraped.metrics.news(news(EventKind.TROUBLE, text="reset"))
    assert generate_latest(scraped.registry) == before

"""The metrics by name, label and value; and that what is gone from the cluster is gone from them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from node_compactor.metrics import CompactorMetrics
from node_compactor.policy import Marks, Policy
from node_compactor.settings import load_settings
from tightship.cluster import Snapshot
from tightship.drain.answers import Answer
from tightship.drain.machine import Ending
from tightship.drain.news import News, Told
from tightship.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, encode_record
from tightship.observability.metrics import render
from tightship.plan import STRATEGIES, make_plan
from tightship.reasons import Reason, Refusal
from tightship_e2e.making import NOW, node, pod, snapshot, workload

Json = dict[str, Any]
OLD = "estafette_node_compactor_"
POOLS = {"a": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5}, "b": {"enabled": False}}


def record(phase: str, since: dict[str, float], controller: str = "node-compactor", reason: str = "") -> DrainRecord:
    return DrainRecord(phase=Phase(phase), controller=controller, op="x", since=since, reason=reason)


def noted(found: DrainRecord) -> Json:
    return {DRAIN_ANNOTATION: encode_record(found)}


class Scraped:
    """A registry after one pass over *cluster*."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = CompactorMetrics(self.registry)

    def update(self, cluster: Snapshot, unhealthy: Refusal | None = None) -> None:
        settings = load_settings({"nodePools": POOLS, "neededMarkedTimeForRemoval": 0})
        policy = Policy(settings, NOW, Marks.of(cluster))
        plan = make_plan(cluster, policy.judge, STRATEGIES["least-utilized"], "likely")
        self.metrics.update(policy.facts(cluster), plan, cluster, NOW, unhealthy)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def series(self, name: str) -> int:
        families = self.registry.collect()
        return sum(sample.name == name for family in families for sample in family.samples)


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def cluster(*more: Json) -> Snapshot:
    return snapshot(
        node("a1", labels={"nodepool": "a"}, notes=noted(record("Marked", {"Marked": NOW - 60}))),
        node("a2", labels={"nodepool": "a"}),
        node("b1", labels={"nodepool": "b"}, allocatable={"cpu": "2500m", "memory": "1000Ki", "pods": "9"}),
        node("none"),
        pod("web-2", on="a2", cpu="3", memory="4Gi"),
        pod("web-3", on="b1", cpu="250m", memory="100Ki"),
        workload(),
        *more,
    )


def test_the_older_controllers_counts_for_every_pool_enabled_or_not(scraped: Scraped) -> None:
    draining = record("Evicting", {"Claimed": NOW - 90, "Evicting": NOW - 30})
    scraped.update(cluster(node("a3", labels={"nodepool": "a"}, unschedulable=True, notes=noted(draining))))
    for name, a, b in (
        ("total_node_count", 3, 1),
        ("underutilized_node_count", 1, 0),
        ("marked_for_removal_node_count", 1, 0),
        ("scale_down_in_progress_node_count", 1, 0),
    ):
        assert scraped.value(OLD + name, nodepool="a") == a
        assert scraped.value(OLD + name, nodepool="b") == b
    assert scraped.value(OLD + "total_node_count", nodepool="") == 1


def test_the_older_controllers_units_milli_cpu_and_mebibytes(scraped: Scraped) -> None:
    scraped.update(cluster())
    of = {"node": "b1", "nodepool": "b"}
    assert scraped.value(OLD + "allocatable_cpu", **of) == 2500
    assert scraped.value(OLD + "total_cpu_requests", **of) == 250
    assert scraped.value(OLD + "allocatable_memory", **of) == 1000 / 1024
    assert scraped.value(OLD + "total_memory_requests", **of) == 100 / 1024
    assert scraped.value(OLD + "utilized_cpu_ratio", **of) == 0.1
    assert scraped.value(OLD + "utilized_memory_ratio", **of) == 0.1
    assert scraped.value(OLD + "total_memory_requests", node="a2", nodepool="a") == 4096


def test_a_node_without_capacity_is_infinitely_utilized_not_an_error(scraped: Scraped) -> None:
    scraped.update(snapshot(node(allocatable={}), pod(), workload()))
    found = scraped.value(OLD + "utilized_cpu_ratio", node="n1", nodepool="")
    assert found is not None
    assert math.isinf(found)


def test_what_is_gone_from_the_cluster_is_gone_from_the_metrics(scraped: Scraped) -> None:
    scraped.update(cluster())
    scraped.update(snapshot(node("a2", labels={"nodepool": "a"})))
    assert scraped.series(OLD + "utilized_cpu_ratio") == 1
    assert scraped.series(OLD + "total_node_count") == 1
    assert scraped.value("tightship_nodes_planned", pool="b") is None
    assert (
        scraped.value("tightship_nodes_refused", controller="node-compactor", reason="PoolDisabled", pool="b") is None
    )


def test_refusals_by_reason_and_what_is_planned(scraped: Scraped) -> None:
    scraped.update(cluster(pod("web-1", on="a1"), pod("naked", on="a2", naked=True), pod("bare", on="a2", naked=True)))
    refused = {"controller": "node-compactor", "pool": "a"}
    assert scraped.value("tightship_nodes_refused", reason="NotUnderutilized", **refused) == 1
    assert scraped.value("tightship_nodes_refused", reason="NotReplicated", **refused) == 1, "a node counts once"
    of_none = {"controller": "node-compactor", "pool": ""}
    assert scraped.value("tightship_nodes_refused", reason="PoolNotConfigured", **of_none) == 1
    assert scraped.value("tightship_nodes_planned", pool="a") == 1
    assert scraped.value("tightship_nodes_planned", pool="b") == 0
    assert scraped.value("tightship_evictions_planned") == 1


def test_drains_under_way_by_phase_and_the_oldest(scraped: Scraped) -> None:
    scraped.update(cluster())
    assert scraped.value("tightship_drains_in_phase", phase="Evicting") == 0
    assert scraped.value("tightship_drain_oldest_seconds") == 0
    evicting = noted(record("Evicting", {"Claimed": NOW - 90, "Evicting": NOW - 30}))
    drained = noted(record("Drained", {"Claimed": NOW - 900, "Drained": NOW - 30}))
    theirs = noted(record("Evicting", {"Claimed": NOW - 9000}, "node-refiner"))
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


def news(told: Told, **more: Any) -> News:
    [view] = snapshot(node()).nodes.values()
    return News(told=told, node=view.node, record=more.pop("record", None), **more)


def test_evictions_by_answer(scraped: Scraped) -> None:
    for answer in (Answer.ACCEPTED, Answer.ACCEPTED, Answer.BUDGET):
        scraped.metrics.news(news(Told.EVICTION, answer=answer))
    assert scraped.value("tightship_evictions_total", answer="accepted") == 2
    assert scraped.value("tightship_evictions_total", answer="budget") == 1
    assert scraped.value("tightship_evictions_total", answer="busy") == 0, "there before its first count"


def test_drains_by_ending_and_reason(scraped: Scraped) -> None:
    given_up = record("Backoff", {}, reason="PodStuck shop/web-1: late")
    scraped.metrics.news(news(Told.ENDED, ending=Ending.RESTORED, record=given_up))
    scraped.metrics.news(news(Told.ENDED, ending=Ending.HANDED_OVER, record=record("Drained", {})))
    scraped.metrics.news(news(Told.ENDED, ending=Ending.NODE_GONE))
    scraped.metrics.news(news(Told.ENDED, ending=Ending.RESTORED, record=record("Backoff", {}, reason="by hand")))
    assert scraped.value("tightship_drains_total", ending="restored", reason="PodStuck") == 1
    assert scraped.value("tightship_drains_total", ending="handed_over", reason="") == 1
    assert scraped.value("tightship_drains_total", ending="node_gone", reason="") == 1
    assert scraped.value("tightship_drains_total", ending="restored", reason="") == 1, "no word of ours, no series"


def test_claims_by_result_each_counted_once(scraped: Scraped) -> None:
    scraped.metrics.news(news(Told.CLAIMED))
    scraped.metrics.claimed(None)
    scraped.metrics.news(news(Told.TAKEN_OVER, before=Phase.EVICTING))
    scraped.metrics.claimed(Refusal(Reason.BUDGET_EXHAUSTED, "n1"))
    for result in ("claimed", "taken_over", "BudgetExhausted"):
        assert scraped.value("tightship_claims_total", result=result) == 1


def test_the_time_in_a_phase_is_observed_when_it_is_left(scraped: Scraped) -> None:
    claimed = record("Claimed", {"Claimed": NOW})
    evicting = record("Evicting", {"Claimed": NOW, "Evicting": NOW + 6})
    scraped.metrics.news(news(Told.CLAIMED, record=claimed))
    scraped.metrics.news(news(Told.PHASE, before=Phase.CLAIMED, record=evicting))
    scraped.metrics.news(news(Told.PHASE, before=Phase.EVICTING, record=evicting))
    scraped.metrics.news(news(Told.PHASE, before=Phase.BACKOFF, record=claimed))
    scraped.metrics.news(news(Told.PHASE, before=Phase.YIELDED))
    name = "tightship_drain_phase_seconds"
    assert scraped.value(f"{name}_sum", phase="Claimed") == 6
    assert scraped.value(f"{name}_count", phase="Claimed") == 1
    assert scraped.series(f"{name}_count") == 1


def test_everything_can_be_scraped(scraped: Scraped) -> None:
    scraped.update(cluster())
    text = render(scraped.registry)[0].decode()
    assert 'estafette_node_compactor_utilized_cpu_ratio{node="a2",nodepool="a"} 0.75' in text
    assert "# TYPE tightship_drains_total counter" in text


def test_trouble_is_no_metric_of_its_own(scraped: Scraped) -> None:
    before = render(scraped.registry)
    scraped.metrics.news(news(Told.TROUBLE, text="reset"))
    assert render(scraped.registry) == before

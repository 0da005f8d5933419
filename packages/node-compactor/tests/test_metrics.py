"""The older controller's metrics by name, label and value; what is gone from the cluster is gone from them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from node_compactor.controller import CompactorMetrics
from node_compactor.judge import CompactorJudge
from node_compactor.older import METRICS
from node_compactor.settings import load_settings
from tightship.cluster import Snapshot
from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, encode_record
from tightship.planning.evaluate import evaluate
from tightship_testkit.builders import NOW, node, pod, snapshot, workload

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
        self._tell = CompactorMetrics(self.registry).update

    def update(self, cluster: Snapshot) -> None:
        settings = load_settings({"nodePools": POOLS, "neededMarkedTimeForRemoval": 0})
        self._tell(evaluate(cluster, CompactorJudge(settings), NOW))

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
        assert scraped.value(f"tightship_{METRICS[name]}", pool="a") == a
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
    assert scraped.value("tightship_node_utilization", node="b1", pool="b", resource="cpu") == 0.1
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


def test_everything_can_be_scraped(scraped: Scraped) -> None:
    scraped.update(cluster())
    text = generate_latest(scraped.registry).decode()
    assert 'estafette_node_compactor_utilized_cpu_ratio{node="a2",nodepool="a"} 0.75' in text

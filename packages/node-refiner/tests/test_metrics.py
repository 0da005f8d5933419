"""The older controller's metrics by name and value, counting what was done."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from node_refiner.controller import RefinerMetrics
from node_refiner.judge import RefinerJudge
from node_refiner.older import METRICS
from node_refiner.settings import RefinerSettings
from tightship.drain.events import DrainEvent, EventKind
from tightship.objects.drain_record import DrainRecord, Phase
from tightship.planning.evaluate import evaluate
from tightship_testkit.builders import NOW, node, pod, snapshot, workload

NAMES = {
    "node_refiner_cluster_excess_nodes",
    "node_refiner_cluster_non_tainted_nodes",
    "node_refiner_cluster_nodes",
    "node_refiner_cluster_pods",
    "node_refiner_cluster_cpu_utilization",
    "node_refiner_cluster_memory_utilization",
    "node_refiner_cluster_unschedulable_nodes",
    "node_refiner_nodes_cordoned",
    "node_refiner_nodes_drained",
    "node_refiner_nodes_uncordoned",
}
DEDICATED = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]


class Scraped:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = RefinerMetrics(self.registry)

    def value(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"node_refiner_{name}")

    def counts(self) -> list[float | None]:
        return [self.value(f"nodes_{what}") for what in ("cordoned", "drained", "uncordoned")]


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def reported(kind: EventKind, phase: Phase, before: Phase | None = None) -> DrainEvent:
    return DrainEvent(
        kind=kind, node=snapshot(node("n1")).nodes["n1"].node, record=DrainRecord(phase=phase), before=before
    )


def test_every_name_of_the_older_controller_is_there_from_the_start(scraped: Scraped) -> None:
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        text = choose_encoder(accept)[0](scraped.registry).decode()
        samples = {line.split()[0] for line in text.splitlines() if not line.startswith("#")}
        assert samples >= NAMES, accept


def test_the_cluster_in_numbers(scraped: Scraped) -> None:
    items: list[dict[str, Any]] = [
        *(node(f"n{each}") for each in range(1, 5)),
        node("tainted", taints=DEDICATED),
        node("cordoned", unschedulable=True),
        *(pod(f"p{each}", on=f"n{each}", cpu="2", memory="4Gi") for each in range(1, 5)),
        pod("elsewhere", on="tainted", cpu="3"),
        pod("done", on="n1", phase="Succeeded"),
        workload(),
    ]
    scraped.metrics.update(evaluate(snapshot(*items), RefinerJudge(RefinerSettings()), NOW))
    assert scraped.value("cluster_nodes") == 6
    assert scraped.value("cluster_non_tainted_nodes") == 4
    assert scraped.value("cluster_unschedulable_nodes") == 1
    assert scraped.value("cluster_pods") == 5
    assert scraped.value("cluster_cpu_utilization") == 50
    assert scraped.value("cluster_memory_utilization") == 25
    assert scraped.value("cluster_excess_nodes") == 2
    assert scraped.registry.get_sample_value("tightship_cluster_removable_nodes") == 2
    for older, name in METRICS.items():
        assert scraped.value(older) == scraped.registry.get_sample_value(f"tightship_{name}")


def test_a_cluster_without_counted_nodes_has_zeros(scraped: Scraped) -> None:
    scraped.metrics.update(evaluate(snapshot(node("n1", unschedulable=True)), RefinerJudge(RefinerSettings()), NOW))
    assert [scraped.value(f"cluster_{name}") for name in ("excess_nodes", "cpu_utilization", "non_tainted_nodes")] == [
        0, 0, 0,
    ]  # fmt: skip


def test_counters_count_what_was_done(scraped: Scraped) -> None:
    assert scraped.counts() == [0, 0, 0]
    scraped.metrics.news(reported(EventKind.CLAIMED, Phase.CLAIMED))
    scraped.metrics.news(reported(EventKind.PHASE, Phase.EVICTING, Phase.CLAIMED))
    scraped.metrics.news(reported(EventKind.EVICTION, Phase.EVICTING))
    assert scraped.counts() == [1, 0, 0]
    scraped.metrics.news(reported(EventKind.PHASE, Phase.DRAINED, Phase.EVICTING))
    scraped.metrics.news(reported(EventKind.ENDED, Phase.DRAINED))
    assert scraped.counts() == [1, 1, 0]
    scraped.metrics.news(reported(EventKind.CLAIMED, Phase.CLAIMED))
    scraped.metrics.news(reported(EventKind.PHASE, Phase.RESTORING, Phase.EVICTING))
    assert scraped.counts() == [2, 1, 0]
    scraped.metrics.news(reported(EventKind.PHASE, Phase.BACKOFF, Phase.RESTORING))
    assert scraped.counts() == [2, 1, 1]


def test_a_node_that_a_person_uncordoned_is_none_that_we_uncordoned(scraped: Scraped) -> None:
    scraped.metrics.news(reported(EventKind.PHASE, Phase.BACKOFF, Phase.EVICTING))
    assert scraped.counts() == [0, 0, 0]

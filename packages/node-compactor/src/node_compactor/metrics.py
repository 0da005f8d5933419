"""The metrics of nodes and pools, also under the older controller's names.

Those of nodes keep its units: CPU in milli-CPU, memory in MiB, ratios between 0 and 1. Memory keeps its fraction; the
older controller rounded down (and read some quantities as 0). The series are from the last pass, so objects that are
gone from the cluster leave the metrics. :mod:`tightship.nodes.metrics` has the metrics of plans and drains.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from node_compactor.gates import CompactorGates
from node_compactor.marking import marked_since
from node_compactor.older import METRIC_PREFIX, METRICS
from tightship.nodes.controller import OwnMetrics
from tightship.planning.evaluate import Evaluation, Facts
from tightship.process.metrics import PREFIX, OlderName, Row, SnapshotGauge, snapshots

MIB = 2**20

_POOL_GAUGES: Mapping[str, Row] = {
    "pool_nodes": ("The number of nodes in the pool.", "pool"),
    "pool_underutilized_nodes": ("The number of nodes in the pool that are underutilized.", "pool"),
    "pool_marked_nodes": ("The number of nodes in the pool that are marked for removal.", "pool"),
    "pool_draining_nodes": ("The number of nodes in the pool that are in drain.", "pool"),
}
_UTILIZATION = "Requests over the allocatable amount of the node, by resource: cpu or memory."
_NODE_GAUGES: Mapping[str, Row] = {
    "allocatable_cpu": ("The allocatable CPU of the node, in milli-CPU.", "node", "nodepool"),
    "allocatable_memory": ("The allocatable memory of the node, in MiB.", "node", "nodepool"),
    "total_cpu_requests": ("The CPU requests of the node's pods, in milli-CPU.", "node", "nodepool"),
    "total_memory_requests": ("The memory requests of the node's pods, in MiB.", "node", "nodepool"),
    "utilized_cpu_ratio": ("CPU requests over allocatable CPU of the node.", "node", "nodepool"),
    "utilized_memory_ratio": ("Memory requests over allocatable memory of the node.", "node", "nodepool"),
}


class CompactorMetrics(OwnMetrics):
    """The metrics that only the compactor has. Create them once for a *registry*. Not thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pools = snapshots(PREFIX, _POOL_GAUGES, registry)
        for older, name in METRICS.items():
            OlderName(self._pools[name], METRIC_PREFIX + older, {"pool": "nodepool"}, registry=registry)
        labels = ("node", "pool", "resource")
        self._utilization = SnapshotGauge(f"{PREFIX}node_utilization", _UTILIZATION, labels, registry=registry)
        self._nodes = snapshots(METRIC_PREFIX, _NODE_GAUGES, registry)

    def update(self, evaluation: Evaluation) -> None:
        """Replace everything by the results of the last pass."""
        assert isinstance(evaluation.gates, CompactorGates)
        self._tell_pools(evaluation.facts, evaluation.gates)
        self._tell_nodes(evaluation.facts)

    def _tell_pools(self, facts: Facts, gates: CompactorGates) -> None:
        counts: dict[str, Count[str]] = {name: Count() for name in _POOL_GAUGES}
        for name, fact in facts.items():
            counts["pool_nodes"][fact.pool] += 1
            counts["pool_underutilized_nodes"][fact.pool] += name in gates.underutilized
            counts["pool_marked_nodes"][fact.pool] += marked_since(fact.view.node) is not None and not fact.draining
            counts["pool_draining_nodes"][fact.pool] += fact.draining
        for what, by_pool in counts.items():
            self._pools[what].replace({(pool,): float(count) for pool, count in by_pool.items()})

    def _tell_nodes(self, facts: Facts) -> None:
        samples: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in _NODE_GAUGES}
        for name, fact in facts.items():
            used, labels = fact.utilization, (name, fact.pool)
            for what, value in (
                ("allocatable_cpu", used.allocatable.get("cpu", 0)),
                ("allocatable_memory", used.allocatable.get("memory", 0) / MIB),
                ("total_cpu_requests", used.requested.get("cpu", 0)),
                ("total_memory_requests", used.requested.get("memory", 0) / MIB),
                ("utilized_cpu_ratio", used.ratio("cpu")),
                ("utilized_memory_ratio", used.ratio("memory")),
            ):
                samples[what][labels] = float(value)
        for what, of_nodes in samples.items():
            self._nodes[what].replace(of_nodes)
        ratios = {resource: samples[f"utilized_{resource}_ratio"] for resource in ("cpu", "memory")}
        self._utilization.replace(
            {(*labels, resource): ratio for resource, of in ratios.items() for labels, ratio in of.items()}
        )

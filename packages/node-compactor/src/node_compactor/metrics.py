"""The metrics of nodes and pools under the older controller's names.

They keep its units: CPU in milli-CPU, memory in MiB, ratios between 0 and 1. Memory keeps its fraction; the older
controller rounded down (and read some quantities as 0). The series are from the last pass, so objects that are gone
from the cluster leave the metrics. :mod:`tightship.nodes.metrics` has the metrics of plans and drains.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from node_compactor.gates import CompactorGates
from node_compactor.marking import marked_since
from tightship.nodes.controller import OwnMetrics
from tightship.planning.evaluate import Evaluation, Facts
from tightship.process.metrics import Row, snapshots

OLD = "estafette_node_compactor_"
MIB = 2**20

_POOL_GAUGES: Mapping[str, Row] = {
    "total_node_count": ("The number of nodes in the node pool.", "nodepool"),
    "underutilized_node_count": ("The number of nodes in the pool that are underutilized.", "nodepool"),
    "marked_for_removal_node_count": ("The number of nodes in the pool that are marked for removal.", "nodepool"),
    "scale_down_in_progress_node_count": ("The number of nodes in the pool that are in drain.", "nodepool"),
}
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
        self._pools = snapshots(OLD, _POOL_GAUGES, registry)
        self._nodes = snapshots(OLD, _NODE_GAUGES, registry)

    def update(self, evaluation: Evaluation) -> None:
        """Replace everything by the results of the last pass."""
        assert isinstance(evaluation.gates, CompactorGates)
        self._tell_pools(evaluation.facts, evaluation.gates)
        self._tell_nodes(evaluation.facts)

    def _tell_pools(self, facts: Facts, gates: CompactorGates) -> None:
        counts: dict[str, Count[str]] = {name: Count() for name in _POOL_GAUGES}
        for name, fact in facts.items():
            counts["total_node_count"][fact.pool] += 1
            counts["underutilized_node_count"][fact.pool] += name in gates.underutilized
            counts["marked_for_removal_node_count"][fact.pool] += (
                marked_since(fact.view.node) is not None and not fact.draining
            )
            counts["scale_down_in_progress_node_count"][fact.pool] += fact.draining
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

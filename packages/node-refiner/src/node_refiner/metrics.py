"""The metrics of the cluster, also under the older controller's names.

Utilization is in percent of the counted nodes' allocatable amounts. Three counters of drains have an older name alone:
they count completed actions, where the older controller counted its attempts. :mod:`tightship.nodes.metrics` has the
other metrics of plans and drains.
"""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry

from node_refiner.gates import RefinerGates
from node_refiner.older import METRIC_PREFIX, METRICS
from tightship.drain.events import DrainEvent, EventKind
from tightship.nodes.controller import OwnMetrics
from tightship.objects.drain_record import Phase
from tightship.planning.evaluate import Evaluation
from tightship.process.metrics import PREFIX, NamedCounter, OlderName, gauges

_GAUGES = {
    "cluster_excess_nodes": "How many nodes like the present candidate the cluster could do without.",
    "cluster_counted_nodes": "The number of counted nodes: Ready, schedulable, and without a taint that excludes pods.",
    "cluster_nodes": "The number of nodes.",
    "cluster_pods": "The number of pods on nodes.",
    "cluster_cpu_utilization": "CPU requests on the counted nodes, in percent of their allocatable CPU.",
    "cluster_memory_utilization": "Memory requests on the counted nodes, in percent of their allocatable memory.",
    "cluster_cordoned_nodes": "The number of cordoned nodes.",
    "cluster_removable_nodes": "The number of nodes that could go one after another, with a place for every pod.",
}
_COUNTERS = {
    "nodes_cordoned": "Nodes cordoned for a drain.",
    "nodes_drained": "Nodes that a drain has emptied.",
    "nodes_uncordoned": "Nodes uncordoned again because their drain was given up.",
}


class RefinerMetrics(OwnMetrics):
    """The metrics that only the refiner has. Create them once for a *registry*. Not thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = gauges(PREFIX, _GAUGES, registry)
        for older, name in METRICS.items():
            OlderName(self._gauges[name], METRIC_PREFIX + older, registry=registry)
        self._counters = {
            name: NamedCounter(METRIC_PREFIX + name, text, registry=registry) for name, text in _COUNTERS.items()
        }

    def update(self, evaluation: Evaluation) -> None:
        """Replace everything by the results of the last pass."""
        assert isinstance(evaluation.gates, RefinerGates)
        outlook, views = evaluation.gates.outlook, evaluation.snapshot.nodes.values()
        nodes = [fact.view.node for fact in evaluation.facts.values()]
        counted = outlook.counted
        excess = outlook.excess.nodes if outlook.excess is not None else 0.0
        for name, value in (
            ("cluster_excess_nodes", excess if math.isfinite(excess) else 0.0),
            ("cluster_counted_nodes", counted.many),
            ("cluster_nodes", len(nodes)),
            ("cluster_pods", sum(not pod.finished for view in views for pod in view.pods)),
            ("cluster_cpu_utilization", _percent(counted.cpu_requested, counted.cpu_allocatable)),
            ("cluster_memory_utilization", _percent(counted.memory_requested, counted.memory_allocatable)),
            ("cluster_cordoned_nodes", sum(node.unschedulable for node in nodes)),
            ("cluster_removable_nodes", len(outlook.turns)),
        ):
            self._gauges[name].set(value)

    def news(self, news: DrainEvent) -> None:
        """Count what a drain reports."""
        if news.kind is EventKind.CLAIMED:
            self._counters["nodes_cordoned"].inc()
        elif news.kind is EventKind.PHASE and news.record is not None:
            if news.record.phase is Phase.DRAINED and news.before is not Phase.DRAINED:
                self._counters["nodes_drained"].inc()
            elif news.record.phase is Phase.BACKOFF and news.before is Phase.RESTORING:
                self._counters["nodes_uncordoned"].inc()


def _percent(requested: int, allocatable: int) -> float:
    return 100 * requested / allocatable if allocatable else 0.0

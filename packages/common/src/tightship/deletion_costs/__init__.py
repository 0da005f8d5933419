"""Has ReplicaSets shrink on the nodes that go next, by deletion costs on their pods: the annex of ``deletionCost``."""

from tightship.deletion_costs.writes import pod_costs

__all__ = ["pod_costs"]

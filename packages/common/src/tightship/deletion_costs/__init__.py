"""Has ReplicaSets shrink on the nodes that go next, by deletion costs on their pods: the annex of ``deletionCost``."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tightship.cluster.installations import Beside
from tightship.deletion_costs.writes import CostWrites
from tightship.draining.extensions import PodCosts
from tightship.kube.connection import Connection


def pod_costs(connection: Connection, beside: Callable[[], Beside], logger: logging.Logger) -> PodCosts:
    """Return what writes the costs of the installation that *beside* tells."""
    return CostWrites(connection, beside, logger)


__all__ = ["pod_costs"]

"""A cluster as decisions see it: the snapshot, and the state that makes snapshots."""

from tightship.planning.cluster.budgets import Budgets
from tightship.planning.cluster.snapshot import (
    FORBIDDEN,
    NOT_IN_FILE,
    NOT_SERVED,
    Headroom,
    NodeView,
    Snapshot,
    Starting,
    Unreadable,
    Usage,
)
from tightship.planning.cluster.state import ClusterState

__all__ = [
    "FORBIDDEN",
    "NOT_IN_FILE",
    "NOT_SERVED",
    "Budgets",
    "ClusterState",
    "Headroom",
    "NodeView",
    "Snapshot",
    "Starting",
    "Unreadable",
    "Usage",
]

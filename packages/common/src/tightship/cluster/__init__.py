"""A cluster as the judgement sees it: the snapshot, and the state it is cut from."""

from tightship.cluster.budgets import Budgets
from tightship.cluster.snapshot import (
    OPTIONAL_KINDS,
    Headroom,
    NodeView,
    Snapshot,
    Starting,
    Unreadable,
    Usage,
)
from tightship.cluster.state import ClusterState, from_objects

__all__ = [
    "OPTIONAL_KINDS",
    "Budgets",
    "ClusterState",
    "Headroom",
    "NodeView",
    "Snapshot",
    "Starting",
    "Unreadable",
    "Usage",
    "from_objects",
]

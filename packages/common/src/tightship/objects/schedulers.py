"""Schedulers that filter nodes as kube-scheduler does, and by what they choose among the nodes that are left."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Scoring = Literal["LeastAllocated", "MostAllocated"]
"""The strategy of the plugin ``NodeResourcesFit`` (``scoringStrategy.type`` of KubeSchedulerConfiguration)."""

SCHEDULERS: Mapping[str, Scoring] = MappingProxyType(
    {
        "default-scheduler": "LeastAllocated",
        # GKE: the profile balanced, and optimize-utilization, which puts this name into every pod that names none.
        "gke.io/default-scheduler": "LeastAllocated",
        "gke.io/optimize-utilization-scheduler": "MostAllocated",
    }
)
"""What is known by name."""

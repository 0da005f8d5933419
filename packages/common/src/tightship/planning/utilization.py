"""The utilization of a node: what its pods request of its allocatable amounts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from tightship.cluster import NodeView
from tightship.objects.resources import Resources


class UtilizationRules(Struct, frozen=True):
    """Which pods both sides of the ratio leave out, as with CA's ``--ignore-daemonsets-utilization``."""

    ignore_daemonsets: bool = False
    ignore_mirror_pods: bool = False


class Utilization(Struct, frozen=True, gc=False):
    """Requested and allocatable amounts of one node, as in :mod:`tightship.objects.resources`."""

    requested: Resources
    allocatable: Resources

    def ratio(self, resource: str) -> float:
        """Return requested over allocatable: 0.0 without requests, infinity if nothing is allocatable."""
        requested, allocatable = self.requested.get(resource, 0), self.allocatable.get(resource, 0)
        if allocatable > 0:
            return requested / allocatable
        return 0.0 if requested <= 0 else float("inf")

    @property
    def extended(self) -> Mapping[str, float]:
        """The ratios of the extended resources that the node has."""
        return {name: self.ratio(name) for name, amount in self.allocatable.items() if "/" in name and amount > 0}


Measure = Literal["dominant", "cpu"]
"""Which ratio says how utilized a node is: the largest, much as in CA, or CPU's."""


def measured(ratios: Mapping[str, float], measure: Measure = "dominant") -> float:
    """Return how utilized a node with these *ratios* of its resources is by *measure*; 0.0 without any."""
    return ratios.get("cpu", 0.0) if measure == "cpu" else max(ratios.values(), default=0.0)


def utilization(view: NodeView, now: float, rules: UtilizationRules = UtilizationRules()) -> Utilization:
    """Return what the pods of a node request at *now* (seconds since 1970).

    A terminating pod counts until its grace period has ended, and a pod stuck after that does not. (CA drops such a pod
    30 s plus another grace period later, since ``deletionTimestamp`` already includes the grace period.)
    """
    requested = view.usage.requested
    gone = [pod.requests for pod in view.usage.terminating if pod.deletion is not None and now > pod.deletion]
    ignored = [
        *([view.usage.daemon] if rules.ignore_daemonsets else []),
        *([view.usage.mirror] if rules.ignore_mirror_pods else []),
    ]
    if not gone and not ignored:
        return Utilization(requested, view.node.allocatable)
    return Utilization(_less(requested, [*gone, *ignored]), _less(view.node.allocatable, ignored))


def _less(amounts: Resources, parts: list[Resources]) -> Resources:
    left = dict(amounts)
    for part in parts:
        for name, amount in part.items():
            left[name] = max(0, left.get(name, 0) - amount)
    return left

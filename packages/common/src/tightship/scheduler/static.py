"""Filters and scores by a node's labels and taints, computed once for each distinct rule over all nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tightship.cluster.node_marks import asks_for_virtual, fargate, virtual
from tightship.objects import Node, PodSpec
from tightship.objects.selectors import HARD_EFFECTS, SOFT_EFFECTS, Taint, untolerated
from tightship.scheduler.topology import NodeMask


class NodeFilters:
    """Masks and counts over *nodes* for ``NodeAffinity``, ``TaintToleration`` and ``NodeDeclaredFeatures``."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._masks: dict[tuple[object, ...], NodeMask] = {}
        self._counts: dict[tuple[str, object], NDArray[np.int64]] = {}
        self._soft_taints = any(taint.effect in SOFT_EFFECTS for node in nodes for taint in node.taints)
        self._virtual = self._virtual_ones()

    def _virtual_ones(self) -> tuple[NodeMask, NodeMask] | None:
        """Return the virtual nodes, and those of Fargate: each has the one pod that it was made for."""
        found = np.array([virtual(node) is not None for node in self._nodes], dtype=np.bool_)
        return (found, np.array([*map(fargate, self._nodes)], dtype=np.bool_)) if found.any() else None

    def selected(self, spec: PodSpec) -> NodeMask:
        """Return the nodes that the pod's node selector and required node affinity allow."""
        wanted, affinity = spec.node_selector, spec.node_affinity
        key = ("selected", tuple(sorted(wanted.items())), affinity)
        found = self._masks.get(key)
        if found is None:
            found = np.ones(len(self._nodes), dtype=np.bool_)
            if wanted or affinity is not None:
                for column, node in enumerate(self._nodes):
                    labels = node.labels
                    found[column] = all(labels.get(name) == value for name, value in wanted.items()) and (
                        affinity is None or affinity.matches(node.name, labels)
                    )
            self._masks[key] = found
        return found

    def tolerated(self, spec: PodSpec) -> NodeMask:
        """Return the nodes without a taint that excludes the pod."""
        key = ("tolerated", spec.tolerations)
        found = self._masks.get(key)
        if found is None:
            found = np.array(
                [
                    not node.taints or untolerated(node.taints, spec.tolerations, HARD_EFFECTS) is None
                    for node in self._nodes
                ],
                dtype=np.bool_,
            )
            self._masks[key] = found
        return found

    def declared(self, spec: PodSpec) -> NodeMask:
        """Return the nodes that declare every feature the pod needs."""
        key = ("declared", spec.features)
        found = self._masks.get(key)
        if found is None:
            has_all = [set(spec.features) <= set(node.features) for node in self._nodes]
            found = self._masks[key] = np.array(has_all, dtype=np.bool_)
        return found

    def unasked(self, spec: PodSpec) -> NodeMask | None:
        """Return the virtual nodes to which nobody wants the pod sent, whatever kube-scheduler thinks; ``None`` if the
        cluster has none.
        """
        return None if self._virtual is None else self._virtual[asks_for_virtual(spec)]

    def static(self, spec: PodSpec) -> NodeMask:
        """Return the nodes that are selected and tolerated, and declare the features; virtual ones if asked for."""
        selector = tuple(sorted(spec.node_selector.items()))
        key = ("static", selector, spec.node_affinity, spec.tolerations, spec.features)
        found = self._masks.get(key)
        if found is None:
            found = self.selected(spec) & self.tolerated(spec)
            found = found if (virtual := self.unasked(spec)) is None else found & ~virtual
            found = self._masks[key] = found & self.declared(spec) if spec.features else found
        return found

    def soft_taints(self, spec: PodSpec, but: Taint | None = None) -> NDArray[np.int64] | None:
        """Return how many ``PreferNoSchedule`` taints of each node, *but* that one, the pod does not tolerate.

        The value of *but* is a controller; the taint of any of its installations is that one. ``None`` if all are 0.
        """
        if not self._soft_taints:
            return None
        tolerations = spec.tolerations
        found = self._counts.get(("soft", (tolerations, but)))
        if found is None:
            counts = [
                sum(
                    not _is(taint, but) and untolerated((taint,), tolerations, SOFT_EFFECTS) is not None
                    for taint in node.taints
                )
                for node in self._nodes
            ]
            found = self._counts["soft", (tolerations, but)] = np.array(counts, dtype=np.int64)
        return found

    def preferences(self, spec: PodSpec) -> NDArray[np.int64] | None:
        """Return the summed weights of the pod's preferred node affinity on each node; ``None`` if it has none."""
        preferred = spec.preferred_nodes
        if not preferred:
            return None
        found = self._counts.get(("preferred", preferred))
        if found is None:
            weights = [
                sum(each.weight for each in preferred if each.preference.matches(node.name, node.labels))
                for node in self._nodes
            ]
            found = self._counts["preferred", preferred] = np.array(weights, dtype=np.int64)
        return found


def _is(taint: Taint, but: Taint | None) -> bool:
    if but is None or (taint.key, taint.effect) != (but.key, but.effect):
        return False
    return (taint.value or "").partition(".")[0] == but.value

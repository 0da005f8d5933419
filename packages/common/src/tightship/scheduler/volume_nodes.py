"""Which nodes reach a volume: by its node affinity, zone labels and driver, and where a new one has room."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property

import numpy as np

from tightship.cluster import Snapshot
from tightship.objects import Node, PersistentVolume
from tightship.objects.in_tree import BETA_REGION, BETA_ZONE, REGION, ZONE
from tightship.objects.selectors import Labels, LabelSelector, NodeSelector
from tightship.scheduler.topology import NodeMask

_GA = {BETA_ZONE: ZONE, BETA_REGION: REGION}
_TOPOLOGY = (ZONE, REGION, BETA_ZONE, BETA_REGION)


class VolumeNodes:
    """Masks over *nodes*, each computed once."""

    def __init__(self, snapshot: Snapshot, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._csi_nodes = snapshot.csi_nodes
        self._csi_drivers = snapshot.csi_drivers
        self._capacities = snapshot.storage_capacities
        self._masks: dict[Hashable, NodeMask] = {}

    def named(self, name: str) -> NodeMask:
        """Return the node *name*."""
        return self._mask(("node", name), lambda node: node.name == name)

    def selected(self, selector: NodeSelector) -> NodeMask:
        """Return the nodes that *selector* matches."""
        return self._mask(selector, lambda node: selector.matches(node.name, node.labels))

    def affinity(self, volume: PersistentVolume) -> NodeMask | None:
        """Return the nodes that *volume* allows; where a plugin is migrated its driver's topology counts."""
        own, other = volume.node_affinity, volume.translated
        if other == own:
            return None if own is None else self.selected(own)
        nodes = self._csi_nodes

        def allows(node: Node) -> bool:
            csi = nodes.get(node.name)
            selector = other if csi is not None and volume.plugin in csi.migrated else own
            return selector is None or selector.matches(node.name, node.labels)

        return self._mask((volume.plugin, own, other), allows)

    def runs(self, driver: str, plugin: str = "") -> NodeMask:
        """Return the nodes with *driver*; those where *plugin* was never migrated to it don't need it."""
        nodes = self._csi_nodes

        def has(node: Node) -> bool:
            csi = nodes.get(node.name)
            return csi is not None and (driver in csi.limits or bool(plugin and plugin not in csi.migrated))

        return self._mask(("driver", driver, plugin), has)

    def zones(self, labels: Labels) -> NodeMask | None:
        """Return the nodes in the zones that the *labels* of a volume name (``VolumeZone``); ``None``: all."""
        zones = {key: text for key, text in labels.items() if key in _TOPOLOGY}
        if not zones:
            return None
        return self._mask(("zones", tuple(sorted(zones.items()))), lambda node: _in_zones(zones, node.labels))

    def roomy(self, storage_class: str, size: int) -> NodeMask:
        """Return the nodes that can get a volume of *size* bytes (``hasEnoughCapacity``)."""
        mask: NodeMask = np.zeros(len(self._nodes), dtype=np.bool_)
        for each in self._capacities.values():
            topology, largest = each.topology, each.largest
            if each.storage_class == storage_class and topology is not None and (largest or -1) >= size:
                mask = mask | self._topology(topology)
        return mask

    def _topology(self, topology: LabelSelector) -> NodeMask:
        return self._mask(("topology", topology), lambda node: topology.matches(node.labels))

    @cached_property
    def drivers(self) -> frozenset[str]:
        """The CSI drivers of the cluster."""
        listed = (name for node in self._csi_nodes.values() for name in node.limits)
        return frozenset((*listed, *self._csi_drivers))

    def _mask(self, key: Hashable, holds: Callable[[Node], bool]) -> NodeMask:
        found = self._masks.get(key)
        if found is None:
            found = self._masks[key] = np.array([holds(node) for node in self._nodes], dtype=np.bool_)
        return found


def _in_zones(zones: Labels, labels: Labels) -> bool:
    """The ``VolumeZone`` filter: the node's zone is one of the volume's (several are joined by ``__``)."""
    if not any(key in labels for key in _TOPOLOGY):
        return True  # a cluster of one zone
    for key, text in zones.items():
        allowed = {each.strip() for each in text.split("__")}
        if "" not in allowed and labels.get(key, labels.get(_GA.get(key, key))) not in allowed:
            return False
    return True

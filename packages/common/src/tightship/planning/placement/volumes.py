"""Where a pod's volumes let it run: volume node affinity, zone labels, allowed topologies and attach limits.

A volume that Tightship can't judge blocks its pod with a reason of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.core.objects import Node, PersistentVolume, PodTemplate, Volume
from tightship.core.selectors import NodeSelector, NodeSelectorTerm, Requirement
from tightship.planning.cluster import Snapshot
from tightship.planning.placement.topology import NodeMask

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_NO_LIMIT = 2**31


class VolumeUnknownError(Exception):
    """Tightship can't judge a volume; the message says which and why."""


class Attachments(Struct, frozen=True):
    """The attachable volumes of one template's pods: (driver, handle) pairs."""

    handles: tuple[tuple[str, str], ...] = ()


NO_ATTACHMENTS = Attachments()


class VolumeIndex:
    """The volumes of a space's pods: the nodes that reach them, and where they are attached."""

    def __init__(self, snapshot: Snapshot, nodes: list[Node]) -> None:
        self._snapshot = snapshot
        self._nodes = nodes
        self._masks: dict[NodeSelector, NodeMask] = {}
        self._attached: dict[str, dict[int, dict[str, int]]] = {}
        self._held: dict[str, NDArray[np.int64]] = {}
        """How many volumes each node has attached, by driver."""
        self._limits: dict[str, NDArray[np.int64]] = {}
        self.torn = False
        """Whether something was detached that was not attached, which no undoing mends."""

    def follow(self, snapshot: Snapshot) -> None:
        """Hold on to *snapshot*, whose volumes and nodes are those of the one before."""
        self._snapshot = snapshot

    def reach(self, template: PodTemplate) -> tuple[NodeMask | None, Attachments]:
        """Return the nodes that reach the volumes of pods of *template* (``None``: all), and what such a pod attaches.

        Raises :class:`VolumeUnknownError`.
        """
        mask: NodeMask | None = None
        handles: list[tuple[str, str]] = []
        for volume in template.spec.volumes:
            for selector in self._constraints(volume, template, handles):
                allowed = self._mask(selector)
                mask = allowed if mask is None else mask & allowed
        return mask, Attachments(tuple(dict.fromkeys(handles)))

    def attachments(self, template: PodTemplate) -> Attachments:
        """Return what running pods of *template* have attached, without volumes that Tightship can't judge."""
        handles: list[tuple[str, str]] = []
        for volume in template.spec.volumes:
            with suppress(VolumeUnknownError):
                self._constraints(volume, template, handles)
        return Attachments(tuple(dict.fromkeys(handles)))

    def restrict(self, mask: NodeMask, attachments: Attachments) -> None:
        """Clear *mask* on nodes without a driver, or beyond its attach limit."""
        wanted: dict[str, list[str]] = {}
        for driver, handle in attachments.handles:
            wanted.setdefault(driver, []).append(handle)
        for driver, handles in wanted.items():
            limits, attached = self._limits_of(driver), self._attached.get(driver, {})
            held = self._held.get(driver)
            full = mask & ((len(handles) if held is None else held + len(handles)) > limits)
            # Some of the volumes may be there already.
            for index in [] if held is None else np.flatnonzero(full & (held > 0)).tolist():
                here = attached[index]
                new = sum(1 for handle in handles if handle not in here)
                full[index] = new > 0 and len(here) + new > limits[index]
            mask &= ~full

    def add(self, node: int, attachments: Attachments, step: int) -> None:
        """Attach (*step* 1) or detach (-1) on *node*."""
        for driver, handle in attachments.handles:
            here = self._attached.setdefault(driver, {}).setdefault(node, {})
            count = here.get(handle, 0) + step
            self.torn |= count < 0
            if count > 0:
                here[handle] = count
            else:
                here.pop(handle, None)
            if driver not in self._held:
                self._held[driver] = np.zeros(len(self._nodes), dtype=np.int64)
            self._held[driver][node] = len(here)

    def _constraints(self, volume: Volume, template: PodTemplate, handles: list[tuple[str, str]]) -> list[NodeSelector]:
        if volume.attached_directly:
            raise VolumeUnknownError(f"volume {volume.name} names a {volume.attached_directly} disk without a claim")
        if volume.persistent_volume_claim is not None:
            return self._claim(volume.persistent_volume_claim.claim_name, template, handles)
        if volume.ephemeral is not None:
            # The new pod gets a new claim, and only the storage class says where.
            claim_template = volume.ephemeral.volume_claim_template
            name = claim_template.spec.storage_class_name if claim_template else None
            return self._provisioned(name or "", f"ephemeral volume {volume.name}")
        return []

    def _claim(self, name: str, template: PodTemplate, handles: list[tuple[str, str]]) -> list[NodeSelector]:
        self._need("PersistentVolumeClaim", f"claim {name}")
        claim = self._snapshot.claims.get(f"{template.namespace}/{name}")
        if claim is None:
            raise VolumeUnknownError(f"claim {template.namespace}/{name} does not exist")
        if not claim.volume:
            return self._provisioned(claim.storage_class, f"unbound claim {claim.key}")
        self._need("PersistentVolume", f"claim {claim.key}")
        volume = self._snapshot.volumes.get(claim.volume)
        if volume is None:
            raise VolumeUnknownError(f"volume {claim.volume} of claim {claim.key} does not exist")
        if not volume.known:
            raise VolumeUnknownError(
                f"volume {volume.name} of claim {claim.key} has an in-tree type that Tightship can't judge"
            )
        if volume.driver:
            self._need("CSINode", f"claim {claim.key}")
            handles.append((volume.driver, volume.handle or volume.name))
        return _selectors(volume)

    def _provisioned(self, class_name: str, what: str) -> list[NodeSelector]:
        self._need("StorageClass", what)
        storage_class = self._snapshot.storage_classes.get(class_name)
        if storage_class is None or not storage_class.waits_for_consumer:
            raise VolumeUnknownError(f"{what} of storage class {class_name or '(default)'} may bind anywhere")
        if storage_class.provisioner == _NO_PROVISIONER:
            raise VolumeUnknownError(f"{what} needs a free local volume of storage class {class_name}")
        return [storage_class.topologies] if storage_class.topologies is not None else []

    def _need(self, kind: str, what: str) -> None:
        why = self._snapshot.missing.get(kind)
        if why:
            raise VolumeUnknownError(f"{what}: {kind} objects could not be read ({why})")

    def _mask(self, selector: NodeSelector) -> NodeMask:
        found = self._masks.get(selector)
        if found is None:
            found = np.array([selector.matches(node.name, node.labels) for node in self._nodes], dtype=np.bool_)
            self._masks[selector] = found
        return found

    def _limits_of(self, driver: str) -> NDArray[np.int64]:
        found = self._limits.get(driver)
        if found is None:
            limits = [_limit(self._snapshot, node, driver) for node in self._nodes]
            found = np.array([_NO_LIMIT if each is None else min(each, _NO_LIMIT) for each in limits], dtype=np.int64)
            self._limits[driver] = found
        return found


def _limit(snapshot: Snapshot, node: Node, driver: str) -> int | None:
    csi = snapshot.csi_nodes.get(node.name)
    # kube-scheduler accepts a node without the driver, but the pod could never start there.
    if csi is None or driver not in csi.limits:
        return 0
    return csi.limits[driver]


def _selectors(volume: PersistentVolume) -> list[NodeSelector]:
    found = [volume.node_affinity] if volume.node_affinity is not None else []
    if volume.labels:
        found.append(_zone_selector(volume.labels))
    return found


def _zone_selector(labels: Mapping[str, str]) -> NodeSelector:
    """The ``VolumeZone`` filter: the node's zone is one of the volume's (several are joined by ``__``)."""
    expressions = tuple(
        Requirement(key, "In", tuple(sorted(value.split("__")))) for key, value in sorted(labels.items())
    )
    return NodeSelector((NodeSelectorTerm(match_expressions=expressions),))

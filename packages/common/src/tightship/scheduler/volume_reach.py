"""Where a pod's volumes let it run, and what they attach: kube-scheduler's ``VolumeBinding`` and ``VolumeZone``.

A node that lacks a volume's CSI driver is left out as well: kube-scheduler accepts such a node unless the driver says
otherwise (``preventPodSchedulingIfMissing``), but the pod could never start there.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.cluster import Snapshot
from tightship.objects import Node, PersistentVolume, PersistentVolumeClaim, PodTemplate, StorageClass, Volume
from tightship.objects.in_tree import (
    BETA_REGION,
    BETA_ZONE,
    MIGRATED,
    PLUGINS,
    REGION,
    ZONE,
    handle,
    untranslatable,
)
from tightship.objects.quantity import value
from tightship.objects.storage import STORAGE_CAPACITY
from tightship.objects.volume import ClaimSpec
from tightship.scheduler.topology import NodeMask
from tightship.scheduler.volume_nodes import VolumeNodes

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_ONCE_POD = "ReadWriteOncePod"
_MANY = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_GA = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class VolumeUnknownError(Exception):
    """Tightship can't judge a volume; the message says which and why."""


class Attachments(Struct, frozen=True):
    """What one pod of a template attaches to its node.

    *handles* are (driver, handle) of volumes that exist or are made for a claim, *own* how many volumes are made for
    each pod, by driver. *disks* are disks without a claim, and whether the pod only reads them. *shared* are claims
    (``namespace/name``) that only pods on one node can use; if the second part is true, only one pod can.
    """

    handles: tuple[tuple[str, str], ...] = ()
    own: tuple[tuple[str, int], ...] = ()
    disks: tuple[tuple[tuple[str, ...], bool], ...] = ()
    shared: tuple[tuple[str, bool], ...] = ()


NO_ATTACHMENTS = Attachments()


class _Found:
    """What is known of a pod's volumes so far."""

    def __init__(self) -> None:
        self.mask: NodeMask | None = None
        self.handles: dict[tuple[str, str], None] = {}
        self.own: dict[str, int] = {}
        self.disks: list[tuple[tuple[str, ...], bool]] = []
        self.shared: dict[str, bool] = {}

    def only(self, mask: NodeMask | None) -> None:
        """Leave out nodes that are not in *mask*."""
        if mask is not None:
            self.mask = mask if self.mask is None else self.mask & mask

    @property
    def attachments(self) -> Attachments:
        if not (self.handles or self.own or self.disks or self.shared):
            return NO_ATTACHMENTS
        own, shared = tuple(self.own.items()), tuple(self.shared.items())
        return Attachments(tuple(self.handles), own, tuple(self.disks), shared)


class VolumeReach:
    """The volumes of a space's pods: the nodes that reach them, and what they attach."""

    def __init__(self, snapshot: Snapshot, nodes: list[Node]) -> None:
        self._snapshot = snapshot
        self._count = len(nodes)
        self.nodes = VolumeNodes(snapshot, nodes)
        self.free: dict[str, NDArray[np.int64]] = {}
        """How many free volumes each node reaches, by what is asked of them."""

    def of(self, template: PodTemplate) -> tuple[NodeMask | None, Attachments]:
        """Return the nodes that reach the volumes of pods of *template* (``None``: all), and what such a pod attaches.

        Raises :class:`VolumeUnknownError`.
        """
        found = _Found()
        for volume in template.spec.volumes:
            self._take(volume, template, found)
        return found.mask, found.attachments

    def attached(self, template: PodTemplate) -> Attachments:
        """Return what running pods of *template* have attached, as far as it is known."""
        found = _Found()
        for volume in template.spec.volumes:
            try:
                self._take(volume, template, found)
            except VolumeUnknownError:
                continue
        return found.attachments

    def _take(self, volume: Volume, template: PodTemplate, found: _Found) -> None:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
            self._need("PersistentVolumeClaim", f"claim {name}")
            claim = self._snapshot.claims.get(f"{template.namespace}/{name}")
            if claim is None:
                raise VolumeUnknownError(f"claim {template.namespace}/{name} does not exist")
            self._claim(claim, found)
        elif volume.ephemeral is not None:
            # Each pod has a claim of its own, which is made and goes with it.
            claim_template = volume.ephemeral.volume_claim_template
            self._made(_claim_of(claim_template.spec if claim_template else ClaimSpec()), volume.name, found)
        elif volume.csi is not None:
            self._runs(volume.csi.driver, "", found)
        else:
            self._in_tree(volume, found)

    # Volumes of claims

    def _claim(self, claim: PersistentVolumeClaim, found: _Found) -> None:
        what = f"claim {claim.key}"
        volume = None
        if claim.volume:
            self._need("PersistentVolume", what)
            volume = self._snapshot.volumes.get(claim.volume)
        if volume is None:
            # A claim whose volume is not there (yet) counts as one of its class, as in getCSIDriverInfo of csi.go.
            self._unbound(claim, what, found)
        else:
            self._bound(claim, volume, what, found)
        if claim.deleting:
            raise VolumeUnknownError(f"{what} is being deleted, and no new pod can use it")
        if claim.lost or (claim.volume and volume is None):
            raise VolumeUnknownError(f"volume {claim.volume} of {what} does not exist")
        if volume is not None and not claim.bound:
            raise VolumeUnknownError(f"{what} is not bound to volume {volume.name} yet")

    def _bound(self, claim: PersistentVolumeClaim, volume: PersistentVolume, what: str, found: _Found) -> None:
        if volume.counted:
            self._need("CSINode", what)
            found.handles[volume.driver, volume.handle or volume.name] = None
        if volume.driver:
            self._runs(volume.driver, volume.plugin, found)
        self._share(claim, volume.access_modes, found, volume.driver, attaches=volume.attaches)
        if volume.problem:
            raise VolumeUnknownError(f"volume {volume.name} of {what} is {volume.problem}")
        found.only(self.nodes.affinity(volume))
        found.only(self.nodes.zones(volume.labels))

    def _unbound(self, claim: PersistentVolumeClaim, what: str, found: _Found) -> None:
        """A claim that kube-scheduler binds to a free volume, or for which a volume is made on the node it chooses."""
        storage_class = self._class(claim, what)
        driver, counted = self._provisioned_by(storage_class, what)
        if driver and counted:
            found.handles[driver, what] = None
        self._share(claim, claim.access_modes, found, driver, attaches=bool(driver))
        if claim.selected_node:
            found.only(self.nodes.named(claim.selected_node))
            found.only(self._provisions(storage_class, claim, what))
            return
        for volume in self._volumes_of.get(storage_class.name, ()):
            own = (claim.namespace, claim.name)
            if volume.claim in ((*own, ""), (*own, claim.uid)):
                found.only(self.nodes.affinity(volume))
                return
        self._new(claim, storage_class, driver, what, found)

    def _made(self, claim: PersistentVolumeClaim, name: str, found: _Found) -> None:
        """The claim of a generic ephemeral volume *name*: the new pod gets a new one."""
        what = f"ephemeral volume {name}"
        storage_class = self._class(claim, what)
        driver, counted = self._provisioned_by(storage_class, what)
        if driver and counted:
            found.own[driver] = found.own.get(driver, 0) + 1
        self._new(claim, storage_class, driver, what, found)

    def _new(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, driver: str, what: str, found: _Found
    ) -> None:
        free = self._free(claim, storage_class.name)
        makes = self._provisions(storage_class, claim, what)
        if storage_class.provisioner in ("", _NO_PROVISIONER):
            # Nobody makes such a volume, and each pod takes a free one.
            wanted = (storage_class.name, claim.size, claim.access_modes, claim.block, claim.selector)
            kind = f"free volumes {wanted}"
            self.free[kind] = np.sum(free, axis=0) if free else np.zeros(self._count, dtype=np.int64)
            found.own[kind] = found.own.get(kind, 0) + 1
            found.only(self.free[kind] > 0)
            return
        if driver:
            makes = _both(makes, self.nodes.runs(driver))
        if makes is not None:
            found.only(np.logical_or.reduce([makes, *free]))

    def _class(self, claim: PersistentVolumeClaim, what: str) -> StorageClass:
        self._need("StorageClass", what)
        found = self._snapshot.storage_classes.get(claim.storage_class)
        if claim.storage_class == _DEFAULT:
            found = self._default_class
        if found is None:
            named = {"": "it has no storage class", _DEFAULT: "there is no default storage class"}
            why = named.get(claim.storage_class, f"storage class {claim.storage_class} does not exist")
            raise VolumeUnknownError(f"{what} is unbound, and {why}")
        if not found.waits_for_consumer:
            raise VolumeUnknownError(f"{what} of storage class {found.name} may bind anywhere")
        return found

    def _provisioned_by(self, storage_class: StorageClass, what: str) -> tuple[str, bool]:
        """Return the CSI driver that makes volumes of a class, empty if none does, and whether they are counted."""
        migrated = PLUGINS.get(storage_class.provisioner)
        driver = migrated.driver if migrated else storage_class.provisioner
        if driver in ("", _NO_PROVISIONER):
            return "", False
        self._need("CSINode", what)
        if driver not in self.nodes.drivers:
            return "", False
        return driver, migrated is None or migrated.counted

    def _provisions(self, storage_class: StorageClass, claim: PersistentVolumeClaim, what: str) -> NodeMask | None:
        """Return where volumes for *claim* can be made (``checkVolumeProvisions``); ``None`` stands for everywhere."""
        topologies = storage_class.topologies
        mask = None if topologies is None else self.nodes.selected(topologies)
        driver = self._snapshot.csi_drivers.get(storage_class.provisioner)
        if driver is None or not driver.tells_capacity or claim.size is None:
            return mask
        self._need(STORAGE_CAPACITY, what)
        return _both(mask, self.nodes.roomy(storage_class.name, claim.size))

    def _free(self, claim: PersistentVolumeClaim, storage_class: str) -> list[NodeMask]:
        """Return for each free volume that suits *claim* the nodes that reach it (``FindMatchingVolume``)."""
        everywhere = np.ones(self._count, dtype=np.bool_)
        found: list[NodeMask] = []
        for volume in self._volumes_of.get(storage_class, ()):
            if (
                volume.claim is None
                and volume.size >= (claim.size or 0)
                and volume.block == claim.block
                and set(claim.access_modes) <= set(volume.access_modes)
                and (claim.selector is None or claim.selector.matches(volume.labels))
            ):
                reach = self.nodes.affinity(volume)
                found.append(everywhere if reach is None else reach)
        return found

    def _share(
        self, claim: PersistentVolumeClaim, modes: tuple[str, ...], found: _Found, driver: str, *, attaches: bool
    ) -> None:
        """Note a *claim* that pods on two nodes can't share: the attach-detach controller attaches it once only.

        Volumes with no mode for many nodes are such (``IsMultiAttachAllowed``), if they are attached at all.
        """
        if _ONCE_POD in claim.access_modes:
            found.shared[claim.key] = True
        known = self._snapshot.csi_drivers.get(driver)
        attached = attaches and (known is None or known.attaches)
        if attached and modes and not _MANY.intersection(modes):
            found.shared.setdefault(claim.key, False)

    # Disks without a claim

    def _in_tree(self, volume: Volume, found: _Found) -> None:
        for field in (*MIGRATED, "iscsi", "rbd"):
            source = getattr(volume, field)
            if source is None:
                continue
            reads = bool(source.read_only)
            match field:  # VolumeRestrictions
                case "aws_elastic_block_store":
                    found.disks.append((("ebs", source.volume_id), False))
                case "gce_persistent_disk":
                    found.disks.append((("gce", source.pd_name), reads))
                case "iscsi":
                    found.disks.append((("iscsi", source.iqn), reads))
                case "rbd":
                    pool = source.pool or "rbd"
                    found.disks += [(("rbd", each, pool, source.image), reads) for each in source.monitors]
            migrated = MIGRATED.get(field)
            if migrated is None:
                continue
            if migrated.counted:
                self._need("CSINode", f"volume {volume.name}")
                found.handles[migrated.driver, handle(field, source)] = None
            self._runs(migrated.driver, migrated.plugin, found)
            if problem := untranslatable(field, source):
                raise VolumeUnknownError(f"volume {volume.name} is {problem}")

    def _runs(self, driver: str, plugin: str, found: _Found) -> None:
        if "CSINode" not in self._snapshot.missing:
            found.only(self.nodes.runs(driver, plugin))

    def _need(self, kind: str, what: str) -> None:
        why = self._snapshot.missing.get(kind)
        if why:
            raise VolumeUnknownError(f"{what}: {kind} objects could not be read ({why})")

    @cached_property
    def _volumes_of(self) -> dict[str, list[PersistentVolume]]:
        """Volumes that a claim can still take, by storage class."""
        found: dict[str, list[PersistentVolume]] = {}
        for volume in self._snapshot.volumes.values():
            if volume.available:
                found.setdefault(volume.storage_class, []).append(volume)
        return found

    @cached_property
    def _default_class(self) -> StorageClass | None:
        """The class of claims that name none (``GetDefaultClass`` in pkg/volume/util/storageclass.go)."""
        classes = [each for each in self._snapshot.storage_classes.values() if each.default]
        return min(classes, key=lambda each: (-each.created, each.name), default=None)


_DEFAULT = " default"
"""The class of an ephemeral volume that names none; no class has such a name."""


def _claim_of(spec: ClaimSpec) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        namespace="",
        name="",
        volume="",
        storage_class=_DEFAULT if spec.storage_class_name is None else spec.storage_class_name,
        access_modes=spec.access_modes or (),
        size=value(spec.size) if spec.size else None,
        block=spec.volume_mode == "Block",
        selector=spec.selector,
    )


def _both(left: NodeMask | None, right: NodeMask) -> NodeMask:
    return right if left is None else left & right

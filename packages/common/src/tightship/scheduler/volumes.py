"""What pods' volumes take on nodes: attach limits, disks and claims that few may use, counted as pods come and go.

The rules are kube-scheduler's ``NodeVolumeLimits`` and ``VolumeRestrictions``, and one of the attach-detach controller:
a volume for one node (ReadWriteOnce) is not attached to a second one (Multi-Attach).

Where a pod's volumes let it run, and what they attach: kube-scheduler's ``VolumeBinding`` and ``VolumeZone``.

A node that lacks a volume's CSI driver is left out as well: kube-scheduler accepts such a node unless the driver says
otherwise (``preventPodSchedulingIfMissing``), but the pod could never start there.

Which nodes reach a volume: by its node affinity, zone labels and driver, and where a new one has room.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.cluster import Snapshot
from tightship.objects import Node, PersistentVolume, PersistentVolumeClaim, PodTemplate, StorageClass, Volume
from tightship.objects.quantity import value
from tightship.objects.selectors import Labels, LabelSelector, NodeSelector
from tightship.objects.storage import STORAGE_CAPACITY
from tightship.objects.volume import (
    BETA_REGION,
    BETA_ZONE,
    MIGRATED,
    PLUGINS,
    REGION,
    ZONE,
    ClaimSpec,
    handle,
    untranslatable,
)
from tightship.scheduler.topology import NodeMask

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


_NO_LIMIT = 2**31


class VolumeIndex:
    """The volumes of a space's pods: the nodes that reach them, and where they are attached."""

    def __init__(self, snapshot: Snapshot, nodes: list[Node]) -> None:
        self._snapshot = snapshot
        self._nodes = nodes
        self._known = VolumeReach(snapshot, nodes)
        self._attached: dict[str, dict[int, dict[str, int]]] = {}
        """How many pods use each volume, by driver and node."""
        self._own: dict[str, NDArray[np.int64]] = {}
        """How many volumes each node has that were made for its pods, by driver."""
        self._left: dict[str, dict[int, set[str]]] = {}
        """The volumes of VolumeAttachments, by driver and node."""
        self._held: dict[str, NDArray[np.int64]] = {}
        """How many volumes each node has attached, by driver."""
        self._limits: dict[str, NDArray[np.int64]] = {}
        self._disks: dict[tuple[str, ...], dict[int, list[int]]] = {}
        """How many pods write and how many only read each disk, by node."""
        self._users: dict[str, dict[int, int]] = {}
        """How many pods of each node use a claim that can't be shared between nodes."""
        self.scheduler_chooses = False
        """Whether nothing but kube-scheduler chooses the places of pods: it does not know what can't be shared."""
        self._take_attachments()

    def reach(self, template: PodTemplate) -> tuple[NodeMask | None, Attachments]:
        """See :meth:`VolumeReach.of`."""
        return self._known.of(template)

    def attachments(self, template: PodTemplate) -> Attachments:
        """See :meth:`VolumeReach.attached`."""
        return self._known.attached(template)

    def restrict(self, mask: NodeMask, attachments: Attachments) -> None:
        """Clear *mask* on nodes that can't take one more pod with *attachments*."""
        wanted: dict[str, list[str]] = {driver: [] for driver, _ in attachments.own}
        for driver, volume in attachments.handles:
            wanted.setdefault(driver, []).append(volume)
        own = dict(attachments.own)
        for driver, handles in wanted.items():
            limits, attached, more = self._limits_of(driver), self._attached.get(driver, {}), own.get(driver, 0)
            held = self._held_of(driver)
            full = mask & (held + (len(handles) + more) > limits)
            # Pods may use some of the volumes there already.
            for index in np.flatnonzero(full & (held > 0)).tolist() if handles else ():
                here = attached.get(index, {})
                new = more + sum(1 for handle in handles if handle not in here)
                full[index] = new > 0 and held[index] + new > limits[index]
            mask &= ~full
        for disk, reads in attachments.disks:
            for node, (writers, readers) in self._disks.get(disk, {}).items():
                if writers or (readers and not reads):
                    mask[node] = False
        for claim, alone in attachments.shared:
            users = self.users(claim)
            if users:
                beside = mask.copy()
                mask[users] = False
                apart = bool(mask.any())
                mask[:] = beside & ~mask
                if alone or len(users) > 1 or (apart and self.scheduler_chooses):
                    mask[:] = False

    def users(self, claim: str) -> list[int]:
        """Return the nodes with pods that use a *claim* (``namespace/name``) which can't be shared between nodes."""
        return [node for node, count in self._users.get(claim, {}).items() if count > 0]

    def add(self, node: int, attachments: Attachments, step: int, *, shared: bool = True) -> None:
        """Attach (*step* 1) or detach (-1) on *node*. A pod that leaves soon keeps no claim that is *shared*."""
        for driver, volume in attachments.handles:
            here = self._attached.setdefault(driver, {}).setdefault(node, {})
            count = here.get(volume, 0) + step
            if count > 0:
                here[volume] = count
            else:
                here.pop(volume, None)
            self._count(driver, node)
        for driver, number in attachments.own:
            made = self._own.setdefault(driver, np.zeros(len(self._nodes), dtype=np.int64))
            made[node] += step * number
            self._count(driver, node)
        for disk, reads in attachments.disks:
            used = self._disks.setdefault(disk, {}).setdefault(node, [0, 0])
            used[reads] += step
        for claim, _ in attachments.shared if shared else ():
            users = self._users.setdefault(claim, {})
            users[node] = users.get(node, 0) + step

    def _take_attachments(self) -> None:
        """Count the volumes that are attached for no pod, or not yet detached (``getNodeVolumeAttachmentInfo``)."""
        index = {node.name: number for number, node in enumerate(self._nodes)}
        for each in self._snapshot.attachments.values():
            volume = self._snapshot.volumes.get(each.volume)
            if volume is not None and volume.driver and not volume.plugin and each.node in index:
                self._left.setdefault(each.driver, {}).setdefault(index[each.node], set()).add(volume.handle)
        for driver, nodes in self._left.items():
            for node in nodes:
                self._count(driver, node)

    def _count(self, driver: str, node: int) -> None:
        here, left = self._attached.get(driver, {}).get(node, {}), self._left.get(driver, {}).get(node)
        own = self._own.get(driver)
        self._held_of(driver)[node] = (len(left.union(here)) if left else len(here)) + (0 if own is None else own[node])

    def _held_of(self, driver: str) -> NDArray[np.int64]:
        return self._held.setdefault(driver, np.zeros(len(self._nodes), dtype=np.int64))

    def _limits_of(self, driver: str) -> NDArray[np.int64]:
        found = self._known.free.get(driver, self._limits.get(driver))
        if found is None:
            csi = [self._snapshot.csi_nodes.get(node.name) for node in self._nodes]
            limits = [None if each is None else each.limits.get(driver) for each in csi]
            found = np.array([_NO_LIMIT if each is None else min(each, _NO_LIMIT) for each in limits], dtype=np.int64)
            self._limits[driver] = found
        return found

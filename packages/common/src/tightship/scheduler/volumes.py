"""What pods' volumes take on nodes: attach limits, disks and claims that few may use, counted as pods come and go.

The rules are kube-scheduler's ``NodeVolumeLimits`` and ``VolumeRestrictions``, and one of the attach-detach controller:
a volume for one node (ReadWriteOnce) is not attached to a second one (Multi-Attach).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tightship.cluster import Snapshot
from tightship.objects import Node, PodTemplate
from tightship.scheduler.topology import NodeMask
from tightship.scheduler.volume_reach import NO_ATTACHMENTS, Attachments, VolumeReach, VolumeUnknownError

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
        for driver, handle in attachments.handles:
            wanted.setdefault(driver, []).append(handle)
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
        for driver, handle in attachments.handles:
            here = self._attached.setdefault(driver, {}).setdefault(node, {})
            count = here.get(handle, 0) + step
            if count > 0:
                here[handle] = count
            else:
                here.pop(handle, None)
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


__all__ = ["NO_ATTACHMENTS", "Attachments", "VolumeIndex", "VolumeUnknownError"]

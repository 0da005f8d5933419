"""Which node group of the autoscaler a node belongs to, and the minimum size of that group. Pure.

Cluster Autoscaler names groups as the cloud does, and nodes don't carry these names. A node belongs to the one group
that these rules find for it; if they find none, or several, the group is unknown:

* the group's name is the value of a label of the node that names its pool (AKS, Gardener, Hetzner and others), or of
  Oracle's annotation;
* EKS: the Auto Scaling group ``eks-NODEGROUP-UUID`` of the label ``eks.amazonaws.com/nodegroup``;
* eksctl: ``eksctl-CLUSTER-nodegroup-NAME-NodeGroup-ID`` of the labels ``alpha.eksctl.io/cluster-name`` and
  ``alpha.eksctl.io/nodegroup-name``;
* kops: ``INSTANCEGROUP.CLUSTER`` of the label ``kops.k8s.io/instancegroup``;
* GCE and GKE: the managed instance group ``.../NAME-grp`` of the node ``NAME-xxxx`` with four characters;
* Azure: the scale set ``NAME`` of the node ``NAMExxxxxx`` with six characters;
* Gardener: the machine deployment ``NAME`` of the node ``NAME-xxxxx-xxxxx``;
* Cluster API and OpenShift: ``MachineDeployment/NAMESPACE/NAME``, ``MachineSet/...`` or ``MachinePool/...``, of the
  annotations with which both name a node's MachineSet, MachinePool or Machine.

An annotation of the node that names the minimum size counts before all that (:data:`MINIMUM_SIZE`).

A node that tells of its group in the way of other groups, and whose group isn't among them, is in none: Cluster
Autoscaler would not delete it (``NotAutoscaled``, the reason by which it leaves such a node out in its eligibility).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tightship.cluster import Snapshot
from tightship.cluster.pools import KNOWN_POOL_LABELS, ORACLE_POOL, pool_of, shown
from tightship.objects import Node
from tightship.objects.autoscaler_status import MACHINE_MINIMUMS, AutoscalerStatus, NodeGroup, minimum_size
from tightship.objects.quoting import quoted
from tightship.objects.times import rfc3339

MINIMUM_SIZE = ("tightship.dev/node-group-min-size", *MACHINE_MINIMUMS)
"""Annotations of nodes that give the minimum size of their pool; the first that a node carries counts."""

_LABELS = (*KNOWN_POOL_LABELS, "doks.digitalocean.com/node-pool-id")

_EKS = re.compile(r"eks-(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EKSCTL = re.compile(r"eksctl-(.+)-nodegroup-(.+)-NodeGroup-\w+")
_MACHINES = re.compile(r"(MachineDeployment|MachineSet|MachinePool)/[^/]+/([^/]+)")
_RANDOM = re.compile(r"[0-9a-z]+")


STALE_AFTER = 86400
"""Seconds after the hour of the last update from which a status counts no more. Cluster Autoscaler writes one every few
seconds, and ends itself after 15 minutes without success (``--max-failing-time``): one so old was left behind. Until
then its sizes keep more nodes than they should at worst."""


def with_current_statuses(snapshot: Snapshot, now: float) -> Snapshot:
    """Return *snapshot* without the groups of statuses that nobody updates any more at *now* (seconds since 1970).

    The snapshot stays the same object if nothing changes.
    """
    stale = {
        key: msgspec.structs.replace(
            each,
            groups=(),
            problem=f"was last updated in the hour of {rfc3339(each.updated)}, so nothing in it counts any more: see "
            "whether Cluster Autoscaler runs, or delete the ConfigMap",
        )
        for key, each in snapshot.autoscaler_statuses.items()
        if each.updated and each.groups and now - each.updated > STALE_AFTER
    }
    if not stale:
        return snapshot
    return msgspec.structs.replace(snapshot, autoscaler_statuses={**snapshot.autoscaler_statuses, **stale})


class NodeGroups:
    """The groups in *statuses* (by ``namespace/name``), by all that nodes tell of their groups."""

    def __init__(
        self, statuses: Mapping[str, AutoscalerStatus], pool_labels: Iterable[str] = KNOWN_POOL_LABELS
    ) -> None:
        self._labels = (*pool_labels, *_LABELS)
        self._pool_labels = tuple(pool_labels)
        self._by_clue: dict[str, dict[str, NodeGroup]] = {}
        for status in statuses.values():
            for group in status.groups:
                for clue in _clues(group.name):
                    self._by_clue.setdefault(clue, {})[group.name] = group
        self._kinds = {clue.partition(":")[0] for clue in self._by_clue} - {"name"}

    def of(self, node: Node) -> NodeGroup | None:
        """Return the group of *node*, ``None`` if it is unknown."""
        key = next((each for each in MINIMUM_SIZE if each in node.annotations), None)
        if key is not None:
            return _annotated(node, key, pool_of(node, self._pool_labels))
        if not self._by_clue:
            return None
        found: dict[str, NodeGroup] = {}
        for clue in self._clues_of(node):
            found |= self._by_clue.get(clue, {})
        return next(iter(found.values())) if len(found) == 1 else None

    def left_out(self, node: Node) -> str:
        """Return the name that the group of *node* would have, if other groups are named that way and none is so.

        Empty if the node is in a group, or tells nothing by which to know that it isn't.
        """
        if not self._kinds or any(each in node.annotations for each in MINIMUM_SIZE):
            return ""
        clues = [*self._clues_of(node)]
        if any(clue in self._by_clue for clue in clues):
            return ""
        return next((name for kind, _, name in (clue.partition(":") for clue in clues) if kind in self._kinds), "")

    def _clues_of(self, node: Node) -> Iterator[str]:
        """Yield the clues that *node* gives, in the form of :func:`_clues`."""
        labels, notes = node.labels, node.annotations
        yield from {f"name:{value}" for each in self._labels if (value := labels.get(each))}
        if name := labels.get("eks.amazonaws.com/nodegroup"):
            yield f"eks:{name}"
        if name := labels.get("alpha.eksctl.io/nodegroup-name"):
            yield f"eksctl:{labels.get('alpha.eksctl.io/cluster-name', '')}/{name}"
        if name := labels.get("kops.k8s.io/instancegroup"):
            yield f"kops:{name}"
        if group := _before(node.name, 4):
            yield f"gce:{group}"
        scale_set = node.name[:-6]
        if scale_set.endswith("vmss") and _RANDOM.fullmatch(node.name[-6:]):
            yield f"vmss:{scale_set}"
        if "worker.gardener.cloud/pool" in labels and (group := _before(node.name, 5, 5)):
            yield f"name:{group}"
        if pool := notes.get(ORACLE_POOL):
            yield f"name:{pool}"
        if notes.get("cluster.x-k8s.io/owner-kind") == "MachinePool":
            yield f"MachinePool:{notes.get('cluster.x-k8s.io/owner-name', '')}"
        if notes.get("cluster.x-k8s.io/owner-kind") == "MachineSet":
            owner = notes.get("cluster.x-k8s.io/owner-name", "")
            yield f"MachineSet:{owner}"
            yield f"MachineDeployment:{owner.rpartition('-')[0]}"
        if machine := notes.get("machine.openshift.io/machine", "").rpartition("/")[2]:
            yield f"MachineSet:{machine.rpartition('-')[0]}"


TPU_TOPOLOGY = "cloud.google.com/gke-tpu-topology"


def slice_of(node: Node) -> str:
    """Return the topology of the TPU slice of which *node* is one host of several; empty for any other node.

    GKE scales the pool of such a slice from nothing to its full size and back, never by one node (GKE docs, "About
    TPUs", atomicity). A host that holds all chips of its topology goes alone.
    """
    topology = node.labels.get(TPU_TOPOLOGY, "")
    sides = topology.split("x")
    if not all(each.isdigit() for each in sides):
        return ""
    own = node.labels.get("cloud.google.com/gke-accelerator-count", "")
    chips = node.allocatable.get("google.com/tpu", 0) or (int(own) if own.isdigit() else 0)
    return topology if 0 < chips < math.prod(map(int, sides)) else ""


def _clues(name: str) -> Iterator[str]:
    """Yield by what a node could tell that it is of the group *name*."""
    yield f"name:{name}"
    if name.endswith("vmss"):
        yield f"vmss:{name}"
    if found := _EKS.fullmatch(name):
        yield f"eks:{found[1]}"
    if found := _EKSCTL.fullmatch(name):
        yield f"eksctl:{found[1]}/{found[2]}"
    if found := _MACHINES.fullmatch(name):
        yield f"{found[1]}:{found[2]}"
    if "." in name and "/" not in name:
        yield f"kops:{name.partition('.')[0]}"
    if "/" in name and name.endswith("-grp"):
        yield f"gce:{name.rpartition('/')[2].removesuffix('-grp')}"


def _annotated(node: Node, key: str, pool: str) -> NodeGroup:
    text = node.annotations[key]
    name = f"of pool {shown(pool)}"
    minimum = minimum_size(text)
    if minimum is not None:
        return NodeGroup(name, minimum)
    return NodeGroup(name, 0, f"annotation {key} is {quoted(text)}; allowed is a whole number")


def _before(name: str, *lengths: int) -> str:
    """Return what stands before the last parts of *name*, which are random and that long; empty if they aren't."""
    group, *parts = name.rsplit("-", len(lengths))
    fits = [len(part) for part in parts] == list(lengths) and all(map(_RANDOM.fullmatch, parts))
    return group if fits else ""

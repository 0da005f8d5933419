"""The mutable image of a cluster: lists and watches feed it, and it makes snapshots.

A change marks the one node that it concerns, and the next snapshot sums up only marked nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

from tightship.cluster.snapshot import Budgets, NodeView, Snapshot, Unreadable, Usage
from tightship.objects import (
    AUTOSCALER,
    CAPACITY_BUFFER,
    CONFIG_MAP,
    DEPLOYMENT,
    LEADER_WORKER_SET,
    NODE_POOL,
    POD_GROUP,
    POD_TEMPLATE,
    VERTICAL,
    WORKLOAD_KINDS,
    ApiObject,
    AutoscalerStatus,
    CapacityBuffer,
    CSINode,
    Deployment,
    GroupRule,
    HorizontalPodAutoscaler,
    Namespace,
    Node,
    NodePool,
    ObjectError,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    StorageClass,
    StoredTemplate,
    VerticalPodAutoscaler,
    Workload,
)
from tightship.objects.devices import (
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from tightship.objects.meta import Namespaced
from tightship.objects.resources import NOTHING, Resources
from tightship.objects.storage import (
    CSI_DRIVER,
    STORAGE_CAPACITY,
    VOLUME_ATTACHMENT,
    CSIDriver,
    StorageCapacity,
    VolumeAttachment,
)

_T = TypeVar("_T", bound=ApiObject)

Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-wide objects."""

_MOVES = frozenset({"ReplicaSet", "StatefulSet", "Job", "ReplicationController"})
"""Controllers whose pods are no DaemonSet's and no mirror pods, unless an annotation says so."""


class ClusterState:
    """Objects by kind and key. Not thread-safe: one task feeds this object and takes snapshots."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[Key, ApiObject]] = {}
        self._pods_on: dict[str, dict[Key, Pod]] = {}
        self._unscheduled: dict[Key, Pod] = {}
        self._unreadable: dict[tuple[str, Key], Unreadable] = {}
        self._views: dict[str, NodeView] = {}
        self._dirty: set[str] = set()
        self._ordered: dict[str, Mapping[str, ApiObject]] = {}
        self._missing: dict[str, str] = {}
        self._budgets: tuple[object, Budgets] = (None, Budgets())
        self._last: Snapshot | None = None

    def upsert(self, kind: str, thing: ApiObject) -> None:
        """Add or replace an object. A finished pod is removed instead, since it holds no resources."""
        key = _key(thing)
        if self._unreadable.pop((kind, key), None) is not None:
            self._last = None
        if isinstance(thing, Pod):
            if self._objects.get("Pod", {}).get(key) == thing:
                return
            self._last = None
            self._remove_pod(key)
            if not thing.finished:
                self._add_pod(key, thing)
            return
        known = self._objects.setdefault(kind, {})
        if known.get(key) == thing:
            return  # each look of the HPA controller at the metrics is an event
        self._last = None
        if isinstance(thing, Node):
            self._dirty.add(thing.name)
        self._ordered.pop(kind, None)
        known[key] = thing

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Forget an object. An unknown object is no error."""
        key = (namespace, name)
        self._last = None
        self._unreadable.pop((kind, key), None)
        if kind == "Pod":
            self._remove_pod(key)
        else:
            if kind == "Node":
                self._dirty.add(name)
            self._ordered.pop(kind, None)
            self._objects.get(kind, {}).pop(key, None)

    def mark_unreadable(self, error: ObjectError, node: str = "") -> None:
        """Replace an object by a note that it is unreadable. *node* is where an unreadable pod runs."""
        key = (error.namespace, error.name)
        self.delete(error.kind, *key)
        self._unreadable[error.kind, key] = Unreadable(error.kind, *key, error.problem, node)

    def replace(self, kind: str, things: Iterable[ApiObject], errors: Iterable[tuple[ObjectError, str]] = ()) -> None:
        """Replace everything of *kind* by the result of a list: *things*, and *errors*, each with the node of a pod."""
        self._last = None
        for known, key in [entry for entry in self._unreadable if entry[0] == kind]:
            del self._unreadable[known, key]
        if kind == "Pod":
            self._dirty.update(self._pods_on)
            self._pods_on.clear()
            self._unscheduled.clear()
        else:
            if kind == "Node":
                self._dirty.update(name for _, name in self._objects.get(kind, {}))
            self._ordered.pop(kind, None)
        self._objects[kind] = {}
        self._missing.pop(kind, None)
        for thing in things:
            self.upsert(kind, thing)
        for error, node in errors:
            self.mark_unreadable(error, node)

    def mark_missing(self, kind: str, why: str) -> None:
        """Record that *kind* is unavailable, and why ("forbidden", "not in the file")."""
        self._missing[kind] = why
        self._last = None

    def snapshot(self) -> Snapshot:
        """Return an immutable snapshot, the last one while nothing has changed.

        A snapshot costs as much as the changes since the last one, plus one pass over nodes.
        """
        if self._last is None:
            self._last = self._cut()
        return self._last

    def unscheduled(self) -> tuple[Pod, ...]:
        """Return the pods without a node, in no order."""
        return tuple(self._unscheduled.values())

    def strays(self) -> tuple[Pod, ...]:
        """Return the pods that name a node which does not exist, in order: no snapshot has them."""
        nodes = self._objects.get("Node", {})
        pods = [item for name, on in self._pods_on.items() if ("", name) not in nodes for item in on.items()]
        return tuple(pod for _, pod in sorted(pods, key=lambda item: item[0]))

    def _cut(self) -> Snapshot:
        for name in self._dirty:
            self._refresh(name)
        self._dirty.clear()
        return Snapshot(
            nodes={name: self._views[name] for name in sorted(self._views)},
            unscheduled=tuple(pod for _, pod in sorted(self._unscheduled.items(), key=lambda item: item[0])),
            budgets=self._all_budgets(),
            claims=self._all("PersistentVolumeClaim", PersistentVolumeClaim),
            volumes=self._all("PersistentVolume", PersistentVolume),
            storage_classes=self._all("StorageClass", StorageClass),
            csi_nodes=self._all("CSINode", CSINode),
            csi_drivers=self._all(CSI_DRIVER, CSIDriver),
            storage_capacities=self._all(STORAGE_CAPACITY, StorageCapacity),
            attachments=self._all(VOLUME_ATTACHMENT, VolumeAttachment),
            namespaces=self._all("Namespace", Namespace),
            workloads={kind: self._all(kind, Workload) for kind in sorted(WORKLOAD_KINDS) if self._objects.get(kind)},
            deployments=self._all(DEPLOYMENT, Deployment),
            autoscalers=self._all(AUTOSCALER, HorizontalPodAutoscaler),
            buffers=self._all(CAPACITY_BUFFER, CapacityBuffer),
            templates=self._all(POD_TEMPLATE, StoredTemplate),
            node_pools=self._all(NODE_POOL, NodePool),
            autoscaler_statuses=self._all(CONFIG_MAP, AutoscalerStatus),
            pod_groups=self._all(POD_GROUP, GroupRule),
            leader_worker_sets=self._all(LEADER_WORKER_SET, GroupRule),
            vertical=self._all(VERTICAL, VerticalPodAutoscaler),
            slices=self._all(RESOURCE_SLICE, ResourceSlice),
            device_classes=self._all(DEVICE_CLASS, DeviceClass),
            resource_claims=self._all(RESOURCE_CLAIM, ResourceClaim),
            missing=dict(sorted(self._missing.items())),
            unreadable=tuple(sorted(self._unreadable.values())),
        )

    def _all_budgets(self) -> Budgets:
        current = self._all("PodDisruptionBudget", PodDisruptionBudget)
        if self._budgets[0] is not current:
            self._budgets = (current, Budgets(current.values(), self._budgets[1]))
        return self._budgets[1]

    def _all(self, kind: str, of: type[_T]) -> Mapping[str, _T]:  # noqa: ARG002 - names the type for the checker
        """Return all objects of *kind* by ``namespace/name`` (or name), in order; cached until one changes."""
        kept = self._ordered.get(kind)
        if kept is None:
            known = self._objects.get(kind, {})
            kept = self._ordered[kind] = {
                (f"{key[0]}/{key[1]}" if key[0] else key[1]): known[key] for key in sorted(known)
            }
        return cast("Mapping[str, _T]", kept)

    def _add_pod(self, key: Key, pod: Pod) -> None:
        if pod.node:
            self._pods_on.setdefault(pod.node, {})[key] = pod
            self._dirty.add(pod.node)
        else:
            self._unscheduled[key] = pod
        self._objects.setdefault("Pod", {})[key] = pod

    def _remove_pod(self, key: Key) -> None:
        known = self._objects.get("Pod", {}).pop(key, None)
        if not isinstance(known, Pod):
            return
        if known.node:
            self._dirty.add(known.node)
            on_node = self._pods_on.get(known.node)
            if on_node is not None:
                on_node.pop(key, None)
                if not on_node:
                    del self._pods_on[known.node]
        else:
            self._unscheduled.pop(key, None)

    def _refresh(self, name: str) -> None:
        node = self._objects.get("Node", {}).get(("", name))
        if not isinstance(node, Node):
            self._views.pop(name, None)
            return
        pods = self._pods_on.get(name, {})
        ordered = tuple(pod for _, pod in sorted(pods.items(), key=lambda item: item[0]))
        self._views[name] = NodeView(node, ordered, sum_up(ordered))


def sum_up(pods: Iterable[Pod]) -> Usage:
    """Return the sums over *pods* of one node."""
    requested: dict[str, int] = {}
    daemon: dict[str, int] = {}
    mirror: dict[str, int] = {}
    terminating: list[Pod] = []
    cpu = memory = 0
    for pod in pods:
        add(requested, pod.requests)
        more = pod.template.spec.scoring
        cpu += more[0]
        memory += more[1]
        owner = pod.template.owner
        if pod.annotations or (owner is not None and owner.kind not in _MOVES):
            if pod.daemon:
                add(daemon, pod.requests)
            elif pod.mirror:
                add(mirror, pod.requests)
        if pod.deletion is not None:
            terminating.append(pod)
    return Usage(requested, daemon or NOTHING, mirror or NOTHING, tuple(terminating), (cpu, memory))


def add(total: dict[str, int], more: Resources, sign: int = 1) -> None:
    """Add *more* (times *sign*) to *total* in place."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + sign * amount


def _key(thing: ApiObject) -> Key:
    match thing:
        case Pod() | Namespaced() | Workload():
            return thing.namespace, thing.name
        case _:
            return "", thing.name

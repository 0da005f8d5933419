"""The kinds that Tightship reads, where the API serves them, and which of them are optional."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tightship.objects import (
    AUTOSCALER,
    CAPACITY_BUFFER,
    CONFIG_MAP,
    DEPLOYMENT,
    KINDS,
    LEADER_WORKER_SET,
    NODE_POOL,
    POD_GROUP,
    POD_TEMPLATE,
    VERTICAL,
)
from tightship.objects.autoscaler_status import STATUS_NAME
from tightship.objects.devices import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE
from tightship.objects.storage import CSI_DRIVER, STORAGE_CAPACITY, VOLUME_ATTACHMENT
from tightship.objects.unreadable import UNREADABLE

UNFINISHED_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Finished pods hold no resources. The server leaves them out, and a watch reports a finished pod as deleted."""


class Resource(Struct, frozen=True):
    """A kind as the API serves it: *group* is empty for the core group; *name* is the plural in its path.

    *namespace* is empty for all namespaces. The server applies the selectors. *also* are other versions to try in turn
    if the server does not serve *version*. Most clusters lack an *extension*.
    """

    kind: str
    group: str
    version: str
    name: str
    required: bool = False
    field_selector: str = ""
    label_selector: str = ""
    namespace: str = ""
    also: tuple[str, ...] = ()
    extension: bool = False

    @property
    def path(self) -> str:
        """The path under which the objects are listed."""
        root = f"/apis/{self.group}" if self.group else "/api"
        return f"{root}/{self.version}/{f'namespaces/{self.namespace}/' if self.namespace else ''}{self.name}"

    @property
    def selectors(self) -> dict[str, str]:
        """The selectors as parameters of a list or a watch."""
        given = {"fieldSelector": self.field_selector, "labelSelector": self.label_selector}
        return {name: text for name, text in given.items() if text}

    def within(self, *, namespace: str = "", label_selector: str = "") -> Resource:
        """Return the same kind, of one *namespace* only and with *label_selector*; empty means no restriction."""
        return msgspec.structs.replace(self, namespace=namespace, label_selector=label_selector)

    @property
    def versions(self) -> tuple[Resource, ...]:
        """The same kind in each accepted version, the best first."""
        return (self, *(msgspec.structs.replace(self, version=each, also=()) for each in self.also))

    @property
    def qualified(self) -> str:
        """The name for ``kubectl auth can-i``, such as ``replicasets.apps``."""
        return f"{self.name}.{self.group}" if self.group else self.name


RESOURCES = (
    Resource("Node", "", "v1", "nodes", required=True),
    Resource("Pod", "", "v1", "pods", required=True, field_selector=UNFINISHED_PODS),
    Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", required=True),
    Resource("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"),
    Resource("PersistentVolume", "", "v1", "persistentvolumes"),
    Resource("StorageClass", "storage.k8s.io", "v1", "storageclasses"),
    Resource("CSINode", "storage.k8s.io", "v1", "csinodes"),
    Resource(CSI_DRIVER, "storage.k8s.io", "v1", "csidrivers"),
    Resource(STORAGE_CAPACITY, "storage.k8s.io", "v1", "csistoragecapacities"),
    Resource(VOLUME_ATTACHMENT, "storage.k8s.io", "v1", "volumeattachments"),
    Resource("Namespace", "", "v1", "namespaces"),
    Resource("ReplicaSet", "apps", "v1", "replicasets"),
    Resource("ReplicationController", "", "v1", "replicationcontrollers"),
    Resource("StatefulSet", "apps", "v1", "statefulsets"),
    Resource("DaemonSet", "apps", "v1", "daemonsets"),
    Resource("Job", "batch", "v1", "jobs"),
    Resource(DEPLOYMENT, "apps", "v1", "deployments"),
    Resource(AUTOSCALER, "autoscaling", "v2", "horizontalpodautoscalers"),
    Resource(CAPACITY_BUFFER, "autoscaling.x-k8s.io", "v1beta1", "capacitybuffers", also=("v1alpha1",), extension=True),
    Resource(POD_TEMPLATE, "", "v1", "podtemplates"),
    Resource(NODE_POOL, "karpenter.sh", "v1", "nodepools", also=("v1beta1",), extension=True),
    Resource(POD_GROUP, "scheduling.k8s.io", "v1beta1", "podgroups", also=("v1alpha3",), extension=True),
    Resource(LEADER_WORKER_SET, "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", extension=True),
    Resource(VERTICAL, "autoscaling.k8s.io", "v1", "verticalpodautoscalers", extension=True),
    Resource(RESOURCE_SLICE, "resource.k8s.io", "v1", "resourceslices", also=("v1beta2",), extension=True),
    Resource(DEVICE_CLASS, "resource.k8s.io", "v1", "deviceclasses", also=("v1beta2",), extension=True),
    Resource(RESOURCE_CLAIM, "resource.k8s.io", "v1", "resourceclaims", also=("v1beta2",), extension=True),
    Resource(CONFIG_MAP, "", "v1", "configmaps", field_selector=f"metadata.name={STATUS_NAME}", extension=True),
)
"""Every kind in a :class:`~tightship.cluster.Snapshot`."""

BY_KIND = {resource.kind: resource for resource in RESOURCES}

AUTOSCALERS = msgspec.structs.replace(BY_KIND[AUTOSCALER], required=True)
"""HorizontalPodAutoscalers, as a required kind."""


def resources(*, autoscalers: bool, buffers: bool, restarts: bool = False) -> tuple[Resource, ...]:
    """Return the :data:`RESOURCES` that rules need: with HorizontalPodAutoscalers if *autoscalers* is true, with
    CapacityBuffers and PodTemplates if *buffers* is true, and with Deployments if *restarts* is true.
    """
    left_out = {
        AUTOSCALER: not autoscalers,
        CAPACITY_BUFFER: not buffers,
        POD_TEMPLATE: not buffers,
        DEPLOYMENT: not restarts,
    }
    return tuple(each for each in RESOURCES if not left_out.get(each.kind, False))


_unlisted = KINDS ^ set(BY_KIND)
if _unlisted:  # pragma: no cover - a kind was added to one table only
    raise AssertionError(f"kinds known to one of tightship.objects and tightship.kube.resources only: {_unlisted}")


class _PodSpec(Struct):
    node: str = msgspec.field(default="", name="nodeName")


class _PodPlace(Struct):
    spec: _PodSpec


_places = msgspec.json.Decoder(_PodPlace)


def node_of(kind: str, raw: bytes | msgspec.Raw) -> str:
    """Return the node of an unreadable pod, empty if that is unreadable too."""
    if kind != "Pod":
        return ""
    try:
        return _places.decode(raw).spec.node
    except UNREADABLE:
        return ""

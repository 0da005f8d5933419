"""The kinds that the embedded cluster serves: those that the controllers, the charts and the demo use."""

from __future__ import annotations

from msgspec import Struct


class Kind(Struct, frozen=True):
    """A kind and where it is served; *group* is empty for the core group, *name* is its ``kind``.

    With *status* there is a ``status`` subresource, and writes of the object leave the status alone; with *scale* a
    ``scale`` subresource. With *generation* a change of the spec is counted.
    """

    name: str
    group: str
    version: str
    plural: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    status: bool = False
    scale: bool = False
    generation: bool = False
    all: bool = False
    """Whether ``kubectl get all`` lists it."""
    extension: bool = False
    """Whether it is served only where a CustomResourceDefinition says so, and then in its versions."""

    @property
    def group_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural with its group, as messages name it: ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """The path under which the group and version are served."""
        return f"/apis/{self.group_version}" if self.group else f"/api/{self.version}"


def _workload(name: str, plural: str, *short: str, group: str = "apps", scale: bool = True) -> Kind:
    return Kind(name, group, "v1", plural, short=short, status=True, scale=scale, generation=True, all=True)


def _cluster_wide(name: str, group: str, plural: str, *short: str, status: bool = False) -> Kind:
    return Kind(name, group, "v1", plural, namespaced=False, short=short, status=status)


_BUFFERS = "autoscaling.x-k8s.io"

KINDS = (
    _cluster_wide("Namespace", "", "namespaces", "ns", status=True),
    _cluster_wide("Node", "", "nodes", "no", status=True),
    Kind("Pod", "", "v1", "pods", short=("po",), status=True, generation=True, all=True),
    _workload("ReplicationController", "replicationcontrollers", "rc", group=""),
    Kind("Service", "", "v1", "services", short=("svc",), status=True, all=True),
    Kind("Endpoints", "", "v1", "endpoints", short=("ep",)),
    Kind("ConfigMap", "", "v1", "configmaps", short=("cm",)),
    Kind("Secret", "", "v1", "secrets"),
    Kind("ServiceAccount", "", "v1", "serviceaccounts", short=("sa",)),
    Kind("Event", "", "v1", "events", short=("ev",)),
    _cluster_wide("PersistentVolume", "", "persistentvolumes", "pv", status=True),
    Kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", short=("pvc",), status=True),
    _workload("Deployment", "deployments", "deploy"),
    _workload("ReplicaSet", "replicasets", "rs"),
    _workload("StatefulSet", "statefulsets", "sts"),
    _workload("DaemonSet", "daemonsets", "ds", scale=False),
    _workload("Job", "jobs", group="batch", scale=False),
    _workload("CronJob", "cronjobs", "cj", group="batch", scale=False),
    Kind(
        "HorizontalPodAutoscaler",
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        True,
        ("hpa",),
        True,
        generation=True,
        all=True,
    ),
    Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", True, ("pdb",), True, generation=True),
    Kind("Lease", "coordination.k8s.io", "v1", "leases"),
    _cluster_wide("StorageClass", "storage.k8s.io", "storageclasses", "sc"),
    _cluster_wide("CSINode", "storage.k8s.io", "csinodes"),
    _cluster_wide("CSIDriver", "storage.k8s.io", "csidrivers"),
    Kind("CSIStorageCapacity", "storage.k8s.io", "v1", "csistoragecapacities"),
    _cluster_wide("VolumeAttachment", "storage.k8s.io", "volumeattachments", status=True),
    _cluster_wide("ResourceSlice", "resource.k8s.io", "resourceslices"),
    _cluster_wide("DeviceClass", "resource.k8s.io", "deviceclasses"),
    Kind("ResourceClaim", "resource.k8s.io", "v1", "resourceclaims", status=True),
    _cluster_wide("PriorityClass", "scheduling.k8s.io", "priorityclasses", "pc"),
    _cluster_wide("RuntimeClass", "node.k8s.io", "runtimeclasses"),
    _cluster_wide("ClusterRole", "rbac.authorization.k8s.io", "clusterroles"),
    _cluster_wide("ClusterRoleBinding", "rbac.authorization.k8s.io", "clusterrolebindings"),
    Kind("Role", "rbac.authorization.k8s.io", "v1", "roles"),
    Kind("RoleBinding", "rbac.authorization.k8s.io", "v1", "rolebindings"),
    Kind("PodTemplate", "", "v1", "podtemplates"),
    _cluster_wide("CustomResourceDefinition", "apiextensions.k8s.io", "customresourcedefinitions", "crd", status=True),
    Kind("CapacityBuffer", _BUFFERS, "v1beta1", "capacitybuffers", True, ("cb",), True, False, True, extension=True),
    Kind("NodePool", "karpenter.sh", "v1", "nodepools", False, status=True, extension=True),
    Kind("PodGroup", "scheduling.k8s.io", "v1beta1", "podgroups", status=True, generation=True, extension=True),
    Kind("LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", status=True, extension=True),
    Kind("VerticalPodAutoscaler", "autoscaling.k8s.io", "v1", "verticalpodautoscalers", status=True, extension=True),
    Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies", short=("netpol",)),
)

NEW_EVENTS = Kind("Event", "events.k8s.io", "v1", "events", short=("ev",))
"""The same Events in their newer form; they are stored in the older one."""

BY_NAME = {kind.name: kind for kind in KINDS}
SERVED = (*(kind for kind in KINDS if not kind.extension), NEW_EVENTS)
"""What is served everywhere."""

_EXTENSIONS = (
    BY_NAME["CapacityBuffer"],
    BY_NAME["NodePool"],
    BY_NAME["PodGroup"],
    BY_NAME["LeaderWorkerSet"],
    BY_NAME["VerticalPodAutoscaler"],
    Kind("NodePool", "karpenter.sh", "v1beta1", "nodepools", False, status=True, extension=True),
    Kind("CapacityBuffer", _BUFFERS, "v1alpha1", "capacitybuffers", True, ("cb",), True, False, True, extension=True),
)
BY_PLURAL = {(kind.group, kind.version, kind.plural): kind for kind in (*SERVED, *_EXTENSIONS)}

"""One moment of a cluster, immutable: the input of every decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from tightship.cluster.installations import Beside
from tightship.objects import (
    SAME_NAME,
    AutoscalerStatus,
    CapacityBuffer,
    CSINode,
    Deployment,
    GroupRule,
    HorizontalPodAutoscaler,
    Namespace,
    Node,
    NodePool,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodTemplate,
    StorageClass,
    StoredTemplate,
    VerticalPodAutoscaler,
    Workload,
)
from tightship.objects.counting import counted
from tightship.objects.devices import DeviceClass, ResourceClaim, ResourceSlice
from tightship.objects.quantity import humanize
from tightship.objects.resources import NOTHING, Resources
from tightship.objects.schedulers import SCHEDULERS, Scoring
from tightship.objects.selectors import SelectorIndex
from tightship.objects.storage import CSIDriver, StorageCapacity, VolumeAttachment


class _Selection:
    """The keys of budgets by what they select."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self.index: SelectorIndex[str] = SelectorIndex()
        for budget in budgets:
            self.index.add(budget.namespace, budget.selector, budget.key)
        self.matches: WeakKeyDictionary[PodTemplate, tuple[str, ...]] = WeakKeyDictionary()


class Budgets:
    """The budgets in key order. Snapshots share this object while no budget changes.

    If nothing but statuses has changed since *before*, its matches still hold.
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget] = (), before: Budgets | None = None) -> None:
        self.by_key = {budget.key: budget for budget in sorted(budgets, key=lambda each: each.key)}
        alike = None if before is None or not before.selects_like(self) else before._selection
        self._selection: _Selection = _Selection(self.by_key.values()) if alike is None else alike

    def of(self, template: PodTemplate) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets whose selector matches pods of *template*; in policy/v1 an empty selector matches all."""
        selection = self._selection
        found = selection.matches.get(template)
        if found is None:
            matching = selection.index.find(template.namespace, template.labels)
            found = selection.matches[template] = tuple(sorted(matching))
        return tuple(self.by_key[key] for key in found) if found else ()

    def selects_like(self, other: Budgets) -> bool:
        """Whether the budgets have the same keys and selectors as those of *other*."""
        mine, others = self.by_key, other.by_key
        return mine.keys() == others.keys() and all(
            budget is others[key] or budget.selector == others[key].selector for key, budget in mine.items()
        )

    def __iter__(self) -> Iterator[PodDisruptionBudget]:
        return iter(self.by_key.values())

    def __len__(self) -> int:
        return len(self.by_key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Budgets) and self.by_key == other.by_key

    __hash__ = None  # type: ignore[assignment]


FORBIDDEN = "forbidden"
NOT_SERVED = "not served"
NOT_IN_FILE = "not in the file"
"""Why a kind is missing from a snapshot: the API server forbids or lacks it, or the file does not mention it."""


class Usage(Struct, frozen=True, gc=False):
    """Sums over the unfinished pods of one node; amounts as in :mod:`tightship.objects.resources`.

    *daemon* and *mirror* are the parts of *requested* that DaemonSet and mirror pods take. *terminating* pods count
    until their grace period has ended, which a decision can tell because it knows the time. *scoring* is (milli-CPU,
    bytes) as kube-scheduler's scoring assumes.
    """

    requested: Resources = NOTHING
    daemon: Resources = NOTHING
    mirror: Resources = NOTHING
    terminating: tuple[Pod, ...] = ()
    scoring: tuple[int, int] = (0, 0)


class NodeView(Struct, frozen=True, gc=False):
    """A node with its unfinished pods, ordered by namespace and name."""

    node: Node
    pods: tuple[Pod, ...]
    usage: Usage

    @property
    def name(self) -> str:
        return self.node.name


class Unreadable(Struct, frozen=True, order=True, gc=False):
    """An object whose JSON is unreadable, which blocks what depends on it. *node* is where an unreadable pod runs."""

    kind: str
    namespace: str
    name: str
    problem: str
    node: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``, or just the name of a cluster-wide object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Starting(Struct, frozen=True):
    """Replicas that an HPA (``namespace/name``) is about to start: *more* beyond the *existing* ones, to have *wanted*.

    *because* is the field that asks for so many. Plans keep room for the first *count* of them, each like *pod*; *pod*
    is ``None`` if nothing tells what they will need.
    """

    hpa: str
    because: str
    wanted: int
    existing: int
    more: int
    count: int
    pod: Pod | None

    def __str__(self) -> str:
        replicas = counted(self.more, "more replica")
        rest = f", room is kept for {self.count:,} of them" if 0 < self.count < self.more else ""
        numbers = f"{self.because} is {self.wanted:,}, {counted(self.existing, 'exists', 'exist')}{rest}"
        return f"HPA {self.hpa} is about to start {replicas} ({numbers})"


class Headroom(Struct, frozen=True):
    """Room that a CapacityBuffer (``namespace/name``) keeps free: for *replicas* pods of PodTemplate *template*.

    Plans keep room for the first *count* of them, each like *pod*; *pod* is ``None`` if the template is unreadable.
    With *rollout*, the room is for the additional pods of a rollout of that workload, which would take the buffer's.
    """

    buffer: str
    template: str
    replicas: int
    count: int
    pod: Pod | None
    rollout: str = ""

    def __str__(self) -> str:
        pods = counted(self.replicas, "pod")
        if self.rollout:
            return f"a rollout of {self.rollout} takes room for {pods} from CapacityBuffer {self.buffer}"
        rest = f" (room is kept for {self.count:,} of them)" if 0 < self.count < self.replicas else ""
        return f"CapacityBuffer {self.buffer} keeps room for {pods} of PodTemplate {self.template}{rest}"


class Anew(Struct, frozen=True):
    """What a pod will request once it is made anew: a VerticalPodAutoscaler (``namespace/name``) changes it.

    *scoring* is (milli-CPU, bytes) as kube-scheduler's scoring assumes. *problem* says why that is unknown.
    """

    autoscaler: str
    requests: Resources
    scoring: tuple[int, int]
    problem: str = ""

    def changes(self, now: Resources) -> str:
        """Return what changes in a pod that requests the amounts *now*."""
        names = [name for name in sorted({*now, *self.requests}) if now.get(name, 0) != self.requests.get(name, 0)]
        amounts = [
            f"{name} {humanize(name, self.requests.get(name, 0))} (now {humanize(name, now.get(name, 0))})"
            for name in names
        ]
        return (
            f"VerticalPodAutoscaler {self.autoscaler} will have it made anew with {', '.join(amounts)}"
            if amounts
            else ""
        )


class Restart(Struct, frozen=True):
    """How pods on *nodes* leave them without an eviction: *deployment* (``namespace/name``) is restarted.

    Where that is impossible, *problem* says why and *fix* what helps; *waits* says that time does.
    """

    deployment: str
    nodes: frozenset[str]
    problem: str = ""
    fix: str = ""
    waits: bool = False


class Snapshot(Struct, frozen=True):
    """A cluster at one moment. Mappings are ordered by key, so that equal clusters iterate equally.

    Keys are ``namespace/name``, or the name of cluster-wide objects; *workloads* are by kind first. *missing* maps each
    unavailable kind to why ("forbidden", "not in the file"). :func:`tightship.planning.demand.with_demand` makes
    *starting*, *headroom* and *anew* (what replacements will request, where a VPA changes that) of autoscalers and
    buffers. *landings* are the nodes where drains under way want pods to
    land, by the uid of the pod: one still to be evicted, or its replacement. *beside* says which installation judges,
    and which ones are beside it. *schedulers* filter nodes as kube-scheduler does; see
    :class:`~tightship.rules.evictability.EvictionRules`. *abandoned* are nodes that have been cordoned by others,
    or not Ready, for so long that no room is kept for their pods any more. *restarts* are by the uid of the controller
    of the pods that no drain evicts: see :func:`tightship.rules.after_cordon.with_restarts`.
    """

    nodes: Mapping[str, NodeView]
    unscheduled: tuple[Pod, ...] = ()
    budgets: Budgets = msgspec.field(default_factory=Budgets)
    claims: Mapping[str, PersistentVolumeClaim] = {}
    volumes: Mapping[str, PersistentVolume] = {}
    storage_classes: Mapping[str, StorageClass] = {}
    csi_nodes: Mapping[str, CSINode] = {}
    csi_drivers: Mapping[str, CSIDriver] = {}
    storage_capacities: Mapping[str, StorageCapacity] = {}
    attachments: Mapping[str, VolumeAttachment] = {}
    namespaces: Mapping[str, Namespace] = {}
    workloads: Mapping[str, Mapping[str, Workload]] = {}
    deployments: Mapping[str, Deployment] = {}
    autoscalers: Mapping[str, HorizontalPodAutoscaler] = {}
    buffers: Mapping[str, CapacityBuffer] = {}
    templates: Mapping[str, StoredTemplate] = {}
    node_pools: Mapping[str, NodePool] = {}
    autoscaler_statuses: Mapping[str, AutoscalerStatus] = {}
    pod_groups: Mapping[str, GroupRule] = {}
    leader_worker_sets: Mapping[str, GroupRule] = {}
    vertical: Mapping[str, VerticalPodAutoscaler] = {}
    slices: Mapping[str, ResourceSlice] = {}
    device_classes: Mapping[str, DeviceClass] = {}
    resource_claims: Mapping[str, ResourceClaim] = {}
    starting: tuple[Starting, ...] = ()
    headroom: tuple[Headroom, ...] = ()
    anew: Mapping[PodTemplate, Anew] = {}
    landings: Mapping[str, str] = {}
    beside: Beside = Beside()
    schedulers: Mapping[str, Scoring] = SCHEDULERS
    abandoned: frozenset[str] = frozenset()
    missing: Mapping[str, str] = {}
    unreadable: tuple[Unreadable, ...] = ()
    restarts: Mapping[str, Restart] = {}

    def restart_of(self, pod: Pod) -> Restart | None:
        """Return the restart that would move *pod* off its node; ``None`` for a pod that a drain would evict."""
        found = self.restarts.get(pod.owner.uid) if self.restarts and pod.owner is not None else None
        return found if found is not None and pod.node in found.nodes else None

    def requests_anew(self, pod: Pod) -> Resources:
        """Return what *pod* will request once it is made anew."""
        anew = self.anew.get(pod.template) if self.anew else None
        return pod.requests if anew is None else anew.requests

    def replaced(self, pod: Pod) -> bool:
        """Whether *pod* is terminating and its replacement exists, or comes at once.

        Some controllers replace a pod only once it has gone: until then, the pod's room stands for both. A Job of which
        nothing is known may be such a one.
        """
        owner = pod.owner
        if pod.deletion is None or owner is None:
            return pod.deletion is not None
        known = self.workloads.get(owner.kind, {}).get(f"{pod.namespace}/{owner.name}")
        if known is not None:
            return not known.afterwards
        return owner.kind not in SAME_NAME and not (owner.kind == "Job" and owner.kind in self.missing)

    def at(self, node: Node) -> NodeView:
        """Return *node*, which may be newer than the snapshot's, with the snapshot's pods on it."""
        known = self.nodes.get(node.name)
        return NodeView(node, (), Usage()) if known is None else NodeView(node, known.pods, known.usage)

    @property
    def pod_count(self) -> int:
        """The number of unfinished pods bound to nodes."""
        return sum(len(view.pods) for view in self.nodes.values())

    @property
    def to_come(self) -> list[Pod]:
        """A pod for each kind of demand that has no pods yet."""
        pods = (*(each.pod for each in self.starting), *(each.pod for each in self.headroom))
        return [pod for pod in pods if pod is not None]

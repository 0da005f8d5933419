"""The objects that tie a pod's volumes to nodes: claims, volumes, classes, drivers, capacities and attachments."""

from __future__ import annotations

from msgspec import Struct

from tightship.objects import volume
from tightship.objects.meta import EMPTY, Metadata, Namespaced, Present, seconds
from tightship.objects.quantity import value
from tightship.objects.selectors import Labels, LabelSelector, NodeSelector, NodeSelectorTerm, Requirement
from tightship.objects.volume import BETA_REGION, BETA_ZONE, MIGRATED, REGION, ZONE, ClaimSpec, InTreeVolume

CSI_DRIVER = "CSIDriver"
STORAGE_CAPACITY = "CSIStorageCapacity"
VOLUME_ATTACHMENT = "VolumeAttachment"

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")

_ZONE_LABELS = (ZONE, REGION, BETA_ZONE, BETA_REGION)


class PersistentVolumeClaim(Namespaced, frozen=True, gc=False):
    """A claim; *volume* is empty until one is chosen, and *bound* false until that is agreed upon.

    *size* is in bytes, ``None`` without a request. kube-scheduler has chosen *selected_node* for a volume to be made.
    *lost* claims have lost their volume. The *own* claims of pods are those of their generic ephemeral volumes.
    """

    volume: str
    storage_class: str
    uid: str = ""
    access_modes: tuple[str, ...] = ()
    size: int | None = None
    block: bool = False
    selector: LabelSelector | None = None
    selected_node: str = ""
    bound: bool = True
    lost: bool = False
    deleting: bool = False
    own: bool = False


class PersistentVolume(Struct, frozen=True, gc=False):
    """A volume: which nodes can reach it (*node_affinity*, zone *labels*) and what attaches it.

    *driver* and *handle* name a CSI volume. *plugin* is the in-tree plugin that the driver replaces, if any, and
    *translated* the affinity on nodes where it does. *counted* volumes count against a node's attach limit. *problem*
    says why kube-scheduler can't translate the volume. *size* is in bytes. *claim* is the (namespace, name, uid) of the
    claim that the volume is for; other volumes are *available*, and have all their labels. One that is *on_each_node*
    is a ``hostPath`` without node affinity: kube-scheduler takes it for reachable, and each node has a directory of its
    own (kubernetes#96859). *host* is the label of the node that reaches the volume, if its affinity names a host.
    """

    name: str
    labels: Labels
    node_affinity: NodeSelector | None
    driver: str = ""
    handle: str = ""
    plugin: str = ""
    translated: NodeSelector | None = None
    counted: bool = False
    attaches: bool = False
    problem: str = ""
    access_modes: tuple[str, ...] = ()
    size: int = 0
    block: bool = False
    storage_class: str = ""
    claim: tuple[str, str, str] | None = None
    available: bool = False
    on_each_node: bool = False
    host: tuple[str, str] | None = None


class StorageClass(Struct, frozen=True, gc=False):
    """A storage class; *topologies* (``allowedTopologies``) are ``None`` if it can provision anywhere.

    Of several *default* ones the last *created* counts.
    """

    name: str
    provisioner: str
    waits_for_consumer: bool
    topologies: NodeSelector | None
    default: bool = False
    created: int = 0


class CSINode(Struct, frozen=True, gc=False):
    """The attach limits of a node, by driver; ``None`` means no limit. The kubelet attaches volumes of the in-tree
    plugins in *migrated* by their CSI drivers.
    """

    name: str
    limits: dict[str, int | None]
    migrated: frozenset[str] = frozenset()


class CSIDriver(Struct, frozen=True, gc=False):
    """A CSI driver: whether its volumes are attached at all, and whether it tells free capacity."""

    name: str
    attaches: bool
    tells_capacity: bool


class StorageCapacity(Namespaced, frozen=True, gc=False):
    """How large a volume of *storage_class* the nodes of *topology* can get, in bytes (``None``: unknown)."""

    storage_class: str
    topology: LabelSelector | None
    largest: int | None


class VolumeAttachment(Struct, frozen=True, gc=False):
    """A PersistentVolume that *driver* attaches to a node, or has yet to detach."""

    name: str
    driver: str
    node: str
    volume: str


class _Phase(Struct, frozen=True, gc=False):
    phase: str = ""


class PersistentVolumeClaimWire(Struct, frozen=True, gc=False):
    """A claim on the wire."""

    metadata: Metadata
    spec: ClaimSpec = ClaimSpec()
    status: _Phase = _Phase()

    def claim(self) -> PersistentVolumeClaim:
        meta, spec, notes = self.metadata, self.spec, self.metadata.annotations or EMPTY
        return PersistentVolumeClaim(
            namespace=meta.namespace,
            name=meta.name,
            volume=spec.volume_name,
            storage_class=notes.get(_BETA_CLASS, spec.storage_class_name or ""),
            uid=meta.uid,
            access_modes=spec.access_modes or (),
            size=value(spec.size) if spec.size else None,
            block=spec.volume_mode == "Block",
            selector=spec.selector,
            selected_node=notes.get(_SELECTED_NODE, ""),
            bound=_BIND_COMPLETED in notes or self.status.phase != "Pending",
            lost=self.status.phase == "Lost",
            deleting=meta.deletion_timestamp is not None,
            own=(owner := meta.controller) is not None and owner.kind == "Pod",
        )


class _VolumeNodeAffinity(Struct, frozen=True, gc=False):
    required: NodeSelector | None = None


class _CSISource(Struct, frozen=True, rename="camel", gc=False):
    driver: str
    volume_handle: str = ""


class _ClaimReference(Struct, frozen=True, gc=False):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _VolumeSpec(InTreeVolume, frozen=True, rename="camel", gc=False):
    node_affinity: _VolumeNodeAffinity | None = None
    access_modes: tuple[str, ...] | None = None
    capacity: dict[str, str] | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    claim_ref: _ClaimReference | None = None
    csi: _CSISource | None = None
    rbd: Present | None = None
    iscsi: Present | None = None
    fc: Present | None = None
    host_path: Present | None = None
    local: Present | None = None


class PersistentVolumeWire(Struct, frozen=True, gc=False):
    """A volume on the wire."""

    metadata: Metadata
    spec: _VolumeSpec = _VolumeSpec()
    status: _Phase = _Phase()

    def volume(self) -> PersistentVolume:
        meta, spec, labels = self.metadata, self.spec, self.metadata.labels or EMPTY
        affinity = spec.node_affinity.required if spec.node_affinity else None
        field = next((each for each in MIGRATED if getattr(spec, each) is not None), "")
        migrated, source = MIGRATED.get(field), getattr(spec, field) if field else None
        zones = labels.get(BETA_ZONE) or labels.get(ZONE, "")
        size, claim = (spec.capacity or {}).get("storage", ""), spec.claim_ref
        available = self.status.phase == "Available" and meta.deletion_timestamp is None
        topology = migrated.topology if migrated else ""
        problem = volume.untranslatable(field, source, zones) if source else ""
        return PersistentVolume(
            name=meta.name,
            labels=(labels if available else {key: labels[key] for key in _ZONE_LABELS if key in labels}) or EMPTY,
            node_affinity=affinity,
            driver=spec.csi.driver if spec.csi else migrated.driver if migrated else "",
            handle=spec.csi.volume_handle if spec.csi else volume.handle(field, source, zones) if source else "",
            plugin=migrated.plugin if migrated else "",
            translated=volume.translated(affinity, labels, topology) if topology else affinity,
            counted=spec.csi is not None or (migrated is not None and migrated.counted and not problem),
            attaches=any((spec.csi, spec.rbd, spec.iscsi, spec.fc)) or (migrated is not None and migrated.attaches),
            problem=problem,
            access_modes=spec.access_modes or (),
            size=value(size) if size else 0,
            block=spec.volume_mode == "Block",
            storage_class=(meta.annotations or EMPTY).get(_BETA_CLASS, spec.storage_class_name),
            claim=(claim.namespace, claim.name, claim.uid) if claim else None,
            available=available,
            on_each_node=spec.host_path is not None and affinity is None,
            host=_host(affinity, local=spec.host_path is not None or spec.local is not None),
        )


_HOSTS = ("/hostname", "/nodename", "/nodeid", "/node", "/host")
"""How the labels end by which drivers of local volumes name a node: ``kubernetes.io/hostname``, ``openebs.io/nodename``
and ``openebs.io/nodeid``, ``topology.topolvm.io/node``, ``topology.csi.vmware.com/host``."""


def _host(affinity: NodeSelector | None, *, local: bool) -> tuple[str, str] | None:
    """Return the label of the one node that reaches a volume.

    A *local* one may go by any label (local-path-provisioner's ``nodeAffinity``, OpenEBS' ``NodeAffinityLabels``).
    """
    terms = affinity.node_selector_terms if affinity is not None else ()
    wanted = (terms[0].match_expressions or ()) if len(terms) == 1 else ()
    single = [(each.key, each.values[0]) for each in wanted if each.operator == "In" and len(each.values) == 1]
    return next((each for each in single if each[0].endswith(_HOSTS)), single[-1] if local and single else None)


class _TopologyExpression(Struct, frozen=True, gc=False):
    key: str
    values: tuple[str, ...] = ()


class _TopologyTerm(Struct, frozen=True, rename="camel", gc=False):
    match_label_expressions: tuple[_TopologyExpression, ...] | None = None


class StorageClassWire(Struct, frozen=True, rename="camel", gc=False):
    """A storage class on the wire."""

    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[_TopologyTerm, ...] | None = None

    def storage_class(self) -> StorageClass:
        terms = tuple(
            NodeSelectorTerm(
                match_expressions=tuple(
                    Requirement(each.key, "In", each.values) for each in term.match_label_expressions or ()
                )
            )
            for term in self.allowed_topologies or ()
        )
        notes = self.metadata.annotations or EMPTY
        return StorageClass(
            name=self.metadata.name,
            provisioner=self.provisioner,
            waits_for_consumer=self.volume_binding_mode == "WaitForFirstConsumer",
            topologies=NodeSelector(terms) if terms else None,
            default=any(notes.get(each) == "true" for each in _DEFAULT_CLASS),
            created=seconds(self.metadata.creation_timestamp) or 0,
        )


class _Allocatable(Struct, frozen=True, gc=False):
    count: int | None = None


class _Driver(Struct, frozen=True, gc=False):
    name: str
    allocatable: _Allocatable | None = None


class _CSINodeSpec(Struct, frozen=True, gc=False):
    drivers: tuple[_Driver, ...] | None = None


class CSINodeWire(Struct, frozen=True, gc=False):
    """A CSI node on the wire."""

    metadata: Metadata
    spec: _CSINodeSpec = _CSINodeSpec()

    def csi_node(self) -> CSINode:
        migrated = (self.metadata.annotations or EMPTY).get(_MIGRATED_PLUGINS, "")
        return CSINode(
            name=self.metadata.name,
            limits={
                each.name: each.allocatable.count if each.allocatable else None for each in self.spec.drivers or ()
            },
            migrated=frozenset(migrated.split(",")) - {""},
        )


class _CSIDriverSpec(Struct, frozen=True, rename="camel", gc=False):
    attach_required: bool | None = None
    storage_capacity: bool | None = None


class CSIDriverWire(Struct, frozen=True, gc=False):
    """A CSI driver on the wire."""

    metadata: Metadata
    spec: _CSIDriverSpec = _CSIDriverSpec()

    def driver(self) -> CSIDriver:
        return CSIDriver(self.metadata.name, self.spec.attach_required is not False, bool(self.spec.storage_capacity))


class StorageCapacityWire(Struct, frozen=True, rename="camel", gc=False):
    """A CSIStorageCapacity on the wire."""

    metadata: Metadata
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | None = None
    maximum_volume_size: str | None = None

    def storage_capacity(self) -> StorageCapacity:
        meta, largest = self.metadata, self.maximum_volume_size or self.capacity
        return StorageCapacity(
            meta.namespace,
            meta.name,
            self.storage_class_name,
            self.node_topology,
            value(largest) if largest else None,
        )


class _AttachmentSource(Struct, frozen=True, rename="camel", gc=False):
    persistent_volume_name: str | None = None


class _AttachmentSpec(Struct, frozen=True, rename="camel", gc=False):
    attacher: str = ""
    node_name: str = ""
    source: _AttachmentSource = _AttachmentSource()


class VolumeAttachmentWire(Struct, frozen=True, gc=False):
    """A VolumeAttachment on the wire."""

    metadata: Metadata
    spec: _AttachmentSpec = _AttachmentSpec()

    def attachment(self) -> VolumeAttachment:
        spec = self.spec
        return VolumeAttachment(
            self.metadata.name, spec.attacher, spec.node_name, spec.source.persistent_volume_name or ""
        )

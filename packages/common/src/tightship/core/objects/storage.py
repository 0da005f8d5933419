"""The objects that tie a pod's volumes to nodes: claims, volumes, storage classes, CSI nodes."""

from __future__ import annotations

from msgspec import Struct

from tightship.core.objects.meta import EMPTY, Metadata, Namespaced, Present
from tightship.core.selectors import Labels, NodeSelector, NodeSelectorTerm, Requirement


class PersistentVolumeClaim(Namespaced, frozen=True, gc=False):
    """A claim; *volume* is empty until it is bound."""

    volume: str
    storage_class: str


class PersistentVolume(Struct, frozen=True, gc=False):
    """A volume: which nodes can reach it (*node_affinity*, zone *labels*) and what attaches it.

    *driver* and *handle* name a CSI volume, which counts against a node's attach limit. *known* is false for an
    in-tree source whose attachment Tightship can't judge.
    """

    name: str
    labels: Labels
    node_affinity: NodeSelector | None
    driver: str
    handle: str
    known: bool


class StorageClass(Struct, frozen=True, gc=False):
    """A storage class; *topologies* (``allowedTopologies``) are ``None`` if it can provision anywhere."""

    name: str
    provisioner: str
    waits_for_consumer: bool
    topologies: NodeSelector | None


class CSINode(Struct, frozen=True, gc=False):
    """The attach limits of a node, by driver; ``None`` means no limit."""

    name: str
    limits: dict[str, int | None]


class _ClaimSpec(Struct, frozen=True, rename="camel", gc=False):
    volume_name: str = ""
    storage_class_name: str | None = None


class PersistentVolumeClaimWire(Struct, frozen=True, gc=False):
    """A claim on the wire."""

    metadata: Metadata
    spec: _ClaimSpec = _ClaimSpec()

    def claim(self) -> PersistentVolumeClaim:
        return PersistentVolumeClaim(
            namespace=self.metadata.namespace,
            name=self.metadata.name,
            volume=self.spec.volume_name,
            storage_class=self.spec.storage_class_name or "",
        )


class _VolumeNodeAffinity(Struct, frozen=True, gc=False):
    required: NodeSelector | None = None


class _CSISource(Struct, frozen=True, rename="camel", gc=False):
    driver: str
    volume_handle: str = ""


class _VolumeSpec(Struct, frozen=True, rename="camel", gc=False):
    node_affinity: _VolumeNodeAffinity | None = None
    csi: _CSISource | None = None
    local: Present | None = None
    host_path: Present | None = None
    nfs: Present | None = None


_ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


class PersistentVolumeWire(Struct, frozen=True, gc=False):
    """A volume on the wire."""

    metadata: Metadata
    spec: _VolumeSpec = _VolumeSpec()

    def volume(self) -> PersistentVolume:
        spec, labels = self.spec, self.metadata.labels or EMPTY
        return PersistentVolume(
            name=self.metadata.name,
            labels={key: labels[key] for key in _ZONE_LABELS if key in labels} or EMPTY,
            node_affinity=spec.node_affinity.required if spec.node_affinity else None,
            driver=spec.csi.driver if spec.csi else "",
            handle=spec.csi.volume_handle if spec.csi else "",
            known=any((spec.csi, spec.local, spec.host_path, spec.nfs)),
        )


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
        return StorageClass(
            name=self.metadata.name,
            provisioner=self.provisioner,
            waits_for_consumer=self.volume_binding_mode == "WaitForFirstConsumer",
            topologies=NodeSelector(terms) if terms else None,
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
        return CSINode(
            name=self.metadata.name,
            limits={
                each.name: each.allocatable.count if each.allocatable else None for each in self.spec.drivers or ()
            },
        )

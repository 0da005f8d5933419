"""A pod's volumes, reduced to the sources that tie it to some nodes or keep data on one.

Of in-tree sources, Kubernetes has migrated some to CSI drivers (csi-translation-lib 1.37).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tightship.objects.meta import Present
from tightship.objects.selectors import Labels, LabelSelector, NodeSelector, NodeSelectorTerm, Requirement

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"


class InTreeSource(Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """Any in-tree source on the wire: what identifies the disk, whatever its type calls that."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    pd_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None
    volume_path: str = ""
    share_name: str = ""
    iqn: str = ""
    monitors: tuple[str, ...] = ()
    pool: str = ""
    image: str = ""
    read_only: bool | None = None


class InTreeVolume(Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """The in-tree sources that became CSI drivers, of a pod's volume or of a PersistentVolume on the wire."""

    aws_elastic_block_store: InTreeSource | None = None
    gce_persistent_disk: InTreeSource | None = None
    azure_disk: InTreeSource | None = None
    azure_file: InTreeSource | None = None
    cinder: InTreeSource | None = None
    vsphere_volume: InTreeSource | None = None
    portworx_volume: InTreeSource | None = None


class Migrated(Struct, frozen=True):
    """An in-tree *plugin* that became a CSI *driver*.

    kube-scheduler counts its volumes (``isCSIMigrationOn`` in nodevolumelimits/utils.go) if it is *counted*.
    *topology* is the driver's key for a zone, empty if the translation leaves a volume's topology alone. The
    attach-detach controller *attaches* its volumes.
    """

    plugin: str
    driver: str
    topology: str = ""
    counted: bool = True
    attaches: bool = True


MIGRATED = {
    "aws_elastic_block_store": Migrated("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    "gce_persistent_disk": Migrated("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone"),
    "azure_disk": Migrated("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    "azure_file": Migrated("kubernetes.io/azure-file", "file.csi.azure.com", counted=False, attaches=False),
    "cinder": Migrated("kubernetes.io/cinder", "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"),
    "vsphere_volume": Migrated("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", counted=False),
    "portworx_volume": Migrated("kubernetes.io/portworx-volume", "pxd.portworx.com"),
}
"""By the field of :class:`InTreeVolume`."""

PLUGINS = {each.plugin: each for each in MIGRATED.values()}


def handle(field: str, source: InTreeSource, zones: str = "") -> str:
    """Return the CSI volume handle of the disk of a migrated *source*; *zones* is a PersistentVolume's zone label."""
    match field:
        case "aws_elastic_block_store":  # KubernetesVolumeIDToEBSVolumeID: aws://ZONE/ID, aws:///ID or ID
            return source.volume_id.rpartition("/")[2] if source.volume_id.startswith("aws://") else source.volume_id
        case "gce_persistent_disk":
            names = zones.split("__")
            place = f"zones/{zones or 'UNSPECIFIED'}"
            if len(names) > 1:
                place = f"regions/{names[0].rpartition('-')[0]}"
            return f"projects/UNSPECIFIED/{place}/disks/{source.pd_name}"
        case _:
            return source.volume_id or source.disk_uri or source.volume_path or source.share_name


def untranslatable(field: str, source: InTreeSource, zones: str = "") -> str:
    """Return why a *source* has no CSI equivalent, so that kube-scheduler places no pod that has the volume.

    *zones* are as for :func:`handle`. A regional disk needs zones of one region (``gceGetRegionFromZones``).
    """
    if field == "gce_persistent_disk" and "__" in zones:
        names = [each.split("-") for each in zones.split("__")]
        if any(len(each) != 3 for each in names) or len({tuple(each[:2]) for each in names}) > 1:
            return f"a GCE disk in {zones}, which are no zones of one region"
    if field == "azure_disk" and source.kind and source.kind.lower() != "managed":
        return f"an Azure disk of kind {source.kind}, and only managed disks were migrated to CSI"
    return ""


def translated(affinity: NodeSelector | None, labels: Labels, key: str) -> NodeSelector | None:
    """Return the node affinity of a migrated volume with its zones under the driver's *key*.

    Zones of the affinity go before those of *labels* (``translateTopologyFromInTreeToCSI``).
    """
    terms = affinity.node_selector_terms if affinity is not None else ()
    used = {each.key for term in terms for each in term.match_expressions or ()}
    places = (
        *((zone, zone in used) for zone in (ZONE, BETA_ZONE)),
        *((zone, zone in labels) for zone in (ZONE, BETA_ZONE)),
    )
    zone = next((name for name, there in places if there), ZONE)
    renamed = {zone: key} | ({BETA_REGION: REGION} if zone == BETA_ZONE else {})
    added: tuple[Requirement, ...] = ()
    if zone not in used and zone in labels:
        values = tuple(sorted({each.strip() for each in labels[zone].split("__")} - {""}))
        added = (Requirement(key, "In", values),) if values else ()
    if not terms and not added:
        return affinity
    return NodeSelector(
        tuple(
            NodeSelectorTerm(
                tuple(
                    Requirement(renamed.get(each.key, each.key), each.operator, each.values)
                    for each in term.match_expressions or ()
                )
                + added,
                term.match_fields,
            )
            for term in terms or (NodeSelectorTerm(),)
        )
    )


class _Claim(Struct, frozen=True, rename="camel", gc=False):
    claim_name: str = ""


class _EmptyDir(Struct, frozen=True, gc=False):
    medium: str = ""


class StorageRequests(Struct, frozen=True, gc=False):
    """``resources`` of a claim on the wire."""

    requests: dict[str, str] | None = None


class ClaimSpec(Struct, frozen=True, rename="camel", gc=False):
    """``spec`` of a claim, or of the template of one, on the wire."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    volume_mode: str | None = None
    resources: StorageRequests | None = None
    selector: LabelSelector | None = None

    @property
    def size(self) -> str:
        """The storage that the claim requests, empty if it requests none."""
        return ((self.resources and self.resources.requests) or {}).get("storage", "")


class _ClaimTemplate(Struct, frozen=True, gc=False):
    spec: ClaimSpec = ClaimSpec()


class _Ephemeral(Struct, frozen=True, rename="camel", gc=False):
    volume_claim_template: _ClaimTemplate | None = None


class _InlineCSI(Struct, frozen=True, gc=False):
    driver: str = ""


class Volume(InTreeVolume, frozen=True, kw_only=True, rename="camel", gc=False, omit_defaults=True):
    """A pod volume. Decoding drops sources that exist on every node (ConfigMap, Secret, projected, NFS, ...)."""

    name: str
    persistent_volume_claim: _Claim | None = None
    empty_dir: _EmptyDir | None = None
    host_path: Present | None = None
    ephemeral: _Ephemeral | None = None
    csi: _InlineCSI | None = None
    rbd: InTreeSource | None = None
    iscsi: InTreeSource | None = None

    @property
    def matters(self) -> bool:
        """Whether placement or evictability looks at this volume."""
        return any(getattr(self, field) is not None for field in self.__struct_fields__ if field != "name")

    @property
    def local(self) -> bool:
        """Whether the volume's data is lost with the node: ``hostPath``, or ``emptyDir`` on disk (CA's rule)."""
        return self.host_path is not None or (self.empty_dir is not None and self.empty_dir.medium != "Memory")

    @property
    def claims(self) -> bool:
        """Whether the volume is one of a claim: the user's, or the pod's own."""
        return self.persistent_volume_claim is not None or self.ephemeral is not None

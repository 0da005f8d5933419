"""In-tree volume sources, and the CSI drivers to which Kubernetes has migrated them (csi-translation-lib 1.37)."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tightship.objects.selectors import Labels, NodeSelector, NodeSelectorTerm, Requirement

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

"""Volumes as kube-scheduler 1.37.1 sees them: a row for each variant, with the function of upstream that decides.

Paths are below pkg/scheduler/framework/plugins of k8s.io/kubernetes unless they say otherwise.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from cluster_builder import ZONE, node, one, pod, snapshot

from tightship.documents.warnings import warnings_of
from tightship.objects import Pod
from tightship.objects.reasons import Refusal
from tightship.planning.plan import STRATEGIES, Candidate, Judgement, Placement, Planner, make_plan
from tightship.scheduler.fitting import why_nowhere
from tightship.scheduler.space import Space

Json = dict[str, Any]

EBS, GCE, AZURE, CINDER = "ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com", "cinder.csi.openstack.org"
PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
BETA = "failure-domain.beta.kubernetes.io/zone"
GI = 2**30
RWO, RWX, ROX, ONCE_POD = "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"


def claim(name: str, bound_to: str = "", phase: str = "", **more: Any) -> Json:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", **more.pop("meta", {})}
    spec = {
        "accessModes": more.pop("modes", [RWX]),
        "storageClassName": more.pop("of", "fast"),
        "resources": {"requests": {"storage": more.pop("size", "10Gi")}},
        **({"volumeName": bound_to} if bound_to else {}),
        **more,
    }
    status = {"phase": phase or ("Bound" if bound_to else "Pending")}
    return {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec, "status": status}


def volume(name: str, phase: str = "Bound", **more: Any) -> Json:
    meta = {"name": name, **more.pop("meta", {})}
    affinity = more.pop("affinity", None)
    if affinity:
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in affinity]
        more["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    spec = {"accessModes": more.pop("modes", [RWX]), "capacity": {"storage": more.pop("size", "10Gi")}}
    spec |= {"storageClassName": more.pop("of", "fast"), **more}
    return {"kind": "PersistentVolume", "metadata": meta, "spec": spec, "status": {"phase": phase}}


def disk(name: str, driver: str = EBS, handle: str = "", **more: Any) -> Json:
    return volume(name, csi={"driver": driver, "volumeHandle": handle or f"vol-{name}"}, **more)


def storage_class(name: str = "fast", provisioner: str = EBS, mode: str = "WaitForFirstConsumer", **more: Any) -> Json:
    meta = {"name": name, **more.pop("meta", {})}
    return {
        "kind": "StorageClass", "metadata": meta, "provisioner": provisioner, "volumeBindingMode": mode, **more,
    }  # fmt: skip


def csi_node(name: str, *drivers: str, count: int | None = None, migrated: str = "") -> Json:
    given = [{"name": each, "nodeID": name, **({"allocatable": {"count": count}} if count else {})} for each in drivers]
    meta = {"name": name, **({"annotations": {PLUGINS: migrated}} if migrated else {})}
    return {"kind": "CSINode", "metadata": meta, "spec": {"drivers": given}}


def csi_driver(name: str, **spec: Any) -> Json:
    return {"kind": "CSIDriver", "metadata": {"name": name}, "spec": spec}


def capacity(
    name: str, zone: str | None, size: str | None = None, largest: str | None = None, of: str = "fast"
) -> Json:
    found: Json = {"kind": "CSIStorageCapacity", "metadata": {"name": name, "namespace": "kube-system"}}
    found |= {"storageClassName": of}
    if zone is not None:
        found["nodeTopology"] = {"matchLabels": {ZONE: zone}} if zone else {}
    return found | ({"capacity": size} if size else {}) | ({"maximumVolumeSize": largest} if largest else {})


def uses(*claims: str) -> Json:
    return {"volumes": [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]}


def inline(**source: Any) -> Json:
    return {"volumes": [{"name": "d", **source}]}


def ephemeral(of: str | None = "fast", size: str = "10Gi", count: int = 1) -> Json:
    spec: Json = {"accessModes": [RWO], "resources": {"requests": {"storage": size}}}
    if of is not None:
        spec["storageClassName"] = of
    made = {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    return {"volumes": [{"name": f"e{number}", **made} for number in range(count)]}


def judged(spec: Json, things: list[Json]) -> set[str] | str:
    """Names of the nodes that a new pod with *spec* could go to, or why that can't be judged."""
    newcomer = pod("new", **spec)
    have = ("CSINode", "StorageClass", "PersistentVolumeClaim", "PersistentVolume", "CSIStorageCapacity")
    space = Space(snapshot([*things, newcomer], have=have))
    pending = one(newcomer)
    assert isinstance(pending, Pod)
    ask = space.demand_of(pending)
    if ask.unknown is not None:
        return ask.unknown[1]
    return {space.names[index] for index in space.feasible(ask).nonzero()[0]}


A, B = node("a", zone="z1"), node("b", zone="z2")
TWO = [A, B, csi_node("a", EBS, count=1), csi_node("b", EBS, count=1)]
CLASS = storage_class()
MINE = [claim("mine", "pv-mine"), disk("pv-mine")]
UNBOUND = [claim("mine"), CLASS]
ON_A = [claim("old", "pv-old"), disk("pv-old"), pod("old", "a", **uses("old"))]
IN_TREE_EBS = {"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"}}


@pytest.mark.parametrize(
    ("spec", "things", "fits"),
    [
        # nodevolumelimits/csi.go Filter: bound claims, of the newcomer and of those there.
        (uses("mine"), [*MINE, *ON_A], {"b"}),
        # csi.go getVolumeUniqueName: one volume counts once, whatever the claims are called.
        (uses("mine"), [claim("mine", "pv-mine"), disk("pv-mine", handle="vol-pv-old"), *ON_A], {"a", "b"}),
        # csi.go getCSIDriverInfoFromSC: unbound claims count by the provisioner of their class, here and there.
        (uses("mine"), [*UNBOUND, *ON_A], {"b"}),
        (uses("mine"), [*MINE, CLASS, claim("wait"), pod("old", "a", **uses("wait"))], {"b"}),
        # csi.go getCSIDriverInfo: a claim whose volume is not there counts by its class too.
        (uses("mine"), [*MINE, CLASS, claim("wait", "gone"), pod("old", "a", **uses("wait"))], {"b"}),
        # csi.go filterAttachableVolumes: generic ephemeral volumes of those there, and of the newcomer.
        (uses("mine"), [*MINE, CLASS, pod("old", "a", **ephemeral())], {"b"}),
        (ephemeral(), [CLASS, *ON_A], {"b"}),
        (ephemeral(count=2), [CLASS], set()),
        # pkg/volume/util/storageclass.go GetDefaultClass: a claim without a class gets the newest default one.
        (
            ephemeral(None),
            [
                *ON_A,
                storage_class(
                    "old",
                    "kubernetes.io/no-provisioner",
                    meta={
                        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                        "creationTimestamp": "2025-01-01T00:00:00Z",
                    },
                ),
                storage_class(
                    meta={
                        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                        "creationTimestamp": "2026-01-01T00:00:00Z",
                    }
                ),
            ],
            {"b"},
        ),
        # csi.go checkAttachableInlineVolume: an inline CSI volume counts against no limit.
        (inline(csi={"driver": EBS}), ON_A, {"a", "b"}),
        (uses("mine"), [*MINE, pod("old", "a", **inline(csi={"driver": EBS}))], {"a", "b"}),
        # csi.go getNodeVolumeAttachmentInfo (kubernetes#126502): what is attached for no pod, but not in-tree volumes.
        (
            uses("mine"),
            [
                *MINE,
                disk("left"),
                {
                    "kind": "VolumeAttachment",
                    "metadata": {"name": "x"},
                    "spec": {"attacher": EBS, "nodeName": "a", "source": {"persistentVolumeName": "left"}},
                },
            ],
            {"b"},
        ),
        (
            uses("mine"),
            [
                *MINE,
                volume("left", **IN_TREE_EBS),
                {
                    "kind": "VolumeAttachment",
                    "metadata": {"name": "x"},
                    "spec": {"attacher": EBS, "nodeName": "a", "source": {"persistentVolumeName": "left"}},
                },
            ],
            {"a", "b"},
        ),
        # csi.go getVolumeLimits: another driver's volumes don't count.
        (
            uses("mine"),
            [claim("mine", "pv-mine"), disk("pv-mine", "other.csi"), *ON_A, csi_node("a", EBS, "other.csi", count=1)],
            {"a"},
        ),
        # A provisioner that is no CSI driver has no limit and no node.
        (uses("mine"), [claim("mine"), storage_class(provisioner="example.com/nfs"), *ON_A], {"a", "b"}),
    ],
)
def test_attach_limits(spec: Json, things: list[Json], fits: set[str]) -> None:
    names = {each["metadata"]["name"] for each in things if each["kind"] == "CSINode"}
    known = [each for each in TWO if each["kind"] == "Node" or each["metadata"]["name"] not in names]
    assert judged(spec, [*known, *things]) == fits


@pytest.mark.parametrize(
    ("source", "driver", "plugin", "counted"),
    [
        # csi-translation-lib/translate.go inTreePlugins; nodevolumelimits/utils.go isCSIMigrationOn says which count.
        ({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}, EBS, "aws-ebs", True),
        ({"gcePersistentDisk": {"pdName": "d", "readOnly": True}}, GCE, "gce-pd", True),
        ({"azureDisk": {"diskName": "d", "diskURI": "/d", "kind": "Managed"}}, AZURE, "azure-disk", True),
        ({"cinder": {"volumeID": "d"}}, CINDER, "cinder", True),
        ({"portworxVolume": {"volumeID": "d"}}, "pxd.portworx.com", "portworx-volume", True),
        ({"azureFile": {"secretName": "s", "shareName": "d"}}, "file.csi.azure.com", "azure-file", False),
        ({"vsphereVolume": {"volumePath": "[d] d"}}, "csi.vsphere.vmware.com", "vsphere-volume", False),
    ],
)
def test_migrated_volumes_count_as_those_of_their_driver(
    source: Json, driver: str, plugin: str, *, counted: bool
) -> None:
    plugin = f"kubernetes.io/{plugin}"
    nodes = [A, B, csi_node("a", driver, count=1, migrated=plugin), csi_node("b", driver, count=1, migrated=plugin)]
    there = [claim("old", "pv-old"), disk("pv-old", driver), pod("old", "a", **uses("old"))]
    fits = {"b"} if counted else {"a", "b"}
    assert judged(uses("mine"), [*nodes, *there, claim("mine", "pv-mine"), volume("pv-mine", **source)]) == fits
    assert judged(inline(**source), [*nodes, *there]) == fits
    assert judged(uses("mine"), [*nodes, *there, claim("mine"), storage_class(provisioner=plugin)]) == fits
    # A guest's in-tree volume takes the place of a CSI volume.
    held = [claim("old", "pv-old"), volume("pv-old", **source), pod("old", "a", **uses("old"))]
    assert judged(uses("mine"), [*nodes, *held, claim("mine", "pv-mine"), disk("pv-mine", driver)]) == fits
    # A kubelet that has the plugin migrated needs the driver, one that has not does not.
    lacking = [A, B, csi_node("a", migrated=plugin), csi_node("b")]
    assert judged(uses("mine"), [*lacking, claim("mine", "pv-mine"), volume("pv-mine", **source)]) == {"b"}


@pytest.mark.parametrize(
    "source",
    [
        {"nfs": {"server": "s"}},
        {"iscsi": {"iqn": "i"}},
        {"rbd": {"image": "i"}},
        {"fc": {}},
        {"cephfs": {}},
        {"glusterfs": {}},
        {"flexVolume": {"driver": "d"}},
        {"quobyte": {}},
        {"scaleIO": {}},
        {"storageos": {}},
        {"photonPersistentDisk": {}},
        {"flocker": {}},
        {"hostPath": {"path": "/d"}},
        {"local": {"path": "/d"}},
    ],
    ids=lambda source: next(iter(source)),
)
def test_volumes_of_other_types_go_wherever_their_affinity_lets_them(source: Json) -> None:
    # csi.go getCSIDriverInfo: "non-CSI volumes that aren't migratable" are not counted.
    assert judged(uses("mine"), [*TWO, *ON_A, claim("mine", "pv"), volume("pv", **source)]) == {"a", "b"}
    placed = volume("pv", affinity=[(ZONE, "z2")], **source)
    assert judged(uses("mine"), [*TWO, claim("mine", "pv"), placed]) == {"b"}


@pytest.mark.parametrize(
    ("labels", "affinity", "fits"),
    [
        # volumebinding/binder.go checkBoundClaims; csi-translation-lib/plugins/in_tree_volume.go
        # translateTopologyFromInTreeToCSI: zones of the affinity come under the driver's key, ...
        ({}, [(ZONE, "z1")], {"a"}),
        ({}, [(BETA, "z1")], {"a"}),
        # ... those of labels if the affinity has none, ...
        ({BETA: "z1__z3"}, [], {"a"}),
        # ... and other keys stay.
        ({}, [("disk", "b")], {"b"}),
        ({}, [], {"a", "b"}),
    ],
)
def test_the_topology_of_a_migrated_volume(labels: Json, affinity: list[tuple[str, str]], fits: set[str]) -> None:
    key = "topology.ebs.csi.aws.com/zone"
    nodes = [node("a", labels={key: "z1", "disk": "a"}), node("b", labels={key: "z2", "disk": "b"})]
    drivers = [csi_node(name, EBS, migrated="kubernetes.io/aws-ebs,kubernetes.io/cinder") for name in "ab"]
    things = [claim("mine", "pv"), volume("pv", meta={"labels": labels}, affinity=affinity, **IN_TREE_EBS)]
    assert judged(uses("mine"), [*nodes, *drivers, *things]) == fits


def test_a_regional_disk_is_in_reach_of_its_zones() -> None:
    # csi-translation-lib/plugins/gce_pd.go TranslateInTreePVToCSI
    zones, key = ["europe-west1-b", "europe-west1-c", "europe-west1-d"], "topology.gke.io/zone"
    nodes = [node(zone[-1], labels={key: zone, ZONE: zone}) for zone in zones]
    drivers = [csi_node(zone[-1], GCE, migrated="kubernetes.io/gce-pd") for zone in zones]
    labels = {ZONE: "__".join(zones[:2])}
    things = [claim("mine", "pv"), volume("pv", meta={"labels": labels}, gcePersistentDisk={"pdName": "d"})]
    assert judged(uses("mine"), [*nodes, *drivers, *things]) == {"b", "c"}


def test_the_topology_of_an_in_tree_volume_stays_where_its_plugin_is_not_migrated() -> None:
    # binder.go isPluginMigratedToCSIOnNode
    nodes = [node("a", labels={BETA: "z1"}), node("b", labels={BETA: "z2"})]
    things = [claim("mine", "pv"), volume("pv", affinity=[(BETA, "z1")], **IN_TREE_EBS)]
    assert judged(uses("mine"), [*nodes, csi_node("a"), csi_node("b"), *things]) == {"a"}


@pytest.mark.parametrize(
    ("labels", "there", "fits"),
    [
        # volumezone/volume_zone.go Filter
        ({ZONE: "z1"}, {ZONE: "z1"}, True),
        ({ZONE: "z1__z2"}, {ZONE: "z2"}, True),
        ({ZONE: "z1"}, {ZONE: "z2"}, False),
        ({BETA: "z1"}, {ZONE: "z1"}, True),
        ({BETA: "z1"}, {ZONE: "z2"}, False),
        ({ZONE: "z1"}, {BETA: "z1"}, False),
        ({ZONE: "z1"}, {}, True),  # "to handle a single-zone cluster scenario"
        ({ZONE: "z1"}, {"topology.kubernetes.io/region": "r"}, False),
        ({ZONE: "z1__"}, {ZONE: "z2"}, True),  # a label that can't be parsed is ignored
    ],
)
def test_zone_labels(labels: Json, there: Json, *, fits: bool) -> None:
    things = [node("a", labels=there), csi_node("a", EBS), claim("mine", "pv"), disk("pv", meta={"labels": labels})]
    assert judged(uses("mine"), things) == ({"a"} if fits else set())


LOCAL = storage_class(provisioner="kubernetes.io/no-provisioner")
TOLD = [CLASS, csi_driver(EBS, storageCapacity=True)]


@pytest.mark.parametrize(
    ("mine", "things", "fits"),
    [
        # volumebinding/binder.go checkVolumeProvisions: allowedTopologies.
        (
            claim("mine"),
            [storage_class(allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}])],
            {"b"},
        ),
        # binder.go hasEnoughCapacity, capacitySufficient, nodeHasAccess.
        (claim("mine"), TOLD, set()),
        (claim("mine"), [*TOLD, capacity("1", "z1", "10Gi"), capacity("2", "z2", "9Gi")], {"a"}),
        (claim("mine"), [*TOLD, capacity("1", "z1", "90Gi", "9Gi"), capacity("2", "z2", "1Gi", "10Gi")], {"b"}),
        (claim("mine"), [*TOLD, capacity("1", "", "10Gi")], {"a", "b"}),
        (claim("mine"), [*TOLD, capacity("1", None, "10Gi"), capacity("2", "z2")], set()),
        (claim("mine"), [*TOLD, capacity("1", "z1", "10Gi", of="slow")], set()),
        (claim("mine"), [CLASS, csi_driver(EBS), capacity("2", "z2", "1Gi")], {"a", "b"}),
        # binder.go FindPodVolumes: the node that was selected, and no other.
        (claim("mine", meta={"annotations": {"volume.kubernetes.io/selected-node": "b"}}), [CLASS], {"b"}),
        # component-helpers/storage/volume/pv_helpers.go FindMatchingVolume: a volume for the claim, ...
        (
            claim("mine"),
            [
                LOCAL,
                volume("v", "Available", claimRef={"namespace": "default", "name": "mine"}, affinity=[(ZONE, "z2")]),
            ],
            {"b"},
        ),
        (claim("mine"), [LOCAL, volume("v", "Available", claimRef={"namespace": "default", "name": "other"})], set()),
        # ... or a free one that is large enough, of the class, the modes, the kind and the labels.
        (claim("mine"), [LOCAL, volume("v", "Available", affinity=[(ZONE, "z2")])], {"b"}),
        (claim("mine"), [LOCAL, volume("v", "Released")], set()),
        (claim("mine"), [LOCAL, volume("v", "Available", size="9Gi")], set()),
        (claim("mine"), [LOCAL, volume("v", "Available", of="slow")], set()),
        (claim("mine"), [LOCAL, volume("v", "Available", modes=[RWO])], set()),
        (claim("mine"), [LOCAL, volume("v", "Available", volumeMode="Block")], set()),
        (claim("mine", selector={"matchLabels": {"tier": "x"}}), [LOCAL, volume("v", "Available")], set()),
        (
            claim("mine", selector={"matchLabels": {"tier": "x"}}),
            [LOCAL, volume("v", "Available", meta={"labels": {"tier": "x"}})],
            {"a", "b"},
        ),
        (claim("mine"), [LOCAL, volume("v", "Available", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})], set()),
        # binder.go FindPodVolumes: what no free volume suits is provisioned.
        (
            claim("mine"),
            [*TOLD, capacity("1", "z1", "10Gi"), volume("v", "Available", affinity=[(ZONE, "z2")])],
            {"a", "b"},
        ),
        # volumeutil.GetPersistentVolumeClaimClass: the beta annotation goes first.
        (
            claim("mine", of="none", meta={"annotations": {"volume.beta.kubernetes.io/storage-class": "fast"}}),
            [CLASS],
            {"a", "b"},
        ),
    ],
)
def test_claims_that_are_bound_on_the_chosen_node(mine: Json, things: list[Json], fits: set[str]) -> None:
    assert judged(uses("mine"), [*TWO, mine, *things]) == fits


def test_an_ephemeral_volume_is_made_where_there_is_room_for_it() -> None:
    room = [*TOLD, capacity("1", "z1", "10Gi"), capacity("2", "z2", "20Gi")]
    assert judged(ephemeral(size="15Gi"), [*TWO, *room]) == {"b"}


@pytest.mark.parametrize(
    ("spec", "things", "word"),
    [
        # volumebinding/volume_binding.go podHasPVCs and PreFilter: no node takes such a pod.
        (uses("mine"), [], "does not exist"),
        (
            uses("mine"),
            [claim("mine", "pv-mine", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), disk("pv-mine")],
            "is being deleted",
        ),
        (uses("mine"), [claim("mine", "gone", "Lost"), CLASS], "volume gone of claim default/mine does not exist"),
        (uses("mine"), [claim("mine", "pv-mine", "Pending"), disk("pv-mine")], "not bound to volume pv-mine yet"),
        (uses("mine"), [claim("mine"), storage_class(mode="Immediate")], "may bind anywhere"),
        (uses("mine"), [claim("mine", of="none")], "storage class none does not exist"),
        (uses("mine"), [claim("mine", of="")], "it has no storage class"),
        (ephemeral("none"), [], "storage class none does not exist"),
        (ephemeral(None), [CLASS], "there is no default storage class"),
        # csi-translation-lib/plugins/azure_disk.go TranslateInTreePVToCSI and TranslateInTreeInlineVolumeToCSI.
        (
            uses("mine"),
            [claim("mine", "pv"), volume("pv", azureDisk={"diskURI": "u", "kind": "Dedicated"})],
            "kind Dedicated",
        ),
        (inline(azureDisk={"diskURI": "u", "kind": "Shared"}), [], "kind Shared"),
        # csi-translation-lib/plugins/gce_pd.go gceGetRegionFromZones (seen on the real scheduler).
        (
            uses("mine"),
            [claim("mine", "pv"), volume("pv", meta={"labels": {BETA: "z1__z2"}}, gcePersistentDisk={"pdName": "d"})],
            "no zones of one region",
        ),
    ],
)
def test_a_volume_that_no_new_pod_can_use_blocks_its_pod(spec: Json, things: list[Json], word: str) -> None:
    found = judged(spec, [*TWO, *things])
    assert isinstance(found, str)
    assert word in found


RBD = {"monitors": ["m1", "m2"], "image": "i"}


@pytest.mark.parametrize(
    ("mine", "there", "conflict"),
    [
        # volumerestrictions/volume_restrictions.go isVolumeConflict
        ({"gcePersistentDisk": {"pdName": "d"}}, {"gcePersistentDisk": {"pdName": "d", "readOnly": True}}, True),
        ({"gcePersistentDisk": {"pdName": "d", "readOnly": True}}, {"gcePersistentDisk": {"pdName": "d"}}, True),
        (
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            False,
        ),
        ({"gcePersistentDisk": {"pdName": "d"}}, {"gcePersistentDisk": {"pdName": "e"}}, False),
        (
            {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
            {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
            True,
        ),
        ({"iscsi": {"iqn": "i"}}, {"iscsi": {"iqn": "i", "readOnly": True}}, True),
        ({"iscsi": {"iqn": "i", "readOnly": True}}, {"iscsi": {"iqn": "i", "readOnly": True}}, False),
        ({"rbd": RBD}, {"rbd": {"monitors": ["m2", "m3"], "image": "i", "pool": "rbd"}}, True),
        ({"rbd": RBD}, {"rbd": {"monitors": ["m3"], "image": "i"}}, False),
        ({"rbd": RBD}, {"rbd": RBD | {"pool": "other"}}, False),
        ({"rbd": RBD | {"readOnly": True}}, {"rbd": RBD | {"readOnly": True}}, False),
        ({"cinder": {"volumeID": "v"}}, {"cinder": {"volumeID": "v"}}, False),
    ],
)
def test_disks_that_pods_on_one_node_cant_share(mine: Json, there: Json, *, conflict: bool) -> None:
    nodes = [A, B, *(csi_node(name, EBS, GCE, CINDER) for name in "ab")]
    fits = judged(inline(**mine), [*nodes, pod("old", "a", **inline(**there))])
    assert fits == ({"b"} if conflict else {"a", "b"})


OLD = pod("old", "a", **uses("mine"))


@pytest.mark.parametrize(
    ("modes", "things", "fits"),
    [
        # pkg/volume/util/util.go IsMultiAttachAllowed: the modes of the volume decide.
        ([RWO], [OLD], {"a"}),
        ([RWO, ROX], [OLD], {"a", "b"}),
        ([RWX], [OLD], {"a", "b"}),
        ([ROX], [OLD], {"a", "b"}),
        ([RWO], [], {"a", "b"}),
        # Pods that are split already can't be helped by a third.
        ([RWO], [OLD, pod("older", "b", **uses("mine"))], set()),
        # A pod that leaves gives its volume back.
        ([RWO], [pod("old", "a", deletionTimestamp="2026-01-01T00:00:00Z", **uses("mine"))], {"a", "b"}),
        # volume_restrictions.go calPreFilterState: with this mode, nobody beside the one that has it.
        ([ONCE_POD], [OLD], set()),
        ([ONCE_POD], [], {"a", "b"}),
        # A driver that attaches nothing splits nothing.
        ([RWO], [OLD, csi_driver(EBS, attachRequired=False)], {"a", "b"}),
        ([RWO], [OLD, csi_driver(EBS, attachRequired=True)], {"a"}),
    ],
)
def test_a_claim_that_pods_on_two_nodes_cant_share(modes: list[str], things: list[Json], fits: set[str]) -> None:
    nodes = [A, B, csi_node("a", EBS), csi_node("b", EBS)]
    mine = [claim("mine", "pv", modes=modes), disk("pv", modes=modes)]
    assert judged(uses("mine"), [*nodes, *mine, *things]) == fits


@pytest.mark.parametrize("source", ["nfs", "hostPath", "local", "cephfs", "azureFile"])
def test_a_volume_that_is_never_attached_is_shared_whatever_its_mode(source: str) -> None:
    nodes = [A, B, csi_node("a", "file.csi.azure.com"), csi_node("b", "file.csi.azure.com")]
    things = [claim("mine", "pv", modes=[RWO]), volume("pv", modes=[RWO], **{source: {}}), OLD]
    assert judged(uses("mine"), [*nodes, *things]) == {"a", "b"}


@pytest.mark.parametrize(
    "source", [IN_TREE_EBS, {"iscsi": {"iqn": "i"}}, {"fc": {}}], ids=lambda each: next(iter(each))
)
def test_an_in_tree_volume_is_attached_once_only(source: Json) -> None:
    nodes = [A, B, csi_node("a", EBS), csi_node("b", EBS)]
    things = [claim("mine", "pv", modes=[RWO]), volume("pv", modes=[RWO], **source), OLD]
    assert judged(uses("mine"), [*nodes, *things]) == {"a"}


def test_an_unbound_claim_is_shared_as_its_volume_will_be() -> None:
    things = [*TWO, claim("mine", modes=[RWO]), CLASS, OLD]
    assert judged(uses("mine"), things) == {"a"}


def test_a_node_without_the_driver_of_an_inline_csi_volume_is_no_destination() -> None:
    assert judged(inline(csi={"driver": "secrets.csi"}), [A, B, csi_node("a", "secrets.csi"), csi_node("b")]) == {"a"}


def test_kinds_that_were_not_read_block_volumes_that_need_them() -> None:
    seen = snapshot([A, B, CLASS, pod("p", "a", **ephemeral())])
    unknown = Space(seen).demand_of(seen.nodes["a"].pods[0]).unknown
    assert unknown is not None
    assert "CSINode objects could not be read" in unknown[1]


def test_new_volumes_of_a_driver_that_tells_capacity_need_to_be_told() -> None:
    seen = snapshot([*TWO, *TOLD, pod("p", "a", **ephemeral())], have=("PersistentVolume",))
    unknown = Space(seen).demand_of(seen.nodes["a"].pods[0]).unknown
    assert unknown is not None
    assert "CSIStorageCapacity objects could not be read" in unknown[1]


@pytest.mark.parametrize(("why", "reported"), [("forbidden", True), ("not in the file", False), ("not served", False)])
def test_kinds_that_only_refine_the_picture_are_missed_in_words(why: str, *, reported: bool) -> None:
    seen = snapshot([*TWO, *MINE, pod("p", "a", **uses("mine"))], have=("StorageClass",))
    missing = {**seen.missing, "CSIDriver": why, "CSIStorageCapacity": why, "VolumeAttachment": why}
    warned = warnings_of(msgspec.structs.replace(seen, missing=missing))
    words = "CSIDrivers, CSIStorageCapacities and VolumeAttachments are forbidden: volumes are judged without them"
    assert (words in warned) is reported


def test_where_only_the_scheduler_chooses_nothing_else_may_tempt_a_pod_away_from_its_claim() -> None:
    nodes = [A, B, csi_node("a", EBS), csi_node("b", EBS)]
    mine = [claim("mine", "pv", modes=[RWO]), disk("pv", modes=[RWO])]
    newcomer = pod("new", **uses("mine"))
    pending = one(newcomer)
    assert isinstance(pending, Pod)
    full = pod("full", "b", cpu="4")
    for things, fits in (([], []), ([full], [True, False])):
        space = Space(snapshot([*nodes, *mine, OLD, *things, newcomer], have=("StorageClass",)))
        space.constraints.volumes.scheduler_chooses = True
        mask = space.feasible(space.demand_of(pending))
        assert mask.tolist() == (fits or [False, False])


def test_what_pods_take_is_given_back_when_moves_are_undone() -> None:
    things = [*TWO, *MINE, *ON_A, CLASS, pod("eph", "b", **ephemeral()), pod("disk", "b", **inline(iscsi={"iqn": "i"}))]
    seen = snapshot(things)
    space = Space(seen)
    asks = {
        each.name: (space.demand_of(each), space.index[view.name]) for view in seen.nodes.values() for each in view.pods
    }
    before = {name: space.feasible(ask).tolist() for name, (ask, _) in asks.items()}
    mark = space.mark()
    for ask, index in asks.values():
        space.remove(ask, index)
    assert all(space.feasible(ask).all() for ask, _ in asks.values())
    space.rollback(mark)
    assert {name: space.feasible(ask).tolist() for name, (ask, _) in asks.items()} == before


@pytest.mark.parametrize(
    ("things", "words"),
    [
        ([*ON_A, claim("b", "pv-b"), disk("pv-b"), pod("other", "b", **uses("b")), *MINE], "2 volume attach limit"),
        (
            [claim("mine", "pv-mine"), disk("pv-mine", modes=[RWO]), OLD, pod("older", "b", **uses("mine"))],
            "2 volume attach limit or claim shared with pods elsewhere",
        ),
    ],
)
def test_what_keeps_a_volume_away_is_told(things: list[Json], words: str) -> None:
    newcomer = pod("new", **uses("mine"))
    space = Space(snapshot([*TWO, *things, newcomer], have=("StorageClass",)))
    pending = one(newcomer)
    assert isinstance(pending, Pod)
    assert why_nowhere(space, space.demand_of(pending))[0] == f"fits on 0 of 2 nodes: {words}"


SHARING = [
    *(csi_node(name, EBS) for name in "abc"), CLASS, claim("mine", "pv", modes=[RWO]), disk("pv", modes=[RWO]),
    pod("p", "a", cpu="1", **uses("mine")), pod("q", "a", cpu="1", **uses("mine")),
]  # fmt: skip
THREE = [node("a"), node("b"), node("c")]


def removed(things: list[Json], placement: Placement = "possible") -> dict[str, str] | None:
    """Where the pods of node a go, ``None`` if the node stays."""
    seen = snapshot(things)
    ready = tuple(Candidate(name, "", 0.5, view.pods) for name, view in seen.nodes.items() if name == "a")
    found = make_plan(seen, lambda _: Judgement(ready, {}, AnyPace()), STRATEGIES["least-utilized"], placement)
    return {move.pod.name: move.target for each in found.removals for move in each.moves} or None


class AnyPace:
    """Gates that are open."""

    def refuses(self, _candidate: Candidate, _planner: Planner) -> list[Refusal]:
        return []


@pytest.mark.parametrize(
    ("others", "goes"),
    [
        # Room for one of them on each of two nodes (longhorn#2185), and for both on one.
        ([pod("x", "b", cpu="3"), pod("y", "c", cpu="3")], None),
        ([pod("x", "b", cpu="3"), pod("y", "c", cpu="2")], {"p": "c", "q": "c"}),
        # One more that stays says where.
        ([pod("x", "b", cpu="1", **uses("mine"))], {"p": "b", "q": "b"}),
        ([pod("x", "b", cpu="3", **uses("mine"))], None),
        # A budget that lets them go one after another: the first can't start while the second has the volume.
        (
            [pod("y", "c", cpu="2"), {
                "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default", "generation": 1},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
                "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "expectedPods": 3, "currentHealthy": 3,
                           "desiredHealthy": 2}}],
            None,
        ),
    ],
)  # fmt: skip
def test_pods_that_share_a_claim_go_to_one_node_or_nowhere(others: list[Json], goes: dict[str, str] | None) -> None:
    assert removed([*THREE, *SHARING, *others]) == goes


def test_the_claim_that_keeps_pods_together_is_named() -> None:
    """Each of the two has a claim of its own besides, which keeps nobody."""
    own = [pod(name, "a", cpu="2", **uses("mine", f"own-{name}")) for name in "pq"]
    claims = [
        each
        for name in "pq"
        for each in (claim(f"own-{name}", f"pv-{name}", modes=[RWO]), disk(f"pv-{name}", modes=[RWO]))
    ]
    full = [pod(f"x{name}", name, cpu="2") for name in "bc"]
    seen = snapshot([*THREE, *SHARING[:-2], *claims, *own, *full])
    ready = tuple(Candidate(name, "", 0.5, view.pods) for name, view in seen.nodes.items() if name == "a")
    found = make_plan(seen, lambda _: Judgement(ready, {}, AnyPace()), STRATEGIES["least-utilized"], "possible")
    [detail] = {each.detail for each in found.refusals["a"]}
    assert detail == (
        "this pod alone would fit elsewhere, but not surely on one node with all that share claim default/mine "
        "(it is attached to one at a time)"
    )


def test_the_scheduler_must_have_no_choice_to_part_them() -> None:
    full = pod("x", "b", cpu="4")
    assert removed([*THREE, *SHARING, full], "likely") == {"p": "c", "q": "c"}
    assert removed([*THREE, *SHARING], "likely") is None

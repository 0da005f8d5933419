"""Volumes of every kind that a scheduler knows, at random, for the ReplicaSets of a random cluster."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tightship_simulator.random_pods import HOST, ZONE

Json = dict[str, Any]

EBS, GCE, AZURE = "ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com"
_DRIVERS = (EBS, GCE, AZURE)
_PLUGINS = "kubernetes.io/aws-ebs,kubernetes.io/gce-pd,kubernetes.io/azure-disk"
_TOPOLOGY = {EBS: "topology.ebs.csi.aws.com/zone", GCE: "topology.gke.io/zone", AZURE: ZONE}
_BETA = "failure-domain.beta.kubernetes.io/zone"
_ONCE, _MANY, _READ, _POD = "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"
_STORAGE = "storage.k8s.io/v1"
_DISKS = "/subscriptions/s/resourcegroups/g/providers/microsoft.compute/disks"


def with_volumes(cluster: Json, seed: int) -> Json:
    """Return *cluster* with volumes for about half of its ReplicaSets, and what belongs to them on its nodes.

    The claims of ephemeral volumes are left to their controller.
    """
    return {**cluster, "items": _Maker(random.Random(seed), cluster["items"]).items()}  # noqa: S311


class _Maker:
    def __init__(self, rng: random.Random, items: list[Json]) -> None:
        self.rng = rng
        self.before = items
        self.made: list[Json] = []
        self.nodes = [each for each in items if each["kind"] == "Node"]
        self.zones = sorted({each["metadata"]["labels"].get(ZONE, "z1") for each in self.nodes})
        self.variants: tuple[Callable[[str, str], Json], ...] = (
            self.bound, self.bound, self.bound, self.ephemeral, self.ephemeral, self.inline,
        )  # fmt: skip

    def items(self) -> list[Json]:
        rng = self.rng
        for node in self.nodes:
            self.node(node)
        self.classes()
        for owner in [each for each in self.before if each["kind"] == "ReplicaSet"]:
            if rng.random() < 0.4:
                continue
            name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
            volumes = [
                {"name": f"v{number}", **rng.choice(self.variants)(f"{name}-{number}", namespace)}
                for number in range(rng.choice((1, 1, 1, 2)))
            ]
            owner["spec"]["template"]["spec"]["volumes"] = volumes
            for pod in self.before:
                owners = pod["metadata"].get("ownerReferences") or [{"uid": ""}]
                if pod["kind"] == "Pod" and owners[0]["uid"] == owner["metadata"]["uid"]:
                    pod["spec"]["volumes"] = volumes
        return [*self.before, *self.made]

    def thing(self, version: str, kind: str, name: str, namespace: str = "", **more: Any) -> Json:
        meta = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("meta", {})}
        self.made.append(found := {"apiVersion": version, "kind": kind, "metadata": meta, **more})
        return found

    def node(self, node: Json) -> None:
        rng, labels, name = self.rng, node["metadata"]["labels"], node["metadata"]["name"]
        if ZONE in labels:
            labels |= dict.fromkeys(_TOPOLOGY.values(), labels[ZONE])
            if rng.random() < 0.7:
                labels[_BETA] = labels[ZONE]
        drivers = [
            {
                "name": each,
                "nodeID": name,
                **({"allocatable": {"count": rng.randint(1, 5)}} if rng.random() < 0.8 else {}),
            }
            for each in _DRIVERS
        ]
        notes = {"storage.alpha.kubernetes.io/migrated-plugins": _PLUGINS} if rng.random() < 0.9 else {}
        self.thing(_STORAGE, "CSINode", name, meta={"annotations": notes}, spec={"drivers": drivers})
        if rng.random() < 0.2:
            left = self.volume(f"left-{name}", EBS, [_ONCE])
            spec = {"attacher": EBS, "nodeName": name, "source": {"persistentVolumeName": left}}
            self.thing(_STORAGE, "VolumeAttachment", f"left-{name}", spec=spec)

    def classes(self) -> None:
        """Classes whose volumes are made on the node that was chosen: anywhere, in some zones, where there is room."""
        rng = self.rng
        late = {"volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Retain"}
        allowed = rng.sample(self.zones, rng.randint(1, len(self.zones)))
        zones = [{"matchLabelExpressions": [{"key": ZONE, "values": allowed}]}]
        self.thing(_STORAGE, "StorageClass", "anywhere", provisioner=EBS, **late)
        self.thing(_STORAGE, "StorageClass", "zones", provisioner=GCE, allowedTopologies=zones, **late)
        self.thing(_STORAGE, "StorageClass", "migrated", provisioner="kubernetes.io/gce-pd", **late)
        self.thing(_STORAGE, "StorageClass", "room", provisioner=AZURE, **late)
        for driver in _DRIVERS:
            self.thing(_STORAGE, "CSIDriver", driver, spec={"storageCapacity": driver == AZURE})
        for number, zone in enumerate(self.zones):
            if rng.random() < 0.8:
                size = f"{rng.choice((1, 5, 20))}Gi"
                most = {"maximumVolumeSize": rng.choice(("1Gi", "20Gi"))} if rng.random() < 0.4 else {}
                topology = {"matchLabels": {ZONE: zone}}
                more = {"storageClassName": "room", "nodeTopology": topology, "capacity": size, **most}
                self.thing(_STORAGE, "CSIStorageCapacity", f"room-{number}", "default", **more)

    def bound(self, name: str, namespace: str) -> Json:
        """A claim that all pods of a workload share."""
        rng = self.rng
        modes = rng.choice(([_MANY], [_MANY], [_READ], [_ONCE], [_ONCE, _READ], [_POD]))
        driver = rng.choice((EBS, GCE, "aws", "gce", "azure", "nfs", "iscsi"))
        made = self.volume(f"pv-{namespace}-{name}", driver, modes, claim=(namespace, name))
        spec = {"accessModes": modes, "storageClassName": "kept", "resources": {"requests": {"storage": "1Gi"}}}
        self.thing("v1", "PersistentVolumeClaim", name, namespace, spec={**spec, "volumeName": made})
        return {"persistentVolumeClaim": {"claimName": name}}

    def volume(self, name: str, driver: str, modes: list[str], claim: tuple[str, str] = ("", "")) -> str:
        rng, zone = self.rng, self.rng.choice(self.zones)
        sources: dict[str, Json] = {
            "aws": {"awsElasticBlockStore": {"volumeID": f"aws://{zone}/vol-{name}"}},
            "gce": {"gcePersistentDisk": {"pdName": name}},
            "azure": {"azureDisk": {"diskName": name, "diskURI": f"{_DISKS}/{name}", "kind": "Managed"}},
            "nfs": {"nfs": {"server": "s", "path": "/"}},
            "iscsi": {"iscsi": {"targetPortal": "p:1", "iqn": _iqn(name), "lun": 0}},
        }
        source = sources.get(driver) or {"csi": {"driver": driver, "volumeHandle": f"h-{name}"}}
        spec = {
            "capacity": {"storage": "1Gi"}, "accessModes": modes, "storageClassName": "kept",
            "persistentVolumeReclaimPolicy": "Retain", **source,
        }  # fmt: skip
        if claim[1]:
            spec["claimRef"] = {"namespace": claim[0], "name": claim[1]}
        several = 1 if driver == "gce" else len(self.zones)  # these are no zones of Google's
        labels = {rng.choice((ZONE, _BETA)): "__".join(rng.sample(self.zones, rng.randint(1, several)))}
        if rng.random() < 0.4:
            key = rng.choice((_TOPOLOGY.get(driver, ZONE), ZONE, _BETA))
            term = {"matchExpressions": [{"key": key, "operator": "In", "values": [zone]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        elif rng.random() < 0.15:
            some = rng.sample(self.nodes, rng.randint(1, len(self.nodes)))
            hosts = [each["metadata"]["name"] for each in some]
            term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": hosts}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        self.thing("v1", "PersistentVolume", name, meta={"labels": labels if rng.random() < 0.3 else {}}, spec=spec)
        return name

    def ephemeral(self, _name: str, _namespace: str) -> Json:
        spec = {
            "accessModes": [self.rng.choice((_ONCE, _ONCE, _POD))],
            "storageClassName": self.rng.choice(("anywhere", "zones", "migrated", "room")),
            "resources": {"requests": {"storage": self.rng.choice(("1Gi", "10Gi"))}},
        }
        return {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}

    def inline(self, name: str, _namespace: str) -> Json:
        reads = self.rng.random() < 0.5
        options: tuple[Json, ...] = (
            {"csi": {"driver": self.rng.choice(_DRIVERS)}},
            {"awsElasticBlockStore": {"volumeID": f"vol-{name}", "readOnly": reads}},
            {"gcePersistentDisk": {"pdName": name, "readOnly": reads}},
            {"azureDisk": {"diskName": name, "diskURI": f"{_DISKS}/{name}", "kind": "Managed", "readOnly": reads}},
            {"iscsi": {"targetPortal": "p:1", "iqn": _iqn(name), "lun": 0, "readOnly": reads}},
            {"rbd": {"monitors": ["m1", self.rng.choice(("m2", "m3"))], "image": "i", "readOnly": reads}},
            {"nfs": {"server": "s", "path": "/"}},
        )  # fmt: skip
        return self.rng.choice(options)


def _iqn(name: str) -> str:
    return f"iqn.2026-01.d:{name.replace('-', '')}"

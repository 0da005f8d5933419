"""A node whose disk holds the data of a claim stays, though no pod uses them now (kubernetes/autoscaler#4369)."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_builder import HOST, ZONE, node, pod, snapshot

from tightship.objects.reasons import Reason
from tightship.planning.facts import FactRules, gather
from tightship.rules.nodes import NodeRules

Json = dict[str, Any]

TOPOLVM = "topology.topolvm.io/node"
ZFS = "openebs.io/nodeid"
STABLE = "example.com/machine"
RACK = "example.com/rack"


def claim(volume: str = "pv", **meta: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-db-0", "namespace": "default", **meta},
        "spec": {"volumeName": volume},
        "status": {"phase": "Bound"},
    }


def volume(key: str, *values: str, **source: Json) -> Json:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    spec = {
        "claimRef": {"name": "data-db-0", "namespace": "default"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        **source,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec}


THEN = "2026-01-01T00:00:00Z"
OWN = [{"apiVersion": "v1", "kind": "Pod", "name": "data", "uid": "u", "controller": True}]


def using(**more: Any) -> Json:
    return pod("db-0", "n1", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data-db-0"}}], **more)


ROWS: list[tuple[str, list[Json], bool]] = [
    ("a local volume", [claim(), volume(HOST, "n1")], True),
    ("a volume of TopoLVM", [claim(), volume(TOPOLVM, "n1")], True),
    ("a volume of OpenEBS' ZFS", [claim(), volume(ZFS, "1")], True),
    ("a local volume by a label of its own", [claim(), volume(STABLE, "m1", hostPath={"path": "/d"})], True),
    ("a local volume that two nodes may have", [claim(), volume(RACK, "a", local={"path": "/d"})], False),
    ("a disk of another machine", [claim(), volume(STABLE, "m1", csi={"driver": "disk.example.com"})], False),
    ("a pod uses the claim: no other place takes it", [claim(), volume(HOST, "n1"), using()], False),
    ("the pod of the claim has ended", [claim(), volume(HOST, "n1"), using(phase="Succeeded")], True),
    ("the pod of the claim goes", [claim(), volume(HOST, "n1"), using(deletionTimestamp=THEN)], True),
    ("a DaemonSet's pod needs no other place", [claim(), volume(HOST, "n1"), using(owner="DaemonSet/db")], True),
    ("an expendable pod needs none", [claim(), volume(HOST, "n1"), using(priority=-100)], True),
    ("an ephemeral volume of a pod", [claim(ownerReferences=OWN), volume(HOST, "n1")], False),
    ("the claim goes", [claim(deletionTimestamp=THEN), volume(HOST, "n1")], False),
    ("a pod of another claim", [claim(), volume(HOST, "n1"), pod("web", "n1")], True),
    ("the claim is gone", [volume(HOST, "n1")], False),
    ("a later claim of that name has another volume", [claim("other"), volume(HOST, "n1")], False),
    ("two nodes reach the volume", [claim(), volume(HOST, "n1", "n2")], False),
    ("another node's", [claim(), volume(HOST, "n2")], False),
    ("a disk of the zone", [claim(), volume(ZONE, "a")], False),
]


@pytest.mark.parametrize(("things", "kept"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_node_keeps_the_data_of_a_claim(things: list[Json], *, kept: bool) -> None:
    labels = {TOPOLVM: "n1", ZFS: "1", STABLE: "m1", RACK: "a"}
    nodes = [node("n1", zone="a", labels=labels), node("n2", zone="b", labels={RACK: "a"})]
    seen = snapshot([*nodes, *things])
    found = [each for each in gather(seen, FactRules(), 0.0)["n1"].refusals if each.reason is Reason.LOCAL_STORAGE]
    assert [each.subject for each in found] == ["claim default/data-db-0"] * kept
    off = FactRules(nodes=NodeRules(frozenset({Reason.LOCAL_STORAGE})))
    assert Reason.LOCAL_STORAGE not in {each.reason for each in gather(seen, off, 0.0)["n1"].refusals}

"""The command ``tightship snapshot``: a plan of its file is that of the cluster, and it holds nothing else."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tightship.cli.pseudonyms import anonymous
from tightship.kube.resources import RESOURCES
from tightship.objects import decode
from tightship.objects.autoscaler_status import AutoscalerStatus
from tightship.objects.projection import projected
from tightship_cli.cli import command
from tightship_simulator.generate import off_peak_cluster
from tightship_simulator.serve import EmbeddedCluster
from tightship_testkit import commands
from tightship_testkit.commands import Outcome

GOLDEN = Path(__file__).resolve().parents[2] / "node-compactor" / "tests" / "golden" / "cluster.json"
NOW = "2026-10-01T12:00:00Z"
SECRET = "xyzzy"
"""In all that a snapshot must not hold."""

Json = dict[str, Any]
Cli = Callable[..., Outcome]


def thing(kind: str, version: str, name: str, **rest: Any) -> Json:
    meta = {"name": name, **rest.pop("metadata", {})}
    meta["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": SECRET, **meta.get("annotations", {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **rest}


def extension(kind: str, group: str, version: str) -> Json:
    spec = {"group": group, "versions": [{"name": version, "served": True}]}
    return thing("CustomResourceDefinition", "apiextensions.k8s.io/v1", f"{kind.lower()}s.{group}", spec=spec)


CONTAINER = {
    "name": "main",
    "image": f"registry/{SECRET}:1",
    "args": [f"--token={SECRET}"],
    "command": [SECRET],
    "env": [{"name": "TOKEN", "value": SECRET}],
    "envFrom": [{"secretRef": {"name": SECRET}}],
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
}
SPEC = {
    "containers": [CONTAINER],
    "imagePullSecrets": [{"name": SECRET}],
    "volumes": [
        {"name": SECRET, "secret": {"secretName": SECRET}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
    ],
}
SHOP = {"namespace": "shop"}
TEMPLATE = {"metadata": {"labels": {"app": "db"}, "annotations": {"team": SECRET}}, "spec": SPEC}
ZONE = {
    "required": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z-a"]}]}
        ]
    }
}
STATUS = "nodeGroups:\n- name: general\n  health:\n    minSize: 1\n"
CONTROLLED = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-db", "controller": True}
CONDITIONS = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SECRET}]
HELM = {"annotations": {"meta.helm.sh/release-name": "database", "checksum/config": SECRET}}
MORE = (
    thing("Namespace", "v1", "shop", metadata={"labels": {"team": "red"}}),
    thing(
        "StatefulSet",
        "apps/v1",
        "db",
        metadata=SHOP | {"uid": "uid-db"} | HELM,
        spec={"replicas": 1, "template": TEMPLATE},
    ),
    thing(
        "Pod",
        "v1",
        "db-0",
        metadata=SHOP | {"uid": "u1", "ownerReferences": [CONTROLLED], "labels": {"app": "db"}},
        spec=SPEC,
        status={"phase": "Pending", "conditions": CONDITIONS},
    ),
    thing(
        "PersistentVolumeClaim",
        "v1",
        "data-db-0",
        metadata=SHOP,
        spec={
            "volumeName": "pv-1",
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        status={"phase": "Bound"},
    ),
    thing(
        "PersistentVolume",
        "v1",
        "pv-1",
        spec={
            "capacity": {"storage": "1Gi"},
            "storageClassName": "fast",
            "csi": {"driver": "csi.example.com", "volumeHandle": "vol-1", "nodePublishSecretRef": {"name": SECRET}},
            "nodeAffinity": ZONE,
        },
    ),
    thing(
        "StorageClass", "storage.k8s.io/v1", "fast", provisioner="csi.example.com", parameters={"secretName": SECRET}
    ),
    thing(
        "CSINode",
        "storage.k8s.io/v1",
        "pods-ca",
        spec={"drivers": [{"name": "csi.example.com", "nodeID": SECRET, "allocatable": {"count": 3}}]},
    ),
    thing("CSIDriver", "storage.k8s.io/v1", "csi.example.com", spec={"attachRequired": True, "storageCapacity": True}),
    thing("CSIStorageCapacity", "storage.k8s.io/v1", "c1", metadata=SHOP, storageClassName="fast", capacity="5Gi"),
    thing(
        "VolumeAttachment",
        "storage.k8s.io/v1",
        "a1",
        spec={"attacher": "csi.example.com", "nodeName": "pods-ca", "source": {"persistentVolumeName": "pv-1"}},
    ),
    thing("ReplicationController", "v1", "old", metadata=SHOP, spec={"replicas": 0, "template": TEMPLATE}),
    thing("PodTemplate", "v1", "spare", metadata=SHOP, template=TEMPLATE),
    extension("CapacityBuffer", "autoscaling.x-k8s.io", "v1beta1"),
    thing(
        "CapacityBuffer",
        "autoscaling.x-k8s.io/v1beta1",
        "spare",
        metadata=SHOP,
        spec={"podTemplateRef": {"name": "spare"}, "replicas": 1},
        status={
            "podTemplateRef": {"name": "spare"},
            "replicas": 1,
            "conditions": [{"type": "ReadyForProvisioning", "status": "True"}],
        },
    ),
    extension("NodePool", "karpenter.sh", "v1"),
    thing(
        "NodePool",
        "karpenter.sh/v1",
        "spot",
        spec={"template": {"spec": {"nodeClassRef": {"name": SECRET}}}, "disruption": {"consolidateAfter": "5m"}},
    ),
    extension("LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1"),
    thing(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io/v1",
        "lws",
        metadata=SHOP,
        spec={"leaderWorkerTemplate": {"workerTemplate": TEMPLATE}},
    ),
    extension("PodGroup", "scheduling.k8s.io", "v1beta1"),
    thing("PodGroup", "scheduling.k8s.io/v1beta1", "gang", metadata=SHOP, spec={"disruptionMode": {"all": {}}}),
    extension("VerticalPodAutoscaler", "autoscaling.k8s.io", "v1"),
    thing(
        "VerticalPodAutoscaler",
        "autoscaling.k8s.io/v1",
        "db",
        metadata=SHOP,
        spec={"targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}},
        status={"recommendation": {"containerRecommendations": [{"containerName": "main", "target": {"cpu": "200m"}}]}},
    ),
    thing(
        "ConfigMap",
        "v1",
        "cluster-autoscaler-status",
        metadata={"namespace": "kube-system"},
        data={"status": STATUS, "other": SECRET},
    ),
    thing("ConfigMap", "v1", SECRET, metadata=SHOP, data={"status": SECRET}),
)


STANDARD = {"dns", "windows", "cluster-autoscaler-status", "karpenter", "autoscaler", "kube-system"}
"""Names that everybody's clusters have."""


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return lambda *given: commands.call("tightship", command, capfdbinary.readouterr, given)


@contextmanager
def served(folder: Path, items: list[Json], forbidden: tuple[str, ...] = ()) -> Iterator[tuple[str, Path, list[str]]]:
    """Serve *items*, and yield the flag and the file of the kubeconfig, and the paths and queries asked for."""
    asked: list[str] = []

    @web.middleware
    async def refusing(request: web.Request, handler: Any) -> web.StreamResponse:
        asked.append(request.path_qs)
        if request.path.endswith(forbidden) and forbidden:
            return web.json_response(
                {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}, status=403
            )
        answer: web.StreamResponse = await handler(request)
        return answer

    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        async with EmbeddedCluster(middlewares=[refusing], budgets=False) as cluster:
            cluster.store.load(items)
            cluster.kubeconfig(folder / "kubeconfig")
            loops.append(asyncio.get_running_loop())
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield "--kubeconfig", folder / "kubeconfig", asked
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()


def everything() -> list[Json]:
    return [*json.loads(GOLDEN.read_text())["items"], *MORE]


def plans(cli: Cli, *given: str | Path) -> list[Outcome]:
    forms = (("-o", "json"), ("-o", "table"), ("-o", "json", "--placement", "possible"))
    return [cli("plan", "--now", NOW, "--advice-time", "0", *form, *given) for form in forms]


@pytest.mark.parametrize("forbidden", [(), ("/namespaces", "/csinodes", "/horizontalpodautoscalers")])
def test_the_plan_of_a_snapshot_is_that_of_the_cluster_to_the_byte(
    cli: Cli, tmp_path: Path, forbidden: tuple[str, ...]
) -> None:
    path = tmp_path / "cluster.json.gz"
    items = everything()
    with served(tmp_path, items, forbidden) as (flag, kubeconfig, _):
        outcome = cli("snapshot", flag, kubeconfig, "-o", path)
        assert outcome.code == 0, outcome.err
        assert outcome.err.count("so the file lacks them") == len(forbidden)
        assert plans(cli, flag, kubeconfig) == plans(cli, "-f", path)
        named = ("explain", "pods-ca", "--now", NOW, "--advice-time", "0")
        assert cli(*named, flag, kubeconfig) == cli(*named, "-f", path)
    text = gzip.decompress(path.read_bytes()).decode()
    assert not re.findall(f".{{40}}{SECRET}.{{20}}", text)
    assert list(tmp_path.glob(".*")) == []


BEGUN = {"tightship.dev/begun": '[{"at":"2026-10-01T11:58:00Z","pool":"general","nodes":2,"evictions":9}]'}
LEASE = thing("Lease", "coordination.k8s.io/v1", "tightship-claims", spec={},
              metadata={"namespace": "kube-system", "annotations": BEGUN})  # fmt: skip
NODE_LEASE = thing("Lease", "coordination.k8s.io/v1", "n1", spec={}, metadata={"namespace": "kube-node-lease"})
RATED = ("explain", "budget-1", "--nodes-per-hour", "2", "--now", NOW, "--advice-time", "0")


def test_what_has_begun_is_read_from_the_lease_and_from_files(cli: Cli, tmp_path: Path) -> None:
    snapshot, hidden, kubectl = (tmp_path / each for each in ("a.json", "b.json", "c.json"))
    items = [*everything(), LEASE, NODE_LEASE]
    kubectl.write_text(json.dumps({"kind": "List", "items": items}))
    with served(tmp_path, items) as (flag, kubeconfig, _):
        assert cli("snapshot", flag, kubeconfig, "-o", snapshot).code == 0
        assert cli("snapshot", flag, kubeconfig, "-o", hidden, "--anonymize").code == 0
        live = cli(*RATED, flag, kubeconfig)
    assert "2 of 2 nodes of the cluster in an hour; the next at 12:58 UTC, in 58m" in live.out
    assert live == cli(*RATED, "-f", snapshot)
    assert "2 of 2 nodes of the cluster in an hour" in cli(*RATED, "-f", kubectl).out
    assert SECRET not in snapshot.read_text()
    assert '\\"nodes\\":2' in hidden.read_text()
    assert "general" not in hidden.read_text().partition("Lease")[2]


def test_a_lease_that_may_not_be_read_counts_nothing_and_says_so(cli: Cli, tmp_path: Path) -> None:
    with served(tmp_path, [*everything(), LEASE], ("/tightship-claims",)) as (flag, kubeconfig, _):
        outcome = cli(*RATED, flag, kubeconfig)
    assert outcome.code == 0
    assert "tightship-claims can't be read, so rates count nothing that has begun" in outcome.out
    assert "0 of 2 nodes of the cluster in an hour, 2 left" in outcome.out


def test_a_generated_cluster_too(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    with served(tmp_path, off_peak_cluster(7, 30)["items"]) as (flag, kubeconfig, asked):
        assert cli("snapshot", flag, kubeconfig, "-o", path).code == 0
        lists = [each for each in asked if "continue=" not in each and "limit=" in each]
        # All lists are begun before any further page is asked for.
        assert len({each.partition("?")[0] for each in lists}) > len(RESOURCES) / 2
        assert plans(cli, flag, kubeconfig) == plans(cli, "-f", path)


def test_a_pseudonymous_snapshot_has_the_same_plan_and_no_name(cli: Cli, tmp_path: Path) -> None:
    clear, hidden, again = (tmp_path / each for each in ("clear.json", "hidden.json", "again.json"))
    with served(tmp_path, everything()) as (flag, kubeconfig, _):
        for path, more in ((clear, ()), (hidden, ("--anonymize",)), (again, ("--anonymize",))):
            assert cli("snapshot", flag, kubeconfig, "-o", path, *more).code == 0
    assert hidden.read_text().splitlines()[2:] == again.read_text().splitlines()[2:]
    names = {each["metadata"]["name"] for each in everything()} - {"csi.example.com"}
    words = set(re.findall(r'(?<=:)"([^"]*)"', hidden.read_text()))
    assert names & words <= STANDARD
    before, after = (
        msgspec.json.decode(cli("plan", "--now", NOW, "--advice-time", "0", "-o", "json", "-f", path).out)
        for path in (clear, hidden)
    )
    assert shape(before) == shape(after)
    assert len({each["name"] for each in after["nodes"]}) == len(before["nodes"])


def test_a_pseudonymous_status_is_as_old_as_the_true_one() -> None:
    text = "time: 2025-12-11 14:40:54.65491129 +0000 UTC\nnodeGroups:\n- name: shop\n  health:\n    minSize: 2\n"
    there = {"metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"}, "data": {"status": text}}
    lists = {("ConfigMap", "v1"): [msgspec.json.encode(there)]}
    anonymous(lists)
    before, after = decode("ConfigMap", msgspec.json.encode(there)), decode("ConfigMap", lists["ConfigMap", "v1"][0])
    assert isinstance(before, AutoscalerStatus)
    assert isinstance(after, AutoscalerStatus)
    assert before.updated == after.updated > 0
    assert [each.minimum for each in after.groups] == [2]


def shape(plan: Json) -> list[str]:
    return sorted(
        str((each["decision"], each.get("order"), each["reasons"], len(each["moves"]), each["cpuMilli"]))
        for each in plan["nodes"]
    )


@pytest.mark.parametrize("kind", sorted({each["kind"] for each in everything()} - {"CustomResourceDefinition"}))
def test_projected_objects_decode_like_the_whole(kind: str) -> None:
    for each in everything():
        if each["kind"] == kind:
            raw = msgspec.json.encode(each)
            assert decode(kind, projected(kind, raw)) == decode(kind, raw)


def test_objects_that_cannot_be_read_stay_so(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    bad = thing(
        "Pod",
        "v1",
        "bad",
        metadata=SHOP,
        spec={"nodeName": "pods-ca", "containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]},
    )
    with served(tmp_path, [*everything(), bad]) as (flag, kubeconfig, _):
        outcome = cli("snapshot", flag, kubeconfig, "-o", path)
        assert "Pod shop/bad: spec.containers[0].resources.requests.cpu" in outcome.err
        assert plans(cli, flag, kubeconfig) == plans(cli, "-f", path)


def test_a_terminal_is_refused_unless_asked_for(tmp_path: Path) -> None:
    terminal, beyond = pty.openpty()
    try:
        told = subprocess.run(
            [sys.executable, "-m", "tightship_cli", "snapshot"], stdout=beyond, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(terminal)
        os.close(beyond)
    assert told.returncode == 64
    assert b"-o cluster.json.gz" in told.stderr
    assert told.stderr.count(b"\n") == 1


def test_dash_is_standard_output_and_a_file_that_fails_stays_as_it_was(cli: Cli, tmp_path: Path) -> None:
    with served(tmp_path, everything(), ()) as (flag, kubeconfig, _):
        assert msgspec.json.decode(cli("snapshot", flag, kubeconfig, "-o", "-").out)["kind"] == "List"
    old = tmp_path / "old.json"
    old.write_text("as it was")
    with served(tmp_path, everything(), ("/pods",)) as (flag, kubeconfig, _):
        outcome = cli("snapshot", flag, kubeconfig, "-o", old)
        assert outcome.code == 1
        assert "does not allow reading Pod" in outcome.err
    assert old.read_text() == "as it was"
    with served(tmp_path, everything(), ()) as (flag, kubeconfig, _):
        outcome = cli("snapshot", flag, kubeconfig, "-o", tmp_path / "none" / "a.json")
        assert (outcome.code, len(outcome.err.splitlines())) == (1, 1)

"""What people do with kubectl, done with the real one on the embedded cluster."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from contract_api import DEADLINE, PHASE, run_kubelets

from tightship_simulator.api.store import Store
from tightship_simulator.serve import EmbeddedCluster
from tightship_testkit.client import wait_for

pytestmark = pytest.mark.controlplane

Json = dict[str, Any]


class Kubectl:
    """kubectl on an embedded cluster in which kubelets run."""

    def __init__(self, program: Path, cluster: EmbeddedCluster, folder: Path) -> None:
        self.store = cluster.store
        self._program = program
        self._folder = folder
        self._environment = {"KUBECONFIG": str(cluster.kubeconfig(folder / "kubeconfig")), "HOME": str(folder)}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = (str(self._program), *arguments)
        return await asyncio.create_subprocess_exec(*command, env=self._environment, stdout=pipe, stderr=pipe)

    async def __call__(self, *arguments: str) -> str:
        process = await self.start(*arguments)
        async with asyncio.timeout(DEADLINE):
            out, complaint = await process.communicate()
        assert process.returncode == 0, complaint.decode()
        return out.decode()

    async def rows(self, *arguments: str) -> list[list[str]]:
        """Run ``get``, and return its table by cells, headings first."""
        lines = (await self("get", *arguments)).splitlines()
        starts = [each.start() for each in re.finditer(r"\S+(?: \S+)*", lines[0])]
        spans = [*zip(starts, [*starts[1:], None], strict=True)]
        return [[line[start:end].strip() for start, end in spans] for line in lines]

    def apply(self, manifest: Json) -> str:
        path = self._folder / "manifest.json"
        path.write_text(json.dumps(manifest))
        return str(path)


@pytest.fixture
async def kubectl(tmp_path: Path, built_program: Callable[[str], Path]) -> AsyncIterator[Kubectl]:
    program = built_program("kubectl")
    store = Store()
    for name in ("n1", "n2"):
        store.create("Node", node(name))
    async with EmbeddedCluster(store) as cluster, asyncio.TaskGroup() as group:
        kubelets = group.create_task(run_kubelets(store))
        yield Kubectl(program, cluster, tmp_path)
        kubelets.cancel()


def node(name: str) -> Json:
    room = {"cpu": "4", "memory": "8Gi", "pods": "50"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    labels = {"kubernetes.io/hostname": name, "node-role.kubernetes.io/worker": ""}
    status = {"capacity": room, "allocatable": room, "conditions": [ready], "nodeInfo": {"kubeletVersion": "v1.36.0"}}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


def pod(name: str, on: str = "n1", **notes: str) -> Json:
    resources = {"requests": {"cpu": "100m"}}
    meta = {"name": name, "namespace": "default", "labels": {"app": "web"}, "annotations": notes}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    spec = {"nodeName": on, "containers": [{"name": "c", "image": "i", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "ownerReferences": [owner]}, "spec": spec}


def deployment(replicas: int, image: str = "i") -> Json:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": "web", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def autoscaler() -> Json:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 10, "metrics": [metric]}
    current = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 42}}}
    status = {"currentReplicas": 3, "desiredReplicas": 3, "currentMetrics": [current]}
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": spec, "status": status}


async def running(kubectl: Kubectl, *names: str) -> None:
    async def run() -> bool:
        found = [kubectl.store.find("Pod", name, "default") for name in names]
        return all(each and each["status"]["phase"] == "Running" for each in found)

    await wait_for(run, DEADLINE, "pods run")


async def test_nodes_are_listed_as_people_know_them(kubectl: Kubectl) -> None:
    kubectl.store.modify("Node", "n2", change=lambda each: each["spec"].update(unschedulable=True))
    heading, first, second = await kubectl.rows("nodes")
    assert heading == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert [*first[:3], first[4]] == ["n1", "Ready", "worker", "v1.36.0"]
    assert second[:2] == ["n2", "Ready,SchedulingDisabled"]


async def test_pods_are_listed_as_people_know_them(kubectl: Kubectl) -> None:
    for name, notes in (("web-0", {}), ("web-1", {PHASE: "Unready"}), ("web-2", {PHASE: "Succeeded"})):
        kubectl.store.create("Pod", pod(name, **notes))
    await running(kubectl, "web-0", "web-1")
    heading, *rows = await kubectl.rows("pods")
    assert heading == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    shown = [["web-0", "1/1", "Running", "0"], ["web-1", "0/1", "Running", "0"], ["web-2", "0/1", "Completed", "0"]]
    assert [row[:4] for row in rows] == shown
    wide = (await kubectl("get", "pods", "-A", "-o", "wide")).splitlines()
    assert wide[0].split()[:9] == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED"]
    assert "n1" in wide[1].split()


async def test_floors_and_budgets_are_listed_as_people_know_them(kubectl: Kubectl) -> None:
    kubectl.store.create("HorizontalPodAutoscaler", autoscaler())
    heading, row = await kubectl.rows("hpa")
    assert heading == ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]
    assert row[:6] == ["web", "Deployment/web", "cpu: 42%/80%", "2", "10", "3"]
    for name in ("web-0", "web-1"):
        kubectl.store.create("Pod", pod(name))
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    kubectl.store.create("PodDisruptionBudget", {"metadata": {"name": "web"}, "spec": spec})

    async def allowed() -> bool:
        return (await kubectl.rows("pdb"))[1][:4] == ["web", "1", "N/A", "1"]

    await wait_for(allowed, DEADLINE, "the budget allows one")


async def test_other_kinds_have_a_name_and_an_age(kubectl: Kubectl) -> None:
    kubectl.store.create("ConfigMap", {"metadata": {"name": "config"}})
    heading, row = await kubectl.rows("configmaps")
    assert (heading, row[0]) == (["NAME", "AGE"], "config")
    assert "namespace/default" in await kubectl("get", "ns", "-o", "name")
    assert json.loads(await kubectl("get", "cm", "config", "-o", "json"))["kind"] == "ConfigMap"
    assert "config" in await kubectl("get", "all,cm", "--ignore-not-found", "--chunk-size=1")
    assert await kubectl("auth", "can-i", "create", "pods/eviction") == "yes\n"
    assert "deleted" in await kubectl("delete", "cm", "config")


async def test_a_node_a_pod_and_an_hpa_are_described(kubectl: Kubectl) -> None:
    made = kubectl.store.create("Pod", pod("web-0"))
    await running(kubectl, "web-0")
    kubectl.store.create("HorizontalPodAutoscaler", autoscaler())
    about = {"kind": "Pod", "name": "web-0", "namespace": "default", "uid": made["metadata"]["uid"]}
    said = {
        "metadata": {"name": "web-0.1"},
        "involvedObject": about,
        "type": "Normal",
        "reason": "Moved",
        "message": "hi",
    }
    kubectl.store.create("Event", said)
    text = await kubectl("describe", "node", "n1")
    assert "Non-terminated Pods:          (1 in total)" in text
    assert "web-0" in text
    text = await kubectl("describe", "pod", "web-0")
    assert "Controlled By:  ReplicaSet/web" in text
    assert "Moved" in text
    text = await kubectl("describe", "hpa", "web")
    assert "Min replicas:" in text


async def test_a_node_is_cordoned_annotated_labelled_and_tainted_and_freed_again(kubectl: Kubectl) -> None:
    before = kubectl.store.get("Node", "n1")
    assert await kubectl("cordon", "n1") == "node/n1 cordoned\n"
    assert await kubectl("cordon", "n1") == "node/n1 already cordoned\n"
    await kubectl("annotate", "node", "n1", "example.com/a=b")
    await kubectl("label", "node", "n1", "tier=web")
    await kubectl("taint", "node", "n1", "key=value:NoSchedule")
    made = kubectl.store.get("Node", "n1")
    assert made["metadata"]["annotations"] == {"example.com/a": "b"}
    assert made["metadata"]["labels"]["tier"] == "web"
    taints = [{"key": "key", "value": "value", "effect": "NoSchedule"}]
    assert made["spec"] == {"unschedulable": True, "taints": taints}
    assert await kubectl("uncordon", "n1") == "node/n1 uncordoned\n"
    await kubectl("annotate", "node", "n1", "example.com/a-")
    await kubectl("label", "node", "n1", "tier-")
    await kubectl("taint", "node", "n1", "key:NoSchedule-")
    freed = kubectl.store.get("Node", "n1")
    assert freed["spec"] == before["spec"]
    assert freed["metadata"]["labels"] == before["metadata"]["labels"]
    assert "annotations" not in freed["metadata"]


async def test_a_node_is_drained_past_a_budget_that_refuses_at_first(kubectl: Kubectl) -> None:
    for name in ("web-0", "web-1"):
        kubectl.store.create("Pod", pod(name))
    await running(kubectl, "web-0", "web-1")
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    kubectl.store.create("PodDisruptionBudget", {"metadata": {"name": "web"}, "spec": spec})
    process = await kubectl.start("drain", "n1")
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE):
        while b"Cannot evict pod as it would violate the pod's disruption budget." not in (
            complaint := await process.stderr.readline()
        ):
            assert complaint, "it ended by itself"
        assert len(kubectl.store.list("Pod")) == 2
        kubectl.store.modify("PodDisruptionBudget", "web", "default", lambda each: each["spec"].update(minAvailable=0))
        out, complaint = await process.communicate()
    assert b"node/n1 drained" in out, complaint
    assert kubectl.store.list("Pod") == []


async def test_a_deployment_is_applied_scaled_applied_again_and_deleted(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "-f", kubectl.apply(deployment(2))) == "deployment.apps/web created\n"
    assert await kubectl("apply", "-f", kubectl.apply(deployment(2))) == "deployment.apps/web unchanged\n"
    await kubectl("scale", "deployment", "web", "--replicas=5")
    assert kubectl.store.get("Deployment", "web", "default")["spec"]["replicas"] == 5
    assert await kubectl("apply", "-f", kubectl.apply(deployment(3, "newer"))) == "deployment.apps/web configured\n"
    applied = kubectl.store.get("Deployment", "web", "default")["spec"]
    assert (applied["replicas"], applied["template"]["spec"]["containers"][0]["image"]) == (3, "newer")
    heading, row = await kubectl.rows("deployments")
    assert (heading, row[:2]) == (["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"], ["web", "0/3"])
    assert "deleted" in await kubectl("delete", "deployment", "web")
    assert kubectl.store.list("Deployment") == []


async def test_what_changes_is_shown_as_it_happens(kubectl: Kubectl) -> None:
    process = await kubectl.start("get", "nodes", "-w")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE):
            first = [(await process.stdout.readline()).decode().split() for _ in range(3)]
            assert [line[0] for line in first] == ["NAME", "n1", "n2"]
            kubectl.store.modify("Node", "n1", change=lambda each: each["spec"].update(unschedulable=True))
            changed = (await process.stdout.readline()).decode().split()
            assert changed[:2] == ["n1", "Ready,SchedulingDisabled"]
    finally:
        process.terminate()
        await process.communicate()


async def test_events_are_listed_with_what_they_are_about(kubectl: Kubectl) -> None:
    about = {"kind": "Node", "name": "n1"}
    when = "2026-03-01T04:00:00.000000Z"
    said = {
        "metadata": {"name": "n1.1"},
        "involvedObject": about,
        "type": "Normal",
        "reason": "Drained",
        "eventTime": when,
    }
    kubectl.store.create("Event", {**said, "message": "the node is empty"})
    heading, row = await kubectl.rows("events")
    assert heading == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert row[1:] == ["Normal", "Drained", "node/n1", "the node is empty"]

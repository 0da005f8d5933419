"""``node-compactor plan`` as a process of its own: live and from a file the same plan, and nothing but reading."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tightship.kube.resources import RESOURCES
from tightship_e2e import ControlPlane, settle
from tightship_e2e.binaries import environment, find
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.manifests import node

NOW = "2030-01-01T00:00:00Z"
KINDS = ",".join(resource.qualified for resource in RESOURCES if not resource.extension)


def command(*arguments: str | Path, kubeconfig: Path, code: int = 0) -> str:
    """Run the command and return what it printed; its exit code must be *code*."""
    path = os.pathsep.join(each for each in sys.path if each)
    answer = subprocess.run(
        [sys.executable, "-m", "node_compactor", *(str(each) for each in arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, "KUBECONFIG": str(kubeconfig)},
    )
    assert answer.returncode == code, answer.stderr
    return answer.stdout


def replica_set(name: str, replicas: int, cpu: str) -> Json:
    containers = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "256Mi"}}}]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"kind": "ReplicaSet", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def fill(api: Client) -> None:
    names = [f"n{number}" for number in range(1, 6)]
    nodes = [node(name) for name in names]
    for each in nodes:
        each["metadata"].setdefault("annotations", {})["tightship.dev/node-group-min-size"] = "1"
    await api.each(api.create, nodes)
    await settle.attended(api, *names)
    budget = {"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}}
    await api.create(
        {"kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"}, "spec": budget}
    )
    await api.each(api.create, [replica_set("web", 4, "300m"), replica_set("api", 6, "200m")])

    async def settled() -> bool:
        pods = await api.list("Pod", "default")
        budgets = await api.list("PodDisruptionBudget", "default")
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return len(running) == 10 and budgets[0].get("status", {}).get("currentHealthy") == 4

    await wait_for(settled, 120, "ten running pods and a PDB that has counted them")


def without_source(text: str) -> Any:
    document = json.loads(text)
    assert document.pop("source")["type"] in {"cluster", "file"}
    return document


def test_a_live_plan_equals_that_of_a_file_and_only_reads(empty_plane: ControlPlane, tmp_path: Path) -> None:
    empty_plane.run(fill)
    # An account of its own would do as well; this is what a person runs.
    shown = ("--now", NOW, "-o", "json")
    empty_plane.audit_events()
    live = command("plan", *shown, kubeconfig=empty_plane.kubeconfig)
    events = [each for each in empty_plane.audit_events() if "/scale" not in each.request_uri]
    listing = subprocess.run(
        [str(find("kubectl")["kubectl"]), "get", KINDS, "-A", "-o", "json"],
        capture_output=True,
        check=True,
        timeout=300,
        env={**os.environ, **environment(find(), empty_plane.kubeconfig)},
    )
    file = tmp_path / "cluster.json"
    file.write_bytes(listing.stdout)
    from_file = command("plan", "-f", file, *shown, kubeconfig=tmp_path / "none")
    assert without_source(live) == without_source(from_file)
    document = json.loads(live)
    assert document["summary"]["nodes"]["removed"] >= 1
    assert document["warnings"] == []

    ours = [each for each in events if not each.user_agent.startswith(("kube-", "kwok", "kubectl"))]
    assert {each.object_ref.resource for each in ours} >= {"nodes", "pods", "poddisruptionbudgets"}
    assert {each.verb for each in ours} <= {"get", "list", "watch"}
    command("plan", "--exit-code", kubeconfig=empty_plane.kubeconfig, code=2)
    explained = json.loads(command("explain", "n1", *shown, kubeconfig=empty_plane.kubeconfig))
    assert explained["nodes"][0]["name"] == "n1"


def test_the_command_against_a_topology_spread_is_one_that_the_api_server_takes(empty_plane: ControlPlane) -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    soft = {**spread, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}

    async def running(api: Client) -> None:
        async def one_on_each() -> bool:
            pods = await api.list("Pod", "default")
            alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
            return len(alive) == 3 and all(pod["status"].get("phase") == "Running" for pod in alive)

        await wait_for(one_on_each, 120, "three running pods")

    async def fill(api: Client) -> None:
        names = [f"n{number}" for number in range(1, 4)]
        await api.each(api.create, [node(name) for name in names])
        await settle.attended(api, *names)
        web = replica_set("web", 3, "300m")
        web["spec"]["template"]["spec"]["topologySpreadConstraints"] = [soft, spread]
        await api.create(web)
        await running(api)

    async def renew(api: Client) -> None:
        for pod in await api.list("Pod", "default"):
            await api.delete("Pod", pod["metadata"]["name"], "default", grace=0)
        await running(api)

    empty_plane.run(fill)
    shown = ("plan", "--now", NOW, "-o", "json")
    before = json.loads(command(*shown, kubeconfig=empty_plane.kubeconfig))
    assert before["summary"]["nodes"]["removed"] == 0
    [advice] = before["advice"]["changes"]
    [reported] = advice["commands"]
    words = [str(find("kubectl")["kubectl"]), *shlex.split(reported)[1:]]
    given = {**os.environ, **environment(find(), empty_plane.kubeconfig)}
    subprocess.run(words, capture_output=True, check=True, timeout=60, env=given)

    async def patched(api: Client) -> Json:
        return await api.get("ReplicaSet", "web", "default")

    constraints = empty_plane.run(patched)["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert sorted(constraints, key=lambda each: each["topologyKey"]) == [{**spread, "nodeTaintsPolicy": "Honor"}, soft]
    empty_plane.run(renew)
    after = json.loads(command(*shown, kubeconfig=empty_plane.kubeconfig))
    assert after["summary"]["nodes"]["removed"] == advice["gain"]["nodes"] >= 1

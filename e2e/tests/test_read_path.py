"""The read path against a real API server: lists, watches, files, permissions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tightship.core.api_errors import AccessDenied
from tightship.kube.cache import ClusterCache, read_cluster
from tightship.kube.connection import connect
from tightship.kube.files import parse
from tightship.kube.resources import RESOURCES
from tightship.planning.cluster import Budgets, Snapshot
from tightship_e2e import ControlPlane, settle
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import Client, Json, wait_for

UNDEFINED = {"CapacityBuffer": "not served"}
"""What is missing wherever nobody has defined it."""
DEADLINE = 120.0
PERMISSIONS = Path(__file__).resolve().parents[2] / "docs" / "permissions.md"


def node(name: str) -> Json:
    status = {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {"kind": "Node", "metadata": {"name": name}, "status": status}


def pod(name: str, on: str = "", **labels: str) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}
    spec: Json = {"containers": [container], **({"nodeName": on} if on else {})}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec}


def budget(name: str) -> Json:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    return {"kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def volume(name: str) -> Json:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "slow",
        "csi": {"driver": "csi.example.com", "volumeHandle": name},
    }
    return {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


async def fill(api: Client) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x")["spec"]}
    selector = {"matchLabels": {"app": "web"}}
    replica_set = {
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 4, "selector": selector, "template": template},
    }
    storage_class = {"kind": "StorageClass", "metadata": {"name": "slow"}, "provisioner": "csi.example.com"}
    await api.each(api.create, [node("n1"), node("n2")])
    await settle.attended(api, "n1", "n2")
    await api.each(api.create, [replica_set, budget("web"), storage_class, volume("v1"), pod("alone", "n1")])


def essence(snapshot: Snapshot) -> Any:
    """Everything in a snapshot as plain data: specs by value, mappings as the list of their values."""
    fields = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
    plain = {
        name: list(held.values()) if isinstance(held, Mapping) else list(held) if isinstance(held, Budgets) else held
        for name, held in fields.items()
    }
    return msgspec.to_builtins(plain)


async def until(cache: ClusterCache, condition: Callable[[Snapshot], bool]) -> Snapshot:
    """Wait for changes of the cache until its snapshot is as wanted."""
    async with asyncio.timeout(DEADLINE):
        while True:
            seen = cache.revision
            snapshot = cache.snapshot()
            if cache.has_synced and condition(snapshot):
                return snapshot
            await cache.changed(seen, DEADLINE)


def names(snapshot: Snapshot) -> set[str]:
    bound = {each.name for view in snapshot.nodes.values() for each in view.pods}
    return bound | {each.name for each in snapshot.unscheduled}


def ready(snapshot: Snapshot) -> set[str]:
    return {each.name for view in snapshot.nodes.values() for each in view.pods if each.ready}


def settled(snapshot: Snapshot) -> bool:
    return len(ready(snapshot)) == 5


def test_a_live_snapshot_equals_that_of_a_file_with_the_same_objects(empty_plane: ControlPlane) -> None:
    async def work(api: Client) -> None:
        await fill(api)
        async with await connect(empty_plane.kubeconfig) as connection:
            async with ClusterCache(connection) as cache:
                await until(cache, settled)
            # Controllers still write now and then: compare two reads between which nothing was written.
            for _ in range(20):
                before = await read_cluster(connection)
                bodies = [
                    await connection.request("GET", resource.path)
                    for resource in RESOURCES
                    if resource.kind not in UNDEFINED
                ]
                if essence(await read_cluster(connection)) == essence(before):
                    break
            from_file = parse(b"\n".join(bodies), "api").snapshot
        assert before.pod_count == 5
        assert before.missing == UNDEFINED
        # A file can't say whether what it leaves out is served.
        assert set(from_file.missing) == set(UNDEFINED)
        assert essence(msgspec.structs.replace(from_file, missing=UNDEFINED)) == essence(before)
        assert before.volumes["v1"].driver == "csi.example.com"
        assert [each.key for each in before.budgets] == ["default/web"]

    empty_plane.run(work)


def documented_role() -> Json:
    """The ClusterRole for reading of docs/permissions.md, to the letter."""
    text = re.findall(r"```yaml\n(.*?)```", PERMISSIONS.read_text(), re.DOTALL)[0]
    role: Json = yaml.safe_load(text)
    return role


def reader(plane: ControlPlane, name: str, rules: list[Json]) -> Path:
    """A kubeconfig of a new ServiceAccount that may do just what *rules* allow."""

    async def create(api: Client) -> None:
        root = "/apis/rbac.authorization.k8s.io/v1"
        version = "rbac.authorization.k8s.io/v1"
        role = {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
        binding = {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        await api.create({"kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}})
        for plural, body in (("clusterroles", role), ("clusterrolebindings", binding)):
            await api.request("DELETE", f"{root}/{plural}/{name}")
            await api.call("POST", f"{root}/{plural}", body=body)
        await settle.rights_seen(api, f"system:serviceaccount:default:{name}", "default", rules)

    plane.run(create)
    return plane.service_account_kubeconfig("default", name)


def without(*resources: str) -> list[Json]:
    rules: list[Json] = documented_role()["rules"]
    left = [{**rule, "resources": [each for each in rule["resources"] if each not in resources]} for rule in rules]
    return [rule for rule in left if rule["resources"]]


def test_the_documented_role_reads_everything_and_less_is_told(empty_plane: ControlPlane) -> None:
    documented = reader(empty_plane, "documented-reader", documented_role()["rules"])
    partial = reader(empty_plane, "partial-reader", without("jobs", "csinodes"))
    blind = reader(empty_plane, "blind-reader", without("pods", "poddisruptionbudgets"))
    empty_plane.audit_events()

    async def reads_all(kubeconfig: Path) -> None:
        async with await connect(kubeconfig) as connection, ClusterCache(connection) as cache:
            snapshot = await until(cache, settled)
            assert snapshot.missing == UNDEFINED
            await read_cluster(connection)

    async def misses_optional_kinds(kubeconfig: Path) -> None:
        async with await connect(kubeconfig) as connection:
            missing = UNDEFINED | {"CSINode": "forbidden", "Job": "forbidden"}
            assert (await read_cluster(connection)).missing == missing
            async with ClusterCache(connection) as cache:
                snapshot = await until(cache, settled)
                assert snapshot.missing == missing
                assert cache.missing == missing

    async def names_required_kinds(kubeconfig: Path) -> None:
        async with await connect(kubeconfig) as connection:
            with pytest.raises(AccessDenied, match=r"reading Pod, PodDisruptionBudget .*cannot list resource"):
                await read_cluster(connection)

    async def work(api: Client) -> None:
        await fill(api)
        await reads_all(documented)
        await misses_optional_kinds(partial)
        await names_required_kinds(blind)

    empty_plane.run(work)
    ours: list[AuditEvent] = []

    async def watched(_: Client) -> bool:
        # A watch is in the log once the server has seen its end.
        ours.extend(each for each in empty_plane.audit_events() if each.user.username.endswith(":documented-reader"))
        return any(each.verb == "watch" for each in ours)

    empty_plane.run(lambda api: wait_for(lambda: watched(api), DEADLINE, "a watch in the log"))
    assert {each.verb for each in ours} == {"list", "watch"}
    # 404 where CapacityBuffers are looked for.
    assert {each.code for each in ours} <= {200, 404, 0}

"""Events and live configuration on a real API server: what it accepts, and with which permissions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tightship.app.observability.events import CLUSTER_SCOPED_NAMESPACES, EventRecorder, ObjectRef, Pace
from tightship.app.settings.live import LiveConfig, LiveConfigError
from tightship.app.settings.sources import ConfigMapSource
from tightship.kube.connection import connect
from tightship_e2e import ControlPlane, settle
from tightship_testkit.client import Client, Items, Json

DEADLINE = 60.0
CONTROLLER = "tightship.dev/node-compactor"
PATIENT = Pace(timeout=DEADLINE, flush=DEADLINE)
RECORDING: list[Json] = [{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}]
READING: list[Json] = [
    {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["limits"], "verbs": ["list", "watch"]}
]


def account(plane: ControlPlane, name: str, rules: list[Json]) -> Path:
    """A kubeconfig of a new ServiceAccount that may do just what *rules* allow."""

    async def create(api: Client) -> None:
        root, version = "/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io/v1"
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


async def recorded(api: Client, namespace: str) -> Items:
    answer = await api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    items: Items = answer["items"]
    return [each for each in items if each.get("reportingController") == CONTROLLER]


async def make(api: Client) -> tuple[ObjectRef, ObjectRef]:
    """A node and a pod to tell about."""
    node = await api.create({"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}})
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
    metadata = {"name": "web-0", "namespace": "default"}
    pod = await api.create({"kind": "Pod", "metadata": metadata, "spec": spec})
    return (
        ObjectRef("Node", "n1", node["metadata"]["uid"]),
        ObjectRef("Pod", "web-0", pod["metadata"]["uid"], "default"),
    )


def test_events_about_nodes_and_pods_are_accepted_with_create_alone(empty_plane: ControlPlane) -> None:
    kubeconfig = account(empty_plane, "event-recorder", RECORDING)

    async def work(api: Client) -> None:
        node, pod = await make(api)
        for namespace in CLUSTER_SCOPED_NAMESPACES:
            await told_in(api, node, pod, namespace)

    async def told_in(api: Client, node: ObjectRef, pod: ObjectRef, namespace: str) -> None:
        async with await connect(kubeconfig) as connection:
            recorder = EventRecorder(
                connection, controller=CONTROLLER, instance="compactor-0", namespace=namespace, pace=PATIENT
            )
            async with recorder:
                recorder.record(node, "Normal", "Drained", "all 12 pods have moved", "Drain")
                recorder.record(node, "Normal", "Drained", "all 12 pods have moved", "Drain")
                recorder.record(pod, "Warning", "PdbExhausted", "é" * 2000, "Evict")
            counts = recorder.counts
        assert (counts.sent, counts.suppressed, counts.dropped) == (2, 1, 0)
        about_node = [each for each in await recorded(api, namespace) if each["regarding"]["kind"] == "Node"]
        about_pod = [each for each in await recorded(api, "default") if each["regarding"]["kind"] == "Pod"]
        event = about_node[-1]
        assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node.uid}
        assert (event["type"], event["reason"], event["action"]) == ("Normal", "Drained", "Drain")
        assert (event["note"], event["reportingInstance"]) == ("all 12 pods have moved", "compactor-0")
        assert not any(value for key, value in event.items() if key.startswith("deprecated"))
        # As kubectl describe asks, which reads the older API.
        selector = {"fieldSelector": f"involvedObject.uid={node.uid},involvedObject.name=n1"}
        described = await api.call("GET", "/api/v1/events", params=selector)
        told = {
            (each["reason"], each["message"]) for each in described["items"] if each["reportingComponent"] == CONTROLLER
        }
        assert told == {("Drained", "all 12 pods have moved")}
        assert about_pod[-1]["regarding"]["namespace"] == "default"
        assert 1020 < len(about_pod[-1]["note"].encode()) <= 1024

    empty_plane.run(work)


def parse(data: dict[str, str]) -> int:
    return int(data["limit"])


def config_map(limit: str, name: str = "limits") -> Json:
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"limit": limit}}


def test_a_config_map_is_followed_with_permission_for_its_name_alone(empty_plane: ControlPlane) -> None:
    kubeconfig = account(empty_plane, "config-reader", READING)

    async def work(api: Client) -> None:
        await api.create(config_map("9", "of-another"))
        async with await connect(kubeconfig) as connection, asyncio.timeout(DEADLINE):
            source = ConfigMapSource(connection, "default", "limits")
            async with LiveConfig(source, parse, starting=1) as live:
                assert (live.current, live.read) == (1, True)

                async def becomes(value: int) -> None:
                    while live.current != value:
                        live.changed.clear()
                        await live.changed.wait()

                await api.create(config_map("2"))
                await becomes(2)
                await api.patch("ConfigMap", "limits", {"data": {"limit": "many"}}, "default")
                await api.patch("ConfigMap", "limits", {"data": {"limit": "3"}}, "default")
                await becomes(3)
                assert live.valid
                await api.delete("ConfigMap", "limits", "default")
                await becomes(1)
            with pytest.raises(LiveConfigError, match=r"can't be read: .*cannot list resource"):
                async with LiveConfig(ConfigMapSource(connection, "default", "of-another"), parse):
                    raise AssertionError

    empty_plane.run(work)

"""Kinds and fields behind feature gates, as a real API server and scheduler handle them: gangs, devices, declared
features, and Jobs that replace late. One control plane has all the gates on.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tightship.cluster import Snapshot
from tightship.documents.warnings import warnings_of
from tightship.kube.cache import read_cluster
from tightship.kube.connection import Connection, connect
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.facts import FactRules, candidates_of, gather
from tightship.planning.plan import Planner
from tightship.rules.disruption import DisruptionLedger
from tightship.scheduler.devices import with_devices
from tightship.scheduler.space import Space
from tightship_e2e import ControlPlane
from tightship_e2e.draining import DEADLINE
from tightship_e2e.plugin import require_binaries
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.manifests import node

SHOP = "shop"
DRIVER = "gpu.example.com"
FEATURE = "RestartAllContainersOnContainerExits"
_GATES = "--feature-gates=GenericWorkload=true"
FLAGS = {
    "kube-apiserver": [_GATES, "--runtime-config=scheduling.k8s.io/v1beta1=true"],
    "kube-scheduler": [_GATES],
    "kube-controller-manager": [_GATES],
}

pytestmark = [pytest.mark.controlplane, pytest.mark.waits, pytest.mark.newest, pytest.mark.xdist_group("gates")]


@pytest.fixture(scope="module")
def gated() -> Iterator[ControlPlane]:
    """A control plane with the gates on, and a namespace."""
    require_binaries()
    with ControlPlane(flags=FLAGS) as plane:
        plane.run(lambda api: api.create({"kind": "Namespace", "metadata": {"name": SHOP}}))
        yield plane


@asynccontextmanager
async def connected(plane: ControlPlane) -> AsyncIterator[tuple[Client, Connection]]:
    async with plane.client() as api, await connect(str(plane.kubeconfig)) as connection:
        yield api, connection


async def made(api: Client, group: str, plural: str, name: str, **more: Any) -> Json:
    """Create an object of any kind; one that *more* gives no namespace belongs to the cluster."""
    namespace = more.pop("namespace", "")
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    place = f"/namespaces/{namespace}" if namespace else ""
    meta = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("meta", {})}
    return await api.call("POST", f"{root}{place}/{plural}", body={"metadata": meta, **more})


async def nodes(api: Client, *names: str, features: Mapping[str, list[str]] = {}) -> None:
    for name in names:
        await api.create(node(name))
        status = {**node(name)["status"], "declaredFeatures": features.get(name, [])}
        await api.patch("Node", name, {"status": status}, subresource="status")


async def running(api: Client, name: str, **spec: Any) -> str:
    """Create a pod, and return the node on which the scheduler puts it."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    meta = {"name": name, "namespace": SHOP, "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}
    await api.create({"kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}})

    async def bound() -> str:
        found = await api.get("Pod", name, SHOP)
        return str(found["spec"].get("nodeName") or "") if found["status"].get("phase") == "Running" else ""

    return await wait_for(bound, DEADLINE, f"{name} runs")


def refusals(snapshot: Snapshot, name: str) -> list[Refusal]:
    """Return why node *name* stays, in a plan with no gates; pods without a controller may go."""
    snapshot = with_devices(snapshot)
    facts = gather(snapshot, FactRules(), time.time())
    planner = Planner(snapshot, DisruptionLedger(snapshot), candidates_of(facts), "likely")
    own = planner.candidates.get(name)
    return list(facts[name].refusals) if own is None else planner.attempt(own)


async def test_gangs_go_together(gated: ControlPlane) -> None:
    async with connected(gated) as (api, connection):
        await nodes(api, "all-1", "all-2", "single-1", "single-2")
        for name, mode in (("all", {"all": {}}), ("single", {"single": {}})):
            spec = {"schedulingPolicy": {"basic": {}}, "disruptionMode": mode}
            await made(api, "scheduling.k8s.io/v1beta1", "podgroups", name, namespace=SHOP, spec=spec)
        for name in ("all-1", "all-2", "single-1", "single-2"):
            group = {"schedulingGroup": {"podGroupName": name.partition("-")[0]}}
            assert await running(api, name, nodeSelector={"kubernetes.io/hostname": name}, **group) == name
        snapshot = await read_cluster(connection)
    assert snapshot.missing.get("PodGroup") is None
    [why] = refusals(snapshot, "all-1")
    assert why.reason is Reason.GANG_WOULD_BREAK
    assert "PodGroup shop/all (disruptionMode all)" in why.detail
    # Its own node selector keeps it, and nothing else.
    assert [each.reason for each in refusals(snapshot, "single-1")] == [Reason.NO_PLACE]


async def test_claims_of_devices_go_where_a_device_is_free(gated: ControlPlane) -> None:
    async with connected(gated) as (api, connection):
        await nodes(api, "gpu-1", "gpu-2", "gpu-3")
        resource = "resource.k8s.io/v1"
        for name, count in (("gpu-1", 1), ("gpu-2", 1)):
            spec = {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{number}"} for number in range(count)],
            }
            await made(api, resource, "resourceslices", name, spec=spec)
        chosen = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
        await made(api, resource, "deviceclasses", "gpu", spec=chosen)
        asked = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
        await made(api, resource, "resourceclaimtemplates", "one", namespace=SHOP, spec={"spec": asked})
        wants = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
        first = await running(api, "gpu-a", **wants)
        one_free = await read_cluster(connection)
        second = await running(api, "gpu-b", **wants)
        none_free = await read_cluster(connection)
    assert {first, second} == {"gpu-1", "gpu-2"}
    assert not {"ResourceSlice", "DeviceClass", "ResourceClaim"} & set(one_free.missing)
    assert refusals(one_free, first) == []
    assert [each.reason for each in refusals(none_free, first)] == [Reason.NO_PLACE]


async def test_a_pod_needs_a_node_that_declares_its_feature(gated: ControlPlane) -> None:
    async with connected(gated) as (api, connection):
        await nodes(api, "old", "new", features={"new": [FEATURE]})
        rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
        container = {"name": "c", "image": "i", "restartPolicy": "Never", "restartPolicyRules": [rule]}
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["old", "new"]}]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        assert await running(api, "featured", containers=[container], affinity=affinity) == "new"
        snapshot = await read_cluster(connection)
    [pod] = [each for each in snapshot.nodes["new"].pods if each.name == "featured"]
    assert pod.spec.features == (FEATURE,)
    space = Space(snapshot)
    feasible = space.feasible(space.demand_of(pod))
    assert (feasible[space.index["old"]], feasible[space.index["new"]]) == (False, True)


async def test_jobs_say_when_they_replace_a_pod(gated: ControlPlane) -> None:
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    async with connected(gated) as (api, connection):
        for name, more in (
            ("plain", {}),
            ("failed", {"podReplacementPolicy": "Failed"}),
            ("policy", {"podFailurePolicy": {"rules": rules}}),
        ):
            spec = {"suspend": True, "template": template, **more}
            await api.create({"kind": "Job", "metadata": {"name": name, "namespace": SHOP}, "spec": spec})
        snapshot = await read_cluster(connection)
    jobs = snapshot.workloads["Job"]
    assert {name: jobs[f"{SHOP}/{name}"].afterwards for name in ("plain", "failed", "policy")} == {
        "plain": False,
        "failed": True,
        "policy": True,
    }


async def test_extensions_in_unknown_versions_and_unreadable_objects_are_named(gated: ControlPlane) -> None:
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}

    async def define(api: Client, group: str, kind: str, version: str) -> str:
        names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
        versions = [{"name": version, "served": True, "storage": True, "schema": anything}]
        spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
        at = "apiextensions.k8s.io/v1", "customresourcedefinitions"
        # The API server demands such a note where a group is its own.
        note = {"annotations": {"api-approved.kubernetes.io": "unapproved, a test"}}
        await made(api, *at, f"{names['plural']}.{group}", spec=spec, meta=note)
        return f"/apis/{group}/{version}/namespaces/{SHOP}/{names['plural']}"

    async with connected(gated) as (api, connection):
        paths = [
            await define(api, "autoscaling.x-k8s.io", "CapacityBuffer", "v2"),
            await define(api, "autoscaling.k8s.io", "VerticalPodAutoscaler", "v1"),
        ]

        async def served() -> bool:
            return {(await api.request("GET", each))[0] for each in paths} == {200}

        await wait_for(served, DEADLINE, "both kinds are served")
        of = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
        spec = {"targetRef": {"kind": "Deployment", "name": "web"}, "updatePolicy": 7}
        await made(api, of["apiVersion"], "verticalpodautoscalers", "broken", namespace=SHOP, spec=spec, **of)
        snapshot = await read_cluster(connection)
        # Another test defines CapacityBuffers in a version that is known.
        buffers = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/capacitybuffers.autoscaling.x-k8s.io"
        await api.call("DELETE", buffers, body={})

        async def gone() -> bool:
            return (await api.request("GET", buffers))[0] == 404

        await wait_for(gone, DEADLINE, "CapacityBuffers are defined no longer")
    reported = warnings_of(snapshot)
    unknown = "served only as v2, which Tightship does not know"
    assert f"CapacityBuffers are {unknown}: the room that they keep free is not seen" in reported
    broken = f"VerticalPodAutoscaler {SHOP}/broken can't be read, so pods of Deployment/web stay"
    assert f"{broken}: spec.updatePolicy: 7 is not a mapping" in reported

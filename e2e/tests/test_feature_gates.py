"""Kinds and fields behind feature gates, as a real API server and scheduler handle them: gangs, devices, declared
features, Jobs that replace late, and EvictionRequests. One control plane has all the gates on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tightship.core.objects.eviction_requests import MANAGED_BY
from tightship.core.reasons import Reason, Refusal
from tightship.drain.answers import EvictionAnswer, Heard
from tightship.drain.requests import request_for, request_name
from tightship.drain_io.requesting import Requests, withdraw_all
from tightship.drain_io.tools import DrainSettings, Tools
from tightship.kube.cache import ClusterCache, read_cluster
from tightship.kube.connection import Connection, connect
from tightship.planning.cluster import Snapshot
from tightship.planning.devices import with_devices
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.facts import FactRules, candidates_of, gather
from tightship.planning.placement.space import Space
from tightship.planning.plan import Planner
from tightship.report.warnings import warnings_of
from tightship_charts.matrix import FENCE
from tightship_e2e import ControlPlane
from tightship_e2e.draining import DEADLINE
from tightship_e2e.plugin import require_binaries
from tightship_e2e.renderings import Renderings
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.manifests import node

SHOP = "shop"
DRIVER = "gpu.example.com"
FEATURE = "RestartAllContainersOnContainerExits"
SURGE = "example.com/surge"
REQUESTS = f"/apis/lifecycle.k8s.io/v1alpha1/namespaces/{SHOP}/evictionrequests"
_GATES = "--feature-gates=EvictionRequestAPI=true,GenericWorkload=true"
FLAGS = {
    "kube-apiserver": [_GATES, "--runtime-config=lifecycle.k8s.io/v1alpha1=true,scheduling.k8s.io/v1beta1=true"],
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
    told = warnings_of(snapshot)
    unknown = "served only as v2, which Tightship does not know"
    assert f"CapacityBuffers are {unknown}: the room that they keep free is not seen" in told
    broken = f"VerticalPodAutoscaler {SHOP}/broken can't be read, so pods of Deployment/web stay"
    assert f"{broken}: spec.updatePolicy: 7 is not a mapping" in told


async def test_an_eviction_request_is_made_read_and_withdrawn(gated: ControlPlane) -> None:
    troubles: list[str] = []
    async with connected(gated) as (api, connection):
        await nodes(api, "asked")
        where = {"nodeSelector": {"kubernetes.io/hostname": "asked"}}
        responders = {"evictionResponders": [{"name": SURGE, "priority": 10000}]}
        for name in ("slow", "gone"):
            await running(api, name, **where, **responders)
        async with ClusterCache(connection) as cache:
            await until(lambda: cache.has_synced)
            tools = Tools(
                connection=connection,
                cache=cache,
                tell=lambda _: None,
                leading=lambda: True,
                stopping=lambda: False,
                settings=DrainSettings,
                clock=connection.clock.now,
                in_thread=asyncio.to_thread,
            )
            requests = Requests(tools, "node-compactor", troubles.append)
            slow, gone = (
                next(each for each in cache.snapshot().nodes["asked"].pods if each.name == name)
                for name in ("slow", "gone")
            )
            assert slow.spec.responders == (SURGE,)
            asked = Heard(EvictionAnswer.REQUESTED, f"asked {SURGE}")
            assert [await requests.send_away(pod) for pod in (slow, gone, slow)] == [asked] * 3
            await until(lambda: all(request_for(pod, cache.snapshot()) for pod in (slow, gone)))
            assert not request_for(slow, cache.snapshot()).observed  # type: ignore[union-attr]

            # Kubernetes 1.37 ships no controller that processes requests: what such a one writes is read.
            awaiting = {"type": "TargetEvicted", "status": "False", "reason": "AwaitingEviction", "message": ""}
            since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
            status = {"observedGeneration": 1, "conditions": [{**awaiting, **since}]}
            path = f"{REQUESTS}/{request_name(slow)}/status"
            await api.call("PATCH", path, body={"status": status}, content_type="application/merge-patch+json")
            await until(lambda: request_for(slow, cache.snapshot()).observed)  # type: ignore[union-attr]

            # The garbage collector removes the request of a pod that has gone.
            await api.delete("Pod", "gone", SHOP, grace=0)
            await until(lambda: request_for(gone, cache.snapshot()) is None)

            await requests.withdraw("asked")
            await until(lambda: request_for(slow, cache.snapshot()) is None)
            assert await withdraw_all(tools, []) == []
            answer = await api.call("GET", REQUESTS)
            assert (answer["items"], troubles) == ([], [])
            assert (await api.get("Pod", "slow", SHOP))["status"]["phase"] == "Running"


async def until(condition: Any) -> None:
    async def holds() -> bool:
        return bool(condition())

    await wait_for(holds, DEADLINE, "the cache has it")


async def test_an_account_makes_and_withdraws_no_eviction_request_of_others(
    gated: ControlPlane, charts: Path, renderings: Renderings
) -> None:
    rendered = renderings(charts / "node-compactor", {"dryRun": False}, release="held", namespace=SHOP, apis=[FENCE])

    def request(requester: str, name: str) -> Json:
        pod = {"name": "any", "uid": "00000000-0000-4000-8000-000000000000"}
        spec = {"target": {"pod": pod}, "requester": requester, "intent": "Eviction"}
        named = {"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest"}
        labels = dict([MANAGED_BY]) if name == "ours" else {}
        return {**named, "metadata": {"name": name, "namespace": SHOP, "labels": labels}, "spec": spec}

    async with gated.client() as api, gated.client(token=await installed(api, rendered, ".requests")) as held:
        await api.call("POST", REQUESTS, body=request("example.com/them", "theirs"))

        async def refused() -> bool:
            dry = {"dryRun": "All"}
            return (await held.request("POST", REQUESTS, body=request("example.com/me", "x"), params=dry))[0] == 422

        await wait_for(refused, DEADLINE, "the policy stands")
        assert (await held.request("DELETE", f"{REQUESTS}/theirs", body={}))[0] == 422
        assert (await held.request("POST", REQUESTS, body=request("tightship.dev/node-refiner", "ours")))[0] == 422
        assert (await held.request("POST", REQUESTS, body=request("tightship.dev/node-compactor", "ours")))[0] == 201
        assert (await held.request("DELETE", f"{REQUESTS}/ours", body={}))[0] == 200
        await api.call("DELETE", f"{REQUESTS}/theirs", body={})


async def installed(api: Client, rendered: Sequence[Json], policies: str) -> str:
    """Install a chart's account, its roles, and the policies whose names so end; return a token of the account."""
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    [account] = [each for each in rendered if each["kind"] == "ServiceAccount" and not hook(each)]
    others = [
        each
        for each in rendered
        if (
            each["kind"].startswith("ClusterRole")
            or (each["kind"] in kinds and each["metadata"]["name"].endswith(policies))
        )
        and not hook(each)
    ]
    for each in (account, *others):
        group = each["apiVersion"]
        root = f"/apis/{group}" if "/" in group else f"/api/{group}/namespaces/{SHOP}"
        plural = f"{each['kind'].lower()}s".replace("policys", "policies")
        await api.call("POST", f"{root}/{plural}", body=each)
    path = f"/api/v1/namespaces/{SHOP}/serviceaccounts/{account['metadata']['name']}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return str((await api.call("POST", path, body=asked))["status"]["token"])


def hook(item: Json) -> bool:
    """Whether Helm makes *item* for a moment only."""
    return "helm.sh/hook" in (item["metadata"].get("annotations") or {})

"""Running controllers of nodes, and replicas that an HPA is about to start: on a real control plane, HPA controller
included.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from drains import Run, Site

from tightship_e2e import ControlPlane, settle
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.drains import SETTINGS, all_ready, removing, spare
from tightship_testkit.invariants import STARTUP
from tightship_testkit.manifests import as_list, budget, replicas
from tightship_testkit.replica import COMPACTOR, QUICK_REFINER, REFINER, Program, Replica, Settings

NAMESPACE, NAME = "shop", "store"
NEEDED = "ScaleUpNeedsNode"

BOTH: list[tuple[Program, Settings]] = [(COMPACTOR, SETTINGS), (REFINER, QUICK_REFINER)]
PROGRAMS = pytest.mark.parametrize(("program", "settings"), BOTH, ids=[each[0].name for each in BOTH])


async def deploy(api: Client) -> None:
    """Make a Deployment of two pods of 1,700 milli-CPU, rather not on n1, and an HPA whose floor is two.

    A node has room for two of them.
    """
    labels = {"app": NAME}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1700m"}}}
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
    elsewhere = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}]}
    rather = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": elsewhere}]}
    affinity = {"nodeAffinity": rather}
    spec = {"containers": [container], "topologySpreadConstraints": [apart], "affinity": affinity}
    meta = {"name": NAME, "namespace": NAMESPACE}
    template = {"metadata": {"labels": labels}, "spec": spec}
    await api.create(
        {
            "kind": "Deployment",
            "metadata": meta,
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
        }
    )
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
    metric = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    await api.create(
        {
            "kind": "HorizontalPodAutoscaler",
            "metadata": meta,
            "spec": {
                "scaleTargetRef": target,
                "minReplicas": 2,
                "maxReplicas": 9,
                "metrics": [{"type": "Resource", "resource": metric}],
            },
        }
    )
    await running(api, 2)

    async def looked_at() -> bool:
        status = await status_of(api)
        return bool(status.get("conditions")) and status.get("currentReplicas") == 2

    await wait_for(looked_at, 60, "the HPA controller has looked at the HPA")


async def status_of(api: Client) -> Json:
    found: Json = (await api.get("HorizontalPodAutoscaler", NAME, NAMESPACE)).get("status") or {}
    return found


async def floor(api: Client, replicas: int) -> None:
    await api.patch("HorizontalPodAutoscaler", NAME, {"spec": {"minReplicas": replicas}}, NAMESPACE)


@asynccontextmanager
async def never_told(plane: ControlPlane) -> AsyncIterator[None]:
    """Keep the HPA controller from ever hearing of what has been taken back at the end.

    One that is only paused is told of it afterwards; it may scale by a raised floor before it hears of the lowered one.
    """
    plane.kill("kube-controller-manager")
    try:
        yield
    finally:
        await asyncio.to_thread(plane.restart, "kube-controller-manager")


async def running(api: Client, replicas: int) -> None:
    async def all_run() -> bool:
        found = await api.get("Deployment", NAME, NAMESPACE)
        return bool(found.get("status", {}).get("readyReplicas", 0) == replicas)

    await wait_for(all_run, 90, f"{replicas} replicas run")


async def reasons(replica: Replica, node: str = "n1") -> list[str]:
    plan = json.loads((await replica.get("/status"))[1])["plan"]
    [found] = [each["reasons"] for each in plan["nodes"] if each["name"] == node] if plan else [[]]
    return list(found)


async def refuses(on: Site, replica: Replica) -> Json:
    """Wait until n1 is kept for the replicas and see that it stays so; return what is said of it."""

    await replica.ready()

    async def kept() -> bool:
        return await reasons(replica) == [NEEDED]

    try:
        await wait_for(kept, 60, "n1 is needed")
    except TimeoutError as error:
        raise AssertionError(f"{error}; it has {await reasons(replica)}\n{on.logs()}") from None
    await on.passes(replica, 4)
    assert await reasons(replica) == [NEEDED]
    assert set(on.recorder.phases("n1")) <= {"Marked"}
    plan = json.loads((await replica.get("/status"))[1])["plan"]
    [refusal] = next(each["refusals"] for each in plan["nodes"] if each["name"] == "n1")
    return dict(refusal)


async def add(api: Client, node: Json) -> None:
    """Add a node that is for no pods before kwok attends to it: of one that came earlier it may never take notice."""
    name, given = node["metadata"]["name"], node["spec"]["taints"]
    starting = {"key": f"{STARTUP}kwok", "effect": "NoSchedule"}
    await api.create({**node, "spec": {**node["spec"], "taints": [*given, starting]}})
    await settle.attended(api, name)
    await api.patch("Node", name, {"spec": {"taints": given}})


def cluster() -> Json:
    """Return three equal nodes, each with a pod; n1 may go."""
    rest = [spare(name, pool="rest") for name in ("n2", "n3")]
    return as_list(spare(), *rest, *replicas("web", ["n1", "n1", "n2", "n3"], app="web"), budget("web", 3, app="web"))


@PROGRAMS
def test_a_raised_floor_keeps_the_node_its_replicas_need_until_it_is_lowered(
    on_site: Run, control_plane: ControlPlane, program: Program, settings: Settings
) -> None:
    async def work(on: Site) -> None:
        await deploy(on.api)
        async with never_told(control_plane):
            await floor(on.api, 5)
            replica = on.start()
            refusal = await refuses(on, replica)
            assert f"HPA {NAMESPACE}/{NAME} is about to start 3 more replicas (minReplicas is 5, 2 exist)" in str(
                refusal["detail"]
            )
            await floor(on.api, 2)
        async with removing(on.api):
            await on.gone("n1")
        await all_ready(on.api)

    on_site(work, cluster(), settings=settings, program=program)


def test_it_goes_on_when_the_replicas_run_and_there_is_room(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        await deploy(on.api)
        with control_plane.paused("kube-controller-manager"):
            await floor(on.api, 5)
            replica = on.start()
            await refuses(on, replica)
        # The HPA controller scales, the replicas start; now they are pods, and one of them may be on n1.
        await running(on.api, 5)

        async def no_veto() -> bool:
            return NEEDED not in await reasons(replica)

        await wait_for(no_veto, 120, "nothing is to come any more")
        await on.passes(replica, 2)
        assert set(on.recorder.phases("n1")) <= {"Marked"}
        await add(on.api, spare("n4", pool="rest"))
        async with removing(on.api):
            await on.gone("n1")
        await running(on.api, 5)
        await all_ready(on.api)

    # However many of the replicas land on n1.
    spare_pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 1, "scaleDownRequiredUnderutilizedNodeCount": 0}
    rest = {"enabled": True, "scaleDownCPURequestRatioLimit": 0}
    on_site(work, cluster(), settings={**SETTINGS, "nodePools": {"*": rest, "spare": spare_pool}})


def test_an_hpa_that_scales_up_keeps_the_node_until_its_metrics_fail(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        await deploy(on.api)
        with control_plane.paused("kube-controller-manager"):
            listed = [{"type": kind, "status": "True", "reason": "x"} for kind in ("AbleToScale", "ScalingActive")]
            status = {"currentReplicas": 2, "desiredReplicas": 5, "conditions": listed}
            await on.api.patch("HorizontalPodAutoscaler", NAME, {"status": status}, NAMESPACE, subresource="status")
            replica = on.start()
            refusal = await refuses(on, replica)
            assert "(desiredReplicas is 5, 2 exist)" in str(refusal["detail"])
        # There is no metrics API here: the HPA controller leaves the number as it is, and says that it is not active.
        async with removing(on.api):
            await on.gone("n1")
        assert (await status_of(on.api))["desiredReplicas"] == 5
        await running(on.api, 2)

    on_site(work, cluster())


def test_switched_off_hpas_are_not_read_and_keep_nothing(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        await deploy(on.api)
        async with never_told(control_plane):
            await floor(on.api, 5)
            control_plane.audit_events()
            replica = on.start()
            await replica.ready()
            await on.phase("n1", "Evicting")
            asked = [each for each in control_plane.audit_events() if each.user.username == COMPACTOR.user]
            assert [each.request_uri for each in asked if "horizontalpodautoscalers" in each.request_uri] == []
            await floor(on.api, 2)
        async with removing(on.api):
            await on.gone("n1")

    on_site(work, cluster(), settings={**SETTINGS, "scaleUpVeto": False})

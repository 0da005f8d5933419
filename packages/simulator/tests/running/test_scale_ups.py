"""Running controllers of nodes, and replicas that an HPA is about to start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.drains import SETTINGS, all_ready, spare
from tightship_testkit.embedded import Ground, ground
from tightship_testkit.manifests import as_list, budget, replicas
from tightship_testkit.replica import COMPACTOR, QUICK_REFINER, REFINER, Program, Replica, Settings

pytestmark = pytest.mark.virtual_time

NAMESPACE, NAME = "shop", "store"
NEEDED = "ScaleUpNeedsNode"
CONTROLLERS = ("horizontal", "workloads")
"""What the kube-controller-manager does of what lives in the cluster."""

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
    spec = {
        "containers": [container],
        "topologySpreadConstraints": [apart],
        "affinity": {"nodeAffinity": rather},
    }
    meta = {"name": NAME, "namespace": NAMESPACE}
    template = {"metadata": {"labels": labels}, "spec": spec}
    deployed = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    await api.create({"kind": "Deployment", "metadata": meta, "spec": deployed})
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
    metric = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    scaled = {
        "scaleTargetRef": target,
        "minReplicas": 2,
        "maxReplicas": 9,
        "metrics": [{"type": "Resource", "resource": metric}],
    }
    await api.create({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": scaled})
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


async def running(api: Client, replicas: int) -> None:
    async def all_run() -> bool:
        found = await api.get("Deployment", NAME, NAMESPACE)
        return bool(found.get("status", {}).get("readyReplicas", 0) == replicas)

    await wait_for(all_run, 90, f"{replicas} replicas run")


async def reasons(replica: Replica, node: str = "n1") -> list[str]:
    plan = (await replica.status())["plan"]
    [found] = [each["reasons"] for each in plan["nodes"] if each["name"] == node] if plan else [[]]
    return list(found)


async def refuses(on: Ground, replica: Replica) -> Json:
    """Wait until n1 is kept for the replicas and see that it stays so; return what is said of it."""
    await replica.ready()

    async def kept() -> bool:
        return await reasons(replica) == [NEEDED]

    await wait_for(kept, 60, "n1 is needed")
    await on.passes(replica, 4)
    assert await reasons(replica) == [NEEDED]
    assert set(on.recorder.phases("n1")) <= {"Marked"}
    plan = (await replica.status())["plan"]
    [refusal] = next(each["refusals"] for each in plan["nodes"] if each["name"] == "n1")
    return dict(refusal)


def cluster() -> Json:
    """Return three equal nodes, each with a pod; n1 may go."""
    rest = [spare(name, pool="rest") for name in ("n2", "n3")]
    return as_list(spare(), *rest, *replicas("web", ["n1", "n1", "n2", "n3"], app="web"), budget("web", 3, app="web"))


@PROGRAMS
async def test_a_raised_floor_keeps_the_node_its_replicas_need_until_it_is_lowered(
    tmp_path: Path, program: Program, settings: Settings
) -> None:
    async with ground(tmp_path, cluster(), settings, program, autoscaling=True) as on:
        await deploy(on.api)
        with on.living.paused(*CONTROLLERS):
            await floor(on.api, 5)
            replica = on.start()
            refusal = await refuses(on, replica)
            told = f"HPA {NAMESPACE}/{NAME} is about to start 3 more replicas (minReplicas is 5, 2 exist)"
            assert told in str(refusal["detail"])
            await floor(on.api, 2)
        with on.removing():
            await on.gone("n1")
        await all_ready(on.api)


async def test_it_goes_on_when_the_replicas_run_and_there_is_room(tmp_path: Path) -> None:
    # However many of the replicas land on n1.
    spare_pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 1, "scaleDownRequiredUnderutilizedNodeCount": 0}
    rest = {"enabled": True, "scaleDownCPURequestRatioLimit": 0}
    settings = {**SETTINGS, "nodePools": {"*": rest, "spare": spare_pool}}
    async with ground(tmp_path, cluster(), settings, autoscaling=True) as on:
        await deploy(on.api)
        with on.living.paused(*CONTROLLERS):
            await floor(on.api, 5)
            replica = on.start()
            await refuses(on, replica)
        # The HPA controller scales, the replicas start; now they are pods, and one of them is on n1.
        await running(on.api, 5)

        async def no_veto() -> bool:
            return NEEDED not in await reasons(replica)

        await wait_for(no_veto, 120, "nothing is to come any more")
        await on.passes(replica, 2)
        assert set(on.recorder.phases("n1")) <= {"Marked"}
        placed = [each["spec"]["nodeName"] for each in await on.api.list("Pod", NAMESPACE, labelSelector=f"app={NAME}")]
        assert sorted(placed) == ["n1", "n2", "n2", "n3", "n3"]
        await on.api.create(spare("n4", pool="rest"))
        with on.removing():
            await on.gone("n1")
        await running(on.api, 5)
        await all_ready(on.api)


async def test_an_hpa_that_scales_up_keeps_the_node_until_its_metrics_fail(tmp_path: Path) -> None:
    async with ground(tmp_path, cluster(), SETTINGS, autoscaling=True) as on:
        await deploy(on.api)
        with on.living.paused(*CONTROLLERS):
            listed = [{"type": kind, "status": "True", "reason": "x"} for kind in ("AbleToScale", "ScalingActive")]
            status = {"currentReplicas": 2, "desiredReplicas": 5, "conditions": listed}
            await on.api.patch("HorizontalPodAutoscaler", NAME, {"status": status}, NAMESPACE, subresource="status")
            replica = on.start()
            refusal = await refuses(on, replica)
            assert "(desiredReplicas is 5, 2 exist)" in str(refusal["detail"])
        # There is no metrics API here: the HPA controller leaves the number as it is, and says that it is not active.
        with on.removing():
            await on.gone("n1")
        assert (await status_of(on.api))["desiredReplicas"] == 5
        await running(on.api, 2)


async def test_switched_off_hpas_are_not_read_and_keep_nothing(tmp_path: Path) -> None:
    async with ground(tmp_path, cluster(), {**SETTINGS, "scaleUpVeto": False}, autoscaling=True) as on:
        await deploy(on.api)
        with on.living.paused(*CONTROLLERS):
            await floor(on.api, 5)
            replica = on.start()
            await replica.ready()
            await on.phase("n1", "Evicting")
            asked = {each.object_ref.resource for each in on.events}
            assert "pods" in asked
            assert "horizontalpodautoscalers" not in asked
            await floor(on.api, 2)
        with on.removing():
            await on.gone("n1")

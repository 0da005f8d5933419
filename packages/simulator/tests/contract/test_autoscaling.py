"""What the HPA controller writes without metrics: the scale of its target, and the status of the HPA."""

from __future__ import annotations

import pytest
from contract_api import Api, Json

FAILED = ("False", "FailedGetResourceMetric")
READ = ("True", "SucceededGetScale")
SCALED = ("False", "NotScaledToZero")
"""What is said from the first time on that an HPA has scaled."""


async def given(api: Api, replicas: int, least: int, most: int) -> None:
    """Make a Deployment, and an HPA for it by a metric that nobody serves."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    meta = {"name": "web", "namespace": api.namespace}
    deployed = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    await api.client.create({"kind": "Deployment", "metadata": meta, "spec": deployed})
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    metric = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    bounds = {"minReplicas": least, "maxReplicas": most}
    wanted = {"scaleTargetRef": target, **bounds, "metrics": [{"type": "Resource", "resource": metric}]}
    await api.client.create({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": wanted})


async def written(api: Api, current: int, desired: int, **conditions: tuple[str, str]) -> Json:
    """Wait until the status is this one, its conditions by type and nothing besides, and return it."""

    wanted, seen = (current, desired, conditions), None

    def is_so(hpa: Json) -> bool:
        nonlocal seen
        status = hpa.get("status") or {}
        reported = {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions") or []}
        seen = status.get("currentReplicas", 0), status.get("desiredReplicas"), reported
        return seen == wanted

    try:
        status: Json = (await api.until("HorizontalPodAutoscaler", "web", is_so))["status"]
    except TimeoutError:
        assert seen == wanted
        raise
    return status


async def scaled(api: Api) -> int:
    return int((await api.get("Deployment", "web"))["spec"]["replicas"])


@pytest.mark.newest
async def test_without_metrics_an_hpa_desires_nothing_and_scales_nothing(api: Api) -> None:
    await given(api, replicas=3, least=2, most=9)
    status = await written(api, 3, 0, AbleToScale=READ, ScalingActive=FAILED)
    assert await scaled(api) == 3
    assert "lastScaleTime" not in status
    assert status["observedGeneration"] == 1


@pytest.mark.newest
async def test_a_raised_floor_is_scaled_to_without_metrics_and_stays_desired(api: Api) -> None:
    await given(api, replicas=2, least=2, most=9)
    await written(api, 2, 0, AbleToScale=READ, ScalingActive=FAILED)
    floor = {"spec": {"minReplicas": 5}}
    await api.client.patch("HorizontalPodAutoscaler", "web", floor, api.namespace)
    await api.until("Deployment", "web", lambda found: found["spec"]["replicas"] == 5)
    status = await written(api, 5, 5, AbleToScale=READ, ScalingActive=FAILED, ScaledToZero=SCALED)
    assert status["lastScaleTime"]
    assert status["observedGeneration"] == 2
    assert (await api.get("HorizontalPodAutoscaler", "web"))["metadata"]["generation"] == 2


async def test_when_metrics_fail_what_was_desired_stays_and_nothing_is_scaled(api: Api) -> None:
    await given(api, replicas=2, least=2, most=9)
    await written(api, 2, 0, AbleToScale=READ, ScalingActive=FAILED)
    desired = {"status": {"currentReplicas": 2, "desiredReplicas": 5}}
    await api.client.patch("HorizontalPodAutoscaler", "web", desired, api.namespace, subresource="status")
    # A change of the HPA is looked at in its turn: the floor is as good as any.
    floor = {"spec": {"minReplicas": 1}}
    await api.client.patch("HorizontalPodAutoscaler", "web", floor, api.namespace)
    active = [{"type": "ScalingActive", "status": "True", "reason": "ByTheTest"}]
    await api.client.patch(
        "HorizontalPodAutoscaler", "web", {"status": {"conditions": active}}, api.namespace, subresource="status"
    )
    await written(api, 2, 5, AbleToScale=READ, ScalingActive=FAILED)
    assert await scaled(api) == 2


@pytest.mark.newest
async def test_a_target_above_the_maximum_is_lowered_without_metrics(api: Api) -> None:
    await given(api, replicas=7, least=2, most=4)
    await api.until("Deployment", "web", lambda found: found["spec"]["replicas"] == 4)
    await written(api, 4, 4, AbleToScale=READ, ScalingActive=FAILED, ScaledToZero=SCALED)


async def test_a_target_at_nothing_is_left_alone_and_said_to_be_disabled(api: Api) -> None:
    await given(api, replicas=0, least=2, most=9)
    status = await written(api, 0, 0, AbleToScale=READ, ScalingActive=("False", "ScalingDisabled"))
    assert "currentReplicas" not in status
    assert await scaled(api) == 0

"""Many annotated HPAs as a cluster has them, and the traffic of their services."""

from __future__ import annotations

import json
import time
from functools import partial

from tightship_e2e.exporter import Exporter
from tightship_testkit.client import RESOURCES, Client, Json

HPA = "HorizontalPodAutoscaler"
PREFIX = "tightship.dev/hpa-scaler"
PODS = 3
"""Series that a query sums up."""
TEAM = 100
"""HPAs of a namespace, and of one repeated query."""
PER_REPLICA = 10
LOOKBACK = 60
"""Seconds that the queries look back."""


class Traffic:
    """Requests of the services, as their pods' counters show them; `grow` changes how fast those go."""

    def __init__(self, services: int, exporter: Exporter) -> None:
        self._rates = [PER_REPLICA * (wanted(number) - 0.5) for number in range(services)]
        self._counts = [0.0] * services
        self._since = [time.monotonic()] * services
        for number in range(services):
            for pod in range(PODS):
                name = f"{service(number)}-{pod}"
                count = partial(self._of_a_pod, number)
                exporter.set("http_requests_total", count, namespace=team(number), app=service(number), pod=name)

    def grow(self, number: int, by: float) -> None:
        self._counts[number], self._since[number] = self._count(number), time.monotonic()
        self._rates[number] *= by

    def _of_a_pod(self, number: int) -> float:
        return self._count(number) / PODS

    def _count(self, number: int) -> float:
        return self._counts[number] + self._rates[number] * (time.monotonic() - self._since[number])


def team(number: int) -> str:
    return f"team-{number // TEAM:03d}"


def service(number: int) -> str:
    return f"service-{number:05d}"


def wanted(number: int) -> int:
    """The floor that a service's traffic asks for; every one is above the 3 that it starts with."""
    return 4 + number % 9


def query(number: int, *, repeated: bool = False) -> str:
    chosen = "" if repeated else f',app="{service(number)}"'
    return f'sum(rate(http_requests_total{{namespace="{team(number)}"{chosen}}}[{LOOKBACK}s]))'


def autoscaler(number: int) -> Json:
    """An HPA as a chart makes it; about 3 KB with what the API server and the controllers add to it."""
    name = service(number)
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    requests = {
        "metric": {"name": "http_requests_per_second", "selector": {"matchLabels": {"app": name}}},
        "target": {"type": "AverageValue", "averageValue": "20"},
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": HPA,
        "metadata": {
            "name": name,
            "namespace": team(number),
            "labels": {
                "app.kubernetes.io/name": name,
                "app.kubernetes.io/part-of": "shop",
                "app.kubernetes.io/managed-by": "Helm",
                "helm.sh/chart": "service-4.2.1",
            },
            "annotations": {
                "argocd.argoproj.io/tracking-id": f"{team(number)}:autoscaling/{HPA}:{team(number)}/{name}",
                "meta.helm.sh/release-name": name,
                "meta.helm.sh/release-namespace": team(number),
                PREFIX: "true",
                f"{PREFIX}-prometheus-query": query(number),
                f"{PREFIX}-requests-per-replica": str(PER_REPLICA),
                f"{PREFIX}-scale-down-max-ratio": "0.2",
                f"{PREFIX}-deadband": "1",
            },
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 3,
            "maxReplicas": 40,
            "metrics": [{"type": "Resource", "resource": cpu}, {"type": "Pods", "pods": requests}],
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [policy("Percent", 100)]},
                "scaleDown": {"stabilizationWindowSeconds": 300, "policies": [policy("Percent", 10)]},
            },
        },
    }


def policy(kind: str, value: int) -> Json:
    return {"type": kind, "value": value, "periodSeconds": 60}


def status(number: int) -> Json:
    """What the HPA controller says of a service that runs with the replicas its traffic needs."""
    since = "2026-03-09T21:15:00Z"
    cpu = {"name": "cpu", "current": {"averageUtilization": 61, "averageValue": "305m"}}
    requests = {
        "metric": {"name": "http_requests_per_second", "selector": {"matchLabels": {"app": service(number)}}},
        "current": {"averageValue": "9480m"},
    }
    conditions = (
        ("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size"),
        ("ScalingActive", "True", "ValidMetricFound", "the HPA was able to successfully calculate a replica count"),
        ("ScalingLimited", "False", "DesiredWithinRange", "the desired count is within the acceptable range"),
    )
    return {
        "observedGeneration": 1,
        "lastScaleTime": since,
        "currentReplicas": wanted(number),
        "desiredReplicas": wanted(number),
        "currentMetrics": [{"type": "Resource", "resource": cpu}, {"type": "Pods", "pods": requests}],
        "conditions": [
            {"type": kind, "status": is_so, "lastTransitionTime": since, "reason": reason, "message": message}
            for kind, is_so, reason, message in conditions
        ],
    }


async def fill(api: Client, count: int) -> int:
    """Create *count* HPAs, with status and the managers of production; returns the bytes of one, on average."""

    async def make(number: int) -> None:
        path = RESOURCES[HPA].path(team(number))
        await api.call("POST", path, body=autoscaler(number), params={"fieldManager": "argocd-controller"})
        path = RESOURCES[HPA].path(team(number), service(number), "status")
        await api.call(
            "PATCH",
            path,
            body={"status": status(number)},
            params={"fieldManager": "kube-controller-manager"},
            content_type="application/merge-patch+json",
        )

    for name in sorted({team(number) for number in range(count)}):
        await api.call("POST", RESOURCES["Namespace"].path(), body={"metadata": {"name": name}})
    await api.each(make, range(count))
    sample = await anext(api.pages(HPA, page=500))
    return sum(len(json.dumps(each, separators=(",", ":"))) for each in sample) // len(sample)


async def floors(api: Client) -> dict[str, int]:
    """minReplicas of every HPA."""
    found: dict[str, int] = {}
    async for items in api.pages(HPA, page=500):
        found |= {each["metadata"]["name"]: each["spec"]["minReplicas"] for each in items}
    return found


async def repeat(api: Client, number: int) -> None:
    """Let an HPA ask what its whole team asks."""
    per_replica = PER_REPLICA * TEAM
    notes = {
        f"{PREFIX}-prometheus-query": query(number, repeated=True),
        f"{PREFIX}-requests-per-replica": str(per_replica),
    }
    await api.patch(HPA, service(number), {"metadata": {"annotations": notes}}, team(number))

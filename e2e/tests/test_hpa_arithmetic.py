"""The HPA that backtests and the simulator replay, beside the real HPA controller: the same replicas in turn."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from tightship.objects import AUTOSCALER, HorizontalPodAutoscaler, decode
from tightship.objects.horizontal import ReplicaLoop
from tightship_e2e import ControlPlane
from tightship_e2e.external_metrics import ExternalMetrics
from tightship_testkit.client import Client, Json

NAMESPACE = "arithmetic"
QUICK_DOWN: Json = {"stabilizationWindowSeconds": 0}
TWO: Json = {"type": "Pods", "value": 2, "periodSeconds": 3}
HALF: Json = {"type": "Percent", "value": 50, "periodSeconds": 3}
Levels = list[tuple[int, float]]
"""So many looks each at which the metric asks for so many replicas."""

CASES: dict[str, tuple[Json | None, Levels]] = {
    "plain": (None, [(6, 4), (4, 4.3), (4, 3.7), (8, 30), (4, 32.5), (10, 12)]),
    "pods-up": ({"scaleUp": {"policies": [TWO]}, "scaleDown": QUICK_DOWN}, [(4, 4), (25, 13), (4, 14), (6, 5)]),
    "percent-down": ({"scaleDown": {**QUICK_DOWN, "policies": [HALF]}}, [(4, 4), (6, 32), (16, 3)]),
    "smallest": (
        {"scaleUp": {"policies": [TWO, HALF], "selectPolicy": "Min"}, "scaleDown": {"selectPolicy": "Disabled"}},
        [(4, 4), (25, 11), (6, 5)],
    ),
    "waits": (
        {"scaleUp": {"stabilizationWindowSeconds": 5}, "scaleDown": {"stabilizationWindowSeconds": 4}},
        [(8, 4), (2, 9), (6, 4), (12, 9), (2, 4), (6, 9), (10, 4)],
    ),
    "tolerant": (
        {"scaleUp": {"tolerance": "0.3"}, "scaleDown": {**QUICK_DOWN, "tolerance": "0.05"}},
        [(4, 10), (4, 12.6), (6, 14), (4, 13.6), (6, 13)],
    ),
}


def need(levels: Levels, look: int) -> float:
    """What the metric asks for at a look; the last level stays."""
    for looks, wanted in levels:
        if look < looks:
            return wanted
        look -= looks
    return levels[-1][1]


def distinct(replicas: list[int]) -> list[int]:
    return [each for before, each in zip([0, *replicas], replicas, strict=False) if each != before]


async def made(api: Client, name: str, behavior: Json | None, replicas: int) -> HorizontalPodAutoscaler:
    """Make a Deployment and its HPA."""
    meta = {"name": name, "namespace": NAMESPACE}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    await api.create({"kind": "Deployment", "metadata": meta, "spec": spec})
    target = {"type": "AverageValue", "averageValue": "10"}
    asks = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 2,
        "maxReplicas": 40,
        "metrics": [{"type": "External", "external": {"metric": {"name": name}, "target": target}}],
    }
    if behavior is not None:
        asks["behavior"] = behavior
    found = decode(
        AUTOSCALER, msgspec.json.encode(await api.create({"kind": AUTOSCALER, "metadata": meta, "spec": asks}))
    )
    assert isinstance(found, HorizontalPodAutoscaler)
    return found


@pytest.mark.takes(60)
def test_the_replayed_hpa_scales_as_the_real_controller_does(empty_plane: ControlPlane, tmp_path: Path) -> None:
    looks: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    seen: dict[str, list[int]] = {name: [] for name in CASES}

    def looked(name: str) -> float:
        wanted = need(CASES[name][1], len(looks[name]))
        looks[name].append((time.monotonic(), wanted))
        return 10 * wanted

    async def work(api: Client) -> dict[str, HorizontalPodAutoscaler]:
        await api.create({"kind": "Namespace", "metadata": {"name": NAMESPACE}})
        async with ExternalMetrics(api, tmp_path) as metrics:
            hpas = {}
            for name, (behavior, levels) in CASES.items():
                metrics.values[name] = lambda name=name: looked(name)
                hpas[name] = await made(api, name, behavior, int(levels[0][1]))

            async def over() -> bool:
                for each in await api.list("Deployment", NAMESPACE):
                    seen[each["metadata"]["name"]].append(each["spec"]["replicas"])
                return all(len(looks[name]) > sum(count for count, _ in levels) for name, (_, levels) in CASES.items())

            for _ in range(3000):
                if await over():
                    break
                await asyncio.sleep(0.1)  # between any two looks
            return hpas

    hpas = empty_plane.run(work)
    for name, hpa in hpas.items():
        loop, replicas, modelled = ReplicaLoop(hpa.scale_up, hpa.scale_down), int(CASES[name][1][0][1]), []
        for at, wanted in looks[name]:
            replicas = loop.look(at, replicas, wanted / replicas, 2, 40)
            modelled.append(replicas)
        assert distinct(seen[name]) == distinct(modelled), name

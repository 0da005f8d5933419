"""The HorizontalPodAutoscaler's loop."""

from __future__ import annotations

import pytest
from lively import AT, Json, looking, workload

from tightship_simulator.life.changes import Change, Patch, condition
from tightship_simulator.life.horizontal import HorizontalAutoscaler, recommend

METRIC = {"type": "Resource", "resource": {"name": "cpu"}}


def _hpa(least: int = 2, most: int = 20, **spec: object) -> Json:
    target = {"kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most, "metrics": [METRIC], **spec},
    }


class _Loop:
    """A Deployment and its HPA; what the loop wants is done at once."""

    def __init__(self, hpa: Json, replicas: int) -> None:
        self.ratio: float | None = 1.0
        self.hpa = hpa
        self.deployment = workload("Deployment", "web", replicas)
        self.deployment["status"] = {"replicas": replicas}
        self.autoscaler = HorizontalAutoscaler(lambda *_: self.ratio, window=300)

    def step(self, now: float) -> int:
        changes: list[Change] = self.autoscaler.step(looking([self.hpa, self.deployment]), now, AT)
        for change in changes:
            assert isinstance(change, Patch)
            if change.item is self.hpa:
                self.hpa = {**self.hpa, "status": {**self.hpa.get("status", {}), **change.merge["status"]}}
            else:
                self.deployment["spec"] = {**self.deployment["spec"], **change.merge["spec"]}
        return int(self.deployment["spec"]["replicas"])

    def limited(self) -> str:
        return str(condition(self.hpa, "ScalingLimited")["reason"])


@pytest.mark.parametrize(("ratio", "wanted"), [(1.05, 10), (1.2, 12), (0.95, 10), (0.5, 5), (0.51, 6), (0.0, 0)])
def test_replicas_bring_the_metric_to_its_target_beyond_a_tolerance(ratio: float, wanted: int) -> None:
    assert recommend(10, ratio) == wanted


def test_up_goes_at_once_and_down_after_the_window() -> None:
    loop = _Loop(_hpa(), 4)
    assert loop.step(0) == 4
    loop.ratio = 2.0
    assert loop.step(15) == 8
    loop.ratio = 0.5
    assert loop.step(30) == 8
    assert loop.step(315) == 8
    assert loop.step(331) == 4


def test_bounds_are_kept_and_told() -> None:
    loop = _Loop(_hpa(least=3, most=6, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}}), 5)
    loop.ratio = 9.0
    assert loop.step(0) == 6
    assert loop.limited() == "TooManyReplicas"
    loop.ratio = 0.01
    assert loop.step(100) == 3
    assert loop.limited() == "TooFewReplicas"
    assert loop.hpa["status"]["desiredReplicas"] == 3
    assert loop.hpa["status"]["lastScaleTime"] == AT


def test_a_metric_that_fails_forbids_the_way_down_and_not_the_way_up() -> None:
    loop = _Loop(_hpa(metrics=[METRIC, {"type": "External"}]), 4)
    ratios = {"Resource": 0.5, "External": None}
    loop.autoscaler = HorizontalAutoscaler(lambda _hpa, metric, _: ratios[metric["type"]], window=0)
    assert loop.step(0) == 4
    assert condition(loop.hpa, "ScalingActive")["reason"] == "FailedGetExternalMetric"
    ratios["Resource"] = 1.5
    assert loop.step(15) == 6
    assert condition(loop.hpa, "ScalingActive")["status"] == "True"

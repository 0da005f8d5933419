"""Whether an HPA has metrics that kube-state-metrics does not tell apart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tightship.objects.autoscaling import HorizontalPodAutoscalerWire

BASE: dict[str, Any] = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9}
HALF = {"type": "Utilization", "averageUtilization": 50}


def container(name: str) -> dict[str, Any]:
    return {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": name, "target": HALF}}


def external(name: str, queue: str) -> dict[str, Any]:
    chosen = {"name": name, "selector": {"matchLabels": {"queue": queue}}}
    return {"type": "External", "external": {"metric": chosen, "target": {"type": "AverageValue", "averageValue": "5"}}}


def item(name: str, of: str) -> dict[str, Any]:
    target = {"type": "Value", "value": "5"}
    described = {"kind": "Ingress", "name": of}
    return {"type": "Object", "object": {"metric": {"name": name}, "describedObject": described, "target": target}}


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": HALF}}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": HALF}}


@pytest.mark.parametrize(
    ("metrics", "wanted"),
    [
        (None, False),
        ([], False),
        ([CPU], False),
        ([CPU, MEMORY], False),
        ([container("main"), container("proxy")], True),
        ([CPU, container("proxy")], True),
        ([external("lag", "a"), external("lag", "b")], True),
        ([external("lag", "a"), external("depth", "a")], False),
        ([item("requests", "a"), item("requests", "b")], True),
        ("nonsense", False),
        (["nonsense", {"type": 3}, {"external": {"target": {}, "metric": None}}], False),
    ],
)
def test_metrics_of_one_name_and_type_are_namesakes(metrics: Any, wanted: bool) -> None:
    body = {"metadata": {"name": "web", "namespace": "shop"}, "spec": BASE | {"metrics": metrics}}
    decoded = msgspec.json.decode(msgspec.json.encode(body), type=HorizontalPodAutoscalerWire)
    assert decoded.autoscaler().namesakes is wanted

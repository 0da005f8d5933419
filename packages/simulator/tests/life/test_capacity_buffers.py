"""The simulator's controller of CapacityBuffers: what it makes of a spec."""

from __future__ import annotations

from typing import Any

import pytest

from tightship_simulator.life.capacity_buffers import BufferController
from tightship_simulator.life.changes import Create, Patch

Json = dict[str, Any]


def pod(name: str, created: str = "2026-01-01T00:00:00Z") -> Json:
    meta = {"name": name, "namespace": "shop", "labels": {"app": "web"}, "creationTimestamp": created}
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": name, "resources": {"requests": {"cpu": "500m"}}}]}
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("spec", "replicas"),
    [
        ({"percentage": 50}, 1),
        ({"percentage": 200}, 6),
        ({"percentage": 200, "replicas": 4}, 4),
        ({"percentage": 200, "limits": {"cpu": "1"}}, 2),
        ({}, 0),
    ],
)
def test_the_smallest_number_counts_and_the_newest_pod_is_the_template(spec: Json, replicas: int) -> None:
    ref = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
    buffer = {
        "kind": "CapacityBuffer",
        "metadata": {"name": "b", "namespace": "shop"},
        "spec": {"scalableRef": ref, **spec},
    }
    pods = [pod("old"), pod("new", "2026-01-02T00:00:00Z"), pod("older")]
    there = {"CapacityBuffer": [buffer], "Pod": pods, "PodTemplate": []}
    made, reported = BufferController().step(lambda kind: there[kind], 0.0, "")
    assert isinstance(made, Create)
    assert made.item["template"]["spec"]["containers"][0]["image"] == "new"
    assert isinstance(reported, Patch)
    assert reported.merge["status"]["replicas"] == replicas
    there |= {"CapacityBuffer": [{**buffer, **reported.merge}], "PodTemplate": [made.item]}
    assert BufferController().step(lambda kind: there[kind], 0.0, "") == []

"""Effective requests, by the rule of kube-scheduler 1.37."""

from typing import Any

import pytest
from cluster_builder import one, pod


def requests(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, int]:
    thing = pod("p", "n", **spec)
    thing["status"] |= status or {}
    decoded = one(thing)
    return {name: amount for name, amount in decoded.requests.items() if name != "pods"}


def container(cpu: str, name: str = "c", **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "milli"),
    [
        pytest.param({"containers": [container("100m"), container("250m")]}, 350, id="containers add up"),
        pytest.param({"containers": [container("100m")], "initContainers": [container("1")]}, 1000, id="largest init"),
        pytest.param({"containers": [container("1500m")], "initContainers": [container("1")]}, 1500, id="main larger"),
        pytest.param(
            {"containers": [container("100m")], "initContainers": [container("200m", **SIDECAR)]},
            300,
            id="sidecar adds",
        ),
        pytest.param(
            {"containers": [container("100m")], "initContainers": [container("200m", **SIDECAR), container("1")]},
            1200,
            id="init after a sidecar runs beside it",
        ),
        pytest.param(
            {"containers": [container("100m")], "initContainers": [container("1"), container("200m", **SIDECAR)]},
            1000,
            id="init before a sidecar runs alone",
        ),
        pytest.param({"containers": [container("100m")], "overhead": {"cpu": "50m"}}, 150, id="overhead"),
        pytest.param({"containers": [container("1")], "resources": {"requests": {"cpu": "300m"}}}, 300, id="pod level"),
        pytest.param({"containers": [container("500u"), container("500u")]}, 1, id="rounded once, at the end"),
        pytest.param(
            {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}, 2000, id="limit as request"
        ),
    ],
)
def test_effective_cpu_request(spec: dict[str, Any], milli: int) -> None:
    assert requests(spec) == {"cpu": milli}


def running(cpu: str, allocated: str | None = None) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": allocated or cpu}}


@pytest.mark.parametrize(
    ("status", "milli"),
    [
        pytest.param({"containerStatuses": [running("1")]}, 1000, id="settled"),
        pytest.param({"containerStatuses": [running("500m")]}, 1000, id="growing counts what is wanted"),
        pytest.param({"containerStatuses": [running("3", "2")]}, 3000, id="shrinking counts what runs"),
        pytest.param(
            {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}}]},
            2000,
            id="what is allocated counts where nothing says what runs",
        ),
        pytest.param(
            {
                "containerStatuses": [running("500m")],
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
            },
            500,
            id="infeasible resize counts what it has",
        ),
    ],
)
def test_a_resize_counts_the_largest_of_wanted_allocated_and_running(status: dict[str, Any], milli: int) -> None:
    assert requests({"containers": [container("1")]}, status) == {"cpu": milli}


def test_a_pod_takes_one_of_the_pod_count() -> None:
    decoded = one(pod("p", "n", cpu="", memory=""))
    assert decoded.requests == {"pods": 1}
    assert decoded.spec.scoring == (100, 200 * 1024 * 1024)

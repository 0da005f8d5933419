"""The control plane itself: it starts, schedules, can be stopped, and ends without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from parents import leaves_nothing

from tightship_e2e import ControlPlane, PlaneError, settle
from tightship_e2e.binaries import environment
from tightship_e2e.plugin import require_binaries
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.manifests import node

DEADLINE = 60.0


def deployment(name: str, replicas: int) -> Json:
    labels = {"app": name}
    # Four of them fill a node.
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "900m"}}}
    return {
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def test_what_a_test_has_started_and_has_ended_is_no_failure_of_the_plane(control_plane: ControlPlane) -> None:
    control_plane.spawn("short-lived", [sys.executable, "-c", ""])
    until = time.monotonic() + DEADLINE
    while "short-lived" not in control_plane.exits():
        assert time.monotonic() < until
    control_plane.restart("kwok")


def test_a_deployment_runs_on_hand_made_nodes(empty_plane: ControlPlane) -> None:
    async def work(api: Client) -> list[Json]:
        await api.each(api.create, [node(f"n{i}") for i in range(3)])
        await settle.attended(api, "n0", "n1", "n2")
        await api.create(deployment("web", 12))

        async def all_run() -> list[Json]:
            pods = await api.list("Pod", "default", fieldSelector="status.phase=Running")
            return pods if len(pods) == 12 else []

        return await wait_for(all_run, DEADLINE, "12 pods run")

    pods = empty_plane.run(work)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"n0", "n1", "n2"}


def test_a_paused_scheduler_binds_nothing(empty_plane: ControlPlane) -> None:
    async def bound(api: Client) -> list[Json]:
        return await api.list("Pod", "default", fieldSelector="spec.nodeName!=")

    async def start(api: Client) -> list[Json]:
        await api.create(node("n0"))
        await api.create(deployment("web", 1))
        await wait_for(lambda: api.list("Pod", "default"), DEADLINE, "the pod is there")
        return await bound(api)

    with empty_plane.paused("kube-scheduler"):
        assert empty_plane.run(start) == []
    empty_plane.run(lambda api: wait_for(lambda: bound(api), DEADLINE, "the pod is bound"))


def test_a_service_account_may_do_nothing_by_itself(control_plane: ControlPlane) -> None:
    require_binaries("kubectl")
    kubeconfig = control_plane.service_account_kubeconfig("default", "default")
    kubectl = [str(control_plane.binaries["kubectl"]), "--kubeconfig", str(kubeconfig)]
    control_plane.audit_events()
    answer = subprocess.run([*kubectl, "get", "nodes"], capture_output=True, text=True, check=False)
    assert "forbidden" in answer.stderr

    async def refused(_: Client) -> bool:
        return any(
            event.user.username == "system:serviceaccount:default:default" and event.code == 403
            for event in control_plane.audit_events()
        )

    control_plane.run(lambda api: wait_for(lambda: refused(api), DEADLINE, "an audit event"))
    with pytest.raises(PlaneError, match="no token for default/nobody"):
        control_plane.service_account_kubeconfig("default", "nobody")


def test_helm_and_kubectl_reach_the_plane(control_plane: ControlPlane) -> None:
    require_binaries("helm", "kubectl")
    env = os.environ | environment(control_plane.binaries, control_plane.kubeconfig)
    shown = subprocess.run(["kubectl", "version"], env=env, capture_output=True, text=True, check=True)
    versions = dict(line.split(": ") for line in shown.stdout.splitlines())
    assert versions["Server Version"] == versions["Client Version"] > "v1"
    helm = subprocess.run(["helm", "list"], env=env, capture_output=True, text=True, check=False)
    assert helm.returncode == 0, helm.stderr


def test_the_api_server_comes_back_with_its_data() -> None:
    require_binaries()
    with ControlPlane(components=()) as plane:
        plane.run(lambda api: api.create(node("n0")))
        plane.kill("kube-apiserver")
        assert plane.exits() == {"kube-apiserver": -signal.SIGKILL}
        plane.restart("kube-apiserver")
        assert len(plane.run(lambda api: api.list("Node"))) == 1


def test_an_error_shows_the_log_of_a_server_that_died() -> None:
    require_binaries()
    plane = ControlPlane(components=(), flags={"kube-apiserver": ["--no-such-flag"]})
    with pytest.raises(PlaneError, match=r"kube-apiserver ended with code 1(.|\n)*no-such-flag"):
        plane.start()


PARENT = """
import json, time
from tightship_e2e import ControlPlane
plane = ControlPlane().start()
with plane.paused("kube-scheduler"):
    pids = [plane.supervisor_pid, *plane.pids.values()]
    print(json.dumps({"pids": pids, "data": str(plane.data_dir)}), flush=True)
    time.sleep(600)
"""


def test_a_killed_parent_leaves_nothing() -> None:
    require_binaries()
    leaves_nothing(PARENT, processes=6)

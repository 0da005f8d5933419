"""The control plane itself: it schedules, refuses, and ends without a trace."""

from __future__ import annotations

import subprocess

import pytest
from parents import leaves_nothing

from tightship_e2e import ControlPlane, PlaneError, settle
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


PARENT = """
import json, time
from tightship_e2e import ControlPlane
plane = ControlPlane().start()
with plane.paused("kube-scheduler"):
    pids = [plane.supervisor_pid, *plane.pids.values()]
    print(json.dumps({"pids": pids, "data": str(plane.data_dir)}), flush=True)
    time.sleep(600)
"""


@pytest.mark.controlplane
@pytest.mark.waits
@pytest.mark.takes(10)
def test_a_killed_parent_leaves_nothing() -> None:
    require_binaries()
    leaves_nothing(PARENT, processes=6)

"""The control plane itself: it schedules, refuses, and ends without a trace."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tightship_e2e import ControlPlane, PlaneError
from tightship_e2e.plugin import require_binaries
from tightship_testkit.client import Client, wait_for
from tightship_testkit.processes import gone

DEADLINE = 60.0


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
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        started = json.loads(parent.stdout.readline())
        assert len(started["pids"]) == 6
        assert not any(gone(pid) for pid in started["pids"])
        parent.kill()
    until = time.monotonic() + DEADLINE
    while not all(gone(pid) for pid in started["pids"]) or Path(started["data"]).exists():
        assert time.monotonic() < until, started
        time.sleep(0.05)  # noqa: TID251 - between two looks at a condition with a deadline

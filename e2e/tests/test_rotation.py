"""A pool is replaced under a running controller: kubectl drains the old nodes, and kube-scheduler has the last word."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
from drains import Run, Site

from tightship_e2e.plugin import require_binaries
from tightship_testkit.drains import SETTINGS, all_ready
from tightship_testkit.replica import COMPACTOR, QUICK_REFINER, REFINER, Program, Settings
from tightship_testkit.rotation import BLUE, GREEN, blue_green, cordoned


@pytest.mark.takes(60)
@pytest.mark.parametrize(
    ("program", "settings"), [(COMPACTOR, SETTINGS), (REFINER, QUICK_REFINER)], ids=["compactor", "refiner"]
)
def test_kubectl_drains_the_old_pool_and_no_pod_stays_pending(
    on_site: Run, program: Program, settings: Settings
) -> None:
    require_binaries("kubectl")

    async def work(on: Site) -> None:
        kubectl = [str(on.plane.binaries["kubectl"]), "--kubeconfig", str(on.plane.kubeconfig)]
        on.recorder.human.update(BLUE)
        await cordoned(on.api)
        replica = on.start()
        await on.passes(replica, 5)
        for name in BLUE:
            drain = [*kubectl, "drain", name, "--ignore-daemonsets", "--timeout=60s"]
            done = await asyncio.to_thread(subprocess.run, drain, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            await all_ready(on.api)
        await on.passes(replica, 2)
        begun = {name: set(on.recorder.phases(name)) - {"Marked", ""} for name in GREEN}
        assert not any(begun.values()), begun
        for name in BLUE:
            await on.api.delete("Node", name)

    on_site(work, blue_green(), settings=settings, program=program)

"""``node-compactor run`` as a process on a real control plane."""

from __future__ import annotations

import time

import pytest
from drains import Run, Site

from tightship_e2e import ControlPlane
from tightship_testkit.audit_readings import evictions_by, forbidden
from tightship_testkit.drains import all_ready, removing
from tightship_testkit.off_peak import off_peak
from tightship_testkit.replica import QUICK, USER


@pytest.mark.takes(35)
def test_off_peak_nodes_disappear_and_every_pod_is_ready_again(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        control_plane.audit_events()
        before = len(await on.api.list("Node"))
        began = time.monotonic()
        replica = on.start()
        async with removing(on.api) as remover:
            await replica.ready()
            await on.seen(lambda: len(remover.removed) >= 2, "two nodes are removed", 240)
        await all_ready(on.api)
        replica.told_to_end()
        assert await replica.ended() == 0
        events = control_plane.audit_events()
        assert forbidden(events, USER) == []
        evicted = evictions_by(events, USER)
        assert set(evicted.values()) == {1}
        seen = on.recorder
        print(
            f"\n{len(remover.removed)} of {before} nodes removed in {time.monotonic() - began:.0f} s, "
            f"{len(evicted)} evictions, longest Pending {seen.longest_pending:.1f} s, "
            f"most in drain {seen.most_in_drain}, least spare of budgets {min(seen.least_spare.values())}"
        )

    on_site(work, off_peak({"general": 5, "memory": 3}), settings=QUICK)

"""``node-refiner run`` as a process on a real control plane, on the documentation's example."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from drains import Run, Site

from tightship_e2e import ControlPlane
from tightship_testkit.audit_readings import evictions_by, forbidden, most_in_drain
from tightship_testkit.drains import all_ready, removing
from tightship_testkit.marks import drain
from tightship_testkit.refining import limit, quick
from tightship_testkit.replica import REFINER

HALF_FULL = Path(__file__).resolve().parents[2] / "docs" / "examples" / "half-full.yaml"
"""The documentation's example: four nodes, half of the CPU of each requested, and a budget over all pods."""


@pytest.mark.takes(30)
def test_the_excess_of_a_half_full_cluster_goes(on_site: Run, control_plane: ControlPlane) -> None:
    """Every node is at the autoscaler's threshold, so that it keeps them all; of four nodes two go."""

    async def work(on: Site) -> None:
        await limit(on, 7)
        control_plane.audit_events()
        began = time.monotonic()
        replica = on.start()
        async with removing(on.api) as remover:
            await on.seen(lambda: len(remover.removed) >= 2, "2 nodes are removed", 240)
            await all_ready(on.api)
            await on.free()
            took = time.monotonic() - began
            await on.passes(replica, 4)
        replica.told_to_end()
        assert await replica.ended() == 0
        assert len(remover.removed) == 2
        assert on.recorder.in_drain() == {}
        events = control_plane.audit_events()
        assert forbidden(events, REFINER.user) == []
        assert most_in_drain(events) == 1
        evicted = evictions_by(events, REFINER.user)
        assert set(evicted.values()) == {1}
        assert min(on.recorder.least_spare.values()) >= 0
        left = await on.api.list("Node")
        assert not [node for node in left if drain(node) or node["spec"].get("unschedulable")]
        assert len(left) == 2
        print(
            f"\n2 of 4 nodes removed in {took:.0f} s, {len(evicted)} evictions, "
            f"longest Pending {on.recorder.longest_pending:.1f} s, "
            f"least spare of the budget {min(on.recorder.least_spare.values())}"
        )

    on_site(work, HALF_FULL, settings=quick(excess_nodes_threshold=1), program=REFINER)

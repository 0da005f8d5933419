"""``node-refiner run`` as a process on a real control plane: what it takes, what it leaves, and what stops it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from drains import Run, Site, all_ready, removing, small

from tightship_e2e import ControlPlane
from tightship_e2e.client import Json
from tightship_e2e.invariants import drain, evictions_by, forbidden, most_in_drain
from tightship_e2e.replica import QUICK_REFINER, REFINER, Settings

HALF_FULL = Path(__file__).resolve().parents[2] / "docs" / "examples" / "half-full.yaml"
"""The documentation's example: four nodes, half of the CPU of each requested, and a budget over all pods."""
ALONE = {"LEADER_ELECT": "false"}
"""No Lease of an election is written or waited for."""
KEEP = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
HOUR = 60  # minutes, the unit of plain numbers


def quick(**changes: object) -> Settings:
    return {**QUICK_REFINER, **changes}


def one_to_spare(*more: Json, pods_end_in: str = "") -> Json:
    """A cluster: n1 may go, n2 and n3 have room and are not to be touched. Pods take their time to end."""
    cluster = small(*more)
    for item in cluster["items"]:
        if item["kind"] == "Node" and item["metadata"]["name"] in ("n2", "n3"):
            item["metadata"]["annotations"][KEEP] = "true"
        if item["kind"] == "Pod" and pods_end_in:
            item["metadata"]["annotations"] = {"e2e.tightship.dev/exit-after": pods_end_in}
            item["spec"]["terminationGracePeriodSeconds"] = 30
    return cluster


@pytest.mark.parametrize(("threshold", "goes"), [(1, 2), (2, 1)])
def test_the_excess_of_a_half_full_cluster_goes(
    on_site: Run, control_plane: ControlPlane, threshold: int, goes: int
) -> None:
    """Every node is at the autoscaler's threshold, so that it keeps them all."""

    async def work(on: Site) -> None:
        await on.api.patch("PodDisruptionBudget", "web", {"spec": {"minAvailable": 7}}, "shop")
        control_plane.audit_events()
        began = time.monotonic()
        replica = on.start()
        async with removing(on.api) as remover:
            await on.seen(lambda: len(remover.removed) >= goes, f"{goes} nodes are removed")
            await all_ready(on.api)
            await on.free()
            took = time.monotonic() - began
            await on.passes(replica, 4)
        replica.told_to_end()
        assert await replica.ended() == 0
        assert len(remover.removed) == goes
        assert on.recorder.in_drain() == {}
        events = control_plane.audit_events()
        assert forbidden(events, REFINER.user) == []
        assert most_in_drain(events) == 1
        evicted = evictions_by(events, REFINER.user)
        assert set(evicted.values()) == {1}
        assert min(on.recorder.least_spare.values()) >= 0
        left = await on.api.list("Node")
        assert not [node for node in left if drain(node) or node["spec"].get("unschedulable")]
        assert len(left) == 4 - goes
        print(
            f"\nthreshold {threshold}: {goes} of 4 nodes removed in {took:.0f} s, {len(evicted)} evictions, "
            f"longest Pending {on.recorder.longest_pending:.1f} s, "
            f"least spare of the budget {min(on.recorder.least_spare.values())}"
        )

    settings = quick(excess_nodes_threshold=threshold)
    on_site(work, HALF_FULL, settings=settings, program=REFINER)

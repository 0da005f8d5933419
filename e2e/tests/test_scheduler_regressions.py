"""What kube-scheduler really does in the cases that random clusters brought to light.

Our side of each is in ``packages/common/tests/test_placement_regressions.py``.
"""

from __future__ import annotations

import asyncio

import pytest

from tightship_e2e import ControlPlane
from tightship_e2e.draining import (
    DEADLINE,
    begin,
    cordon,
    evict_all,
    pods_of,
    queue_lengths,
    scheduled,
    settled,
    unbound,
)
from tightship_simulator import World, small
from tightship_testkit.client import Client, Json, wait_for


@pytest.mark.parametrize(
    "cluster",
    [small.companion_on_the_same_node(), small.minimum_raised_by_a_neighbour(), small.spread_that_ignores_a_node()],
    ids=["companion-on-the-same-node", "minimum-raised-by-a-neighbour", "spread-that-ignores-a-node"],
)
def test_all_pods_find_a_place(empty_plane: ControlPlane, cluster: Json) -> None:
    async def work(api: Client) -> None:
        live = await begin(api, empty_plane, cluster)
        await cordon(api, "n0")
        with empty_plane.paused("kube-scheduler"):
            await evict_all(api, pods_of(live, set(World(live).on_node["n0"])))
        assert await settled(api, empty_plane) == ""
        pods = await api.list("Pod", "shop")
        assert pods
        assert all(pod["spec"]["nodeName"] != "n0" for pod in pods)

    empty_plane.run(work)


def test_pods_that_must_be_together_block_each_other_if_they_leave_in_turn(empty_plane: ControlPlane) -> None:
    async def work(api: Client) -> None:
        await begin(api, empty_plane, small.together_but_in_turn())
        await cordon(api, "n0")
        assert await api.evict("shop", "pair-0", grace=0) == 201
        assert await settled(api, empty_plane) != ""
        assert await api.evict("shop", "pair-1", grace=0) == 429

    empty_plane.run(work)


def test_the_scheduler_does_not_retry_when_the_last_pod_of_a_group_has_terminated(empty_plane: ControlPlane) -> None:
    """The replacement is tried while the old pod terminates on the cordoned node, and then left for minutes."""
    cluster = small.last_of_its_group()
    for item in cluster["items"]:
        if item["kind"] == "Pod":
            item["metadata"]["annotations"] = {"e2e.tightship.dev/exit-after": "1h"}

    async def work(api: Client) -> None:
        await begin(api, empty_plane, cluster)
        await cordon(api, "n0")
        assert await api.evict("shop", "lonely-0") == 201

        async def tried() -> bool:
            return [scheduled(pod)[0] for pod in await unbound(api)] == ["Unschedulable"]

        await wait_for(tried, DEADLINE, "the replacement is tried")
        await api.delete("Pod", "lonely-0", "shop", grace=0)  # however long it took until then
        # Another pod is scheduled in full, so the scheduler has seen the deletion, which came before.
        await cordon(api, "n0")

        async def alone() -> bool:
            # That other pod is deleted by now, which the scheduler may have yet to see.
            lengths = await asyncio.to_thread(queue_lengths, empty_plane)
            return lengths == {"active": 0, "backoff": 0, "unschedulable": 1, "gated": 0}

        await wait_for(alone, DEADLINE, "only the replacement waits")
        assert len(await unbound(api)) == 1

    empty_plane.run(work)

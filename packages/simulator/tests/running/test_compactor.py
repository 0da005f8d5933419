"""``node-compactor run`` as a process on the embedded cluster: what it does to a cluster, and how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tightship_testkit.client import ApiError, wait_for
from tightship_testkit.drains import SETTINGS, all_ready
from tightship_testkit.embedded import SHORT, Ground, cluster, ground, small
from tightship_testkit.invariants import TAINT, drain, taints
from tightship_testkit.remover import TO_BE_DELETED, mark_to_be_deleted
from tightship_testkit.replica import NAMESPACE, QUICK, configure, lease

pytestmark = pytest.mark.virtual_time


SLOW = 3.0
"""Seconds that a pod takes to end, at most, where something has to happen meanwhile."""


def evictions(on: Ground) -> int:
    return len(on.yard.evicted())


async def judged(on: Ground, more: int = 3) -> None:
    """Wait until the first replica has judged so many times more."""
    await on.passes(on.replicas[0], more)


async def test_off_peak_nodes_disappear_and_every_pod_is_ready_again(tmp_path: Path) -> None:
    places = {"n1": 1, "n2": 2, "n3": 2, "n4": 1}
    night = cluster(places, pools=dict.fromkeys(places, "spare"), cpu="500m")
    async with ground(tmp_path, night, QUICK) as on:
        replica = on.start()

        def fewer() -> bool:
            return sum(on.recorder.node(name) is None for name in places) >= 2

        await on.seen(fewer, "two nodes are removed")
        await all_ready(on.api)
        replica.told_to_end()
        assert await replica.ended() == 0
        assert on.recorder.most_in_drain == 1
        assert min(on.recorder.least_spare.values()) >= 0
        assert evictions(on) >= 2


async def test_nothing_is_left_of_a_drain_that_was_handed_over(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), SETTINGS) as on:
        replica = on.start()
        await on.gone("n1")
        await all_ready(on.api)
        await replica.says("handed_over")
        await on.free()
        # The autoscaler writes its taint beside our record.
        assert on.recorder.phases("n1")[:3] == ["Marked", "Claimed", "Evicting"]
        assert on.recorder.phases("n1")[-1] == "gone"


async def test_a_human_who_uncordons_is_obeyed(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), SETTINGS, ending=SLOW) as on:
        on.start()
        await on.phase("n1", "Evicting")
        on.recorder.human.add("n1")
        await on.api.patch("Node", "n1", {"spec": {"unschedulable": None}})

        def let_go() -> bool:
            node = on.recorder.node("n1") or {}
            return drain(node).get("phase") == "Backoff" and not any(each["key"] == TAINT for each in taints(node))

        await on.seen(let_go, "the drain lets go of n1")
        assert drain(on.recorder.node("n1") or {})["reason"].startswith("Uncordoned")
        await judged(on)
        assert on.recorder.phases("n1")[-1] == "Backoff"
        assert not (on.recorder.node("n1") or {})["spec"].get("unschedulable")


async def test_a_budget_that_never_allows_keeps_its_node_untouched(tmp_path: Path) -> None:
    async with ground(tmp_path, small(least="100%"), SETTINGS) as on:
        on.start()
        await judged(on)
        assert set(on.recorder.phases("n1")) <= {"Marked"}
        assert not (on.recorder.node("n1") or {})["spec"].get("unschedulable")
        assert evictions(on) == 0


@pytest.mark.parametrize("phase", ["Claimed", "Evicting"])
async def test_told_to_end_in_the_middle_of_a_drain(tmp_path: Path, phase: str) -> None:
    """It restores what it has only claimed, parks the rest, gives up the Lease, and the next one ends the drain."""
    settings = {**SETTINGS, "settleTime": 600 if phase == "Claimed" else 0.5}
    async with ground(tmp_path, small(), settings, ending=2) as on:
        replica = on.start()
        await on.phase("n1", phase)
        replica.told_to_end()
        assert await replica.ended() == 0
        assert not (await lease(on.api, f"{on.team}-leader"))["spec"].get("holderIdentity")
        node = await on.api.get("Node", "n1")
        assert drain(node)["phase"] == ("Backoff" if phase == "Claimed" else phase)
        assert bool(node["spec"].get("unschedulable")) is (phase == "Evicting")
        await on.configured(SETTINGS)
        on.start()
        await on.gone("n1")
        await all_ready(on.api)


async def test_killed_in_the_middle_of_a_drain_the_next_one_ends_it(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), SETTINGS, ending=2) as on:
        first = on.start(**SHORT)
        await on.phase("n1", "Evicting")
        first.kill()
        assert (await on.api.get("Node", "n1"))["spec"]["unschedulable"]
        on.start(**SHORT)
        await on.gone("n1")
        await all_ready(on.api)
        await on.free()
        # The second took over what was begun: it did not claim anew.
        assert on.recorder.phases("n1").count("Claimed") == 1


async def test_it_yields_to_the_autoscaler_in_the_middle_of_a_drain(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), SETTINGS, ending=SLOW) as on:
        on.start()
        await on.phase("n1", "Evicting")

        async def marked() -> bool:
            try:
                await mark_to_be_deleted(on.api, await on.api.get("Node", "n1"))
            except ApiError as error:
                if error.status != 409:
                    raise
                return False
            return True

        await wait_for(marked, 90, "the autoscaler's taint is on n1")
        await on.phase("n1", "Yielded")
        before = evictions(on)
        await judged(on)
        assert evictions(on) == before
        keys = {each["key"] for each in taints(on.recorder.node("n1") or {})}
        assert {TO_BE_DELETED, "example.com/soft", TAINT} <= keys
        # Whom the autoscaler disturbs is its own affair, and none of what is looked at here.
        await on.api.delete("PodDisruptionBudget", "web", "shop")
        await on.api.delete("Node", "n1")
        await on.replicas[0].says("handed_over")


async def test_a_bad_edit_keeps_the_last_good_configuration(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), {**SETTINGS, "neededMarkedTimeForRemoval": 3}) as on:
        replica = on.start()
        await replica.says('"configuration in use"')
        await configure(on.api, on.team, "nodePools: {spare: {enabled: perhaps}}\nbogus: 1\n")
        await replica.says("The configuration was refused, the last good one stands")
        assert "bogus" in replica.log
        text = (await replica.get("/metrics"))[1]
        assert [line.split()[-1] for line in text.splitlines() if line.startswith("tightship_config_valid")] == ["0.0"]
        await on.gone("n1")


async def test_a_deleted_configuration_is_told_with_what_is_in_force(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), {**SETTINGS, "neededMarkedTimeForRemoval": 3600}) as on:
        replica = on.start()
        await on.phase("n1", "Marked")
        assert await on.api.delete("ConfigMap", on.team, NAMESPACE)
        told = f"ConfigMap {NAMESPACE}/{on.team} was deleted, environment and defaults stand until it is back"
        await replica.says(told)
        await judged(on)
        assert (await replica.status())["problems"] == [told]
        assert f">{told}<" in (await replica.get("/"))[1]
        assert "Claimed" not in on.recorder.phases("n1")


async def test_a_dry_run_asks_for_no_change_and_plans_the_same(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), SETTINGS) as on:
        replica = on.start(DRY_RUN="true")
        await judged(on)
        assert '"next":"n1"' in replica.log
        replica.told_to_end()
        assert await replica.ended() == 0
        # The log of requests holds what it has read, so that an empty list of writes means something.
        assert {"nodes", "pods"} <= {each.resource for each in on.yard.asked()}
        assert on.yard.written() == []
        assert on.recorder.phases("n1") == []
        await asyncio.gather(on.free(), all_ready(on.api))

"""Replicas one after the other: what a successor knows, and that whoever was succeeded writes nothing more."""

from __future__ import annotations

import pytest

from tightship_testkit.fault_proxy import FaultProxy
from tightship_testkit.fleet import patched
from tightship_testkit.replica import NAMESPACE, lease
from tightship_testkit.stall import Stall

from .world import ASKS

pytestmark = pytest.mark.virtual_time


def patches(proxy: FaultProxy) -> int:
    """How many patches of HPAs were asked for through *proxy*, whatever became of them."""
    return len(patched(proxy.writes))


async def test_told_to_end_it_gives_up_its_lease_and_the_next_one_goes_on_from_the_hpas(on: Stall) -> None:
    await on.stock("web", 3, 20, lowering_window="15m", **ASKS)
    on.prometheus.set("rate", 72)
    first = on.start()
    await on.until_bounds("web", 8, 20)
    on.prometheus.set("rate", 31)
    await on.cycles(first, 3)
    first.asked_to_end()
    assert await first.ended() == 0
    assert not (await lease(on.api, f"{on.team}-leader"))["spec"].get("holderIdentity")
    state = await on.state("web")
    assert max(floor for _, floor in state["history"]["floors"]) == 8
    second = on.start()
    await on.cycles(second, 3)
    assert await on.bounds("web") == (8, 20)
    assert (await on.state("web"))["originalMin"] == 3
    # It waits for the rest of the quarter of an hour, not for another one.
    await on.until_bounds("web", 4, 20, 690)


async def test_a_standby_takes_over_from_a_leader_that_was_killed(on: Stall) -> None:
    await on.stock("web", 3, 20, **ASKS)
    on.prometheus.set("rate", 72)
    first = on.start()
    await on.until_bounds("web", 8, 20)
    second = on.start()
    await second.ready()
    before = patches(on.proxy)
    first.kill()
    on.prometheus.set("rate", 41)
    await on.until_bounds("web", 5, 20)
    assert (await on.state("web"))["originalMin"] == 3
    assert patches(on.proxy) == before + 1
    assert on.store.get("Lease", f"{on.team}-leader", NAMESPACE)["spec"]["holderIdentity"].startswith(second.name)


async def test_a_leader_that_slept_through_its_lease_writes_no_more(on: Stall) -> None:
    """Each replica has its own way to the API server, so that it shows who writes."""
    await on.stock("web", 3, 40, **ASKS)
    on.prometheus.set("rate", 72)
    first = on.start()
    await on.until_bounds("web", 8, 40)
    async with on.another_way() as other:
        kubeconfig = other.kubeconfig(on.kubeconfig.parent / "other")
        second = on.start(KUBECONFIG=str(kubeconfig))
        await second.ready()
        with on.machine.paused(first.name):
            on.prometheus.set("rate", 91)
            await on.until_bounds("web", 10, 40)
        theirs = patches(on.proxy)
        for rate, floor in ((112, 12), (131, 14), (152, 16)):
            on.prometheus.set("rate", rate)
            await on.until_bounds("web", floor, 40)
        await on.deposed(first)
        assert patches(on.proxy) == theirs
        assert patches(other) == 4
        assert (await on.state("web"))["originalMin"] == 3


async def test_an_outage_of_the_api_server_changes_no_floor_and_restarts_nothing(on: Stall) -> None:
    await on.stock("web", 3, 20, **ASKS)
    on.prometheus.set("rate", 72)
    replica = on.start()
    await on.until_bounds("web", 8, 20)
    async with on.proxy.outage():
        on.prometheus.set("rate", 41)
        await on.deposed(replica)
        assert (await replica.get("/healthz"))[0] == 200
        asked = len(on.prometheus.seen)
        await on.sleep(600)
        assert len(on.prometheus.seen) == asked
        assert await on.bounds("web") == (8, 20)
    await on.until_bounds("web", 5, 20)
    assert (await on.state("web"))["originalMin"] == 3
    assert replica.code is None

"""``hpa-scaler run`` as a process on the embedded cluster: what it sets, what it gives back, and what stops it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tightship_simulator.life.prometheus import Outage
from tightship_testkit.embedded import SHORT, Stall, stall
from tightship_testkit.floors import SHOP, STATE, cli
from tightship_testkit.replica import NAMESPACE, Replica, lease

pytestmark = pytest.mark.virtual_time


ASKS = {"prometheus_query": "rate", "requests_per_replica": 10, "minimum_replicas": 1}


def patches(on: Stall) -> int:
    return sum(each.resource == "horizontalpodautoscalers" for each in on.yard.written())


async def test_a_floor_follows_its_query_up_and_down(tmp_path: Path) -> None:
    async with stall(tmp_path) as on:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        on.start()
        await on.until_bounds("web", 8, 20)
        state = await on.state("web")
        assert (state["originalMin"], state["applied"], state["reason"]) == (3, 8, "FollowsQuery")

        async def scaled() -> bool:
            return bool((await on.hpa("web"))["status"]["desiredReplicas"] == 8)

        await on.until(scaled, "the HPA's loop has scaled to the floor")
        on.prometheus.set("rate", 41)
        await on.until_bounds("web", 5, 20)

        async def told() -> bool:
            return len([each for each in await on.api.list("Event", SHOP) if "minReplicas" in each["message"]]) == 2

        await on.until(told, "an Event for each change")


async def test_its_page_has_what_it_did_since_it_leads_and_another_leader_begins_anew(tmp_path: Path) -> None:
    async with stall(tmp_path) as on:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        first = on.start()
        await on.until_bounds("web", 8, 20)
        on.prometheus.set("rate", 95)
        await on.until_bounds("web", 10, 20)

        async def told() -> bool:
            shown = await page(first)
            return all(each in shown for each in ("3 → 8", "8 → 10", 'class="line floor"', "it leads"))

        await on.until(told, "the page has both changes and their picture")
        floor, _ = re.findall(r'class="line floor" d="([^"]*)"', await page(first))  # the line, and its key
        assert floor.count("v-") == 1
        first.told_to_end()
        assert await first.ended() == 0
        second = on.start()
        await on.cycles(second)

        async def begun() -> bool:
            return 'class="line floor"' in await page(second)

        await on.until(begun, "the page of the next leader has a picture")
        assert "8 → 10" not in await page(second)
        assert await on.bounds("web") == (10, 20)


async def page(replica: Replica) -> str:
    """What its page says."""
    code, text = await replica.get("/")
    assert code == 200
    return text


async def test_a_dry_run_has_the_floor_that_would_be_on_its_page(tmp_path: Path) -> None:
    async with stall(tmp_path) as on:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        replica = on.start(DRY_RUN="true")
        await on.cycles(replica)

        async def told() -> bool:
            return "minReplicas that would be set" in await page(replica)

        await on.until(told, "the page has what would be set")
        assert "it makes a dry run" in await page(replica)
        assert await on.bounds("web") == (3, 20)


@pytest.mark.parametrize("outage", [Outage.REFUSES, Outage.EMPTY])
async def test_an_outage_of_prometheus_lowers_nothing(tmp_path: Path, outage: Outage) -> None:
    async with stall(tmp_path) as on:
        await on.configured(circuitBreakerPause="1s")
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        replica = on.start()
        await on.until_bounds("web", 8, 20)
        # In this order, so that no cycle is answered with the lower one.
        on.prometheus.outage = outage
        on.prometheus.set("rate", 41)
        await on.cycles(replica, 2)
        assert await on.bounds("web") == (8, 20)
        on.prometheus.outage = Outage.NONE
        on.prometheus.set("rate", 31)
        await on.until_bounds("web", 4, 20)


async def test_on_opt_out_the_users_bounds_are_back(tmp_path: Path) -> None:
    async with stall(tmp_path) as on:
        await on.stock("off", 3, 6, **ASKS)
        await on.stock("removed", 3, 6, **ASKS)
        on.prometheus.set("rate", 72)
        on.start()
        for name in ("off", "removed"):
            await on.until_bounds(name, 8, 9)
        await on.annotate("off", enabled="false")
        await on.annotate("removed", enabled=None)
        for name in ("off", "removed"):
            await on.until_bounds(name, 3, 6)
            assert STATE not in (await on.hpa(name))["metadata"]["annotations"]


async def test_release_refuses_while_a_controller_leads_and_gives_back_once_it_ended(tmp_path: Path) -> None:
    async with stall(tmp_path) as on:
        await on.stock("web", 3, 6, **ASKS)
        await on.stock("edited", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        replica = on.start()
        await on.until_bounds("web", 8, 9)
        await on.until_bounds("edited", 8, 20)
        code, _, complaint = await cli(on, "release", "-A")
        assert (code, "a controller runs" in complaint) == (1, True)
        replica.told_to_end()
        assert await replica.ended() == 0
        await on.edit("edited", minReplicas=5)
        code, out, complaint = await cli(on, "release", "-A")
        assert code == 0, out + complaint
        assert await on.bounds("web") == (3, 6)
        assert await on.bounds("edited") == (5, 20)
        for name in ("web", "edited"):
            assert STATE not in (await on.hpa(name))["metadata"]["annotations"]


async def test_told_to_end_it_gives_up_its_lease_and_the_next_one_goes_on_from_the_hpas(tmp_path: Path) -> None:
    async with stall(tmp_path) as on:
        await on.stock("web", 3, 20, lowering_window="1h", **ASKS)
        on.prometheus.set("rate", 72)
        first = on.start()
        await on.until_bounds("web", 8, 20)
        on.prometheus.set("rate", 31)
        await on.cycles(first)
        first.told_to_end()
        assert await first.ended() == 0
        assert not (await lease(on.api, f"{on.team}-leader"))["spec"].get("holderIdentity")
        second = on.start()
        await on.cycles(second)
        assert await on.bounds("web") == (8, 20)
        assert (await on.state("web"))["originalMin"] == 3


async def test_a_standby_takes_over_from_a_leader_that_was_killed(tmp_path: Path) -> None:
    async with stall(tmp_path) as on:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        first = on.start(**SHORT)
        await on.until_bounds("web", 8, 20)
        second = on.start(**SHORT)
        await second.ready()
        first.kill()
        before = patches(on)
        on.prometheus.set("rate", 41)
        await on.until_bounds("web", 5, 20)
        assert (await on.state("web"))["originalMin"] == 3
        assert patches(on) == before + 1


async def test_a_bad_edit_keeps_the_last_good_configuration(tmp_path: Path) -> None:
    async with stall(tmp_path) as on:
        await on.configured(defaults={"maximumReplicas": 6})
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        replica = on.start()
        await on.until_bounds("web", 6, 20)
        await on.configured("defaults: {maximumReplicas: many}")
        await replica.says("The configuration was refused, the last good one stands")
        await on.cycles(replica)
        assert await on.bounds("web") == (6, 20)
        await on.configured()
        await on.until_bounds("web", 8, 20)


async def test_a_deleted_configuration_is_told_with_what_is_in_force(tmp_path: Path) -> None:
    async with stall(tmp_path) as on:
        await on.configured(defaults={"maximumReplicas": 6})
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        replica = on.start()
        await on.until_bounds("web", 6, 20)
        assert await on.api.delete("ConfigMap", on.team, NAMESPACE)
        told = f"ConfigMap {NAMESPACE}/{on.team} was deleted, environment and defaults stand until it is back"
        await replica.says(told)
        await on.cycles(replica)
        assert (await replica.status())["problems"] == [told]
        assert f">{told}<" in (await replica.get("/"))[1]


async def test_a_dry_run_asks_for_no_change_and_shows_what_it_would_do(tmp_path: Path) -> None:
    async with stall(tmp_path) as on:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        replica = on.start(DRY_RUN="true")
        await on.cycles(replica)
        [shown] = (await replica.status())["plan"]["hpas"]
        assert (shown["action"], shown["minimum"]) == ("raise", {"now": 3, "after": 8})
        replica.told_to_end()
        assert await replica.ended() == 0
        assert "horizontalpodautoscalers" in {each.resource for each in on.yard.asked()}
        assert on.yard.written() == []
        assert await on.bounds("web") == (3, 20)

"""With a watch: what is set back is raised again at once, and nothing is judged by what a watch shows."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from hpa_scaler.process import loop
from tightship.objects import ApiObject, HorizontalPodAutoscaler
from tightship_simulator.life.prometheus import body, says
from tightship_testkit.replica import SCALER

from .world import ASKS, World

pytestmark = pytest.mark.virtual_time
HOURLY = {SCALER.interval: "3600"}


async def watched(world: World) -> None:
    """Wait until the watch is open: then it has listed too."""
    lists = world.lists
    await world.until(lambda: world.lists > lists or world.api.watches)
    await world.until(lambda: world.api.watches)


def gets(world: World) -> int:
    """How often the HPA was read by itself."""
    log = world.on.proxy.log
    return len([each for each in log if each.call.verb == "GET" and each.call.path.endswith("autoscalers/web")])


async def test_a_floor_that_is_set_back_is_raised_again_before_the_next_cycle(world: World) -> None:
    process = await world.started(WATCH_HPAS="true", **HOURLY)
    await watched(world)
    questions = len(world.prometheus.seen)
    world.api.edit(minReplicas=4)
    await world.until(lambda: world.api.bounds() == (8, 20), 10)
    assert len(world.prometheus.seen) == questions
    assert world.api.state()["originalMin"] == 4
    assert world.api.state()["history"]["resets"] == 1
    # Raising is all that is done between cycles: what is set higher is looked at, and left.
    looks = gets(world)
    world.api.edit(minReplicas=12)
    await world.until(lambda: gets(world) > looks)
    await world.ended(process)
    assert world.api.bounds() == (12, 20)


async def test_what_is_set_back_before_our_own_write_is_answered_for_is_raised_again_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.stock()
    reported: list[int | None] = []
    upsert = loop.BoundChangeWatch.upsert

    def receives(watch: loop.BoundChangeWatch, kind: str, hpa: ApiObject) -> None:
        upsert(watch, kind, hpa)
        assert isinstance(hpa, HorizontalPodAutoscaler)
        reported.append(hpa.min_replicas)

    monkeypatch.setattr(loop.BoundChangeWatch, "upsert", receives)

    async def set_back(_: str, hpa: object) -> None:
        del hpa
        world.api.after = None
        await world.until(lambda: world.api.watches)
        world.api.edit(minReplicas=4)
        await world.until(lambda: 4 in reported)

    world.api.after = set_back
    world.start(WATCH_HPAS="true", **HOURLY)
    await world.until(lambda: len(world.api.written()) == 2)
    assert world.api.bounds() == (8, 20)
    assert world.api.state()["originalMin"] == 4


async def test_nothing_is_lowered_between_cycles(world: World) -> None:
    world.api.stock(**ASKS)
    world.api.stock("other", **ASKS)
    world.prometheus.set("rate", 72)
    world.start(WATCH_HPAS="true", **HOURLY)
    await world.until(lambda: world.api.bounds() == (8, 20) and world.api.bounds("other") == (8, 20))
    await watched(world)
    world.api.edit(minReplicas=12)
    world.api.edit("other", minReplicas=4)
    await world.until(lambda: world.api.bounds("other") == (8, 20))
    assert world.api.bounds() == (12, 20)


async def test_what_the_watch_shows_late_is_no_change_by_others(world: World) -> None:
    """Events of before our own write come after it: judged by them, our own write would be somebody's."""
    world.stock(rate=45)
    world.start(WATCH_HPAS="true")
    await world.until(lambda: world.api.bounds() == (5, 20))
    await watched(world)
    world.api.freeze()
    for rate, floor in ((55, 6), (65, 7), (72, 8)):
        world.prometheus.set("rate", rate)
        await world.until(lambda floor=floor: world.api.bounds() == (floor, 20))
        world.api.touch()
    writes = len(world.api.written())
    world.api.thaw()
    await world.cycles(5)
    assert len(world.api.written()) == writes
    assert world.api.state()["originalMin"] == 3
    assert "ChangedByOthers" not in {reason for reason, _ in world.api.reported()}


async def test_a_reaction_while_a_cycle_asks_is_not_undone_by_it(world: World) -> None:
    await world.started(WATCH_HPAS="true")
    await watched(world)
    asking, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        asking.set()
        await go_on.wait()
        return await says(body("35"))(request)

    # Set back before the list of the cycle that is slow, so that the list shows a floor that needs no change.
    world.api.freeze()
    world.prometheus.answers["rate"] = slow
    world.api.edit(minReplicas=4)
    await asking.wait()
    world.api.thaw()
    await world.until(lambda: world.api.bounds() == (8, 20))
    world.prometheus.set("rate", 35)
    go_on.set()
    await world.until(lambda: world.api.bounds() == (4, 20))
    await world.cycles(4)
    state = world.api.state()
    # What the reaction had set is not the user's own.
    assert (state["originalMin"], state["applied"], state["history"]["resets"]) == (4, 4, 1)
    assert world.api.bounds() == (4, 20)


async def test_who_sets_back_again_and_again_is_left_to_it(world: World) -> None:
    world.stock()
    world.start(WATCH_HPAS="true", **HOURLY)
    for reset in range(3):
        await world.until(lambda: world.api.bounds() == (8, 20))
        await watched(world)
        assert world.api.state()["history"].get("resets", 0) == reset
        world.api.edit(minReplicas=4)
    await world.sleep(600)
    assert world.api.bounds() == (4, 20)
    assert json.dumps(world.api.written()).count("200") == 3


async def test_nothing_is_watched_unless_it_is_asked_for_nor_by_a_standby(world: World) -> None:
    await world.started()
    world.start(WATCH_HPAS="true")
    await world.cycles(5)
    assert world.api.watches == 0

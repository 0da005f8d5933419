"""What the page of the process remembers of each HPA, and when it begins anew."""

from __future__ import annotations

import re

import pytest

from tightship_testkit.replica import Replica
from tightship_testkit.stall import Stall

from .world import ASKS, World

pytestmark = pytest.mark.virtual_time

CHANGES = "<h3>Changes</h3>"
PICTURE = "<h3>Traffic, floor and replicas</h3>"


async def test_what_was_refused_is_no_change_until_it_was_written(world: World) -> None:
    world.stock()
    world.api.refuses(403, "at most 5")
    process = world.start()
    await world.shows(process, "/", PICTURE)
    _, shown = await process.get("/")
    assert "WriteRefused" in shown
    assert CHANGES not in shown
    world.api.before = None
    await world.shows(process, "/", CHANGES)
    assert world.api.bounds() == (8, 20)


async def test_an_hpa_that_was_made_anew_has_no_past(world: World) -> None:
    world.stock()
    process = world.start()
    await world.shows(process, "/", CHANGES)
    world.api.remove()
    await world.shows(process, "/", "No HPA is opted in.")
    world.api.stock(minimum=8, **ASKS)
    await world.shows(process, "/", PICTURE)
    assert CHANGES not in (await process.get("/"))[1]


async def test_a_leader_that_was_none_for_a_while_begins_anew(world: World) -> None:
    """Somebody else may have moved the floors meanwhile."""
    world.stock()
    process = world.start()
    await world.shows(process, "/", CHANGES)
    world.api.taken()
    await world.shows(process, "/", "Stands by: another leads.")
    world.api.left()
    await world.shows(process, "/", PICTURE)
    assert world.api.holder().startswith(process.name)
    assert CHANGES not in (await process.get("/"))[1]


async def page(replica: Replica) -> str:
    """What its page says."""
    code, text = await replica.get("/")
    assert code == 200
    return text


async def test_its_page_has_what_it_did_since_it_leads_and_another_leader_begins_anew(on: Stall) -> None:
    await on.stock("web", 3, 20, prometheus_query="rate", requests_per_replica=10, minimum_replicas=1)
    on.prometheus.set("rate", 72)
    first = on.start()
    await on.until_bounds("web", 8, 20)
    on.prometheus.set("rate", 95)
    await on.until_bounds("web", 10, 20)

    async def reported() -> bool:
        shown = await page(first)
        return all(each in shown for each in ("3 → 8", "8 → 10", 'class="line floor"', "it leads"))

    await on.until(reported, "the page has both changes and their picture")
    floor, _ = re.findall(r'class="line floor" d="([^"]*)"', await page(first))  # the line, and its key
    assert floor.count("v-") == 1
    first.asked_to_end()
    assert await first.ended() == 0
    second = on.start()
    await on.cycles(second)

    async def begun() -> bool:
        return 'class="line floor"' in await page(second)

    await on.until(begun, "the page of the next leader has a picture")
    assert "8 → 10" not in await page(second)
    assert await on.bounds("web") == (10, 20)


async def test_a_dry_run_has_the_floor_that_would_be_on_its_page(world: World) -> None:
    world.stock()
    process = world.start(DRY_RUN="true")
    await world.cycles()
    await world.shows(process, "/", "minReplicas that would be set")
    assert "it makes a dry run" in await page(process)
    assert world.api.bounds() == (3, 20)

"""What the page of the process remembers of each HPA, and when it begins anew."""

from __future__ import annotations

from drain.fake_api import Refused

from .world import HPAS, World, eventually, get, port

ASKS = {"prometheus_query": "rate", "requests_per_replica": "10", "minimum_replicas": "1"}
LEASE = "hpa-scaler"
CHANGES = "<h3>Changes</h3>"
PICTURE = "<h3>Traffic, floor and replicas</h3>"


async def test_what_was_refused_is_no_change_until_it_was_written(world: World) -> None:
    world.api.stock(**ASKS)
    world.prometheus.set("rate", 72)

    async def policy(*_: object) -> None:
        raise Refused(403, "at most 5")

    world.api.before = policy
    process = world.start(ports=[port()])
    await eventually(process, "/", PICTURE)
    _, shown = await get(process, "/")
    assert "WriteRefused" in shown
    assert CHANGES not in shown
    world.api.before = None
    await eventually(process, "/", CHANGES)
    assert world.api.bounds() == (8, 20)


async def test_an_hpa_that_was_made_anew_has_no_past(world: World) -> None:
    world.api.stock(**ASKS)
    world.prometheus.set("rate", 72)
    process = world.start(ports=[port()])
    await eventually(process, "/", CHANGES)
    world.api.remove(HPAS, "shop/web")
    await eventually(process, "/", "No HPA is opted in.")
    world.api.stock(minimum=8, **ASKS)
    await eventually(process, "/", PICTURE)
    assert CHANGES not in (await get(process, "/"))[1]


async def test_a_leader_that_was_none_for_a_while_begins_anew(world: World) -> None:
    """Somebody else may have moved the floors meanwhile."""
    world.api.stock(**ASKS)
    world.prometheus.set("rate", 72)
    process = world.start(ports=[port()])
    await eventually(process, "/", CHANGES)
    world.api.taken(LEASE)
    await eventually(process, "/", "Stands by: another leads.")
    world.api.left(LEASE)
    await eventually(process, "/", PICTURE)
    assert world.api.holder(LEASE) == process.settings.identity
    assert CHANGES not in (await get(process, "/"))[1]

"""The running controller reads the past of a query once, and raises the floor before the ramp."""

from __future__ import annotations

import pytest
from aiohttp import web

from tightship_simulator.life.responders import body, success

from .world import World

pytestmark = pytest.mark.virtual_time

DAY = 86_400.0


def past_of(world: World, ranges: list[tuple[float, float]]) -> None:
    """Have the query answer 100, and 200 for two hours of each earlier day, soon at this time of the day."""
    begin = world.on.simulation.wall()

    async def respond(request: web.Request) -> web.StreamResponse:
        form = await request.post()
        if not request.path.endswith("query_range"):
            return web.json_response(body("100", at=world.on.simulation.wall()))
        first, last = float(str(form["start"])), float(str(form["end"]))
        ranges.append((first, last))
        times = [first + 300 * number for number in range(int((last - first) / 300) + 1)]
        high = [900 <= (at - begin) % DAY < 8100 for at in times]
        values = [[at, "200" if twice else "100"] for at, twice in zip(times, high, strict=True)]
        return web.json_response(success([{"metric": {}, "values": values}], "matrix"))

    world.prometheus.answers["rate"] = respond


async def test_a_floor_goes_up_before_the_ramp_of_earlier_days(world: World) -> None:
    ranges: list[tuple[float, float]] = []
    past_of(world, ranges)
    world.api.stock(maximum=30, prometheus_query="rate", requests_per_replica="10", forecast="daily")
    replica = world.start()
    await world.until(lambda: world.api.bounds()[0] > 15)
    assert world.api.state()["reason"] == "FollowsForecast"
    assert world.api.bounds()[1] == 30
    await world.shows(replica, "/status", "by 14 earlier days")
    asked = len(ranges)
    assert asked <= 4
    await world.cycles()
    assert len(ranges) == asked

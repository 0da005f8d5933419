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


async def test_a_buffer_keeps_room_before_the_floor_goes_up_and_goes_with_the_wish(world: World) -> None:
    version = {"name": "v1alpha1", "served": True}
    spec = {"group": "autoscaling.x-k8s.io", "versions": [version]}
    name = {"name": "capacitybuffers.autoscaling.x-k8s.io"}
    world.on.store.create("CustomResourceDefinition", {"metadata": name, "spec": spec})
    past_of(world, [])
    notes = {"prometheus_query": "rate", "requests_per_replica": "10", "forecast": "daily", "forecast_ahead": "10m"}
    world.api.stock(maximum=30, replicas=10, **notes, forecast_buffer="true")
    world.api.stock("idle", maximum=30, replicas=10, **notes)
    world.start(FORECAST_BUFFERS="true")

    def buffers() -> list[tuple[str, int]]:
        return [(each["metadata"]["name"], each["spec"]["replicas"]) for each in world.on.store.list("CapacityBuffer")]

    await world.until(buffers)
    assert world.api.bounds()[0] == 10
    assert buffers() == [("hpa-scaler-web", 10)]
    [buffer] = world.on.store.list("CapacityBuffer")
    assert buffer["spec"]["scalableRef"] == {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
    assert buffer["metadata"]["ownerReferences"][0]["uid"] == world.api.hpa()["metadata"]["uid"]
    await world.until(lambda: world.api.bounds()[0] == 20 and not buffers(), deadline=1200)


async def test_without_capacity_buffers_the_floor_goes_up_all_the_same(world: World) -> None:
    past_of(world, [])
    notes = {"prometheus_query": "rate", "requests_per_replica": "10", "forecast": "daily", "forecast_ahead": "10m"}
    world.api.stock(maximum=30, replicas=10, **notes, forecast_buffer="true")
    world.start(FORECAST_BUFFERS="true")
    await world.until(lambda: "no room is kept for forecasts" in world.on.logs())
    await world.until(lambda: world.api.bounds()[0] == 20, deadline=1200)

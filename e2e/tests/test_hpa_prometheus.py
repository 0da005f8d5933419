"""A real Prometheus that fails in every way there is, and floors that stand all the while."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from fleets import GUARDED, PER_POD, Fleet, scraped
from floors import Open, Shop

from tightship_e2e.exporter import Exporter
from tightship_e2e.prometheus import Prometheus

WEB = {**PER_POD, "prometheus_query": "sum(load)"}

IMPATIENT = {"timeout": 1, "maximumConcurrency": 4}


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Exporter, Prometheus]]:
    """One Prometheus for all that leave it as they found it."""
    with scraped(load=72) as made:
        yield made


def test_a_server_that_hangs_or_is_gone_lowers_nothing_and_following_goes_on_by_itself(
    in_shop: Open, running: tuple[Exporter, Prometheus]
) -> None:
    """Paused, killed and back, and without anything to scrape; meanwhile the ratio raises what was scaled up."""
    exporter, prometheus = running

    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        await on.configured({**GUARDED, "prometheusServers": {"default": IMPATIENT}, "circuitBreakerPause": 1})
        names = ["web", "step"]
        await fleet.stand({"web": WEB, "step": {**WEB, "scale_down_max_ratio": 0.2}}, maximum=60)
        fleet.start(prometheus.url)
        await fleet.until_floors({"web": 8, "step": 8})

        async def meanwhile(passing: str, lasting: str, scaled: int, raised: int) -> None:
            # The one is there for three cycles, which may be over before somebody looks; its Event stays.
            await fleet.until_events(dict.fromkeys(names, passing))
            await fleet.until_told(dict.fromkeys(names, lasting))
            await fleet.scale(["step"], scaled)
            await fleet.until_floors({"web": 8, "step": raised})
            await fleet.cycles()
            assert await fleet.floors(names) == {"web": 8, "step": raised}
            assert fleet.lowered(names) == {}

        with prometheus.paused():
            await meanwhile("TimedOut", "CircuitOpen", 20, 16)
        await fleet.until_told({"web": "FollowsQuery"})
        await asyncio.to_thread(prometheus.kill)
        await meanwhile("ConnectionFailed", "CircuitOpen", 30, 24)
        explained = await fleet.explained("web", prometheus.url)
        assert (explained["action"], explained["reasons"][0]) == ("hold", "ConnectionFailed")
        assert explained["minimum"] == {"now": 8, "after": 8}
        await asyncio.to_thread(prometheus.start)
        await fleet.until_told({"web": "FollowsQuery"})
        # What it answers first is from before; only what it has scraped itself it knows to be gone.
        exporter.set("load", 73)
        await asyncio.to_thread(prometheus.wait_for_value, "sum(load)", 73)
        exporter.stop()
        try:
            await meanwhile("EmptyResult", "EmptyResult", 40, 32)
        finally:
            exporter.start()
        exporter.set("load", 90)
        await fleet.until_floors({"web": 10, "step": 32})
        exporter.set("load", 41)
        await fleet.until_floors({"web": 5})
        assert fleet.moves("web") == [(2, 8), (8, 10), (10, 5)]
        assert fleet.moves("step") == [(2, 8), (8, 16), (16, 24), (24, 32)]

    in_shop(work)

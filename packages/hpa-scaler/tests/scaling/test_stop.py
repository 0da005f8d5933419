"""Stopped by an annotation on its Lease, the hpa-scaler judges and shows, and leaves every floor as it is."""

from __future__ import annotations

import asyncio
import json

import pytest

from tightship_testkit.fleet import patched
from tightship_testkit.replica import NAMESPACE
from tightship_testkit.stall import Stall

from .world import ASKS

pytestmark = pytest.mark.virtual_time
STOP = "tightship.dev/stop"


def annotate(on: Stall, word: str | None) -> None:
    """Do as ``kubectl annotate lease`` does."""

    def edit(lease: dict[str, dict[str, dict[str, str]]]) -> None:
        notes = lease["metadata"].setdefault("annotations", {})
        notes.pop(STOP, None)
        if word is not None:
            notes[STOP] = word

    on.store.modify("Lease", f"{on.team}-leader", NAMESPACE, edit)


@pytest.mark.parametrize("word", ["true", "", "off"])
async def test_stopped_it_holds_every_floor_and_started_it_goes_on(on: Stall, word: str) -> None:
    """Raises, lowerings, answers to who sets a floor back, and restorations: none is sent."""
    for name in ("web", "api", "out"):
        await on.stock(name, 3, 20, lowering_window="2m", **ASKS)
    on.prometheus.set("rate", 72)
    replica = on.start(WATCH_HPAS="true")
    for name in ("web", "api", "out"):
        await on.until_bounds(name, 8, 20)
    annotate(on, word)
    await on.sleep(1)
    before = len(patched(on.proxy.writes))
    on.store.modify("HorizontalPodAutoscaler", "web", "shop", lambda each: each["spec"].update(minReplicas=4))
    on.store.modify("HorizontalPodAutoscaler", "out", "shop", lambda each: each["metadata"].update(annotations={}))
    on.prometheus.set("rate", 41)
    await on.cycles(replica, 8)
    on.prometheus.set("rate", 120)
    await on.cycles(replica, 3)
    assert len(patched(on.proxy.writes)) == before
    assert await on.bounds("web") == (4, 20)
    assert await on.bounds("api") == (8, 20)
    _, text = await asyncio.wait_for(replica.get("/status"), 60)
    told = [each for each in json.loads(text)["problems"] if f"annotate lease {on.team}-leader {STOP}-" in each]
    assert len(told) == 1
    assert ("counts as true" in told[0]) is (word != "true")
    annotate(on, None)
    await on.until_bounds("web", 12, 20, 200)
    await on.until_bounds("api", 12, 20, 200)


async def test_told_to_end_while_stopped_it_writes_no_history(on: Stall) -> None:
    await on.stock("web", 3, 20, lowering_window="15m", **ASKS)
    on.prometheus.set("rate", 72)
    first = on.start()
    await on.until_bounds("web", 8, 20)
    on.prometheus.set("rate", 31)
    await on.cycles(first, 2)
    annotate(on, "true")
    await on.sleep(1)
    before = len(patched(on.proxy.writes))
    first.asked_to_end()
    assert await first.ended() == 0
    second = on.start()
    await on.cycles(second, 20)
    assert len(patched(on.proxy.writes)) == before
    assert await on.bounds("web") == (8, 20)

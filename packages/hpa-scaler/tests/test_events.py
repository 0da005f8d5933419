"""The Event of a hold says the same as ``explain``, and a remark that may last for ever comes once a day."""

from __future__ import annotations

import logging
from typing import Any, cast

from hpa_builder import CYCLE, HpaCycles, answer, failure, hpa, spec

from hpa_scaler.annotations.spec import PREFIX
from hpa_scaler.write.applying import FloorEvents, Records
from tightship.objects import AUTOSCALER
from tightship.process.events import EventRecorder, ObjectRef


class Recorded:
    """Keeps the reason and the note of each Event."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def record(self, regarding: ObjectRef, kind: str, reason: str, note: str, action: str) -> None:
        self.events.append((reason, note))


def reporting(web: HpaCycles) -> tuple[Recorded, FloorEvents]:
    kept = Recorded()
    own = ObjectRef(AUTOSCALER, "hpa-scaler", "u", "tightship", "v1")
    events = FloorEvents(
        cast("EventRecorder", kept),
        logging.getLogger("test"),
        own,
        Records(PREFIX, writes=True),
        lambda: web.now,
    )
    return kept, events


def run(web: HpaCycles, events: FloorEvents, outcome: Any, cycles: int) -> None:
    for _ in range(cycles):
        decision = web.cycle(outcome)
        events.kept(decision)
        events.noted(decision)


def test_one_series_of_many_is_told_once_a_day() -> None:
    web = HpaCycles(hpa(10, 60, 10), spec(prometheus_query="sum by (pod) (rate(x[5m]))", requests_per_replica="10"))
    kept, events = reporting(web)
    run(web, events, answer(*[100.0] * 40), int(2 * 86_400 / CYCLE))
    found = [note for reason, note in kept.events if reason == "LargestOfSeries"]
    assert len(found) == 2
    assert found[0].startswith("the query answered with 40 series, and only the largest counts; sum the series")


def test_the_event_of_an_outage_says_what_to_do() -> None:
    web = HpaCycles(hpa(40, 60, 40), spec(prometheus_query="sum(rate(x[5m]))", requests_per_replica="10"))
    kept, events = reporting(web)
    run(web, events, answer(400), 4)
    run(web, events, failure(), 3)
    [(reason, note)] = kept.events
    assert reason == "ConnectionFailed"
    assert "after the first complete answer; see that the server runs" in note

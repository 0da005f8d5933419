"""Only what a restart would forget to the unsafe side is written down by itself, and once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hpa_builder import QUERY, HpaCycles, answer, failure, hpa, spec

from hpa_scaler.annotations.queries import Failure, Query
from hpa_scaler.annotations.spec import PREFIX, FloorSpec
from hpa_scaler.judge.ownership import Ending
from hpa_scaler.write.applying import Records

BAND = spec(prometheus_query=QUERY, requests_per_replica="10", deadband="15%")
WINDOW = spec(prometheus_query=QUERY, requests_per_replica="10", lowering_window="10m")
HELD = spec(prometheus_query=QUERY, requests_per_replica="10", deadband="15%", hold_query="alerts")


def known() -> Records:
    return Records(PREFIX, writes=True)


def web(asked: FloorSpec) -> HpaCycles:
    return HpaCycles(hpa(8, 50, 8), asked)


def notes(on: HpaCycles, answers: Sequence[float | Failure], ending: Ending = "written") -> int:
    """How often it is written down in cycles with these *answers* that the floor waits."""
    records = known()
    count = 0
    for each in answers:
        decision = on.cycle(each)
        endings: dict[str, Ending] = {}
        if decision.changes:
            endings = {decision.uid: "written"}
        elif records.is_due(decision):
            count += 1
            endings = {decision.uid: ending}
        records.settle([decision], endings)
    return count


@pytest.mark.parametrize(
    ("asked", "answers", "floor"),
    [(BAND, [75, 68] * 10, 8), (WINDOW, [75, 68] * 10, 8), (BAND, [68, 75, 68, 90, 78, 88, 78], 9)],
    ids=["deadband", "window", "after a change"],
)
def test_a_wobble_is_not_noted(asked: FloorSpec, answers: list[float], floor: int) -> None:
    """Of 2,000 HPAs the second cycle wrote 2,000 notes, and moved nothing."""
    on = web(asked)
    assert notes(on, answers) == 0
    assert on.bounds[0] == floor


def test_data_that_are_young_from_the_beginning_are_not_noted() -> None:
    """The next process sees for itself that nobody tells how old they are."""
    ranged = spec(prometheus_query="sum(rate(x[5m]))", requests_per_replica="10")
    assert notes(web(ranged), [30.0] * 3) == 0


@pytest.mark.parametrize("ending", ["written", "failed"])
def test_an_outage_is_noted_once_and_again_if_that_failed(ending: Ending) -> None:
    ranged = spec(prometheus_query="sum(rate(x[5m]))", requests_per_replica="10")
    on = web(ranged)
    outcomes = [30.0, failure(), failure(), 30.0, 30.0, failure()]
    assert notes(on, outcomes, ending) == (1 if ending == "written" else 5)


def test_a_change_of_the_bounds_has_written_it_down_too() -> None:
    on = web(spec(prometheus_query=QUERY, requests_per_replica="10", lowering_window="1h"))
    assert on.cycle(failure()).pending
    raised = on.cycle(120.0)
    assert raised.changes
    records = known()
    records.settle([raised], {raised.uid: "written"})
    noted = records.of(raised.uid).noted
    records.settle([raised], {})
    assert records.of(raised.uid).noted == noted


def test_an_incident_that_begins_later_is_worth_a_note() -> None:
    on = web(HELD)
    calm, fires = ({Query("alerts"): answer(value)} for value in (0, 1))
    waiting = on.cycle(68, others=calm)
    assert waiting.pending
    records = known()
    assert not records.is_due(waiting)
    records.settle([waiting], {})
    held = on.cycle(40, others=fires)
    assert records.is_due(held)
    records.settle([held], {held.uid: "written"})
    assert not records.is_due(on.cycle(40, others=fires))


def test_what_is_not_pending_any_more_is_still_noted_and_a_vanished_hpa_is_not() -> None:
    on = web(BAND)
    waiting = on.cycle(68)
    records = known()
    records.settle([waiting], {waiting.uid: "written"})
    noted = records.of(waiting.uid).noted
    records.settle([on.cycle(75)], {})
    assert records.of(waiting.uid).noted == noted
    records.retain((), [waiting.uid])
    assert not records.of(waiting.uid).noted


def test_that_a_bound_is_the_users_own_again_is_worth_a_note() -> None:
    """Else one of theirs that is what the annotation says we set would be taken for ours after a restart."""
    on = web(spec(prometheus_query=QUERY, requests_per_replica="10", lowering_window="0"))
    assert on.cycle(200).changes
    on.set(minimum=10)
    taken = on.cycle(100)
    assert not taken.changes
    records = known()
    assert records.is_due(taken)
    records.settle([taken], {taken.uid: "written"})
    assert not records.is_due(on.cycle(100))

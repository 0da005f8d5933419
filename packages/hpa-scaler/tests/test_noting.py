"""What a floor waits for is written down once, not in each cycle."""

from __future__ import annotations

import pytest
from hpa_builder import QUERY, World, answer, hpa, spec

from hpa_scaler.noting import Noted, is_due, noted_after
from hpa_scaler.queries import Query
from hpa_scaler.sending import Ending
from hpa_scaler.spec import Spec

BAND = spec(prometheus_query=QUERY, requests_per_replica="10", deadband="15%")
WINDOW = spec(prometheus_query=QUERY, requests_per_replica="10", lowering_window="10m")
HELD = spec(prometheus_query=QUERY, requests_per_replica="10", deadband="15%", hold_query="alerts")


def world(asked: Spec) -> World:
    return World(hpa(8, 50, 8), asked)


def notes(on: World, answers: list[float], ending: Ending = "written") -> int:
    """How often it is written down in cycles with these *answers* that the floor waits."""
    noted: Noted = {}
    count = 0
    for each in answers:
        decision = on.cycle(each)
        endings: dict[str, Ending] = {}
        if decision.changes:
            endings = {decision.uid: "written"}
        elif is_due(decision, noted):
            count += 1
            endings = {decision.uid: ending}
        noted = noted_after([decision], endings, noted)
    return count


@pytest.mark.parametrize("asked", [BAND, WINDOW], ids=["deadband", "window"])
def test_a_wobble_is_noted_once(asked: Spec) -> None:
    on = world(asked)
    assert notes(on, [75, 68] * 10) == 1
    assert on.bounds[0] == 8


def test_a_note_that_was_not_written_is_due_again() -> None:
    assert notes(world(BAND), [75, 68, 75, 68], "failed") == 2


def test_after_a_change_it_is_noted_again() -> None:
    on = world(BAND)
    assert notes(on, [68, 75, 68, 90, 78, 88, 78]) == 2
    assert on.bounds[0] == 9


def test_an_incident_that_begins_later_is_worth_a_note() -> None:
    on = world(HELD)
    calm, fires = ({Query("alerts"): answer(value)} for value in (0, 1))
    waiting = on.cycle(68, others=calm)
    assert is_due(waiting, {})
    noted = noted_after([waiting], {waiting.uid: "written"}, {})
    assert not is_due(on.cycle(68, others=calm), noted)
    held = on.cycle(40, others=fires)
    assert is_due(held, noted)
    noted = noted_after([held], {held.uid: "written"}, noted)
    assert not is_due(on.cycle(40, others=fires), noted)


def test_what_is_not_pending_any_more_is_still_noted_and_a_vanished_hpa_is_not() -> None:
    on = world(BAND)
    waiting = on.cycle(68)
    noted = noted_after([waiting], {waiting.uid: "written"}, {})
    assert noted_after([on.cycle(75)], {}, noted) == noted
    assert noted_after([], {}, noted) == {}


def test_that_a_bound_is_the_users_own_again_is_worth_a_note() -> None:
    """Else one of theirs that is what the annotation says we set would be taken for ours after a restart."""
    on = world(spec(prometheus_query=QUERY, requests_per_replica="10", lowering_window="0"))
    assert on.cycle(200).changes
    on.set(minimum=10)
    taken = on.cycle(100)
    assert not taken.changes
    assert is_due(taken, {})
    assert is_due(taken, {taken.uid: frozenset()})
    noted = noted_after([taken], {taken.uid: "written"}, {})
    assert not is_due(on.cycle(100), noted)

"""What guards cost while the controller runs: nothing on steady traffic, and by guard where they keep a floor."""

from __future__ import annotations

import pytest
from hpa_builder import CYCLE, FREE, NOW, answer, failure, hpa, spec

from hpa_scaler.annotations.queries import Outcome, Query
from hpa_scaler.annotations.spec import FloorSpec
from hpa_scaler.judge.decision import CautionLedger, Subject
from hpa_scaler.judge.history import FloorHistory
from hpa_scaler.judge.judge import judge_one

ASKED = spec(
    prometheus_query="q", requests_per_replica="10", minimum_replicas="1", query_range="0", lowering_window="10m"
)


def spent(outcomes: list[Outcome | None], above: int = 0, asked: FloorSpec = ASKED) -> dict[str, float]:
    """The replica-cycles that guards cost an HPA that stands on its floor, or *above*, through these answers."""
    ledger, history, minimum = CautionLedger(), FloorHistory(), 10
    for number, outcome in enumerate(outcomes):
        now = NOW + number * CYCLE
        known = {} if outcome is None else {Query("q"): outcome}
        thing = hpa(minimum, 100, minimum + above)
        subject = Subject(hpa=thing, asked=asked, outcomes=known, history=history, now=now, rules=FREE)
        decision = judge_one(subject)
        ledger.note((decision,), now, 600.0)
        history = decision.written if decision.changes else decision.history
        minimum = decision.target
    return {guard: round(seconds / CYCLE, 3) for guard, seconds in ledger.spent.items() if seconds}


def test_steady_and_rising_traffic_costs_nothing() -> None:
    assert spent([answer(100.0)] * 10 + [answer(150.0)] * 10) == {}


def test_the_lowering_window_costs_what_stays_above_the_query_for_as_long_as_it_stays() -> None:
    found = spent([answer(100.0)] * 5 + [answer(50.0)] * 20)
    assert set(found) == {"lowering-window"}
    assert found["lowering-window"] == pytest.approx(5 * 8, rel=0.2)


def test_replicas_above_the_floor_are_the_hpas_own_wish() -> None:
    assert spent([answer(100.0)] * 5 + [answer(50.0)] * 20, above=3) == {}


def test_an_outage_costs_by_the_last_good_answer() -> None:
    found = spent([answer(100.0)] * 5 + [answer(60.0)] + [failure()] * 20)
    assert found["outage"] > 10 * 4
    assert spent([answer(100.0)] * 5 + [failure()] * 20) == {}


def test_a_dry_run_costs_nothing() -> None:
    dry = spec(prometheus_query="q", requests_per_replica="10", minimum_replicas="1", query_range="0", dry_run="true")
    assert spent([answer(100.0)] * 5 + [answer(100.0)] * 20, asked=dry) == {}

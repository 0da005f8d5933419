"""Many queries that fall at once are no traffic."""

from __future__ import annotations

import msgspec
import pytest
from hpa_builder import NO_AGE, NOW, QUERY, answer, failure, hpa, judge, reasons, spec

from hpa_scaler.correlated import DropCount, DropState, count_drops, hold_lowering, judge_drops
from hpa_scaler.policy import Decision
from hpa_scaler.queries import Outcome
from hpa_scaler.rules import Rules

ASKED = spec(prometheus_query=QUERY, requests_per_replica="10")


def fleet(*outcomes: tuple[int, Outcome | float]) -> list[Decision]:
    """So many HPAs with a floor of 10 and each outcome."""
    return [
        judge(hpa(10, name=f"web-{kind}-{number}"), ASKED, outcome, rules=NO_AGE)
        for kind, (count, outcome) in enumerate(outcomes)
        for number in range(count)
    ]


def settled(decisions: list[Decision], rules: Rules = NO_AGE) -> list[Decision]:
    cause = judge_drops(count_drops(decisions, rules), DropState(), rules, NOW).cause
    return decisions if cause is None else [hold_lowering(each, cause) for each in decisions]


def test_when_every_query_falls_to_zero_nothing_is_lowered() -> None:
    decisions = settled(fleet((100, 0)))
    assert {each.action for each in decisions} == {"hold"}
    assert {each.reason for each in decisions} == {"CorrelatedDrop"}
    assert not any(each.changes for each in decisions)


def test_when_a_few_fall_they_are_lowered() -> None:
    decisions = settled(fleet((97, 100), (3, 0)))
    assert [each.target for each in decisions[-3:]] == [3, 3, 3]


def test_what_rises_meanwhile_is_raised() -> None:
    decisions = settled(fleet((90, 0), (10, 300)))
    assert [each.target for each in decisions[-10:]] == [30] * 10


def test_a_fleet_that_gets_quieter_slowly_is_followed() -> None:
    decisions = settled(fleet((100, 75)))
    assert {each.target for each in decisions} == {8}


def test_a_few_hpas_prove_nothing() -> None:
    assert {each.action for each in settled(fleet((9, 0)))} == {"lower"}


def test_one_large_floor_counts_by_its_pods() -> None:
    large = judge(hpa(900, 2000, 900), ASKED, 0, rules=NO_AGE)
    decisions = [large, *fleet((20, 100))]
    assert settled(decisions)[0].reason == "CorrelatedDrop"


def test_what_is_not_known_is_not_counted() -> None:
    decisions = [*fleet((5, 0), (50, failure()), (50, answer())), judge(hpa(10), spec(), rules=NO_AGE)]
    assert count_drops(decisions, NO_AGE) == DropCount(5, 5, 50, 35)


def test_it_counts_what_the_queries_want_and_not_the_step_that_would_be_taken() -> None:
    careful = spec(prometheus_query=QUERY, scale_down_max_ratio="0.1")
    decisions = [judge(hpa(10, name=f"w{n}"), careful, 0, rules=NO_AGE) for n in range(10)]
    assert {each.target for each in decisions} == {9}
    assert {each.action for each in settled(decisions)} == {"hold"}


MANY = DropCount(100, 80, 1000, 800)


def test_it_holds_for_its_time_and_then_believes_it() -> None:
    rules = Rules(drop_hold=3600)
    first = judge_drops(MANY, DropState(), rules, NOW)
    assert first.cause is not None
    assert first.state == DropState(NOW)
    assert "80 of 100 HPAs fell at once, by 800 of 1000 pods" in first.cause.detail
    assert judge_drops(MANY, first.state, rules, NOW + 3599).cause is not None
    believed = judge_drops(MANY, first.state, rules, NOW + 3600)
    assert believed.cause is None
    assert judge_drops(MANY, believed.state, rules, NOW + 9000).cause is None


def test_once_over_it_begins_anew() -> None:
    state = judge_drops(MANY, DropState(), Rules(), NOW).state
    state = judge_drops(DropCount(100, 2, 1000, 20), state, Rules(), NOW + 75).state
    assert state == DropState()
    assert judge_drops(MANY, state, Rules(), NOW + 9000).cause is not None


def test_without_a_time_it_holds_until_they_come_back() -> None:
    verdict = judge_drops(MANY, DropState(NOW - 10**6), Rules(drop_hold=0), NOW)
    assert verdict.cause is not None
    assert verdict.cause.detail.endswith("until they come back")


@pytest.mark.parametrize("share", [0.79, 0.8])
def test_the_share_is_a_limit_that_may_be_reached(share: float) -> None:
    rules = Rules(drop_share=share, drop_floor_share=1.0)
    assert (judge_drops(MANY, DropState(), rules, NOW).cause is None) is (share == 0.8)


def test_a_held_decision_keeps_the_maximum_and_says_why_first() -> None:
    thing = hpa(25, 26, 25)
    history = msgspec.structs.replace(
        judge(thing, ASKED, 250).history, original_min=5, applied_min=25, original_max=10, applied_max=26
    )
    decision = judge(thing, ASKED, 60, history=history, rules=NO_AGE)
    assert (decision.target, decision.target_maximum) == (6, 10)
    cause = judge_drops(MANY, DropState(), NO_AGE, NOW).cause
    assert cause is not None
    held = hold_lowering(decision, cause)
    assert (held.target, held.target_maximum, held.changes) == (25, 26, False)
    assert reasons(held) == ["CorrelatedDrop", "FollowsQuery"]
    assert held.written == decision.history
    assert held.solution is not None
    assert held.solution.target == 25

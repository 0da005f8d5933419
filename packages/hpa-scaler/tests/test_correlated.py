"""Many queries that fall at once are no traffic."""

from __future__ import annotations

import msgspec
import pytest
from hpa_builder import CYCLE, NO_AGE, NOW, QUERY, HpaCycles, answer, failure, hpa, judge, reasons, spec

from hpa_scaler.annotations.queries import Outcome, Query
from hpa_scaler.annotations.spec import FloorSpec, Rules
from hpa_scaler.judge.decision import (
    DropCount,
    DropState,
    FloorDecision,
    Subject,
    count_drops,
    hold_lowering,
    judge_drops,
)
from hpa_scaler.judge.history import Floor, FloorHistory, State, decode_state, encode_state
from hpa_scaler.judge.judge import judge_cycle

ASKED = spec(prometheus_query=QUERY, requests_per_replica="10")


def wanted(floor: int) -> FloorHistory:
    """The history of an HPA whose query has wanted *floor* until now."""
    return FloorHistory(evaluated=NOW - CYCLE, answers=(Floor(int(NOW), floor),))


def asking(name: str, **more: str) -> FloorSpec:
    """What an HPA asks for that has a query of its own."""
    return spec(**{"prometheus_query": name, "requests_per_replica": "10", **more})


def fleet(*outcomes: tuple[int, Outcome | float]) -> list[FloorDecision]:
    """So many HPAs with a floor of 10, which their queries wanted, and each outcome."""
    return [
        judge(
            hpa(10, name=f"web-{kind}-{number}"),
            asking(f"{QUERY}{kind}{number:03}"),
            outcome,
            rules=NO_AGE,
            history=wanted(10),
        )
        for kind, (count, outcome) in enumerate(outcomes)
        for number in range(count)
    ]


def settled(decisions: list[FloorDecision], rules: Rules = NO_AGE) -> list[FloorDecision]:
    cause = judge_drops(count_drops(decisions, rules), DropState(), rules, NOW).cause
    return decisions if cause is None else [hold_lowering(each, cause) for each in decisions]


@pytest.mark.parametrize(
    ("outcomes", "last", "reason", "target"),
    [
        (((100, 0),), 100, "CorrelatedDrop", 10),
        (((97, 100), (3, 0)), 3, "FollowsLowerBound", 3),
        (((90, 0), (10, 300)), 10, "FollowsQuery", 30),
        (((100, 75),), 100, "FollowsQuery", 8),
        (((9, 0),), 9, "FollowsLowerBound", 3),
    ],
    ids=["all fall", "a few fall", "what rises meanwhile is raised", "slowly quieter", "a few HPAs prove nothing"],
)
def test_only_where_many_fall_at_once_nothing_is_lowered(
    outcomes: tuple[tuple[int, float], ...], last: int, reason: str, target: int
) -> None:
    decisions = settled(fleet(*outcomes))[-last:]
    assert {(each.reason, each.target) for each in decisions} == {(reason, target)}
    assert {each.action for each in decisions} == {"hold" if target == 10 else "raise" if target > 10 else "lower"}
    assert {each.changes for each in decisions} == {target != 10}


def test_one_large_floor_counts_by_its_pods() -> None:
    large = judge(hpa(900, 2000, 900), ASKED, 0, rules=NO_AGE, history=wanted(900))
    decisions = [large, *fleet((20, 100))]
    assert settled(decisions)[0].reason == "CorrelatedDrop"


def test_an_answer_far_above_the_maximum_counts_as_the_maximum() -> None:
    misled = judge(hpa(8, 8, name="misled"), ASKED, 40, rules=NO_AGE, history=wanted(703))
    decisions = [misled, *fleet((20, 100))]
    assert count_drops(decisions, NO_AGE) == DropCount(21, 1, 208, 4)
    assert settled(decisions)[0].action == "lower"


def test_what_is_not_known_is_not_counted() -> None:
    decisions = [*fleet((5, 0), (50, failure()), (50, answer())), judge(hpa(10), spec(), rules=NO_AGE)]
    assert count_drops(decisions, NO_AGE) == DropCount(5, 5, 50, 35)


def test_it_counts_what_the_queries_want_and_not_the_step_that_would_be_taken() -> None:
    decisions = [
        judge(
            hpa(10, name=f"w{n}"),
            asking(f"{QUERY}{n}", scale_down_max_ratio="0.1"),
            0,
            rules=NO_AGE,
            history=wanted(10),
        )
        for n in range(10)
    ]
    assert {each.target for each in decisions} == {9}
    assert {each.action for each in settled(decisions)} == {"hold"}


MANY = DropCount(100, 80, 1000, 800)


def test_it_holds_for_its_time_and_then_believes_it() -> None:
    rules = Rules(drop_hold=3600)
    first = judge_drops(MANY, DropState(), rules, NOW)
    assert first.cause is not None
    assert first.state == DropState(NOW)
    assert "80 of 100 queries fell at once, by 800 of 1,000 pods" in first.cause.detail
    assert judge_drops(MANY, first.state, rules, NOW + 3599).cause is not None
    believed = judge_drops(MANY, first.state, rules, NOW + 3600)
    assert believed.cause is None
    assert believed.believed
    # What is compared from then on is what they want then: another fall is another failure.
    assert judge_drops(MANY, believed.state, rules, NOW + 9000).cause is not None


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


class HpaFleet:
    """HPAs over time, judged together; each has a query of its own, or all have the same."""

    def __init__(self, count: int, floor: int, *, same: bool = False, replicas: int | None = None, **more: str) -> None:
        self.asked = [asking(QUERY if same else f"{QUERY}{number}", **more) for number in range(count)]
        self.worlds = [
            HpaCycles(hpa(floor, 1000, replicas or floor, name=f"w{n}", uid=f"u{n}"), asked, NO_AGE)
            for n, asked in enumerate(self.asked)
        ]
        self.drops = DropState()
        self.now = NOW

    def cycle(self, value: float) -> bool:
        """Judge and write; return whether lowering was held."""
        subjects = [
            Subject(
                hpa=web.hpa,
                asked=asked,
                outcomes={Query(query.text): answer(value) for query in asked.queries},
                history=web.history,
                rules=NO_AGE,
                now=self.now,
            )
            for web, asked in zip(self.worlds, self.asked, strict=True)
        ]
        cycle = judge_cycle(subjects, self.drops, NO_AGE, self.now)
        self.drops = cycle.verdict.state
        for web, decision in zip(self.worlds, cycle.decisions, strict=True):
            web.history = decision.written if decision.changes else decision.history
            web.set(minimum=decision.target, maximum=decision.target_maximum, replicas=decision.target)
        self.now += CYCLE
        return cycle.verdict.cause is not None

    def cycles(self, count: int, value: float) -> int:
        """Return in how many of *count* cycles lowering was held."""
        return sum(self.cycle(value) for _ in range(count))

    def restart(self) -> None:
        """Forget everything but what is written down."""
        self.drops = DropState()
        for web, asked in zip(self.worlds, self.asked, strict=True):
            web.history = decode_state(encode_state(State(history=web.history), asked, self.now)).history

    @property
    def floors(self) -> set[int]:
        return {web.bounds[0] for web in self.worlds}


def test_floors_that_a_step_keeps_above_a_steady_query_are_no_drop() -> None:
    """12 HPAs under a ratio, whose queries have long wanted half of what runs, were held for an hour."""
    fleet = HpaFleet(12, 100, scale_down_max_ratio="0.1")
    assert fleet.cycles(30, 500) == 0
    assert fleet.floors == {50}


def test_after_the_hold_a_second_failure_is_seen_again() -> None:
    """The floors stayed above what the queries wanted, and with them the drop that had been believed."""
    fleet = HpaFleet(12, 100, scale_down_max_ratio="0.02")
    fleet.cycles(12, 1000)
    assert fleet.cycles(48, 500) == 48
    assert fleet.floors == {100}
    assert fleet.cycles(12, 500) == 0
    before = fleet.floors
    assert fleet.cycles(40, 5) == 40
    assert fleet.floors == before


def test_hpas_that_follow_one_query_are_one() -> None:
    """Their falls were a failure of the metrics 216 times in a month of one query for 12 HPAs."""
    fleet = HpaFleet(12, 100, same=True)
    assert fleet.cycles(12, 1000) + fleet.cycles(12, 100) == 0
    assert fleet.floors == {10}


def test_what_they_wanted_before_is_kept_as_long_as_they_are_down() -> None:
    fleet = HpaFleet(12, 100)
    fleet.cycles(12, 1000)
    assert fleet.cycles(40, 10) == 40
    assert not fleet.cycle(1000)
    assert fleet.floors == {100}
    assert fleet.cycles(10, 10) == 10


def test_a_restart_in_the_middle_knows_what_they_wanted_before() -> None:
    fleet = HpaFleet(12, 100)
    fleet.cycles(12, 1000)
    assert fleet.cycles(30, 10) == 30
    fleet.restart()
    assert fleet.cycles(10, 10) == 10
    assert fleet.floors == {100}


def test_a_quick_rise_and_fall_within_cycles_is_compared_and_a_slow_one_is_not() -> None:
    fleet = HpaFleet(12, 100)
    held = 0
    for step in range(60):
        held += fleet.cycle(1000 * 0.97**step)
    assert held == 0

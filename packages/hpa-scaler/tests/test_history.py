"""What is remembered, and how it is written down and read back."""

from __future__ import annotations

import json

import pytest
from hpa_builder import CYCLE, NOW, HpaCycles, answer, hpa, judge, spec
from hypothesis import given
from hypothesis import strategies as st

from hpa_scaler.annotations.queries import queries_of
from hpa_scaler.annotations.spec import AGE_QUERY, Rules
from hpa_scaler.judge.floors import FloorInputs, QueryTerm, solve
from hpa_scaler.judge.history import (
    BUCKETS,
    LONGEST,
    Floor,
    FloorHistory,
    Raise,
    State,
    StateError,
    decode_state,
    encode_state,
    handed_over,
    highest_floor,
    resumed,
    with_floor,
)
from hpa_scaler.judge.rises import raised_within, with_raise

WINDOW = 600.0


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 40)), min_size=1, max_size=60))
def test_a_floor_is_held_for_its_window_and_no_longer_than_a_twentieth_more(steps: list[tuple[int, int]]) -> None:
    floors: tuple[Floor, ...] = ()
    now, seen = NOW, []
    for seconds, floor in steps:
        now += seconds
        seen.append((now, floor))
        floors = with_floor(floors, floor, now, WINDOW)
        found = highest_floor(floors, now, WINDOW)
        assert found is not None
        assert found >= max(each for at, each in seen if at + WINDOW > now)
        assert found <= max(each for at, each in seen if at + WINDOW * (1 + 1 / BUCKETS) + 1 >= now)
        assert len(floors) <= BUCKETS + 2


def test_without_a_window_nothing_is_remembered() -> None:
    assert with_floor((Floor(1, 5),), 3, NOW, 0) == ()
    assert highest_floor((), NOW, WINDOW) is None


def test_raises_are_remembered_for_the_longest_period() -> None:
    raises = with_raise(with_raise((), 3, NOW, 60), 2, NOW + 50, 60)
    assert raised_within(raises, NOW + 55, 60) == 5
    assert raised_within(raises, NOW + 55, 30) == 2
    assert with_raise(raises, 0, NOW + 70, 60) == (Raise(int(NOW) + 50, 2),)
    assert with_raise((), 3, NOW, 0) == ()


def test_a_history_that_is_recent_goes_on() -> None:
    history = FloorHistory(evaluated=NOW - 100, failures=2, answered=NOW - 500)
    assert resumed(history, 5, NOW, gap=300, window=WINDOW) is history


def test_after_a_gap_runs_begin_anew_and_facts_stay() -> None:
    history = FloorHistory(
        evaluated=NOW - 301,
        failures=2,
        answered=NOW - 500,
        rolling=NOW - 400,
        incident=NOW - 310,
        raises=(Raise(int(NOW) - 400, 2),),
        original_min=3,
        applied_min=5,
    )
    again = resumed(history, 5, NOW, gap=300, window=WINDOW)
    assert (again.failures, again.answered, again.rolling) == (0, None, None)
    assert (again.incident, again.raises) == (NOW - 310, history.raises)
    assert (again.original_min, again.applied_min) == (3, 5)
    assert highest_floor(again.floors, NOW, WINDOW) == 5


def test_an_outage_that_ends_while_nobody_looks_holds_the_floor_for_a_whole_range_all_the_same() -> None:
    asked = spec(prometheus_query="sum(rate(x[5m]))", lowering_window="0")
    cycles = HpaCycles(hpa(8, replicas=8), asked, Rules())
    # The exporter was away, Prometheus was not: its own series are as old as ever, those of the exporter are young.
    [age] = [each for each in queries_of(asked, AGE_QUERY, 3600) if each.text != "sum(rate(x[5m]))"]
    for answered, apart in ((answer(8), CYCLE), (answer(), 3600), (answer(1), CYCLE), (answer(5), 300 - CYCLE)):
        cycles.cycle(answered, others={age: answer(300)})
        cycles.now += apart - CYCLE
        assert cycles.bounds[0] == 8
    cycles.cycle(answer(5), others={age: answer(300)})
    assert cycles.bounds[0] == 5


# The annotation.

WARM = Rules(age_query="", cold_guard=False)
ASKED = spec(prometheus_query="sum(rate(x[5m])) > 0", requests_per_replica="2.5", delta="-0.5")


def test_the_state_has_the_older_controllers_keys_first_in_its_order_and_form() -> None:
    text = encode_state(State(), ASKED, NOW)
    head = (
        '{"enabled":"true","prometheusQuery":"sum(rate(x[5m])) \\u003e 0","requestsPerReplica":2.5,"delta":-0.5,'
        '"lastUpdated":"2027-01-15T08:00:00Z","prometheusServerUrl":"default","scaleDownMaxRatio":1,'
        '"enableScaleDownRatioDeploymentChecking":"false",'
    )
    assert text.startswith(head)
    assert json.loads(text)["history"] == {}


def test_after_them_come_ours() -> None:
    decision = judge(hpa(5, 10, 5), ASKED, 100, rules=WARM)
    state = State(
        history=decision.written, inputs=decision.inputs, target=decision.target, reason=decision.reason.value
    )
    keys = list(json.loads(encode_state(state, ASKED, NOW)))
    assert keys[8:] == [
        "inputs",
        "target",
        "reason",
        "originalMin",
        "originalMax",
        "applied",
        "appliedMax",
        "history",
    ]


histories = st.builds(
    FloorHistory,
    evaluated=st.none() | st.integers(0, 2**33).map(float),
    floors=st.lists(st.builds(Floor, st.integers(0, 2**33), st.integers(0, 10**6)), max_size=22).map(tuple),
    raises=st.lists(st.builds(Raise, st.integers(0, 2**33), st.integers(1, 10**5)), max_size=30).map(tuple),
    failures=st.integers(0, 10**6),
    answered=st.none() | st.integers(0, 2**33).map(float),
    recovering=st.booleans(),
    aged=st.integers(0, 16),
    incident=st.none() | st.integers(0, 2**33).map(float),
    rolling=st.none() | st.integers(0, 2**33).map(float),
    original_min=st.none() | st.integers(0, 10**6),
    original_max=st.none() | st.integers(1, 10**6),
    applied_min=st.none() | st.integers(0, 10**6),
    applied_max=st.none() | st.integers(1, 10**6),
    resets=st.integers(0, 100),
    reset_at=st.integers(0, 2**33).map(float),
)


@given(histories)
def test_what_is_written_is_read_back(history: FloorHistory) -> None:
    text = encode_state(State(history=history), ASKED, NOW)
    found = decode_state(text).history
    if found != history:
        # It had to be made coarser, to the safe side.
        assert sum(each.pods for each in found.raises) == sum(each.pods for each in history.raises)
        assert max((each.floor for each in found.floors), default=0) == max(
            (each.floor for each in history.floors), default=0
        )
        assert (found.original_min, found.applied_min) == (history.original_min, history.applied_min)
        assert len(encode_state(State(history=history), ASKED, NOW)) <= LONGEST


@given(histories, st.text(max_size=4000), st.integers(1, 16))
def test_the_state_stays_small(history: FloorHistory, query: str, queries: int) -> None:
    terms = tuple(QueryTerm(1234567.125 * number, 2.5, -0.5) for number in range(queries))
    inputs = FloorInputs(
        minimum=10**6,
        maximum=10**6,
        own_maximum=10**6,
        ratio=0.125,
        lower_bound=10**6,
        raises_maximum=False,
        replicas=10**6,
        terms=terms,
    )
    state = State(history=history, inputs=inputs, target=10**6, reason="FollowsLowerBound")
    text = encode_state(state, spec(prometheus_query=query or "x"), NOW)
    assert len(text.encode()) <= 2048
    assert decode_state(text).inputs == inputs


def test_a_fraction_of_a_second_is_rounded_to_the_safe_side() -> None:
    history = FloorHistory(evaluated=10.7, answered=10.2, incident=10.2, rolling=10.2)
    found = decode_state(encode_state(State(history=history), ASKED, NOW)).history
    assert (found.evaluated, found.answered, found.incident, found.rolling) == (10.0, 11.0, 11.0, 11.0)


def test_the_target_can_be_computed_from_the_annotation_alone() -> None:
    decision = judge(hpa(5, 20, 15), ASKED, 100, rules=WARM)
    text = encode_state(State(history=decision.written, inputs=decision.inputs, target=decision.target), ASKED, NOW)
    found = decode_state(text)
    assert found.inputs is not None
    assert solve(found.inputs).target == found.target == decision.target == 40


OLDER = (
    '{"enabled":"true","prometheusQuery":"x","requestsPerReplica":2.5,"delta":-0.5,"lastUpdated":"2020-01-01T00:00:00Z",'
    '"prometheusServerUrl":"","scaleDownMaxRatio":1,"enableScaleDownRatioDeploymentChecking":"false"}'
)


def test_the_older_controllers_state_is_no_history() -> None:
    state = decode_state(OLDER)
    assert not state.known
    assert state.history == FloorHistory()


def test_a_newer_versions_keys_are_passed_over() -> None:
    assert decode_state('{"applied":3,"history":{"failures":2,"moods":[1]},"more":{}}').history.failures == 2


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", '{"applied":"three"}', '{"history":{"floors":[1]}}'),
        # Numbers that can't be reckoned with.
        f'{{"history":{{"floors":[[{"9" * 400},5]]}}}}',
        f'{{"history":{{"resetAt":{"9" * 400}}}}}',
        f'{{"history":{{"incident":-{"9" * 30}}}}}',
        f'{{"applied":{"9" * 5000}}}',
    ],
)
def test_what_can_not_be_read_is_an_error(text: str) -> None:
    with pytest.raises(StateError, match="the state annotation can't be read: "):
        decode_state(text)


def test_what_another_term_left_counts_only_as_long_as_no_cycle_can_be_missing() -> None:
    left = FloorHistory(evaluated=NOW, floors=(Floor(NOW, 5),))
    assert handed_over(left, NOW + 56, 56.25) == left
    unsure = handed_over(left, NOW + 57, 56.25)
    assert unsure.evaluated is None
    assert handed_over(FloorHistory(), NOW, 56.25) == FloorHistory()
    assert highest_floor(resumed(unsure, 44, NOW + 57, gap=300, window=600).floors, NOW + 57, 600) == 44

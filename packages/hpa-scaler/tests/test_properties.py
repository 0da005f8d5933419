"""What holds whatever an HPA, its annotations, its queries and its past are like."""

from __future__ import annotations

import math

import msgspec
import pytest
from hpa_builder import CYCLE, DISABLED, NOW, hpa, policies
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from hpa_scaler.annotations.parsing import MOST_QUERIES
from hpa_scaler.annotations.queries import Failure, Outcome, QueryAnswer, queries_of, value_query
from hpa_scaler.annotations.spec import Band, FloorSpec, HoldSpec, MissingData, PauseSpec, QuerySpec, Rollout, Rules
from hpa_scaler.annotations.values import INT32_MAX
from hpa_scaler.judge.decision import DropState, FloorDecision, Subject
from hpa_scaler.judge.decision_log import cycle_line, decision_line, replay
from hpa_scaler.judge.floors import ratio_floor, solve
from hpa_scaler.judge.history import Floor, FloorHistory, State, encode_state
from hpa_scaler.judge.judge import judge_one
from hpa_scaler.judge.ownership import change, restoration, state_of
from hpa_scaler.write.applying import Records
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.reasons import QUERY_FAILURES, Reason

numbers = st.integers(0, 60)
values = st.integers(0, 5000).map(float) | st.integers(0, 60).map(float) | st.floats(-1e13, 1e13)
ratios = st.floats(0, 1) | st.sampled_from([0.0, 0.2, 0.5, 1.0])
pauses = st.sampled_from([PauseSpec(), PauseSpec(), PauseSpec(), PauseSpec(True), PauseSpec(True, NOW + 300)])
MISSING = ["hold", "zero", "replicas", "current", "currentIfHigher"]
query_specs = st.builds(
    QuerySpec,
    text=st.sampled_from(["a", "rate(b[5m])", "max_over_time(rate(c[5m])[1h:])"]),
    per_replica=st.sampled_from([0.01, 1.0, 2.5, 10.0, 1000.0]),
    delta=st.sampled_from([0.0, 0.0, -0.5, 3.0]) | st.floats(-50, 50),
)
specs = st.builds(
    FloorSpec,
    queries=st.lists(query_specs, max_size=3, unique_by=lambda each: each.text).map(tuple),
    series=st.sampled_from(["max", "error"]),
    missing=st.builds(MissingData, st.sampled_from(MISSING), st.integers(1, 3), numbers),
    ratio=ratios,
    rollout_check=st.booleans(),
    up_ratio=st.none() | ratios,
    up_pods=st.none() | st.integers(1, 10),
    honour_behavior=st.booleans(),
    deadband=st.sampled_from([Band(), Band(2), Band(share=0.1)]),
    window=st.sampled_from([0.0, 300.0, 3600.0]),
    lowest=st.none() | st.integers(0, 5),
    highest=st.none() | st.integers(5, 80),
    max_replicas=st.sampled_from(["raise", "clamp"]),
    paused_down=pauses,
    paused_up=pauses,
    hold=st.none() | st.just(HoldSpec("errors")),
)
whole_answers = st.builds(QueryAnswer, series=st.just(1), highest=values)
failures = st.builds(Failure, st.sampled_from(sorted(QUERY_FAILURES - {Reason.EMPTY_RESULT, Reason.FALLBACK_ANSWER})))
broken_answers = (
    st.just(QueryAnswer(0))
    | st.builds(QueryAnswer, series=st.just(2), highest=st.none() | values, not_numbers=st.just(1))
    | st.builds(QueryAnswer, series=st.just(2), highest=st.none() | values, infinite=st.just(1))
    | st.builds(QueryAnswer, series=st.just(1), highest=values, warnings=st.just(("partial",)))
)
broken = failures | broken_answers
outcomes_of_any = whole_answers | broken
behaviors = st.sampled_from([None, None, DISABLED, policies(("Pods", 2, 60)), policies(("Percent", 50, 300))])
rollouts = st.sampled_from([None, Rollout("steady"), Rollout("rolling", "x"), Rollout("unknown", "y")])
rules_of_any = st.sampled_from([Rules(), Rules(age_query=""), Rules(age_query="", cold_guard=False)])


@st.composite
def autoscalers(draw: st.DrawFn) -> HorizontalPodAutoscaler:
    minimum = draw(st.integers(1, 60))
    maximum = draw(st.integers(minimum, 80))
    replicas = draw(st.none() | st.integers(minimum, maximum) | numbers)
    return hpa(minimum, maximum, replicas, scale_up=draw(behaviors))


histories = st.builds(
    FloorHistory,
    evaluated=st.none() | st.floats(NOW - 1000, NOW),
    floors=st.lists(st.builds(Floor, st.integers(int(NOW) - 600, int(NOW)), numbers), max_size=3).map(tuple),
    failures=st.integers(0, 5),
    answered=st.none() | st.floats(NOW - 9000, NOW),
    recovering=st.booleans(),
    aged=st.integers(0, 16),
    incident=st.none() | st.floats(NOW - 600, NOW),
    rolling=st.none() | st.floats(NOW - 6000, NOW),
    original_min=st.none() | st.integers(1, 60),
    original_max=st.none() | st.integers(1, 80),
    applied_min=st.none() | st.integers(1, 60),
    applied_max=st.none() | st.integers(1, 80),
    resets=st.integers(0, 5),
    reset_at=st.floats(NOW - 9000, NOW),
)


CALM = {"rollout_check": False, "hold": None, "paused_down": PauseSpec(), "window": 0.0, "deadband": Band()}
"""Settings under which a floor comes down as soon as its queries do."""


@st.composite
def subjects(draw: st.DrawFn, outcomes: st.SearchStrategy[Outcome] = outcomes_of_any, **settings: object) -> Subject:
    """Anything at all; in half of all cases nothing but the queries holds a floor."""
    calm = draw(st.booleans())
    rules = Rules(age_query="", cold_guard=False) if calm else draw(rules_of_any)
    asked = msgspec.structs.replace(draw(specs), **(CALM if calm else {}), **settings)
    asks = queries_of(asked, rules.age_query, rules.longest_guard)
    outcomes_given = {
        query: draw(outcomes) for query in asks if draw(st.booleans()) or query in map(value_query, asked.queries)
    }
    return Subject(
        hpa=draw(autoscalers()),
        asked=asked,
        outcomes=outcomes_given,
        rollout=draw(rollouts),
        history=FloorHistory() if calm else draw(histories),
        rules=rules,
        now=NOW,
    )


HARMLESS = [MissingData(), MissingData("currentIfHigher", 1), MissingData("currentIfHigher", 3)]
QUERIED = (QuerySpec("a", per_replica=10.0), QuerySpec("rate(b[5m])"))


def spec_of(subject: Subject) -> FloorSpec:
    assert isinstance(subject.asked, FloorSpec)
    return subject.asked


@given(subjects(broken, queries=QUERIED) | subjects(broken, queries=QUERIED[:1]), st.sampled_from(HARMLESS))
def test_a_failed_query_or_one_without_a_finite_answer_never_lowers(subject: Subject, missing: MissingData) -> None:
    asked = msgspec.structs.replace(spec_of(subject), missing=missing)
    decision = judge_one(msgspec.structs.replace(subject, asked=asked))
    assert decision.target >= decision.minimum
    assert decision.target_maximum >= decision.maximum or decision.target_maximum >= decision.target


@given(subjects(failures, queries=QUERIED, missing=MissingData("zero", 1)))
def test_an_outage_is_never_taken_for_zero(subject: Subject) -> None:
    decision = judge_one(subject)
    assert decision.target >= decision.minimum


@given(subjects())
def test_the_floor_stays_within_its_bounds(subject: Subject) -> None:
    decision, asked = judge_one(subject), spec_of(subject)
    assert 1 <= decision.target <= decision.target_maximum <= INT32_MAX
    if decision.target == decision.minimum:
        return
    lowest = subject.rules.lower_bound if asked.lowest is None else asked.lowest
    highest = math.inf if asked.highest is None else asked.highest
    if decision.action == "lower":
        assert decision.target >= min(lowest, highest, decision.inputs.own_maximum if decision.inputs else 0)
    if decision.action == "raise":
        assert decision.target <= highest
        if asked.max_replicas == "clamp":
            assert decision.target_maximum <= decision.maximum


@given(subjects())
def test_one_step_down_is_never_more_than_the_ratio_allows(subject: Subject) -> None:
    decision = judge_one(subject)
    if decision.action != "lower" or decision.inputs is None:
        return
    assert decision.inputs.replicas is not None
    allowed = ratio_floor(decision.inputs.replicas, decision.inputs.ratio)
    # Only a cap may ask for less: it is the user's own word.
    caps = [each for each in (decision.inputs.upper_bound,) if each is not None]
    beyond = max(decision.inputs.own_maximum, decision.solution.query or 0 if decision.solution else 0)
    assert decision.target >= min(allowed, beyond, *caps, decision.minimum)


@given(subjects())
def test_one_step_up_is_never_more_than_its_limits_allow(subject: Subject) -> None:
    decision, asked = judge_one(subject), spec_of(subject)
    if decision.action != "raise":
        return
    running = max(decision.minimum, subject.hpa.current_replicas or 0)
    if asked.up_pods is not None:
        assert decision.target <= running + asked.up_pods
    if asked.up_ratio is not None:
        assert decision.target <= running + max(1, math.floor(running * asked.up_ratio))
    if asked.honour_behavior and subject.hpa.scale_up is DISABLED:
        assert decision.target <= running


@given(subjects())
def test_a_judgement_is_a_function_of_its_subject_and_is_replayed(subject: Subject) -> None:
    decision = judge_one(subject)
    assert judge_one(subject) == decision
    lines = [decision_line("c", decision), cycle_line("c", NOW, [decision], DropState(), subject.rules)]
    found = replay(lines)
    assert found.differences == ()
    assert found.decisions == 1


@given(subjects())
def test_the_target_follows_from_the_inputs_alone(subject: Subject) -> None:
    decision = judge_one(subject)
    assert decision.inputs is not None
    assert decision.solution is not None
    again = msgspec.json.decode(msgspec.json.encode(decision.inputs), type=type(decision.inputs))
    assert solve(again).target == decision.target


@given(subjects())
def test_a_decision_says_why_and_changes_only_what_it_says(subject: Subject) -> None:
    decision = judge_one(subject)
    assert decision.causes
    assert (decision.action in ("raise", "lower")) == (decision.target != decision.minimum)
    assert decision.changes or decision.written == decision.history
    if decision.changes:
        asked = spec_of(subject)
        assert len(change(decision, asked, subject.rules, NOW).body) < 4096


Step = tuple[str, int, float]
steps = st.lists(
    st.tuples(
        st.sampled_from(["cycle", "cycle", "cycle", "cycle", "min", "as noted", "max", "replicas"]),
        st.integers(1, 60),
        values,
    ),
    min_size=1,
    max_size=25,
)


def written(
    thing: HorizontalPodAutoscaler, decision: FloorDecision, asked: FloorSpec, now: float
) -> HorizontalPodAutoscaler:
    """The HPA after the decision, its annotation included."""
    state = encode_state(State(history=decision.written, target=decision.target), asked, now)
    return msgspec.structs.replace(
        thing,
        min_replicas=decision.target,
        max_replicas=decision.target_maximum,
        annotations={**thing.annotations, "tightship.dev/hpa-scaler-state": state},
    )


@given(specs, autoscalers(), steps, st.booleans(), st.sampled_from([1, 2, 3, 10**6]))
def test_after_anything_the_user_gets_their_last_own_bounds_back(
    asked: FloorSpec, thing: HorizontalPodAutoscaler, steps: list[Step], restarted: bool, resets: int
) -> None:
    rules = Rules(age_query="", cold_guard=False, contest_resets=resets)
    history, now = FloorHistory(), NOW
    records = Records("tightship.dev", writes=True)
    own_min, own_max = thing.min_replicas, thing.max_replicas
    for step, drawn, value in steps:
        # As noted is the number that a process that begins anew would take for what it had set.
        noted_min = state_of(thing, "tightship.dev")[0].history.applied_min
        what, number = ("min", noted_min or drawn) if step == "as noted" else (step, drawn)
        if what == "cycle":
            outcomes = {value_query(each): QueryAnswer(1, value) for each in asked.queries}
            decision = judge_one(
                Subject(hpa=thing, asked=asked, outcomes=outcomes, history=history, rules=rules, now=now)
            )
            history = decision.written if decision.changes else decision.history
            writes = decision.changes or records.is_due(decision)
            thing = written(thing, decision, asked, now) if writes else thing
            records.settle([decision], {decision.uid: "written"} if writes else {})
            now += CYCLE
        elif what == "replicas":
            thing = msgspec.structs.replace(thing, current_replicas=number)
        elif what == "min" and number <= thing.max_replicas and number not in (thing.min_replicas, history.applied_min):
            thing, own_min = msgspec.structs.replace(thing, min_replicas=number), number
        elif what == "max" and number >= thing.min_replicas and number not in (thing.max_replicas, history.applied_max):
            thing, own_max = msgspec.structs.replace(thing, max_replicas=number), number
    found = restoration(thing, state_of(thing, "tightship.dev")[0].history if restarted else history, rules, now)
    bounds = (thing.min_replicas, thing.max_replicas) if found is None else (found.minimum, found.maximum)
    assert bounds == (min(own_min, own_max), own_max)


@given(st.lists(query_specs, max_size=MOST_QUERIES))
def test_every_question_is_asked_once(queries: list[QuerySpec]) -> None:
    asked = queries_of(FloorSpec(queries=tuple(queries), hold=HoldSpec("a")), Rules().age_query, 3600)
    assert len(asked) == len(set(asked))
    assert {value_query(each) for each in queries} <= set(asked)


@pytest.mark.parametrize("action", ["raise", "lower", "hold"])
def test_the_strategies_reach_every_action(action: str) -> None:
    few = settings(max_examples=400, database=None, phases=[Phase.generate])
    find(subjects(), lambda subject: judge_one(subject).action == action, settings=few)

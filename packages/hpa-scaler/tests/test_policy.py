"""The judgement of one HPA: what is skipped, what holds a floor, what limits it, and what is said of each."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hpa_builder import (
    CYCLE,
    DISABLED,
    NO_AGE,
    NOW,
    QUERY,
    HpaCycles,
    answer,
    failure,
    hpa,
    judge,
    owner,
    policies,
    reasons,
    spec,
)

from hpa_scaler.annotations.parsing import parse_spec
from hpa_scaler.annotations.queries import Failure, Outcome, Query, QueryAnswer, queries_of, range_of
from hpa_scaler.annotations.spec import FloorSpec, Problems, QuerySpec, Rollout, Rules
from hpa_scaler.judge.decision import Subject
from hpa_scaler.judge.history import FloorHistory, State, decode_state, encode_state
from hpa_scaler.judge.judge import judge_one
from hpa_scaler.judge.sources import lowering_window
from tightship.objects.autoscaling import HorizontalPodAutoscaler
from tightship.objects.node import Condition
from tightship.objects.reasons import QUERY_FAILURES, Reason
from tightship.objects.times import format_duration
from tightship.rules.windows import Windows, parse_window


def asking(**named: str) -> FloorSpec:
    """A pod for each 10 of the query."""
    return spec(**{"prometheus_query": QUERY, "requests_per_replica": "10"} | named)


def aged(seconds: float, asked: str = "300s:15s") -> dict[Query, Any]:
    return {Query(f"time() - min(min_over_time(timestamp(up)[{asked}]))"): answer(seconds)}


PLAIN = asking()
"""100 a second make 10."""

RATED = spec(prometheus_query="rate(x[5m])", requests_per_replica="10", lowering_window="0")

TWO = spec(prometheus_query="a", requests_per_replica="10", prometheus_query_2="b", requests_per_replica_2="100")

FALLS_BACK = spec(prometheus_query="sum(rate(x[5m])) or sum(up)*0", requests_per_replica="10")
BARE = Query("sum(rate(x[5m]))")

CHECKED = asking(enable_scale_down_ratio_deployment_checking="true")
ROLLING = Rollout("rolling", "Deployment web has 2 new pods of 8")

WEEKENDS = msgspec.structs.replace(NO_AGE, windows=Windows((parse_window("Sat,Sun"),)))

GUARDED = asking(hold_query="errors > 0.05", hold_cool_down="150")
HOLD = Query("errors > 0.05")

SKIPPED = {"ControlledByOther", "EvictionSurge", "HpaTerminating", "TargetAtZero", "ScaleToZero", "Paused"}
RATIO, STRICT = asking(scale_down_max_ratio="0.2"), asking(several_series="error")
CLAMPED = asking(max_replicas_policy="clamp")
WARNED = answer(200, warnings=("partial",))
UNKNOWN = Condition("AbleToScale", "False", "FailedGetScale")
ASLEEP = Condition("ScalingActive", "False", "ScalingDisabled")
BLIND = (Condition("AbleToScale", "True"), Condition("ScalingActive", "False", "FailedGetResourceMetric"))


def surged() -> HorizontalPodAutoscaler:
    """What eviction-autoscaler makes of an HPA with a floor of 5 (its ``hpa_surge_applier.go``)."""
    notes = {"evictionSurgeReplicas": "9", "eviction-autoscaler.azure.com/original-min-replicas": "5"}
    return msgspec.structs.replace(hpa(9), annotations=notes)


def case(name: str, thing: Any, asked: FloorSpec, answered: Any, target: int, *why: str, **more: Any) -> Any:
    """One judgement: where the floor goes, all reasons where they are given, and the maximum if *more* has one."""
    return pytest.param(thing, asked, answered, target, why, {"rules": NO_AGE, **more}, id=name)


@pytest.mark.parametrize(
    ("thing", "asked", "answered", "target", "why", "more"),
    [
        # What is not ours to move.
        case("somebody owns it", hpa(owner=owner()), PLAIN, 1000, 5, "ControlledByOther"),
        case("it is being deleted", hpa(deletion=5), PLAIN, 1000, 5, "HpaTerminating"),
        case("its target is at zero", hpa(conditions=(ASLEEP,)), PLAIN, 1000, 5, "TargetAtZero"),
        case("it is surged for a drain", surged(), PLAIN, 1000, 9, "EvictionSurge"),
        case("its own metrics fail", hpa(conditions=BLIND), PLAIN, 200, 20),
        case("it is to scale to zero", hpa(0), PLAIN, 100, 0, "ScaleToZero"),
        case("from zero if a lowest floor is given", hpa(0, replicas=1), asking(minimum_replicas="0"), 40, 4),
        case("to zero if a lowest floor is given", hpa(0, replicas=1), asking(minimum_replicas="0"), 0, 0),
        case("never to zero else", hpa(5), asking(minimum_replicas="0"), 0, 1),
        # Answers.
        case("a query never asked", hpa(20, 50, 20), PLAIN, None, 20, "NotAsked"),
        case("the ratio raises in a failure", hpa(5, 50, 20), RATIO, failure(), 16, "FollowsRatio", "ConnectionFailed"),
        case("warnings raise", hpa(5), PLAIN, WARNED, 20, "FollowsQuery", "AnswerWithWarnings"),
        case("the largest series counts", hpa(5), PLAIN, answer(50, 200, 100), 20),
        case("the largest number counts", hpa(5), PLAIN, answer("NaN", 200), 20),
        case("a fallback may raise", hpa(5), FALLS_BACK, 80, 8, others={BARE: answer()}),
        case("one series is no several", hpa(5), STRICT, answer(70), 7),
        case("several series as an error", hpa(10), STRICT, answer(50, 200), 10, "SeveralSeries"),
        case("a broken query keeps none from raising", hpa(5), TWO, 200, 20, others={Query("b"): failure()}),
        case("a broken query keeps it from lowering", hpa(15), TWO, 80, 15, others={Query("b"): failure()}),
        # Behavior and deadband.
        case("disabled", hpa(2, 50, 2, scale_up=DISABLED), PLAIN, 90, 2, "BehaviorLimit", "FollowsQuery"),
        case("disabled, but that runs", hpa(2, 50, 6, scale_up=DISABLED), PLAIN, 90, 6),
        case("overruled", hpa(2, 50, 2, scale_up=DISABLED), asking(honour_scale_up_behavior="false"), 90, 9),
        *(
            case(f"a deadband of 2 at {value}", hpa(10, 50, 10), asking(deadband="2"), value, target)
            for value, target in ((80, 10), (79, 10), (70, 7), (101, 11))
        ),
        case("a deadband says so", hpa(10), asking(deadband="2"), 90, 10, "Deadband", "FollowsQuery"),
        case("within a share", hpa(40, 50, 40), asking(deadband="5%"), 380, 40),
        case("outside of a share", hpa(40, 50, 40), asking(deadband="5%"), 370, 37),
        # Caps and the maximum.
        case("own lower bound", hpa(8), asking(minimum_replicas="7", maximum_replicas="12"), 0, 7),
        case("own upper bound", hpa(8), asking(maximum_replicas="12"), 1000, 12, "FollowsQuery", "AtUpperBound"),
        case("a bound below that of the process", hpa(5), asking(minimum_replicas="1"), 0, 1),
        case("an upper bound below the lower one of the process", hpa(1), asking(maximum_replicas="2"), 100, 2),
        *(
            case(
                "a spike at " + next(iter(cap)),
                hpa(5, 50, 5),
                spec(prometheus_query=QUERY, **cap),
                1e12,
                50,
                maximum=50,
            )
            for cap in ({"max_replicas_policy": "clamp"}, {"maximum_replicas": "50"})
        ),
        case("a spike without a cap", hpa(5, 50, 5), PLAIN, 1e13, 5, "OutOfRange", maximum=50),
        case("clamped", hpa(5, 10, 5), CLAMPED, 250, 10, "FollowsQuery", "AtMaxReplicas", maximum=10),
        case(
            "no maximum is raised for the ratio",
            hpa(5, 10, 20),
            asking(scale_down_max_ratio="0.2"),
            60,
            10,
            *("FollowsRatio", "AtMaxReplicas"),
            maximum=10,
        ),
        case("an upper bound on the maximum", hpa(5, 10, 5), asking(maximum_replicas="25"), 900, 25, maximum=25),
        # Rollouts and replicas.
        case("a rollout holds", hpa(10), CHECKED, 40, 10, "RolloutInProgress", "FollowsQuery", rollout=ROLLING),
        case("no rollout", hpa(10), CHECKED, 40, 4, rollout=Rollout("steady")),
        case("a rollout raises", hpa(10), CHECKED, 200, 20, rollout=ROLLING),
        case("a rollout nobody asks for", hpa(10), PLAIN, 40, 4, rollout=ROLLING),
        *(
            case(f"a rollout: {rollout}", hpa(10), CHECKED, 40, 10, "RolloutUnknown", "FollowsQuery", rollout=rollout)
            for rollout in (None, Rollout("unknown", "forbidden"))
        ),
        *(
            case(
                f"{answered} with {replicas} replicas",
                hpa(10, 50, replicas, conditions=conditions),
                PLAIN,
                answered,
                *target,
            )
            for replicas, conditions, more in ((None, (), ()), (10, (UNKNOWN,), ("HpaInactive",)))
            for answered, target in ((40, (10, "ReplicasUnknown", "FollowsQuery", *more)), (400, (40,)))
        ),
        # Pauses, dry runs, incidents.
        *(case(f"a pause at {value}", hpa(), asking(paused="true"), value, 5, "Paused") for value in (0, 1000)),
        case("no lowering", hpa(10), asking(paused_scale_down="true"), 40, 10, "PausedScaleDown", "FollowsQuery"),
        case("raising all the same", hpa(10), asking(paused_scale_down="true"), 400, 40),
        # NOW is a Friday, 08:00 in UTC.
        *(
            case(f"lowering during {windows}", hpa(10), asking(lower_during=windows), value, *target)
            for windows, opened in (
                ("Sat,Sun", False),
                ("Fri 07:00-09:00", True),
                ("Fri 07:00-09:00; Asia/Tokyo", False),
            )
            for value, target in ((40, (4,) if opened else (10, "OutsideWindow", "FollowsQuery")), (400, (40,)))
        ),
        *(
            case(f"the windows of all, {value}", hpa(10), PLAIN, value, *target, rules=WEEKENDS)
            for value, target in ((40, (10, "OutsideWindow", "FollowsQuery")), (400, (40,)))
        ),
        case("no raising", hpa(10), asking(paused_scale_up="true"), 400, 10, "PausedScaleUp", "FollowsQuery"),
        case("lowering all the same", hpa(10), asking(paused_scale_up="true"), 40, 4),
        case("a dry run", hpa(10), asking(dry_run="true"), 200, 20, "FollowsQuery", "DryRun"),
        case("a dry run of nothing", hpa(20), asking(dry_run="true"), 200, 20, "FollowsQuery"),
        case("an incident raises", hpa(10), GUARDED, 400, 40, others={HOLD: answer(1)}),
        *(
            case(f"no incident {number}", hpa(10), GUARDED, 40, 4, others={HOLD: calm})
            for number, calm in enumerate((answer(), answer(0), answer(0, 0)))
        ),
        *(
            case(f"who knows {number}", hpa(10), GUARDED, 40, 10, "HoldQueryFailed", "FollowsQuery", others=others)
            for number, others in enumerate(
                ({HOLD: failure()}, {HOLD: answer("NaN")}, {HOLD: answer(warnings=("partial",))}, {})
            )
        ),
        case("a bad state", hpa(10), PLAIN, 100, 10, "FollowsQuery", "StateUnreadable", state_problem="x"),
        # The age of data.
        case("a query that does not look back", hpa(10), PLAIN, 40, 4, rules=Rules()),
        *(case(f"data of {age} s", hpa(10), RATED, 40, 4, others=aged(age), rules=Rules()) for age in (300, 285)),
    ],
)
def test_one_judgement(
    thing: Any, asked: FloorSpec, answered: Any, target: int, why: tuple[str, ...], more: dict[str, Any]
) -> None:
    maximum = more.pop("maximum", None)
    decision = judge(thing, asked, answered, **more)
    floor = thing.min_replicas
    stays = "skip" if {*why} & SKIPPED else "hold"
    assert decision.target == target
    assert decision.action == ("raise" if target > floor else "lower" if target < floor else stays)
    assert decision.dry_run is asked.dry_run
    assert not why or tuple(reasons(decision)) == why
    assert maximum is None or decision.target_maximum == maximum


# What is not ours to move.


def test_an_hpa_that_is_not_opted_in_is_left_alone() -> None:
    decision = judge_one(Subject(hpa=hpa(), asked=None, now=NOW))
    assert (decision.action, decision.changes, reasons(decision)) == ("skip", False, ["NotEnabled"])


def test_a_judgement_that_fails_costs_that_hpa_its_own_and_nobody_else_theirs() -> None:
    history = FloorHistory(reset_at=10**400, resets=3)
    decision = judge_one(Subject(hpa=hpa(), asked=PLAIN, history=history, now=NOW))
    assert (decision.action, decision.changes, decision.reason) == ("skip", False, "Unreadable")
    assert decision.causes[0].detail.startswith("judging this HPA failed: OverflowError: ")
    assert decision.history == history


def test_an_annotation_that_cannot_be_used_means_that_nothing_is_done() -> None:
    asked = parse_spec({"tightship.dev/hpa-scaler-requests-per-replica": "abc", "tightship.dev/hpa-scaler-delta": "x"})
    assert isinstance(asked, Problems)
    decision = judge_one(Subject(hpa=hpa(), asked=asked, now=NOW))
    assert (decision.action, decision.changes, decision.reason) == ("skip", False, "InvalidAnnotation")
    assert "'abc'" in decision.causes[0].detail
    assert "'x'" in decision.causes[0].detail


# A failure never lowers.


@pytest.mark.parametrize("reason", sorted(QUERY_FAILURES))
def test_no_failure_lowers_and_each_has_its_own_reason(reason: Reason) -> None:
    decision = judge(hpa(20, 50, 20), PLAIN, Failure(reason, "why"))
    assert (decision.action, decision.target, decision.reason) == ("hold", 20, reason)
    assert "why" in decision.causes[0].detail


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (answer(), "EmptyResult"),
        (answer("NaN"), "NotANumber"),
        (answer("+Inf"), "Infinite"),
        (answer("-Inf"), "Infinite"),
        (answer(1e12), "OutOfRange"),
        (answer(-1e12), "Negative"),
        (answer(-1, -0.5), "Negative"),
        (answer(0, warnings=("partial response",)), "AnswerWithWarnings"),
        (answer(0, "NaN"), "NotANumber"),
        (answer(0, "-Inf"), "Infinite"),
    ],
)
def test_no_answer_that_is_not_whole_lowers(outcome: QueryAnswer, reason: str) -> None:
    decision = judge(hpa(20, 50, 20), PLAIN, outcome, rules=NO_AGE)
    assert (decision.action, decision.target, decision.reason) == ("hold", 20, reason)


def split_into(*values: float, several_series: str = "hold") -> HpaCycles:
    """An HPA whose query had one series for a while, and has these from then on."""
    web = HpaCycles(
        hpa(10), spec(prometheus_query="requests", requests_per_replica="10", several_series=several_series)
    )
    web.cycle(100)
    for _ in range(20):
        web.cycle(answer(*values))
    return web


def test_one_series_that_becomes_several_holds_the_floor_and_says_so() -> None:
    """A new label halved it: the largest of two is less than both."""
    web = split_into(50, 50)
    assert web.bounds[0] == 10
    decision = web.cycle(answer(50, 50))
    assert (decision.action, decision.reason) == ("hold", "SeriesSplit")
    assert decision.causes[0].detail.startswith("a query that returned one series now returns 2")
    assert web.cycle(answer(90, 130)).target == 13
    web.set(minimum=13, replicas=13)
    for _ in range(20):
        web.cycle(60)
    assert web.bounds[0] == 6


def test_where_the_largest_of_several_is_meant_it_is_followed() -> None:
    assert split_into(50, 50, several_series="max").bounds[0] == 5
    web = HpaCycles(hpa(10), spec(prometheus_query="requests", requests_per_replica="10"))
    for values in ((100, 20), (90,), (50, 50)):
        web.cycle(answer(*values))
    assert web.bounds[0] == 5


def test_that_a_series_was_one_is_remembered_over_a_restart_and_not_for_another_query() -> None:
    web = split_into(100)
    for query, target in (("requests", 10), ("sum by (version) (requests)", 5)):
        asked = spec(prometheus_query=query, requests_per_replica="10")
        text = encode_state(State(history=web.history), asked, web.now)
        history = decode_state(text).history
        decision = judge(hpa(10), asked, answer(50, 50), history=history, rules=NO_AGE, now=web.now)
        assert decision.target == target


def test_in_an_outage_nobody_is_told_to_raise_a_maximum() -> None:
    """The floor is held above it, and a step of the ratio would end there too."""
    asked = asking(scale_down_max_ratio="0.1")
    web = HpaCycles(hpa(5, 20, 5), asked)
    web.cycle(400)
    assert web.bounds == (40, 41)
    web.set(replicas=40)
    decision = web.cycle(failure())
    assert (decision.action, decision.target) == ("hold", 40)
    assert "AtMaxReplicas" not in reasons(decision)


@pytest.mark.parametrize("there", [answer(), failure()], ids=["no series", "no answer"])
def test_an_answer_of_the_fallback_is_none_however_long_it_lasts(there: Outcome) -> None:
    """With the exporter away for longer than the window the floor fell from 21 to 3."""
    web = HpaCycles(hpa(10), FALLS_BACK)
    for _ in range(20):
        web.cycle(100, others={BARE: answer(100)})
    for _ in range(100):
        decision = web.cycle(0, others={BARE: there})
        assert (decision.action, decision.target) == ("hold", 10)
    assert decision.reason == ("FallbackAnswer" if isinstance(there, QueryAnswer) else "ConnectionFailed")
    for _ in range(20):
        web.cycle(50, others={BARE: answer(50)})
    assert web.bounds[0] == 5


def test_who_says_that_an_empty_answer_means_no_traffic_is_believed() -> None:
    asked = spec(
        prometheus_query="sum(load) default 0", requests_per_replica="10", missing_data="zero", lowering_window="0"
    )
    web = HpaCycles(hpa(10), asked)
    for _ in range(3):
        web.cycle(0, others={Query("sum(load)"): answer()})
    assert web.bounds[0] == 3


@pytest.mark.parametrize(("before", "target"), [(True, 10), (False, 5)])
def test_a_part_that_may_be_missing_counts_as_missing_once_it_was_there(before: bool, target: int) -> None:
    asked = spec(prometheus_query="sum(good) + (sum(bad) or vector(0))", requests_per_replica="10", lowering_window="0")
    bad, web = Query("sum(bad)"), HpaCycles(hpa(10), asked)
    for _ in range(3):
        web.cycle(100, others={bad: answer(100) if before else answer()})
    for _ in range(20):
        web.cycle(50, others={bad: answer()})
    assert web.bounds[0] == target


def test_a_query_that_falls_back_is_asked_without_that_too() -> None:
    assert [each.text for each in queries_of(FALLS_BACK, "", 3600)] == ["sum(rate(x[5m])) or sum(up)*0", BARE.text]


def test_of_several_queries_the_largest_floor_counts() -> None:
    decision = judge(hpa(5), TWO, 80, others={Query("b"): answer(1200)}, rules=NO_AGE)
    assert decision.target == 12
    assert decision.causes[0].detail == "ceil(80/10) = 8, ceil(1200/100) = 12"


# Rules for missing data.


def after(rule: str, cycles: int, outcome: QueryAnswer | Failure, replicas: int = 8, **more: str) -> HpaCycles:
    asked = asking(missing_data=rule, missing_data_after="3", **more)
    web = HpaCycles(hpa(10, 50, replicas), asked)
    web.cycle(100)
    for _ in range(cycles):
        web.cycle(outcome)
    return web


@pytest.mark.parametrize(
    ("rule", "outcome", "floor"),
    [
        ("hold", answer(), 10),
        ("hold", failure(), 10),
        ("zero", answer(), 3),
        ("zero", failure(), 10),
        ("zero", answer("NaN"), 10),
        ("replicas=6", answer(), 6),
        ("replicas=6", failure(), 6),
        ("replicas=20", failure(), 20),
        ("current", failure(), 8),
        ("currentIfHigher", failure(), 10),
    ],
)
def test_missing_data_are_treated_by_their_rule_after_some_cycles(
    rule: str, outcome: QueryAnswer | Failure, floor: int
) -> None:
    assert after(rule, 2, outcome).bounds[0] == 10
    assert after(rule, 3, outcome).bounds[0] == floor
    assert after(rule, 8, outcome).bounds[0] == floor


@pytest.mark.parametrize(
    ("rule", "outcome", "replicas", "more", "floor"),
    [
        ("current", failure(), 14, {}, 14),
        ("currentIfHigher", failure(), 14, {}, 14),
        ("zero", answer(), 8, {"delta": "4"}, 4),
        ("replicas=1", failure(), 10, {"scale_down_max_ratio": "0.2"}, 8),
    ],
    ids=["up with the replicas", "up if higher", "zero has its delta", "no rule for steps is passed over"],
)
def test_what_stands_for_missing_data(
    rule: str, outcome: QueryAnswer | Failure, replicas: int, more: dict[str, str], floor: int
) -> None:
    assert after(rule, 3, outcome, replicas=replicas, **more).bounds[0] == floor


def test_an_answer_begins_the_count_anew() -> None:
    web = after("replicas=20", 2, failure())
    web.cycle(100)
    web.cycle(failure())
    web.cycle(failure())
    assert web.bounds[0] == 10
    web.cycle(failure())
    assert web.bounds[0] == 20


def test_the_rule_is_named_where_it_decides() -> None:
    web = after("replicas=20", 2, failure())
    decision = web.cycle(failure())
    assert reasons(decision) == ["MissingDataPolicy", "ConnectionFailed"]
    assert decision.causes[0].detail == "missing-data replicas=20 makes it 20 after 3 cycles"


# Limits of a step up.


def climbing(thing: Any, asked: Any, cycles: int, *, value: float = 1000, follow: bool = True) -> list[int]:
    """The floors of some cycles; the HPA controller follows each at once."""
    web = HpaCycles(thing, asked)
    floors = []
    for _ in range(cycles):
        web.cycle(value)
        floors.append(web.bounds[0])
        if follow:
            web.set(replicas=max(web.bounds[0], web.hpa.current_replicas or 0))
    return floors


@pytest.mark.parametrize(
    ("start", "running", "behavior", "more", "floors"),
    [
        (5, 5, None, {"scale_up_max_pods": "4"}, [9, 13, 17, 20, 20]),
        (3, 3, None, {"scale_up_max_ratio": "0.5"}, [4, 6, 9, 13, 19, 20]),
        (10, 10, None, {"scale_up_max_ratio": "0.5", "scale_up_max_pods": "2"}, [12, 14]),
        (3, 18, None, {"scale_up_max_pods": "1"}, [19, 20]),
        (2, 2, policies(("Pods", 2, 60)), {}, [4, 6, 8, 10]),
        (2, 2, policies(("Pods", 2, 150)), {}, [4, 4, 6, 6]),
        (2, 2, policies(("Percent", 100, 60)), {}, [4, 8, 16, 20]),
        (2, 2, policies(("Percent", 10, 60)), {}, [3, 4, 5, 6]),
        (2, 2, policies(("Percent", 100, 30), ("Pods", 4, 15)), {}, [6, 12, 20, 20]),
        (2, 2, policies(("Percent", 100, 15), ("Pods", 4, 15), select="Min"), {}, [4, 8, 12, 16]),
        (2, 2, None, {}, [20]),
        (2, 2, policies(("Pods", 4, 15), ("Percent", 100, 15), select="Max"), {}, [20]),
        (2, 2, policies(), {}, [20]),
        (2, 2, policies(select="Max"), {}, [20]),
    ],
    ids=[
        *("pods", "a share of at least one", "the smaller of two", "at once to what runs"),
        *("policy: pods", "pods in a long period", "percent", "percent rounds up", "max", "min"),
        *("no behavior", "as the API server fills it in", "empty", "only that the larger counts"),
    ],
)
def test_a_floor_climbs_as_its_limits_allow(
    start: int, running: int, behavior: Any, more: dict[str, str], floors: list[int]
) -> None:
    asked = spec(prometheus_query=QUERY, requests_per_replica="50", **more)
    assert climbing(hpa(start, 50, running, scale_up=behavior), asked, len(floors)) == floors


def test_a_limited_step_says_so() -> None:
    asked = spec(prometheus_query=QUERY, requests_per_replica="50", scale_up_max_pods="4")
    decision = judge(hpa(5, 50, 5), asked, 1000)
    assert reasons(decision) == ["FollowsQuery", "StepLimit"]
    assert decision.causes[1].detail == "scale-up-max-pods allows 4 more than 5"


# Deadband and lowering window.


def test_a_wobble_is_written_once() -> None:
    asked = asking(lowering_window="10m", deadband="5%")
    web = HpaCycles(hpa(20, 500, 40), asked)
    changes = sum(web.cycle(400 * (1.05 if number % 2 else 0.95)).changes for number in range(20))
    assert changes <= 2
    assert sum(web.cycle(400 * (1.05 if number % 2 else 0.95)).changes for number in range(20)) == 0


UNAGED = Rules(age_query="")
WINDOW = asking(lowering_window="300")
"""Four cycles of 75 s; a twentieth of the window may be added."""


@pytest.mark.parametrize(
    ("asked", "rules", "values", "floors"),
    [
        (WINDOW, NO_AGE, [100, 80, 60, *[40] * 7], [10, 10, 10, 10, 10, 8, 6, 4, 4, 4]),
        (WINDOW, NO_AGE, [50, 300], [10, 30]),
        (RATED, UNAGED, [40] * 6, [10, 10, 10, 10, 4, 4]),
        (asking(prometheus_query="rate(x[5m])"), Rules(age_query="", cold_guard=False), [40] * 5, [4] * 5),
        (RATED, Rules(cold_guard=False), [40], [4]),
        (
            asking(prometheus_query="avg_over_time(x[7d])", lowering_window="0"),
            Rules(age_query="", longest_guard=150),
            [40] * 4,
            [10, 10, 4, 4],
        ),
        (
            asking(prometheus_query="job:requests:sum", query_range="150", lowering_window="0"),
            NO_AGE,
            [40] * 4,
            [10, 10, 4, 4],
        ),
        (asking(prometheus_query="sum(load)", query_range="0", lowering_window="0"), NO_AGE, [40], [4]),
    ],
    ids=[
        *("lowered to the highest of its window", "never held from rising", "a server without an age"),
        *("no guard is no window for the range", "no guard needs no age", "the longest time of the guard"),
        *("a range behind a recording rule that is said", "the older controller's way"),
    ],
)
def test_a_floor_comes_down_in_its_time(asked: FloorSpec, rules: Rules, values: list[float], floors: list[int]) -> None:
    web = HpaCycles(hpa(10, 50, 10), asked, rules)
    assert [web.cycle(value).target for value in values] == floors


def test_the_window_says_what_it_holds() -> None:
    asked = asking(lowering_window="300")
    decision = judge(hpa(10), asked, 50, rules=NO_AGE)
    assert reasons(decision) == ["LoweringWindow", "FollowsQuery"]
    assert decision.causes[0].detail == (
        "5 is wanted, but 10 was within the last 5m: the floor may be 5 from 2027-01-15T08:05:15Z (in 5m) on"
    )
    assert decision.pending


def test_a_source_that_goes_away_lowers_nothing_while_its_rate_falls_to_no_answer() -> None:
    """``rate()`` over 5 minutes of a target that is gone: complete answers that fall to nothing, then none."""
    web = HpaCycles(hpa(11, 50, 11), spec(prometheus_query="rate(x[5m])", requests_per_replica="10"))
    for _ in range(20):
        web.cycle(110)
    assert web.bounds[0] == 11
    for value in (88, 66, 44, 22, *[answer()] * 20):
        web.cycle(value)
        assert web.bounds[0] == 11


def test_traffic_that_ends_is_followed_once_the_range_and_the_gap_have_passed() -> None:
    web = HpaCycles(hpa(11, 50, 11), spec(prometheus_query="rate(x[5m])", requests_per_replica="10"))
    for _ in range(20):
        web.cycle(110)
    began = web.now
    while web.bounds[0] == 11:
        web.cycle(40)
    # 300 s and 300 s, a twentieth of it for the rounding of what is remembered, and the cycle that sees it.
    assert 600 <= web.now - began <= 600 * 1.05 + 2 * CYCLE
    assert web.bounds[0] == 4


def test_after_the_target_was_at_zero_the_floor_is_held_for_a_window_for_nobody_saw_what_was_wanted() -> None:
    web = HpaCycles(hpa(11, 50, 11), asking(lowering_window="600"))
    for _ in range(9):
        assert not web.cycle(60).changes
    off = msgspec.structs.replace(web.hpa, conditions=(Condition("ScalingActive", "False", "ScalingDisabled"),))
    on, web.hpa = web.hpa, off
    assert web.cycle(110).reason == "TargetAtZero"
    web.hpa, back = on, web.now
    while web.bounds[0] == 11:
        web.cycle(60)
    assert 600 <= web.now - back <= 600 * 1.05 + 2 * CYCLE
    assert web.bounds[0] == 6


def test_a_window_keeps_what_was_wanted_and_not_the_steps_that_led_there() -> None:
    asked = asking(lowering_window="300", scale_down_max_ratio="0.2")
    web = HpaCycles(hpa(20, 50, 20), asked)
    floors = []
    for value in (200, *[50] * 12):
        web.set(replicas=web.bounds[0])
        web.cycle(value)
        floors.append(web.bounds[0])
    assert floors == [20, 20, 20, 20, 20, 16, 13, 11, 9, 8, 7, 6, 5]


def test_a_history_too_old_to_trust_begins_the_window_anew() -> None:
    asked = asking(lowering_window="300")
    web = HpaCycles(hpa(10, 50, 10), asked)
    web.cycle(100)
    web.now += 3600
    assert web.cycle(40).target == 10
    for _ in range(3):
        assert web.cycle(40).target == 10
    web.cycle(40)
    assert web.cycle(40).target == 4


def test_during_missing_data_the_present_floor_counts_as_wanted() -> None:
    asked = asking(lowering_window="300")
    web = HpaCycles(hpa(10, 50, 10), asked)
    web.cycle(100)
    for _ in range(6):
        web.cycle(failure())
    assert web.cycle(40).target == 10


# Caps.


# maxReplicas.


def test_a_raised_maximum_is_taken_back() -> None:
    web = HpaCycles(hpa(5, 10, 5), PLAIN)
    decision = web.cycle(250)
    assert web.bounds == (25, 26)
    assert reasons(decision) == ["FollowsQuery", "MaxRaised"]
    decision = web.cycle(150)
    assert web.bounds == (15, 16)
    assert reasons(decision) == ["FollowsQuery", "MaxTakenBack"]
    web.cycle(60)
    assert web.bounds == (6, 10)


def test_a_failure_does_not_take_a_raised_maximum_back() -> None:
    web = HpaCycles(hpa(5, 10, 5), PLAIN)
    web.cycle(250)
    web.cycle(failure())
    assert web.bounds == (25, 26)


def test_a_maximum_that_somebody_changed_is_theirs() -> None:
    web = HpaCycles(hpa(5, 10, 5), PLAIN)
    web.cycle(250)
    web.set(maximum=30)
    decision = web.cycle(60)
    assert web.bounds == (6, 30)
    assert "ChangedByOthers" in reasons(decision)


# Rollouts.


def test_a_rollout_that_does_not_end_holds_the_floor_no_longer() -> None:
    web = HpaCycles(hpa(10, 50, 10), CHECKED, Rules(age_query="", rollout_limit=4 * CYCLE))
    for _ in range(4):
        assert web.cycle(40, rollout=ROLLING).action == "hold"
    decision = web.cycle(40, rollout=ROLLING)
    assert decision.target == 4
    assert "RolloutExpired" in reasons(decision)


def test_each_rollout_has_its_own_time() -> None:
    web = HpaCycles(hpa(10, 50, 10), CHECKED, Rules(age_query="", rollout_limit=3 * CYCLE))
    for state in (ROLLING, ROLLING, Rollout("steady"), ROLLING, ROLLING):
        web.cycle(100, rollout=state)
    assert web.cycle(40, rollout=ROLLING).action == "hold"


# Replicas that are not known.


# Pauses and dry runs.


def test_a_pause_ends_by_itself() -> None:
    asked = asking(paused="2027-01-15T08:05:00Z")
    web = HpaCycles(hpa(10, 50, 10), asked)  # begins at 08:00:00
    decision = web.cycle(40)
    assert decision.causes[0].detail == "paused for another 5m"
    while web.now < NOW + 300:
        assert web.cycle(40).action == "skip"
    assert web.cycle(40).target == 4


# Sources that can't know.


def test_young_data_hold_the_floor_as_far_as_the_query_looks_back() -> None:
    for age in (0, 60, 284):
        decision = judge(hpa(10), RATED, 40, others=aged(age))
        assert (decision.action, decision.reason, decision.age) == ("hold", "ColdSource", age)
    assert judge(hpa(10), RATED, 400, others=aged(10)).target == 40


def test_it_is_said_how_the_age_is_known() -> None:
    def detail(history: FloorHistory, **more: Any) -> str:
        return judge(hpa(10), RATED, 40, history=history, **more).causes[0].detail

    recent = FloorHistory(evaluated=NOW - 60, answered=NOW - 70)
    start = "the query looks back 5m, and "
    assert detail(recent, others=aged(60)) == start + "the data of server default go back only 60s"
    assert detail(recent) == start + "server default does not say how old its data are, and has answered for 70s"
    recovering = msgspec.structs.replace(recent, recovering=True)
    assert detail(recovering, others=aged(300)) == start + "server default has answered without a gap for only 70s"


def falling_back(**named: str) -> FloorSpec:
    return spec(prometheus_query="sum(load) or vector(0)", requests_per_replica="10", **named)


def test_a_query_that_is_answered_without_data_waits_for_two_minutes_of_them() -> None:
    """A server that has just begun answers it with 0, and no outage needs to have been seen."""
    asked = falling_back(lowering_window="0")
    for age in (0, 60, 113):
        decision = judge(hpa(10), asked, 0, others=aged(age, "120s:6s"))
        assert (decision.target, decision.reason) == (10, "ColdSource")
        assert f"(in {format_duration(120 - age)})" in decision.causes[0].fix
    assert judge(hpa(10), asked, 0, others=aged(120, "120s:6s")).target == 3
    assert judge(hpa(10), asked, 400, others=aged(0, "120s:6s")).target == 40


def test_what_falls_back_is_lowered_no_sooner_than_it_is_known_to_have_fallen() -> None:
    web = HpaCycles(hpa(10, 50, 10), falling_back(), Rules())
    assert web.cycle(100, others=aged(120, "120s:6s")).target == 10
    targets = [web.cycle(0, others=aged(120, "120s:6s")).target for _ in range(8)]
    assert targets == [10] * 5 + [3] * 3, "two minutes and five, of which 75 s were gone"


@pytest.mark.parametrize(("said", "waits"), [("0s", False), ("30s", True)])
def test_how_long_a_fallback_is_not_believed_can_be_said(said: str, waits: bool) -> None:
    decision = judge(hpa(10), falling_back(query_range=said, lowering_window="0"), 0, others=aged(10, "30s:2s"))
    assert ("ColdSource" in reasons(decision)) is waits
    assert decision.target == (10 if waits else 3)


def test_after_an_outage_the_whole_range_has_to_pass_whatever_the_server_says() -> None:
    web = HpaCycles(hpa(10, 50, 10), RATED, Rules())
    assert web.cycle(100, others=aged(300)).target == 10
    web.cycle(failure(), others=aged(300))
    targets = [web.cycle(40, others=aged(300)).target for _ in range(6)]
    assert targets == [10, 10, 10, 10, 4, 4]


@pytest.mark.parametrize(
    ("outcome", "held"), [(failure(), 4), (answer(10, warnings=("a shard is away",)), 4), (100, 0)]
)
def test_an_outage_that_is_seen_while_the_target_is_at_zero_is_one_all_the_same(outcome: Any, held: int) -> None:
    web = HpaCycles(hpa(10, 50, 10), RATED, Rules())
    web.cycle(100, others=aged(300))
    on, web.hpa = web.hpa, msgspec.structs.replace(web.hpa, conditions=(ASLEEP,))
    assert web.cycle(outcome, others=aged(300)).reason == "TargetAtZero"
    web.hpa = on
    assert [web.cycle(40, others=aged(300)).target for _ in range(6)] == [10] * held + [4] * (6 - held)


def test_an_answer_that_was_empty_counts_as_an_outage() -> None:
    web = HpaCycles(hpa(10, 50, 10), RATED, Rules())
    web.cycle(100, others=aged(300))
    web.cycle(answer(), others=aged(300))
    assert web.cycle(40, others=aged(300)).reason == "ColdSource"


def test_the_ramp_of_a_server_that_lost_its_data_moves_nothing() -> None:
    """A true rate of 110/s as ``sum(rate(x[5m]))`` gave it after the data were wiped."""
    asked = spec(prometheus_query="sum(rate(x[5m]))", requests_per_replica="10")
    web = HpaCycles(hpa(3, 50, 11), asked, Rules())
    web.cycle(110, others=aged(300))
    assert web.bounds[0] == 11
    for seconds, value in ((10, 1.9), (60, 20), (120, 42), (180, 64), (240, 88)):
        web.cycle(value, others=aged(seconds))
        assert web.bounds[0] == 11
    web.cycle(108, others=aged(300))
    assert web.bounds[0] == 11


def unaged(outcome: Any) -> dict[Query, Any]:
    return dict.fromkeys(aged(0), outcome)


def test_a_server_that_knows_of_no_data_any_more_has_lost_them() -> None:
    """Between its start and its first scrape ``... or vector(0)`` is answered with 0, and the age with nothing."""
    web = HpaCycles(hpa(10, 50, 10), RATED, Rules())
    assert web.cycle(100, others=aged(300)).target == 10
    web.now += 1000 * CYCLE
    web.history = msgspec.structs.replace(web.history, evaluated=web.now - CYCLE)
    lost = web.cycle(0, others=unaged(answer()))
    assert (lost.target, lost.reason, lost.age) == (10, "ColdSource", 0)
    assert [web.cycle(40, others=aged(300)).target for _ in range(4)] == [10, 10, 10, 4]


def test_an_age_that_can_not_be_had_for_once_is_no_loss_of_data() -> None:
    web = HpaCycles(hpa(10, 50, 10), RATED, Rules())
    for _ in range(6):
        web.cycle(100, others=aged(300))
    assert web.cycle(100, others=unaged(failure())).history.aged == 1
    assert web.cycle(40, others=unaged(failure())).target == 4


def test_a_server_that_never_knew_an_age_has_lost_nothing() -> None:
    web = HpaCycles(hpa(10, 50, 10), RATED, Rules())
    assert [web.cycle(40, others=unaged(answer())).target for _ in range(6)] == [10, 10, 10, 10, 4, 4]


def test_a_query_without_a_past_needs_no_age_any_more() -> None:
    web = HpaCycles(hpa(10, 50, 10), RATED, Rules())
    web.cycle(100, others=aged(300))
    web.asked = PLAIN
    assert web.cycle(40).target == 4


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("sum(load)", 120),
        ("sum(load) or vector(0)", 120),
        ("42", 120),
        ("sum(rate(x[30s]))", 30),
        ("sum(rate(x[30s])) or vector(0)", 120),
        ("job:requests:sum", 300),
        ("job:requests:rate10m", 600),
        ("sum(rate(x[$range]))", 3600),
    ],
)
def test_every_query_counts_as_one_that_looks_back(query: str, seconds: float) -> None:
    """One answer lowers nothing, whatever the query: those of its range and of four cycles have to agree."""
    asked = spec(prometheus_query=query, requests_per_replica="10")
    assert range_of(asked.queries[0], asked, 3600.0) == seconds
    assert lowering_window(asked, Rules()) == seconds + 300


@pytest.mark.parametrize(("query", "low"), [("sum(load)", 6), ("job:requests:sum", 9), ("job:requests:rate30s", 5)])
def test_without_a_visible_range_a_floor_is_lowered_only_after_answers_that_agree(query: str, low: int) -> None:
    asked = spec(prometheus_query=query, requests_per_replica="10")
    web = HpaCycles(hpa(10, 50, 10), asked)
    assert [web.cycle(100).target for _ in range(8)] == [10] * 8
    targets = [web.cycle(40).target for _ in range(12)]
    assert targets == [10] * (low - 1) + [4] * (13 - low)
    assert web.cycle(100).target == 10
    assert [web.cycle(0).target, web.cycle(100).target] == [10, 10], "one low answer lowers nothing"


def test_a_query_without_a_range_waits_until_all_targets_were_scraped() -> None:
    asked = spec(prometheus_query="sum(load)", requests_per_replica="10", lowering_window="0")
    young = judge(hpa(10), asked, 40, others=aged(30, "120s:6s"))
    assert (young.target, young.reason) == (10, "ColdSource")
    assert (
        young.causes[0].detail == "the query counts as looking back 2m, and the data of server default go back only 30s"
    )
    assert judge(hpa(10), asked, 40, others=aged(120, "120s:6s")).target == 4


# Incidents.


def test_an_incident_holds_the_floor_until_it_is_over_and_cooled_down() -> None:
    web = HpaCycles(hpa(10, 50, 10), GUARDED)
    firing, calm = {HOLD: answer(0.2)}, {HOLD: answer()}
    assert web.cycle(40, others=firing).reason == "IncidentHold"
    assert web.cycle(40, others=calm).reason == "IncidentHold"
    assert web.cycle(40, others=calm).target == 4


# All reasons are there, and the judgement is a function.


def test_every_reason_for_a_hold_is_given() -> None:
    asked = spec(
        prometheus_query=QUERY,
        paused_scale_down="true",
        hold_query="errors > 0.05",
        enable_scale_down_ratio_deployment_checking="true",
    )
    thing = hpa(10, 50, None, conditions=())
    decision = judge(thing, asked, 0, others={HOLD: answer(1)}, rollout=ROLLING)
    assert reasons(decision) == [
        "IncidentHold",
        "RolloutInProgress",
        "ReplicasUnknown",
        "PausedScaleDown",
        "FollowsLowerBound",
    ]


def test_equal_subjects_get_equal_decisions() -> None:
    subject = Subject(hpa=hpa(), asked=TWO, outcomes={Query("a"): answer(1), Query("b"): failure()}, now=NOW)
    again = msgspec.structs.replace(subject, outcomes=dict(reversed(list(subject.outcomes.items()))))
    assert judge_one(subject) == judge_one(subject) == judge_one(again)


def test_a_clock_that_goes_back_lowers_nothing_early() -> None:
    web = HpaCycles(hpa(10, 50, 10), RATED)
    web.cycle(100)
    web.now -= 7200
    for _ in range(4):
        assert web.cycle(40).target == 10
    assert not math.isnan(web.history.answered or 0.0)
    assert web.history.evaluated is not None
    assert FloorHistory().evaluated is None


def test_the_default_query_spec_is_the_older_controllers() -> None:
    assert QuerySpec("x") == QuerySpec("x", 1.0, 0.0)

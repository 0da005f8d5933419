"""A hold says since when, until when at the latest, and what to do: and the moments are those that come."""

from __future__ import annotations

import re

import msgspec
import pytest
from hpa_builder import CYCLE, NOW, HpaCycles, answer, failure, hpa, judge, spec

from hpa_scaler.annotations.queries import Outcome
from hpa_scaler.annotations.spec import FloorSpec, Rollout, Rules
from hpa_scaler.judge.decision import FloorDecision
from hpa_scaler.judge.history import ADVICE, regular_gaps, with_gap
from tightship.objects.node import Condition
from tightship.objects.reasons import HPA_TROUBLE, QUERY_FAILURES, Reason
from tightship.objects.times import parse_rfc3339

RATED = spec(prometheus_query="sum(rate(x[5m]))", requests_per_replica="10")
RULES = Rules(age_query="", rise_factor=0, maximum_factor=0, late_query="", failed_query="")


def steady(minutes: int = 30) -> HpaCycles:
    web = HpaCycles(hpa(40, 60, 40), RATED, RULES)
    for _ in range(int(minutes * 60 / CYCLE)):
        web.cycle(400)
    return web


def moment(text: str) -> float:
    found = re.search(r"(\S+Z) \(in [0-9a-z]+\) on", text)
    assert found, text
    return parse_rfc3339(found[1])


def lowered(web: HpaCycles) -> float:
    """Let cycles pass until the floor comes down to 9, and return the time of that cycle."""
    for _ in range(60):
        if web.cycle(90).target == 9:
            return web.now - CYCLE
    raise AssertionError("never lowered")


@pytest.mark.parametrize("reason", sorted(QUERY_FAILURES))
def test_each_failure_of_a_query_has_advice(reason: Reason) -> None:
    decision = judge(hpa(20), RATED, failure(reason))
    assert (decision.reason, decision.causes[0].fix) == (reason, ADVICE.get(reason, ""))


def test_the_window_names_the_moment_at_which_the_floor_comes_down() -> None:
    web = steady()
    decision = web.cycle(90)
    assert decision.reason == "LoweringWindow"
    until = moment(decision.causes[0].detail)
    assert 0 <= lowered(web) - until < CYCLE


def test_a_window_of_two_steps_names_both() -> None:
    web = steady()
    for _ in range(4):
        web.cycle(250)
    detail = web.cycle(90).causes[0].detail
    assert re.search(r": the floor may be 25 from \S+ \(in 4m\) on, and 9 from \S+ \(in 9m\) on$", detail), detail


@pytest.mark.parametrize("outage", [1, 8], ids=["one cycle", "ten minutes"])
def test_a_cold_source_names_the_moment_at_which_the_floor_comes_down(outage: int) -> None:
    """It said "wait 5m", and the floor came down 12 minutes after that: the lowering window began only then."""
    web = steady()
    for _ in range(outage):
        web.cycle(failure())
    decision = web.cycle(90)
    assert decision.reason == "ColdSource"
    until = moment(decision.causes[0].fix)
    assert abs(lowered(web) - until) < CYCLE


def test_an_outage_says_since_when_and_for_how_long_and_nothing_else() -> None:
    web = steady()
    began = web.now
    for _ in range(6):
        decision = web.cycle(failure(Reason.HTTP_ERROR, "HTTP 501"))
    [cause] = decision.causes
    assert cause.reason is Reason.HTTP_ERROR
    assert "no complete answer since 2027-01-15T08:30:00Z, in 6 cycles" in cause.detail
    assert began == parse_rfc3339("2027-01-15T08:30:00Z")
    found = re.search(r"the floor stays until (\d+)m after the first complete answer", cause.detail)
    assert found
    first = web.now
    assert 0 <= lowered(web) - first - 60 * int(found[1]) < 60 + 2 * CYCLE


def test_a_paused_rollout_says_so_and_when_its_hold_ends() -> None:
    asked = spec(
        prometheus_query="requests", requests_per_replica="10", enable_scale_down_ratio_deployment_checking="true"
    )
    decision = judge(hpa(40, 60, 40), asked, 90, rollout=Rollout("rolling", "Rollout web is paused"), rules=RULES)
    assert decision.reason == "RolloutInProgress"
    assert decision.causes[0].detail == (
        "Rollout web is paused; this holds the floor until 2027-01-15T08:30:00Z (in 30m) at the latest"
    )
    assert decision.causes[0].fix


@pytest.mark.parametrize(
    ("cycles", "says"),
    [
        ("0101010101", "no complete answer in 5 of the last 10 cycles"),
        ("001001001", "no complete answer in 3 of the last 9 cycles"),
        ("1111100000101010", "no complete answer in 3 of the last 10 cycles"),
        ("0000000000", ""),
        ("0001111111", ""),
        ("1100000011", ""),
        ("1", ""),
    ],
)
def test_gaps_that_come_again_and_again_are_told_from_an_outage(cycles: str, says: str) -> None:
    gaps = 0
    for each in cycles:
        gaps = with_gap(gaps, complete=each == "0")
    assert regular_gaps(gaps) == says
    assert gaps < 2048


@pytest.mark.parametrize("asked", [RATED, spec(prometheus_query="lag", query_range="0", requests_per_replica="10")])
def test_an_answer_every_second_time_is_no_reason_to_wait(asked: FloorSpec) -> None:
    """Every second cycle said "wait 45s", for ever."""
    web = HpaCycles(hpa(40, 60, 40), asked, RULES)
    for _ in range(12):
        web.cycle(400)
    decisions: list[FloorDecision] = []
    for number in range(20):
        answered: Outcome = answer(90) if number % 2 else answer()
        decisions.append(web.cycle(answered))
    for decision in decisions[-4:]:
        first = decision.causes[0]
        assert first.reason in ("EmptyResult", "ColdSource", "LoweringWindow")
        assert "no complete answer in 5 of the last 10 cycles" in first.detail
        assert "range" in first.fix
        assert "wait" not in first.fix
    assert decision.target == 40


@pytest.mark.parametrize(
    ("kind", "reason", "says"),
    [
        ("ScalingActive", "AmbiguousSelector", "keep one HPA for these pods"),
        ("ScalingActive", "InvalidSelector", "selector"),
        ("ScalingActive", "FailedGetResourceMetric", "metrics-server"),
        ("ScalingActive", "FailedGetContainerResourceMetric", "container"),
        ("ScalingActive", "FailedGetPodsMetric", "custom.metrics.k8s.io"),
        ("ScalingActive", "FailedGetObjectMetric", "custom.metrics.k8s.io"),
        ("ScalingActive", "FailedGetExternalMetric", "external.metrics.k8s.io"),
        ("ScalingActive", "Surprise", "kubectl describe hpa"),
        ("AbleToScale", "FailedGetScale", "scaleTargetRef"),
        ("AbleToScale", "FailedUpdateScale", "scale of the target"),
        ("AbleToScale", "BackoffBoth", ""),
        ("ScalingLimited", "TooFewReplicas", ""),
    ],
)
def test_an_hpa_that_can_not_work_is_told_with_what_to_do(kind: str, reason: str, says: str) -> None:
    decision = judge(hpa(40, 60, 40, conditions=(Condition(kind, "False", reason),)), RATED, 400, rules=RULES)
    found = [cause for cause in decision.causes if cause.reason is Reason.HPA_INACTIVE]
    assert len(found) == bool(says)
    assert not says or (says in found[0].fix and reason in found[0].detail)


@pytest.mark.parametrize(("rule", "said"), [("hold", True), ("max", False)])
def test_of_several_series_the_largest_counts_and_that_is_said(rule: str, said: bool) -> None:
    asked = spec(prometheus_query="sum by (pod) (rate(x[5m]))", requests_per_replica="10", several_series=rule)
    decision = judge(hpa(2, 60, 2), asked, answer(*[100.0] * 40), rules=RULES)
    assert (decision.action, decision.target) == ("raise", 10)
    assert (Reason.LARGEST_OF_SERIES in decision.reasons) is said


@pytest.mark.parametrize("ahead", [20.0, 3600.0, 50 * 86_400.0])
def test_the_history_of_a_clock_that_was_ahead_holds_no_longer_than_its_window(ahead: float) -> None:
    """It held the floor until our clock had caught up."""
    web = steady()
    web.cycle(90)
    web.now -= ahead
    decision = web.cycle(90)
    assert decision.reason == "LoweringWindow"
    began = web.now
    assert 600 - 3 * CYCLE <= lowered(web) - began <= 600 + 30


def test_what_holds_a_floor_has_advice() -> None:
    own = {  # their causes bring closer advice
        Reason.INVALID_ANNOTATION,
        Reason.UNREADABLE,
        Reason.HPA_INACTIVE,
        Reason.CONTROLLED_BY_OTHER,
        Reason.CONTESTED,
        Reason.LATE_SAMPLES,
        Reason.FAILED_SCRAPES,
        Reason.SERIES_SPLIT,
        Reason.CORRELATED_DROP,
        Reason.STATE_UNREADABLE,
        Reason.SUDDEN_RISE,
        Reason.MAX_RAISED,
        Reason.AT_MAX_REPLICAS,
        Reason.WRITE_REFUSED,
        Reason.EMPTY_RESULT,
        Reason.FALLBACK_ANSWER,
        Reason.SEVERAL_SERIES,
        Reason.NOT_A_NUMBER,
        Reason.INFINITE,
        Reason.NEGATIVE,
    }
    assert own.isdisjoint(ADVICE)
    assert HPA_TROUBLE - own <= set(ADVICE)


def test_a_history_without_the_start_of_an_outage_says_how_many_cycles() -> None:
    web = steady()
    web.cycle(failure())
    web.history = msgspec.structs.replace(web.history, failing=None)
    assert "no complete answer, in 2 cycles" in web.cycle(failure()).causes[0].detail
    assert web.now > NOW

"""The older controller's arithmetic, row by row of its reference; where ours differs on purpose, the row says so."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hpa_builder import NO_AGE, QUERY, hpa, judge, spec

from hpa_scaler.annotations.spec import FloorSpec, Rules
from hpa_scaler.judge.decision import FloorDecision
from hpa_scaler.judge.floors import QueryTerm, ratio_floor

LINES = (Path(__file__).parent / "data" / "go_results.txt").read_text().splitlines()


def numbers(letter: str) -> list[tuple[float, ...]]:
    return [tuple(float(each) for each in line[2:].split()) for line in LINES if line.startswith(f"{letter} ")]


@pytest.mark.parametrize(("delta", "value", "per_replica", "result"), numbers("Q"))
def test_the_query_part_is_what_go_computes(delta: float, value: float, per_replica: float, result: float) -> None:
    assert QueryTerm(value, per_replica, delta).replicas == result


@pytest.mark.parametrize(("replicas", "ratio", "step"), numbers("R"))
def test_the_ratio_part_is_what_go_computes(replicas: float, ratio: float, step: float) -> None:
    assert ratio_floor(int(replicas), ratio) == replicas - (step or 1)


@pytest.mark.parametrize(
    ("replicas", "ratio", "floor"),
    [
        (10, 1, 0),
        (10, 0.2, 8),
        (10, 0.5, 5),
        (10, 0, 9),
        (10, 2, -10),
        (0, 1, -1),
        (0, 0.2, -1),
        (1, 1, 0),
        (2, 0.2, 1),
        (100, 0.29, 72),
    ],
)
def test_the_ratio_floor(replicas: int, ratio: float, floor: int) -> None:
    assert ratio_floor(replicas, ratio) == floor


BOUND_1 = Rules(age_query="", lower_bound=1)


def asks(delta: str = "0", per: str = "1", ratio: str = "1") -> FloorSpec:
    return spec(prometheus_query=QUERY, requests_per_replica=per, delta=delta, scale_down_max_ratio=ratio)


@pytest.mark.parametrize(
    ("asked", "value", "minimum", "replicas", "target"),
    [
        (asks(per="2.5", delta="-0.5"), 100, 5, 10, 40),
        (asks(per="20"), 100, 5, 10, 5),
        (asks(per="20"), 101, 5, 10, 6),
        (asks(per="20"), 60, 5, 10, 3),
        (asks(per="20"), 0, 5, 10, 3),
        (asks(per="20", delta="1"), 0, 5, 10, 3),
        (asks(per="20", delta="4"), 0, 5, 10, 4),
        (asks(per="20", delta="-10"), 0, 5, 10, 3),
        (asks(per="20", ratio="0.2"), 0, 10, 10, 8),
        (asks(per="20", ratio="0.5"), 0, 10, 10, 5),
        (asks(per="20", ratio="0"), 0, 10, 10, 9),
        (asks(per="20", ratio="2"), 0, 10, 10, 3),
        (asks(per="20", ratio="0.2"), 500, 10, 10, 25),
        (asks(per="20", ratio="0.2"), 0, 3, 20, 16),
        (spec(), None, 10, 10, 3),
        (spec(scale_down_max_ratio="0.2"), None, 10, 10, 8),
        (spec(scale_down_max_ratio="0.2"), None, 5, 10, 8),
        (spec(prometheus_query="", requests_per_replica="7"), None, 10, 10, 3),
    ],
)
def test_the_larger_of_query_ratio_and_lower_bound_wins(
    asked: FloorSpec, value: float | None, minimum: int, replicas: int, target: int
) -> None:
    decision = judge(hpa(minimum, 100, replicas), asked, value, rules=NO_AGE)
    assert decision.target == target
    assert decision.action == ("hold" if target == minimum else "raise" if target > minimum else "lower")


def test_the_lower_bound_is_that_of_the_process() -> None:
    assert judge(hpa(), asks(), 0, rules=BOUND_1).target == 1
    assert judge(hpa(), asks(), 0, rules=Rules(age_query="", lower_bound=7)).target == 7


def test_at_the_target_nothing_is_done() -> None:
    decision = judge(hpa(5), asks(per="20"), 100, rules=NO_AGE)
    assert (decision.action, decision.changes) == ("hold", False)


@pytest.mark.parametrize(
    ("value", "minimum", "maximum"),
    [(900, 9, 10), (1000, 10, 10), (1100, 11, 12), (2500, 25, 26)],
    ids=["below", "equal, which is valid: not raised (the older controller raised it)", "above", "far above"],
)
def test_a_floor_above_the_maximum_raises_it_to_one_more(value: int, minimum: int, maximum: int) -> None:
    decision = judge(hpa(5, 10, 5), asks(per="100"), value, rules=NO_AGE)
    assert (decision.target, decision.target_maximum) == (minimum, maximum)


def test_the_lower_bound_raises_a_maximum_below_it() -> None:
    decision = judge(hpa(1, 2, 1), spec(), rules=NO_AGE)
    assert (decision.target, decision.target_maximum) == (3, 4)


def held(value: str) -> FloorDecision:
    return judge(hpa(10, 50, 10), asks(), value, rules=NO_AGE)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("NaN", "NotANumber"),
        ("+Inf", "Infinite"),
        ("-Inf", "Infinite"),
        ("2147483648", "OutOfRange"),
        ("1e12", "OutOfRange"),
        ("-2147483648", "Negative"),
        ("-2147483649", "Negative"),
    ],
)
def test_what_made_the_older_controller_collapse_holds_the_floor(value: str, reason: str) -> None:
    decision = held(value)
    assert (decision.action, decision.target, decision.reason) == ("hold", 10, reason)


def test_the_largest_number_of_replicas_is_a_number() -> None:
    assert held("2147483647").target == 2147483647


@pytest.mark.parametrize("value", ["0", "-0", "-1e-15"])
def test_nothing_is_nothing_whatever_its_sign(value: str) -> None:
    assert held(value).target == 3


@pytest.mark.parametrize("ratio", ["-0.5", "NaN", "Inf", "-Inf"])
def test_a_ratio_that_would_grow_the_floor_is_refused(ratio: str) -> None:
    with pytest.raises(AssertionError, match="allowed is a number from 0 on"):
        spec(scale_down_max_ratio=ratio)


def test_a_target_that_no_server_would_take_becomes_1() -> None:
    decision = judge(hpa(5), asks(), 0, rules=Rules(age_query="", lower_bound=-1))
    assert decision.target == 1
    assert not math.isnan(decision.target)

"""The arithmetic of the HPA controller, by the rules of its source."""

from __future__ import annotations

import math
import random

import pytest

from tightship.objects.autoscaling import ScalingPolicy, ScalingRules
from tightship.objects.horizontal import ReplicaLoop

SLOW_UP = ScalingRules((ScalingPolicy("Pods", 2, 60), ScalingPolicy("Percent", 10, 60)), None, 0)
NO_WINDOW = ScalingRules(None, None, 0)


def run(loop: ReplicaLoop, replicas: int, *needs: float, apart: float = 15.0) -> list[int]:
    """The replicas after each look, at metrics that need so many replicas."""
    found = []
    for number, need in enumerate(needs):
        replicas = loop.look(number * apart, replicas, need / replicas, 1, 1000)
        found.append(replicas)
    return found


def test_without_behavior_one_look_doubles_at_most_or_goes_to_four() -> None:
    assert run(ReplicaLoop(), 1, 50, 50, 50, 50, 50) == [4, 8, 16, 32, 50]


def test_policies_limit_the_way_up_by_what_their_period_has_seen() -> None:
    assert run(ReplicaLoop(SLOW_UP), 10, 30, 30, 30, 30, 30, 30) == [12, 12, 12, 12, 14, 14]


def test_the_smallest_change_counts_where_the_policy_says_min() -> None:
    rules = ScalingRules(SLOW_UP.policies, "Min", 0)
    assert run(ReplicaLoop(rules), 10, 30, 30) == [11, 11]


def test_disabled_changes_nothing_that_way() -> None:
    loop = ReplicaLoop(ScalingRules(None, "Disabled"), NO_WINDOW)
    assert run(loop, 10, 30, 5) == [10, 5]


def test_a_window_upward_waits_for_the_lowest_recommendation() -> None:
    loop = ReplicaLoop(ScalingRules(None, None, 60), NO_WINDOW)
    assert run(loop, 10, 10, 15, 15, 15, 15, 15, 15) == [10, 10, 10, 10, 15, 15, 15]


def test_policies_limit_the_way_down() -> None:
    rules = ScalingRules((ScalingPolicy("Percent", 50, 60),), None, 0)
    assert run(ReplicaLoop(None, rules), 16, 2, 2, 2, 2, 2) == [8, 8, 8, 8, 4]


@pytest.mark.parametrize(("text", "wanted"), [("0.3", 10), ("300m", 10), ("x", 13), (None, 13)])
def test_the_tolerance_is_that_of_the_hpa_where_it_names_one(text: str | None, wanted: int) -> None:
    assert run(ReplicaLoop(ScalingRules(tolerance=text)), 10, 12.5) == [wanted]


@pytest.mark.parametrize("rules", [None, SLOW_UP, NO_WINDOW, ScalingRules(None, None, 120)])
@pytest.mark.parametrize("down", [None, ScalingRules((ScalingPolicy("Pods", 1, 60),), None, 90)])
def test_looks_that_would_change_nothing_need_not_be_made(
    rules: ScalingRules | None, down: ScalingRules | None
) -> None:
    dice = random.Random(7)
    each, leaping = ReplicaLoop(rules, down), ReplicaLoop(rules, down)
    one = two = 10
    leaps = 0
    for minute in range(400):
        need = 20 + 10 * math.sin(minute / 20) + dice.choice((0, 0, 0, 3, -3))
        for at in range(60 * minute, 60 * minute + 60, 15):
            one = each.look(at, one, need / one, 3, 40)
        for at in range(60 * minute, 60 * minute + 60, 15):
            before, two = two, leaping.look(at, two, need / two, 3, 40)
            if before == two and leaping.stays(60 * minute + 45):
                leaps += 1
                break
        assert one == two
    assert leaps > 100

"""Fits against synthetic truth: right, or not told."""

from __future__ import annotations

import pytest
from synthetic import truth

from hpa_scaler.decide.suggest import fit_load, rounded_down, suggest
from hpa_scaler.decide.variants import Variant

TODAY = Variant("today", "today")


def right(seed: int) -> bool:
    """Whether the load of one replica is fitted within a tenth, or not told."""
    known = truth(seed)
    asked = known.past.yardstick
    assert asked is not None
    fit = fit_load(known.past, asked.queries[0], known.world.begin, known.world.end)
    return fit.per_replica is None or abs(fit.per_replica / known.per_replica - 1) <= 0.1


def test_the_load_of_a_replica_is_fitted_within_a_tenth_or_not_told() -> None:
    assert sum(map(right, range(20))) >= 19


@pytest.mark.slow
def test_two_hundred_seeds_are_fitted_within_a_tenth_or_not_told() -> None:
    assert sum(map(right, range(200))) >= 190


@pytest.mark.parametrize("seed", [3, 10])
def test_no_suggestion_is_short_of_replicas_where_today_is_not(seed: int) -> None:
    known = truth(seed, days=2)
    found = suggest(known.past, known.world, TODAY)
    if not found.advice:
        assert found.why
        return
    assert found.before is not None
    assert found.after is not None
    assert set(found.after.shorts) <= set(found.before.shorts)


def test_a_past_of_hours_tells_nothing() -> None:
    known = truth(3, days=1)
    asked = known.past.yardstick
    assert asked is not None
    fit = fit_load(known.past, asked.queries[0], known.world.begin, known.world.begin + 3 * 3600)
    assert fit.per_replica is None
    assert fit.sure == "can't tell"


@pytest.mark.parametrize(("value", "wanted"), [(336.7, 336.0), (0.12345, 0.123), (98765.0, 98700.0), (3.0, 3.0)])
def test_values_are_rounded_to_the_safe_side(value: float, wanted: float) -> None:
    assert rounded_down(value) == pytest.approx(wanted)
    assert rounded_down(value) <= value

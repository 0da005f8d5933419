"""Fits against synthetic truth: right, or not known."""

from __future__ import annotations

import msgspec
import pytest
from synthetic import truth

from hpa_scaler.annotations.parsing import ENABLE
from hpa_scaler.backtest.fit import LoadFit, fit_load, rounded_down, suggest
from hpa_scaler.backtest.replay import EVERY, TODAY, AnnotationChange, RecordedHpa, Variant, backtest
from hpa_scaler.prometheus.samples import Trace


def right(seed: int) -> bool:
    """Whether the load of one replica is fitted within a tenth, or not known."""
    known = truth(seed)
    asked = known.past.yardstick
    fit = fit_load(known.past, asked.queries[0], known.setup.begin, known.setup.end)
    return fit.per_replica is None or abs(fit.per_replica / known.per_replica - 1) <= 0.1


def test_the_load_of_a_replica_is_fitted_within_a_tenth_or_not_is_known() -> None:
    assert sum(map(right, range(20))) >= 19


@pytest.mark.slow
def test_two_hundred_seeds_are_fitted_within_a_tenth_or_not_is_known() -> None:
    assert sum(map(right, range(200))) >= 190


@pytest.mark.parametrize("seed", [3, 10])
def test_no_suggestion_is_short_of_replicas_where_today_is_not(seed: int) -> None:
    known = truth(seed, days=2)
    found = suggest(known.past, known.setup)
    asked = known.past.yardstick
    if found.per_replica is None:
        assert found.why
        return
    names = [(each.annotation.partition(f"{ENABLE}-")[2], each.value) for each in found.annotations]
    tried = Variant("tried", "changed", tuple(AnnotationChange(EVERY, name, text) for name, text in names))
    fitted = msgspec.structs.replace(asked.queries[0], per_replica=found.per_replica, delta=0.0)
    past = msgspec.structs.replace(known.past, yardstick=msgspec.structs.replace(asked, queries=(fitted,)))
    [[before, after]] = backtest([past], [TODAY, tried], known.setup)
    assert set(after.shorts) <= set(before.shorts)


def test_a_past_of_hours_tells_nothing() -> None:
    known = truth(3, days=1)
    asked = known.past.yardstick
    fit = fit_load(known.past, asked.queries[0], known.setup.begin, known.setup.begin + 3 * 3600)
    assert fit.per_replica is None
    assert fit.sure == "can't tell"


@pytest.mark.parametrize(("value", "wanted"), [(336.7, 336.0), (0.12345, 0.123), (98765.0, 98700.0), (3.0, 3.0)])
def test_values_are_rounded_to_the_safe_side(value: float, wanted: float) -> None:
    assert rounded_down(value) == pytest.approx(wanted)
    assert rounded_down(value) <= value


def fitted(seed: int, wanted: float = 1.0, several: float = 0.0) -> tuple[LoadFit, float]:
    """Return the fit and the truth, with *wanted* times what the metrics asked for, and *several* series of a part."""
    known = truth(seed)
    asked, metrics = known.past.yardstick, known.past.wanted
    assert metrics is not None
    counts = bytearray(
        2 if count and place < several * len(metrics.counts) else count for place, count in enumerate(metrics.counts)
    )
    metrics = Trace(metrics.begin, metrics.step, metrics.scaled(wanted).values, counts)
    past: RecordedHpa = msgspec.structs.replace(known.past, wanted=metrics)
    return fit_load(past, asked.queries[0], known.setup.begin, known.setup.end), known.per_replica


@pytest.mark.parametrize("seed", [0, 4, 9])
@pytest.mark.parametrize("wanted", [0.4, 0.556, 0.8, 1.25, 2.4])
def test_metrics_that_contradict_the_replicas_are_not_believed(seed: int, wanted: float) -> None:
    """Of metrics of one name, as of two containers, kube-state-metrics knows one: 36 for 20 was "sure"."""
    fit, per_replica = fitted(seed, wanted)
    assert fit.sure != "sure"
    assert fit.per_replica is None or abs(fit.per_replica / per_replica - 1) <= 0.1


@pytest.mark.parametrize(("several", "is_known"), [(0.0, True), (0.01, True), (0.3, False), (1.0, False)])
def test_the_records_of_two_clusters_tell_nothing(several: float, is_known: bool) -> None:
    """But those of a kube-state-metrics that was replaced, twice for a while, do."""
    fit, _ = fitted(0, several=several)
    assert (fit.per_replica is not None) is is_known
    assert is_known or "several HPAs of this name" in fit.why


def test_metrics_of_one_name_tell_nothing_where_no_replicas_prove_them() -> None:
    known = truth(0)
    asked = known.past.yardstick
    twins = msgspec.structs.replace(known.past.hpa, namesakes=True)
    past = msgspec.structs.replace(known.past, hpa=twins)
    ends = known.setup.begin, known.setup.end
    assert fit_load(past, asked.queries[0], *ends).sure == "sure"
    fit = fit_load(msgspec.structs.replace(past, replicas=None), asked.queries[0], *ends)
    assert (fit.per_replica, "have one name" in fit.why) == (None, True)

"""A floor goes up at once as far as the last day has known, and further once that is proved to be traffic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import msgspec
import pytest
from hpa_builder import CYCLE, NO_AGE, HpaCycles, answer, failure, hpa, judge, reasons, spec

from hpa_scaler.annotations.queries import Query
from hpa_scaler.annotations.spec import Rules
from hpa_scaler.judge.history import FloorHistory, State, decode_state, encode_state
from hpa_scaler.process.settings import load_settings
from tightship.process.settings.loading import SettingsError

LIMITED = Rules(age_query="")
ASKED = spec(prometheus_query="sum(rate(requests_total[5m]))", requests_per_replica="10")
GAUGE = spec(prometheus_query="requests", requests_per_replica="10")
WAIT = 300 + 2 * CYCLE
"""Until a sample is out of the range, and two cycles."""


def steady(asked: object = ASKED, *, floor: int = 20, maximum: int = 40, rules: Rules = LIMITED) -> HpaCycles:
    """An HPA whose traffic has needed *floor* replicas for half an hour."""
    assert isinstance(asked, type(ASKED))
    web = HpaCycles(hpa(floor, maximum, floor), asked, rules)
    for _ in range(24):
        web.cycle(floor * 10)
    return web


def follow(web: HpaCycles, answers: Iterable[float]) -> list[int]:
    """Return the floors that follow, the replicas with them."""
    floors = []
    for each in answers:
        web.cycle(each)
        web.set(replicas=web.bounds[0])
        floors.append(web.bounds[0])
    return floors


def test_one_bad_sample_raises_to_what_the_last_day_knew_times_the_factor_and_no_further() -> None:
    """False resets of a counter gave a floor of 96,296 and took maxReplicas along."""
    web = steady()
    floors = follow(web, [962_960.0] * 5 + [200.0] * 20)
    assert max(floors) == 60
    assert max(web.bounds) <= 40
    assert floors[-1] == 20
    small = steady(floor=10, maximum=40)
    follow(small, [100_000.0])
    assert small.bounds == (30, 40), "the maximum is not taken along"


def test_what_lasts_is_believed_once_no_sample_from_before_is_in_the_range() -> None:
    web = steady(maximum=400)
    floors = follow(web, [2000.0] * 8)
    waited = math.ceil(WAIT / CYCLE)
    assert floors == [60] * waited + [200] * (8 - waited)


def test_it_says_what_it_waits_for() -> None:
    decision = steady().cycle(2000.0)
    assert (decision.action, decision.target) == ("raise", 60)
    assert reasons(decision)[:2] == ["FollowsQuery", "SuddenRise"]
    assert decision.causes[1].detail == (
        "200 is wanted, and 20 was the most in the last day: 60 at once, and the rest once it has been wanted "
        "for 7m, at 2027-01-15T08:37:30Z (in 7m)"
    )


def test_a_rise_that_is_over_before_has_to_be_proved_anew() -> None:
    web = steady(maximum=400)
    floors = follow(web, ([2000.0] * 4 + [200.0]) * 6)
    assert max(floors) == 60


def test_steps_of_bad_data_do_not_add_up() -> None:
    """What we have set ourselves meanwhile is not known for that, nor are the replicas it has started."""
    web = steady(maximum=10_000)
    answers = [600.0 * 3**number for number in range(6)]
    assert max(follow(web, answers)) == 60


def test_what_was_wanted_this_morning_is_set_at_once_in_the_evening() -> None:
    web = steady(floor=100, maximum=200)
    for _ in range(8 * 48):
        web.cycle(100.0)
    web.set(replicas=web.bounds[0])
    assert web.bounds[0] == 10
    assert web.cycle(1000.0).target == 100


def test_what_was_wanted_two_days_ago_is_not() -> None:
    web = steady(floor=10, maximum=200)
    follow(web, [1000.0] * 10)
    assert web.bounds[0] == 100
    follow(web, [100.0] * (48 * 48))
    assert web.cycle(1000.0).target == 30


def test_traffic_that_grows_by_two_thirds_in_minutes_is_followed_in_each_cycle() -> None:
    web = steady(maximum=2000)
    for number in range(60):
        rate = 200.0 * 1.7 ** (number * CYCLE / WAIT)
        web.cycle(rate)
        assert web.bounds[0] == math.ceil(rate / 10)


def test_a_small_floor_and_what_runs_already_are_not_limited() -> None:
    web = HpaCycles(hpa(1, 40, 1), ASKED, LIMITED)
    assert web.cycle(100.0).target == 10
    assert follow(web, [390.0])[-1] == 10
    web = steady()
    web.set(replicas=90)
    assert web.cycle(900.0).target == 90


def test_what_somebody_sets_themselves_is_known() -> None:
    web = steady(maximum=400)
    web.set(minimum=50)
    assert web.cycle(1500.0).target == 150
    lower = spec(prometheus_query="sum(rate(x[5m]))", requests_per_replica="10", minimum_replicas="100")
    assert steady(lower, floor=100, maximum=400).cycle(3000.0).target == 300


def test_a_query_without_a_range_takes_a_second_look_two_cycles_later() -> None:
    web = steady(GAUGE, maximum=400)
    assert follow(web, [2000.0] * 3) == [60, 60, 200]


def test_a_look_that_fails_proves_nothing_and_breaks_nothing() -> None:
    web = steady(maximum=400)
    web.cycle(2000.0)
    for _ in range(10):
        web.cycle(failure())
    assert web.bounds[0] == 60
    assert web.cycle(2000.0).target == 200


def test_a_failure_of_another_query_does_not_begin_the_wait_anew() -> None:
    two = spec(prometheus_query="sum(rate(x[5m]))", prometheus_query_2="sum(rate(y[5m]))", requests_per_replica="10")
    web = HpaCycles(hpa(20, 400, 20), two, LIMITED)
    other = Query("sum(rate(y[5m]))")
    for number in range(7):
        web.cycle(2000.0, others={other: failure() if number % 2 else answer(10.0)})
    assert web.bounds[0] == 200


def test_never_more_than_a_multiple_of_the_users_own_maximum() -> None:
    web = steady(floor=20, maximum=30)
    floors = follow(web, [2000.0] * 20)
    assert max(floors) == 90
    decision = web.cycle(2000.0)
    assert decision.target_maximum == 91
    word = next(cause for cause in decision.causes if cause.reason == "AtMaxReplicas")
    assert (word.detail, word.fix) == ("no floor is set above 3 times maxReplicas 30", "raise maxReplicas")


def test_factors_of_nothing_are_no_limit() -> None:
    free = msgspec.structs.replace(LIMITED, rise_factor=0, maximum_factor=0)
    assert steady(rules=free).cycle(962_960.0).target == 96_296


def test_a_factor_below_one_is_refused() -> None:
    assert load_settings({"suddenRiseFactor": 1.5, "maxReplicasFactor": 0}).rise_factor == 1.5
    with pytest.raises(SettingsError, match="suddenRiseFactor"):
        load_settings({"suddenRiseFactor": 0.5})


def test_it_is_remembered_over_a_restart() -> None:
    web = steady(floor=100, maximum=400)
    for _ in range(30):
        web.cycle(200.0)
    assert web.bounds[0] == 20
    written = State(history=web.history)
    web.history = decode_state(encode_state(written, ASKED, web.now)).history
    assert web.cycle(1500.0).target == 150


def test_after_a_time_without_a_judgement_a_rise_has_to_be_proved_anew() -> None:
    """Two bad samples hours apart, the second right after a restart, made a floor of 42 where 8 were needed."""
    web = steady(maximum=400)
    web.cycle(2000.0)
    web.now += 3600
    assert follow(web, [2000.0, 200.0]) == [60, 60]


def test_an_hpa_of_before_is_known_by_the_floor_that_it_has() -> None:
    old = FloorHistory(applied_min=100, original_min=3, evaluated=1_800_000_000.0 - CYCLE)
    assert judge(hpa(100, 400, 100), ASKED, 3000.0, history=old, rules=LIMITED).target == 300


def cost(web: HpaCycles, answers: list[float], move: Callable[[HpaCycles, float], int]) -> float:
    """Replica-hours above the need of 20."""
    return sum(move(web, each) - 20 for each in answers) * CYCLE / 3600


def test_a_bad_sample_is_over_once_it_has_left_the_range() -> None:
    """Its floor was kept for the lowering window as well: 2.5 times what it costs with the older controller."""
    for factor in (1.5, 2, 2.8, 10):
        floors = follow(steady(), [200.0 * factor] * 4 + [200.0] * 3)
        assert floors == [min(round(20 * factor), 60)] * 4 + [20] * 3


def test_the_window_still_has_the_floor_of_before_a_bad_sample() -> None:
    web = steady(floor=30)
    assert follow(web, [200.0] * 5 + [500.0] * 4 + [200.0] * 3)[-3:] == [30] * 3
    assert follow(web, [200.0] * 8)[-1] == 20


@pytest.mark.parametrize(("after", "floor"), [(150.0, 20), (140.0, 50), (270.0, 27), (290.0, 50)])
def test_a_bad_sample_leaves_what_was_there_before_it_or_nearly(after: float, floor: int) -> None:
    """Traffic may fall by a quarter meanwhile, or rise by a quarter of the jump from 20 to 50."""
    assert follow(steady(), [200.0] * 5 + [500.0] * 4 + [after] * 3)[-1] == floor


@pytest.mark.parametrize("text", ["sessions", "sum(rate(x[2m]))"])
def test_where_traffic_itself_may_rise_and_fall_within_a_cycle_the_window_keeps_its_floor(text: str) -> None:
    asked = spec(prometheus_query=text, requests_per_replica="10")
    assert follow(steady(asked), [500.0] * 3 + [200.0] * 3)[-1] == 50


def test_traffic_that_rises_and_whose_source_goes_away_is_no_bad_sample() -> None:
    rises, falls = [275.0, 350.0, 425.0, 500.0], [375.0, 250.0, 125.0, 0.0]
    assert follow(steady(), [*rises, *falls])[-1] == 50
    assert follow(steady(), [500.0] * 3 + falls)[-1] == 50
    assert follow(steady(), [500.0] * 4 + [0.0] * 3)[-1] == 50, "nothing is left, so nothing is as it was"


def test_a_jump_after_a_jump_and_one_that_lasts_are_no_bad_sample() -> None:
    assert follow(steady(), [300.0, 600.0, 600.0, 600.0, 300.0, 300.0])[-1] == 60
    assert follow(steady(), [500.0] * 6 + [200.0] * 3)[-1] == 50


def test_what_is_over_before_a_sample_can_have_left_the_range_is_no_bad_sample() -> None:
    """A counter that restarts twice takes traffic out of the answers before and after a true one."""
    assert follow(steady(), [250.0, 260.0, 170.0, 180.0, 180.0])[-1] == 26


def test_a_rise_of_one_or_two_replicas_is_no_bad_sample_since_it_can_not_be_told_whether_it_is_over() -> None:
    assert follow(steady(floor=4), [50.0, 40.0, 40.0, 30.0])[-1] == 5
    assert follow(steady(floor=4), [60.0, 50.0, 50.0, 40.0])[-1] == 6


def test_what_somebody_sets_while_a_bad_sample_lasts_stays_for_the_window() -> None:
    web = steady(maximum=100)
    follow(web, [500.0] * 2)
    web.set(minimum=55)
    assert follow(web, [500.0] * 2 + [200.0] * 3)[-1] == 55


@pytest.mark.parametrize("factor", [2, 3, 5, 10, 100, 1000])
def test_a_spike_of_one_scrape_costs_no_more_than_without_any_guard(factor: int) -> None:
    """The older controller raises to all of it, for as long as it is in the range; both HPAs then wait 5 minutes."""
    answers = [200.0 * factor] * 4 + [200.0] * 30

    def guarded(web: HpaCycles, each: float) -> int:
        return follow(web, [each])[0]

    def older(_: HpaCycles, each: float) -> int:
        return math.ceil(each / 10)

    spiked = cost(steady(maximum=100_000), answers, guarded)
    assert 0 < spiked <= cost(steady(), answers, older)


def test_rules_of_the_limit_are_those_of_the_settings() -> None:
    assert (NO_AGE.rise_factor, LIMITED.rise_factor, LIMITED.rise_pods, LIMITED.maximum_factor) == (0, 3, 10, 3)

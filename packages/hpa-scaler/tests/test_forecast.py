"""A forecast knows the morning of earlier days: when it raises a floor, and when there is none."""

from __future__ import annotations

import datetime
import logging
import math
from array import array
from typing import Any

import msgspec
import pytest
from hpa_builder import FREE, NOW, annotated, answer, hpa, judge, reasons, spec
from traffic import requests_of_1995

from hpa_scaler.annotations.outcome_file import decode_outcomes
from hpa_scaler.annotations.queries import Expected, Failure, Query, value_query
from hpa_scaler.annotations.spec import ForecastSpec, Rules
from hpa_scaler.backtest.files import smoothed
from hpa_scaler.backtest.replay import EVERY, TODAY, AnnotationChange, BacktestSetup, RecordedHpa, Variant, backtest
from hpa_scaler.forecast import forecasts_of_past
from hpa_scaler.forecast.reader import ForecastReader
from hpa_scaler.forecast.seasons import CELL, DAY, SeasonMemory
from hpa_scaler.judge.decision import Subject
from hpa_scaler.judge.decision_log import decision_line, replay
from hpa_scaler.judge.history import Floor, FloorHistory
from hpa_scaler.judge.judge import judge_one
from hpa_scaler.process.forecasts import offline
from hpa_scaler.prometheus.answers import Matrix
from hpa_scaler.prometheus.samples import Trace
from tightship.objects.reasons import Reason

DAILY = ForecastSpec("daily")
SIX = 6 * 3600.0
BEGIN = 100 * 7 * DAY
SOURCE = offline(forecasts_of_past)
ASKED = spec(prometheus_query="q", requests_per_replica="10", forecast="daily", query_range="0", lowering_window="10m")


def morning(at: float) -> float:
    """Traffic of 100 that doubles from six to seven o'clock, until eight in the evening."""
    hours = at % DAY / 3600
    return 100 * (1 + min(1.0, max(0.0, hours - 6))) if hours < 20 else 100.0


def memory(days: float, traffic: Any = morning, spec: ForecastSpec = DAILY) -> SeasonMemory:
    """What is known at the time ``BEGIN`` after so many *days* of traffic."""
    found = SeasonMemory(spec)
    for number in range(int(days * DAY / CELL), 0, -1):
        found.learn(BEGIN - number * CELL, traffic(BEGIN - number * CELL))
    return found


def expected_after(found: SeasonMemory, until: float, traffic: Any = morning, begin: float = 0.0) -> Expected:
    """Let traffic come from *begin* seconds after ``BEGIN`` on, looking at each cell as a controller does."""
    at = begin
    while at < until:
        found.expected(BEGIN + at)
        found.learn(BEGIN + at, traffic(BEGIN + at))
        at += CELL
    return found.expected(BEGIN + until)


def test_before_a_ramp_the_coming_maximum_is_expected_and_elsewhere_nothing() -> None:
    found = memory(7)
    expected = expected_after(found, SIX)
    assert expected.seasons == 7
    assert expected.value == pytest.approx(100 * (1 + 15 / 60), rel=0.05)
    assert expected_after(found, 12 * 3600.0, begin=SIX) == Expected(seasons=7)


def test_a_week_knows_its_own_days() -> None:
    def mondays(at: float) -> float:
        return morning(at) if at // DAY % 7 == 0 else 100.0

    weekly = ForecastSpec("weekly")
    assert (expected_after(memory(21, mondays, weekly), SIX, mondays).value or 0) > 110
    assert expected_after(memory(21, mondays), SIX, mondays).value is None
    assert expected_after(memory(21, mondays, weekly), DAY + SIX, mondays).value is None


@pytest.mark.parametrize("weeks", [2, 3, 4])
@pytest.mark.parametrize("strange", [1, 2])
def test_one_strange_day_moves_nothing(weeks: int, strange: int) -> None:
    def tested(at: float) -> float:
        """A flat rate, and one load test of an hour at six, so many weeks ago."""
        return 300.0 if 0 <= at - (BEGIN - strange * 7 * DAY + SIX) < 3600 else 100.0

    known = memory(7 * weeks + 1, tested, ForecastSpec("weekly"))
    found = expected_after(known, SIX, tested)
    assert (found.seasons, found.value) == (weeks, None)


def test_a_changed_level_is_noticed_at_once() -> None:
    def half(at: float) -> float:
        return morning(at) / 2

    assert expected_after(memory(7), SIX, half).value == pytest.approx(62.5, rel=0.05)


def test_a_holiday_ends_the_forecast_with_a_reason_and_the_next_morning_has_one_again() -> None:
    found = memory(7)

    def holiday(_: float) -> float:
        return 100.0

    dropped = expected_after(found, SIX + 1800, holiday)
    assert dropped.value is None
    assert "worse than none" in dropped.why
    assert (
        expected_after(found, DAY + SIX, lambda at: morning(at) if at > BEGIN + 86_400 else 100.0, SIX + 1800).value
        or 0
    ) > 110


def test_without_recent_answers_there_is_no_forecast() -> None:
    found = memory(7)
    assert found.expected(BEGIN + SIX).why == "no answers in the last 45m"


@pytest.mark.parametrize("days", [0, 0.125, 2])
def test_a_past_that_is_too_short_is_told(days: float) -> None:
    expected = expected_after(memory(days), SIX)
    assert expected.value is None
    assert "3 needed" in expected.why


def test_gaps_and_values_that_are_none_are_left_out() -> None:
    def holed(at: float) -> float:
        number = int(at // CELL)
        if number % 5 == 0:
            return (math.nan, math.inf, -5.0)[number % 3]
        return 0.0 if BEGIN - 3 * DAY <= at < BEGIN - 2 * DAY else morning(at)

    expected = expected_after(memory(7, holed), SIX)
    assert expected.seasons == 6
    assert expected.value == pytest.approx(125, rel=0.05)


def test_what_was_learned_late_or_out_of_order_gives_the_same_forecast() -> None:
    grown, read = memory(7), SeasonMemory(DAILY)
    expected = expected_after(grown, SIX)
    for number in range(int((7 * DAY + SIX) / CELL)):
        at = BEGIN + SIX - (number + 1) * CELL
        read.learn(at, morning(at))
    assert read.expected(BEGIN + SIX) == expected


def test_a_past_reads_back_from_a_trace_up_to_now_and_not_beyond() -> None:
    count = int(8 * DAY / CELL)
    values = array("d", [morning(BEGIN - 7 * DAY + number * CELL) for number in range(count)])
    trace = Trace(BEGIN - 7 * DAY, CELL, values, bytearray(b"\1" * count))
    found = SeasonMemory(DAILY)
    found.learn_trace(trace, BEGIN + SIX)
    assert found.expected(BEGIN + SIX) == expected_after(memory(7), SIX)


# What a floor makes of it.


def floor(value: float | None, rate: float = 50, minimum: int = 5, **more: Any) -> Any:
    given: dict[str, Any] = {"expected": (Expected(value, 7),), "history": FloorHistory(known=(Floor(int(NOW), 12),))}
    return judge(hpa(minimum, 50, minimum), ASKED, rate, **(given | more))


def test_a_forecast_raises_a_floor_and_says_so() -> None:
    decision = floor(120)
    assert decision.target == 12
    assert reasons(decision)[0] == "FollowsForecast"
    assert decision.causes[0].detail == "ceil(120/10) = 12: the most that is expected within 15m, by 7 earlier days"


def test_a_forecast_never_lowers_and_no_window_keeps_it() -> None:
    assert floor(20, rate=80, minimum=8).target == 8
    decision = floor(120)
    assert max(each.floor for each in decision.history.floors) == 5


def test_a_forecast_keeps_to_every_ceiling() -> None:
    assert floor(2000).target_maximum == 50
    assert floor(2000).target == 50
    assert floor(2000, rules=msgspec.structs.replace(FREE, rise_factor=2.0)).target == 24
    asked = {"forecast": "daily", "prometheus_query": "q", "requests_per_replica": "10", "query_range": "0"}
    for name, text, target in (
        ("maximum_replicas", "9", 9),
        ("scale_up_max_pods", "3", 8),
        ("paused_scale_up", "true", 5),
    ):
        assert judge(hpa(5, 50, 5), spec(**asked, **{name: text}), 50, expected=(Expected(120, 7),)).target == target


def test_a_forecast_that_is_missing_is_told_and_changes_nothing() -> None:
    decision = judge(hpa(5, 50, 5), ASKED, 50, expected=(Expected(why="too little"),))
    assert reasons(decision) == ["FollowsQuery", "ForecastUnused"]
    assert decision.target == 5


def test_a_log_and_a_file_of_outcomes_keep_forecasts() -> None:
    outcomes = {Query("q"): answer(50)}
    subject = Subject(
        hpa=hpa(5, 50, 5), asked=ASKED, outcomes=outcomes, expected=(Expected(120, 7),), now=NOW, rules=FREE
    )
    assert replay([decision_line("c", judge_one(subject))]).differences == ()
    forecast = {"query": "q", "season": "daily", "expected": {"value": 120, "seasons": 7}}
    file = msgspec.json.encode({"kind": "QueryOutcomes", "outcomes": [], "forecasts": [forecast]})
    found = decode_outcomes(file, "x")
    assert found.forecasts == subject.forecasts == {(Query("q"), DAILY): Expected(120, 7)}


# Over the past, and as the controller runs.


def test_over_the_past_the_replicas_are_there_before_the_ramp_and_the_cost_is_told() -> None:
    notes = {"prometheus_query": "q", "requests_per_replica": "10", "minimum_replicas": "1", "query_range": "60"}
    values = array("d", [4 * morning(minute * 60.0) ** 1.5 / 10 for minute in range(6 * 24 * 60)])
    asked = spec(**notes)
    thing = msgspec.structs.replace(hpa(1, 1000, None), annotations=annotated(**notes))
    past = RecordedHpa(
        thing, {value_query(asked.queries[0]): Trace(0.0, 60.0, values, bytearray(b"\1" * len(values)))}, asked
    )
    ahead = Variant("ahead", "changed", (AnnotationChange(EVERY, "forecast", "daily"),))
    setup = BacktestSetup(
        Rules(longest_gap=240.0), 5 * DAY + 4 * 3600, 5 * DAY + 9 * 3600, interval=60.0, start=600.0, forecasts=SOURCE
    )
    [[today, tried]] = backtest([past], [TODAY, ahead], setup)
    assert today.short > 600
    assert tried.short == 0
    assert tried.caution["forecast"] > 0 == today.caution["forecast"]


def test_a_week_of_august_has_half_the_short_minutes_in_the_morning() -> None:
    rates = requests_of_1995()
    asked = {"prometheus_query": "sum(rate(x[5m]))", "requests_per_replica": "2.5", "scale_down_max_ratio": "0.2"}
    values = array("d", [200 * rate for _, rate in rates])
    trace = smoothed(Trace(rates[0][0], 60.0, values, bytearray(b"\1" * len(values))), 900.0)
    thing = msgspec.structs.replace(hpa(3, 400, None), annotations=annotated(**asked))
    past = RecordedHpa(thing, {value_query(spec(**asked).queries[0]): trace}, spec(**asked))
    begin = datetime.datetime(1995, 8, 21, 4, tzinfo=datetime.UTC).timestamp()
    ahead = Variant("ahead", "changed", (AnnotationChange(EVERY, "forecast", "daily"),))
    setup = BacktestSetup(Rules(longest_gap=300.0), begin, begin + 5 * DAY, forecasts=SOURCE, drawn=0)
    [[today, tried]] = backtest([past], [TODAY, ahead], setup)
    mornings = [[at for at in each.shorts if 6 <= (at - begin) % DAY / 3600 < 11] for each in (today, tried)]
    assert 2 * len(mornings[1]) <= len(mornings[0])
    assert tried.replicas <= 1.03 * today.replicas


class _Server:
    """Answers ranges as it has them from *since* on, and counts the requests."""

    def __init__(self, since: float = -math.inf, *, fails: bool = False) -> None:
        self.since, self.fails, self.asked = since, fails, 0

    async def ask_range(self, query: Query, begin: float, end: float, step: float) -> Matrix | Failure:
        self.asked += 1
        if self.fails:
            return Failure(Reason.HTTP_ERROR, "HTTP 500")
        times = [begin + step * number for number in range(int((end - begin) / step) + 1)]
        return Matrix((tuple((at, morning(at)) for at in times if at >= self.since),))


async def _read(server: Any, now: float = BEGIN + SIX) -> tuple[ForecastReader, Expected]:
    reader = ForecastReader(server, logging.getLogger("test"), lambda: now)
    reader.want([(Query("q"), DAILY)])
    assert "still being read" in reader.expected(now)[Query("q"), DAILY].why
    await reader.read_next()
    return reader, reader.expected(now)[Query("q"), DAILY]


async def test_a_past_is_read_once_in_few_requests_and_kept_up_by_the_cycles() -> None:
    server = _Server()
    reader, expected = await _read(server)
    assert (expected.seasons, server.asked <= 4) == (14, True)
    asked = server.asked
    for number in range(20):
        now = BEGIN + SIX + number * CELL
        subject = Subject(
            hpa=hpa(5, 50, 5), asked=ASKED, outcomes={Query("q"): answer(morning(now))}, now=now, rules=FREE
        )
        reader.learn([judge_one(subject)])
    assert not await reader.read_next()
    assert server.asked == asked
    assert not reader.expected(BEGIN + SIX + 20 * CELL)[Query("q"), DAILY].why
    reader.want(())
    assert reader.expected(BEGIN + SIX) == {}


async def test_a_short_retention_and_a_server_that_fails_are_told() -> None:
    _, expected = await _read(_Server(since=BEGIN - 3600))
    assert "0 earlier days known" in expected.why
    reader, expected = await _read(_Server(fails=True))
    assert expected.why.startswith("the query's past could not be read")
    assert not await reader.read_next()

"""What is kept of an HPA over time: never more than it may be, always in order, and what really became of it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hpa_builder import CYCLE, NOW, HpaCycles, hpa, spec
from hypothesis import given
from hypothesis import strategies as st

from hpa_scaler.documents.timeline import Effect, Timeline, TimelineLimits, TimelineLog
from hpa_scaler.judge.decision import FloorDecision, Subject
from tightship.objects.reasons import Reason, Refusal

KEEP = TimelineLimits(points=24, seconds=3600.0, changes=5)
DAY = TimelineLimits(points=240, seconds=86_400.0, changes=20)


def decision(minimum: int, target: int, *reasons: Reason, maximum: int = 50) -> FloorDecision:
    return FloorDecision(
        subject=Subject(hpa=hpa(minimum, maximum), asked=None, now=NOW),
        target=target,
        target_maximum=maximum,
        causes=tuple(map(Refusal, reasons)) or (Refusal(Reason.FOLLOWS_QUERY),),
    )


def log(*added: tuple[float, FloorDecision, Effect], keep: TimelineLimits | None = None) -> Timeline:
    made = TimelineLog("shop/web", "Deployment/web", keep)
    for at, each, effect in added:
        made.add(at, each.minimum, each, effect)
    return made.timeline()


def moves(timeline: Timeline) -> list[tuple[float, int, int]]:
    return [(change.at, change.before, change.after) for change in timeline.changes]


Step = tuple[float, int, bool, int | None]
"""Seconds since the point before, the floor, whether a query failed, and the replicas."""

STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.floats(0.5, 2000),
        st.integers(1, 4),
        st.booleans(),
        st.one_of(st.none(), st.integers(0, 3)),
    ),
    max_size=150,
)


def walked(steps: Iterable[Step], keep: TimelineLimits | None) -> Iterable[tuple[float, Timeline]]:
    """The story after each step."""
    made, at, floor = TimelineLog("shop/web", "Deployment/web", keep), NOW, 1
    for seconds, after, fails, replicas in steps:
        at += seconds
        reasons = (Reason.TIMED_OUT,) if fails else (Reason.FOLLOWS_QUERY,)
        made.add(at, replicas, decision(floor, after, *reasons), "set")
        floor = after
        yield at, made.timeline()


@given(STEPS)
def test_it_is_bounded_ordered_and_ends_with_what_was_last(steps: list[Step]) -> None:
    begin = None
    for (_, floor, _, replicas), (at, timeline) in zip(steps, walked(steps, KEEP), strict=True):
        begin = at if begin is None else begin
        assert len(timeline.times) <= KEEP.points
        assert len(timeline.changes) <= KEEP.changes
        lengths = {
            len(each)
            for each in (timeline.times, timeline.traffic, timeline.floors, timeline.maxima, timeline.replicas)
        }
        assert lengths == {len(timeline.times)}
        assert list(timeline.times) == sorted(set(timeline.times))
        assert (timeline.times[-1], timeline.floors[-1], timeline.replicas[-1]) == (at, floor, replicas)
        assert timeline.times[0] == max(begin, at - KEEP.seconds)


def at_time(timeline: Timeline, at: float) -> tuple[int, int | None]:
    """What a picture of steps shows at a time."""
    number = max(number for number, each in enumerate(timeline.times) if each <= at)
    return timeline.floors[number], timeline.replicas[number]


@given(STEPS)
def test_without_a_bound_every_moment_is_as_it_was(steps: list[Step]) -> None:
    *_, (_, last) = [(0.0, None), *walked(steps, None)]
    at = NOW
    for seconds, floor, _, replicas in steps:
        at += seconds
        assert last is not None
        assert at_time(last, at) == (floor, replicas)


def test_points_that_say_nothing_new_take_no_room() -> None:
    same = decision(3, 3)
    timeline = log(*((NOW + CYCLE * number, same, "set") for number in range(100)), (NOW + 9000, decision(3, 5), "set"))
    assert timeline.times == (NOW, NOW + 99 * CYCLE, NOW + 9000)
    assert timeline.floors == (3, 3, 5)


def test_what_held_before_the_last_day_still_holds_at_its_beginning() -> None:
    cycles = range(2 * 1152)
    timeline = log(*((NOW + CYCLE * number, decision(3, 3), "set") for number in cycles), keep=DAY)
    assert timeline.times == (NOW + CYCLE * cycles[-1] - DAY.seconds, NOW + CYCLE * cycles[-1])


def test_of_a_day_the_last_hour_is_kept_whole_and_the_rest_evenly() -> None:
    """With a floor that moves in every cycle too, though there is no room for all of its changes."""
    cycles = range(2000)
    timeline = log(*((NOW + CYCLE * each, decision(3 + each % 2, 4 - each % 2), "set") for each in cycles), keep=DAY)
    apart = [after - before for before, after in zip(timeline.times, timeline.times[1:], strict=False)]
    assert max(apart) <= 4 * DAY.seconds / DAY.points
    assert set(apart[-48:]) == {CYCLE}


def test_where_a_bound_moved_or_answers_ceased_a_point_stays_as_long_as_there_is_room() -> None:
    made = TimelineLog("shop/web", "Deployment/web", DAY)
    for number in range(1100):
        at, floor = NOW + CYCLE * number, 3 if number < 500 else 8
        reason = Reason.TIMED_OUT if 700 <= number < 705 else Reason.FOLLOWS_QUERY
        # Replicas that change in every cycle, so that no point is like the next.
        made.add(at, number % 7, decision(3 if number == 500 else floor, floor, reason), "set")
    timeline = made.timeline()
    assert timeline.times[timeline.floors.index(8)] == NOW + CYCLE * 500
    assert len(timeline.times) <= DAY.points


def test_what_was_not_written_did_not_become_of_it() -> None:
    refused = decision(3, 8, Reason.WRITE_REFUSED)
    timeline = log((NOW, decision(3, 3), "set"), (NOW + 60, refused, "left"), (NOW + 120, decision(3, 8), "set"))
    assert timeline.floors == (3, 3, 8)
    assert moves(timeline) == [(NOW + 120, 3, 8)]


def test_a_write_that_nobody_heard_of_is_told_when_the_hpa_shows_it() -> None:
    timeline = log((NOW, decision(3, 8), "left"), (NOW + 60, decision(8, 8), "set"))
    assert timeline.floors == (3, 8)
    assert moves(timeline) == [(NOW + 60, 3, 8)]


def test_a_dry_run_tells_what_would_be_and_each_wish_once() -> None:
    timeline = log(*((NOW + 60 * number, decision(3, target), "would") for number, target in enumerate((8, 8, 6, 3))))
    assert timeline.dry
    assert timeline.floors == (8, 8, 6, 3)
    assert moves(timeline) == [(NOW, 3, 8), (NOW + 120, 8, 6), (NOW + 180, 6, 3)]


def test_what_others_set_is_a_change_and_so_is_setting_it_back() -> None:
    others = Reason.CHANGED_BY_OTHERS
    timeline = log(
        (NOW, decision(3, 8), "set"),
        (NOW + 60, decision(5, 5, others), "set"),
        (NOW + 120, decision(5, 8), "set"),
        (NOW + 180, decision(5, 8, Reason.FOLLOWS_QUERY, others), "set"),
    )
    assert moves(timeline) == [(NOW, 3, 8), (NOW + 60, 8, 5), (NOW + 120, 5, 8), (NOW + 180, 5, 8)]


def test_judged_again_at_the_same_time_or_after_a_clock_was_set_back_the_later_judgement_counts() -> None:
    timeline = log((NOW, decision(3, 8), "set"), (NOW + 60, decision(8, 9), "set"), (NOW + 60, decision(5, 9), "set"))
    assert (timeline.times, timeline.floors) == ((NOW, NOW + 60), (8, 9))
    assert moves(timeline) == [(NOW, 3, 8), (NOW + 60, 5, 9)]
    back = log((NOW, decision(3, 8), "set"), (NOW + 600, decision(8, 9), "set"), (NOW + 60, decision(9, 7), "set"))
    assert (back.times, back.floors) == ((NOW, NOW + 60), (8, 7))
    assert [change.after for change in back.changes] == [8, 7]


@pytest.mark.parametrize(("rate", "asked"), [(72, 7.2), (None, None), ("NaN", None)])
def test_traffic_is_what_the_queries_ask_for(rate: float | str | None, asked: float | None) -> None:
    web = HpaCycles(hpa(3), spec(prometheus_query="q", requests_per_replica="10"))
    made = TimelineLog("shop/web", "Deployment/web")
    made.add(web.now, web.hpa.current_replicas, web.cycle(rate), "set")
    [traffic] = made.timeline().traffic
    assert (traffic is None) == (asked is None)
    assert traffic is None or asked is None or math.isclose(traffic, asked, rel_tol=1e-6)


def test_a_story_is_told_up_to_a_time() -> None:
    made = TimelineLog("shop/web", "Deployment/web")
    for number, target in enumerate((4, 5, 6)):
        made.add(NOW + 60 * number, None, decision(target - 1, target), "set")
    timeline = made.timeline(NOW + 60)
    assert (timeline.times, timeline.floors, timeline.replicas) == ((NOW, NOW + 60), (4, 5), (None, None))
    assert [change.after for change in timeline.changes] == [4, 5]

"""When work may begin: weekdays and times, cron, freezes, and both changes of daylight saving."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tightship.rules.windows import (
    HORIZON,
    Span,
    WindowError,
    Windows,
    parse_window,
    scheduled,
    shown,
    window_check,
)

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = "UTC", *, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def allow(*texts: str, zone: str = "UTC") -> Windows:
    return Windows(allow=tuple(map(parse_window, texts)), zone=zone)


def deny(*texts: str, zone: str = "UTC") -> Windows:
    return Windows(deny=tuple(map(parse_window, texts)), zone=zone)


@pytest.mark.parametrize(
    ("text", "moment", "is_open"),
    [
        ("Mon-Fri 20:00-06:00", "2026-11-27T19:59", False),  # a Friday
        ("Mon-Fri 20:00-06:00", "2026-11-27T20:00", True),
        ("Mon-Fri 20:00-06:00", "2026-11-28T05:59", True),  # the night that began on Friday
        ("Mon-Fri 20:00-06:00", "2026-11-28T06:00", False),
        ("Mon-Fri 20:00-06:00", "2026-11-28T20:30", False),
        ("Mon-Fri 20:00-06:00", "2026-11-30T05:00", False),  # the night that began on Sunday
        ("Sat,Sun", "2026-11-28T00:00", True),
        ("Sat,Sun", "2026-11-29T23:59", True),
        ("Sat,Sun", "2026-11-30T00:00", False),
        ("22:00-24:00", "2026-11-28T23:59", True),
        ("22:00-24:00", "2026-11-29T00:00", False),
        ("Fri-Mon", "2026-11-30T12:00", True),
        ("Fri-Mon", "2026-12-01T12:00", False),
        ("mon,wed-fri 09:00-17:00", "2026-12-02T09:00", True),
        ("mon,wed-fri 09:00-17:00", "2026-12-01T09:00", False),
        ("Mon-Fri 9:00-17:00", "2026-12-01T09:00", True),
    ],
)
def test_a_window_is_open_from_its_beginning_until_its_end(text: str, moment: str, is_open: bool) -> None:
    assert allow(text).state(at(moment)).open is is_open
    assert deny(text).state(at(moment)).open is not is_open


@pytest.mark.parametrize(
    ("windows", "moment", "change"),
    [
        (allow("Mon-Fri 20:00-06:00"), "2026-11-28T06:00", "2026-11-30T20:00"),
        (allow("Mon-Fri 20:00-06:00"), "2026-11-27T21:00", "2026-11-28T06:00"),
        (allow("Mon 20:00-21:00", "Mon 21:00-22:00"), "2026-11-30T20:30", "2026-11-30T22:00"),
        (deny("Mon-Fri 09:00-17:00"), "2026-11-27T12:00", "2026-11-27T17:00"),
        (deny("Mon-Fri 09:00-17:00"), "2026-11-27T17:00", "2026-11-30T09:00"),
    ],
)
def test_the_next_change_is_known(windows: Windows, moment: str, change: str) -> None:
    assert windows.state(at(moment)).until == at(change)


def test_without_windows_work_may_begin_at_any_time() -> None:
    assert (Windows().state(0.0).open, Windows().state(0.0).until) == (True, None)


def test_a_denied_window_closes_an_allowed_one() -> None:
    windows = Windows(allow=(parse_window("Mon-Fri"),), deny=(parse_window("12:00-13:00"),))
    assert windows.state(at("2026-11-27T12:30")).until == at("2026-11-27T13:00")
    check = window_check(windows, at("2026-11-27T12:30"))
    assert check.detail == "12:00-13:00 is denied; a window opens at Fri 2026-11-27 13:00 +00:00, in 30m"
    assert not check.open


def test_the_hour_that_is_missing_opens_a_window_at_the_change() -> None:
    # In Berlin 2026-03-29 goes from 02:00 to 03:00.
    change = at("2026-03-29T01:00")
    windows = allow("02:30-05:00", zone=BERLIN)
    assert windows.state(change - 60).until == change
    assert windows.state(change).until == at("2026-03-29T03:00")
    assert allow("01:00-02:30", zone=BERLIN).state(change - 60).until == change
    night = allow("Sat 22:00-06:00", zone=BERLIN)
    assert night.state(change).until == at("2026-03-29T04:00")


def test_a_window_within_the_missing_hour_does_not_open_that_day() -> None:
    state = allow("02:10-02:50", zone=BERLIN).state(at("2026-03-29T00:30"))
    assert state.until == at("2026-03-30T02:10", BERLIN)


def test_of_an_hour_that_comes_twice_an_allowed_window_has_the_first() -> None:
    # In Berlin 2026-10-25 goes from 03:00 back to 02:00.
    windows = allow("02:00-02:30", zone=BERLIN)
    assert windows.state(at("2026-10-25T02:10", BERLIN)).until == at("2026-10-25T02:30", BERLIN)
    assert not windows.state(at("2026-10-25T02:10", BERLIN, fold=1)).open
    night = allow("22:00-06:00", zone=BERLIN)
    assert night.state(at("2026-10-25T02:10", BERLIN, fold=1)).until == at("2026-10-25T06:00", BERLIN)


def test_of_an_hour_that_comes_twice_a_denied_window_has_both() -> None:
    windows = deny("02:00-02:30", zone=BERLIN)
    for fold in (0, 1):
        assert not windows.state(at("2026-10-25T02:10", BERLIN, fold=fold)).open
    assert windows.state(at("2026-10-25T02:10", BERLIN)).until == at("2026-10-25T02:30", BERLIN, fold=1)


def test_a_denied_schedule_in_an_hour_that_comes_twice_begins_twice() -> None:
    # As robfig/cron has it (spec_test.go, "1am nightly job (runs twice)").
    windows = Windows(deny=(scheduled("0 2 * * *", 1800.0),), zone=BERLIN)
    for fold in (0, 1):
        assert not windows.state(at("2026-10-25T02:10", BERLIN, fold=fold)).open
    allowed = Windows(allow=(scheduled("0 2 * * *", 1800.0),), zone=BERLIN)
    assert [allowed.state(at("2026-10-25T02:10", BERLIN, fold=fold)).open for fold in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("zone", "moment", "is_open"),
    [
        ("US/Pacific", "2026-11-30T09:30", True),  # an alias, of which tzdata still has a file
        ("Asia/Calcutta", "2026-11-30T09:30", True),
        ("Pacific/Apia", "2011-12-29T20:30", False),
        ("Pacific/Apia", "2011-12-31T09:30", False),  # after a Thursday: the island had no Friday that week
    ],
)
def test_a_window_is_one_of_its_zone(zone: str, moment: str, *, is_open: bool) -> None:
    assert allow("Mon,Fri 9:00-17:00", zone=zone).state(at(moment, zone)).open is is_open


def test_a_change_of_half_an_hour_counts_as_well() -> None:
    # On Lord Howe Island 2026-10-04 goes from 02:00 to 02:30.
    state = allow("02:15-04:00", zone="Australia/Lord_Howe").state(at("2026-10-03T15:00"))
    assert state.until == at("2026-10-03T15:30")


@pytest.mark.parametrize(
    ("text", "zone", "moment", "change"),
    [
        # The hour that Sydney skips is no window, the one that comes twice is one from its first beginning to 03:00.
        ("Sun 02:00-03:00", "Australia/Sydney", "2026-10-03T00:00", "2026-10-10T15:00"),
        ("Sun 02:00-03:00", "Australia/Sydney", "2026-04-04T15:30", "2026-04-04T17:00"),
        # Santiago skips the first hour of a day.
        ("Sun 00:00-01:30", "America/Santiago", "2026-09-06T03:00", "2026-09-06T04:00"),
        # A day of 25 hours.
        ("Sun 00:00-24:00", "Europe/Lisbon", "2026-10-25T00:00", "2026-10-26T00:00"),
    ],
)
def test_changes_of_the_southern_hemisphere_and_at_midnight_count(
    text: str, zone: str, moment: str, change: str
) -> None:
    assert allow(text, zone=zone).state(at(moment)).until == at(change)


def test_a_schedule_opens_for_its_duration() -> None:
    windows = Windows(allow=(scheduled("30 22 * * 5", 7 * 3600.0),), zone=BERLIN)
    assert windows.state(at("2026-11-27T22:29", BERLIN)).until == at("2026-11-27T22:30", BERLIN)
    assert windows.state(at("2026-11-28T05:29", BERLIN)).until == at("2026-11-28T05:30", BERLIN)


def test_a_schedule_in_the_missing_hour_opens_at_the_change() -> None:
    windows = Windows(allow=(scheduled("30 2 * * *", 3600.0),), zone=BERLIN)
    assert windows.state(at("2026-03-29T00:30")).until == at("2026-03-29T01:00")


def test_an_event_of_the_calendar_closes_every_window() -> None:
    freeze = (Span(at("2026-11-27T00:00"), at("2026-12-01T00:00"), "Black Friday"),)
    windows = Windows(allow=(parse_window("Mon-Fri 20:00-06:00"),), freeze=freeze)
    state = windows.state(at("2026-11-27T21:00"))
    assert (state.open, state.until) == (False, at("2026-12-01T00:00"))
    assert state.because == "Black Friday is denied"


def test_windows_that_never_open_are_found() -> None:
    never = Windows(allow=(parse_window("Mon"),), deny=(parse_window("Sun-Tue"),))
    assert never.state(at("2026-11-27T00:00"), HORIZON).until is None
    assert not never.state(at("2026-11-27T00:00"), HORIZON).open
    yearly = Windows(allow=(scheduled("0 0 1 11 *", 3600.0),))
    assert yearly.state(at("2026-11-27T00:00"), HORIZON).until == at("2027-11-01T00:00")


def test_no_opening_is_seen_where_the_days_that_were_looked_at_end() -> None:
    """Each pair leaves an hour of two days only if the spans of the next day are left out."""
    never = Windows(
        allow=tuple(map(parse_window, ("Thu,Sat 06:00-02:45", "Wed-Sat 18:00-10:00"))),
        deny=tuple(map(parse_window, ("Wed-Mon 05:30-03:00", "18:15-07:15"))),
        zone="Asia/Kolkata",
    )
    for horizon in (2 * 86400.0, 62 * 86400.0, HORIZON):
        state = never.state(at("2027-01-25T19:55"), horizon)
        assert (state.open, state.until) == (False, None)
    late = Windows(
        allow=tuple(map(parse_window, ("19:00-17:15", "Fri-Sat 18:45-23:15"))),
        deny=tuple(map(parse_window, ("05:15-12:30", "Fri,Mon 10:15-18:45"))),
        zone="Asia/Kolkata",
        freeze=(Span(1805298860.0, 1805403394.0), Span(1805193954.0, 1805532993.0), Span(1805423925.0, 1805593412.0)),
    )
    state = late.state(1805311831.0)
    assert state.until is not None
    assert late.state(state.until).open


@pytest.mark.parametrize(
    "text",
    ["", "Mon-Fry 20:00-06:00", "Mon 25:00-26:00", "Mon 20:00", "20:00-20:00", "Mon--Fri", "24:00-02:00", "00:60-02:00",
     "Mo-Fr 20:00-06:00", "20:00 - 06:00 Mon"],
)  # fmt: skip
def test_what_is_no_window_is_refused_by_name(text: str) -> None:
    with pytest.raises(WindowError) as error:
        parse_window(text)
    assert f'"{text}"' in str(error.value).replace("'", '"')


@pytest.mark.parametrize(
    ("schedule", "duration"), [("0 20 * *", 3600.0), ("0 20 * * 8", 3600.0), ("@daily", 40 * 86400.0)]
)
def test_a_schedule_that_is_none_is_refused(schedule: str, duration: float) -> None:
    with pytest.raises(WindowError):
        scheduled(schedule, duration)


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ("0 20 * * 7", "7 is no day of the week from 0 to 6; Sunday is 0"),
        ("0 20 L * *", "'L' is no day of the month; allowed are numbers, *, lists, ranges and steps"),
        ("0 20 * * mon#1", "'mon#1' is no day of the week; allowed are numbers, sun to sat, *, lists"),
        ("0 20 * january *", "'january' is no month; allowed are numbers, jan to dec, *"),
        ("0_1 * * * *", "'0_1' is no minute"),
        ("*/x * * * *", "'x' is no step"),
        ("CRON_TZ=Europe/Berlin 0 20 * * 1-5", "the key timeZone names the zone"),
    ],
)
def test_what_other_dialects_of_cron_have_is_told_with_what_is_allowed(schedule: str, says: str) -> None:
    with pytest.raises(WindowError) as error:
        scheduled(schedule, 3600.0)
    assert says in str(error.value)


def test_times_are_shown_in_their_zone() -> None:
    assert shown(at("2026-11-30T20:00", BERLIN), BERLIN) == "Mon 2026-11-30 20:00 +01:00"

"""Freeze calendars as calendars of teams are: recurring, moved, cancelled, whole days, broken."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tightship.process.settings.calendars import CalendarError, freeze_spans
from tightship.rules.windows import Span

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


NOW = at("2026-11-20T00:00")


def calendar(*events: str) -> str:
    body = "".join(
        f"BEGIN:VEVENT\nUID:{number}\nDTSTAMP:20260101T000000Z\n{each}\nEND:VEVENT\n"
        for number, each in enumerate(events)
    )
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//a//b//EN\n{body}END:VCALENDAR\n"


def spans(*events: str) -> tuple[Span, ...]:
    return freeze_spans(calendar(*events), "Europe/Berlin", NOW)


def test_a_whole_day_is_a_day_of_the_zone_and_its_end_is_excluded() -> None:
    found = spans("DTSTART;VALUE=DATE:20261127\nDTEND;VALUE=DATE:20261201\nSUMMARY:Black Friday")
    assert found == (Span(at("2026-11-27T00:00"), at("2026-12-01T00:00"), "Black Friday"),)


def test_a_day_without_an_end_is_that_day() -> None:
    found = spans("DTSTART;VALUE=DATE:20261224\nSUMMARY:Christmas Eve")
    assert found == (Span(at("2026-12-24T00:00"), at("2026-12-25T00:00"), "Christmas Eve"),)


def test_recurring_events_come_as_often_as_they_say_less_those_excluded() -> None:
    weekly = (
        "DTSTART;TZID=Europe/Berlin:20261005T090000\nDURATION:PT2H\nRRULE:FREQ=WEEKLY;BYDAY=MO;UNTIL=20261215T000000Z\n"
        "EXDATE;TZID=Europe/Berlin:20261130T090000\nSUMMARY:Release"
    )
    assert [each.begin for each in spans(weekly)] == [
        at("2026-11-23T09:00"), at("2026-12-07T09:00"), at("2026-12-14T09:00")
    ]  # fmt: skip


def test_one_repetition_may_be_moved() -> None:
    text = (
        "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\n"
        "BEGIN:VEVENT\nUID:1\nDTSTAMP:20260101T000000Z\nDTSTART;TZID=Europe/Berlin:20261123T090000\nDURATION:PT1H\n"
        "RRULE:FREQ=WEEKLY;COUNT=2\nSUMMARY:Release\nEND:VEVENT\n"
        "BEGIN:VEVENT\nUID:1\nDTSTAMP:20260101T000000Z\nRECURRENCE-ID;TZID=Europe/Berlin:20261130T090000\nDTSTART:20261201T120000Z\n"
        "DURATION:PT1H\nSUMMARY:Release\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    found = freeze_spans(text, "Europe/Berlin", NOW)
    assert [each.begin for each in found] == [at("2026-11-23T09:00"), at("2026-12-01T13:00")]


def test_a_zone_of_the_calendar_itself_counts() -> None:
    zone = (
        "BEGIN:VTIMEZONE\nTZID:W. Europe Standard Time\nBEGIN:STANDARD\nDTSTART:16010101T030000\nTZOFFSETFROM:+0200\n"
        "TZOFFSETTO:+0100\nRRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10\nEND:STANDARD\nBEGIN:DAYLIGHT\n"
        "DTSTART:16010101T020000\nTZOFFSETFROM:+0100\nTZOFFSETTO:+0200\nRRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3\n"
        "END:DAYLIGHT\nEND:VTIMEZONE\n"
    )
    event = (
        "DTSTART;TZID=W. Europe Standard Time:20261129T100000\nDTEND;TZID=W. Europe Standard Time:20261129T110000\n"
        "SUMMARY:From Outlook"
    )
    text = calendar(event).replace("BEGIN:VEVENT", zone + "BEGIN:VEVENT", 1)
    found = freeze_spans(text, "America/New_York", NOW)
    assert found == (Span(at("2026-11-29T10:00"), at("2026-11-29T11:00"), "From Outlook"),)


def test_a_cancelled_event_does_not_count_and_a_free_one_does() -> None:
    day = "DTSTART;VALUE=DATE:20261224\nSUMMARY:{}\n{}"
    found = spans(day.format("off", "STATUS:CANCELLED"), day.format("holiday", "TRANSP:TRANSPARENT"))
    assert [each.name for each in found] == ["holiday"]


def test_an_event_under_way_counts() -> None:
    assert len(spans("DTSTART;VALUE=DATE:20261101\nDTEND;VALUE=DATE:20261121\nSUMMARY:Freeze")) == 1
    assert spans("DTSTART;VALUE=DATE:20261101\nDTEND;VALUE=DATE:20261120\nSUMMARY:Over") == ()


DAY = "DTSTART;VALUE=DATE:20261224"
WEEKLY = "DTSTART;TZID={}:20261123T090000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;{}\nSUMMARY:Release"

DAILY = "DTSTART;TZID=Europe/Berlin:20261123T090000\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=3"
THREE = ["2026-11-23T09:00", "2026-11-24T09:00", "2026-11-25T09:00"]
MONTHLY = "DTSTART;TZID=Europe/Berlin:20261020T190000\nDURATION:PT3H\nRRULE:FREQ=MONTHLY;UNTIL=20270131;{}"

OF_OTHERS = (
    "DTSTART:20261123T080000Z\nDTEND:20261123T090000Z\nORGANIZER;CN=Sixt SE\nRELATED-TO:1\n"
    "X-APPLE-STRUCTURED-LOCATION;X-ADDRESS=4041 Linz;X-APPLE-RADIUS=49.9:geo:1,2\n"
    "BEGIN:VALARM\nX-WR-ALARMUID:1\nEND:VALARM"
)
PERIODS = (
    "DTSTART:20261123T080000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=1\n"
    "RDATE;VALUE=PERIOD:20261125T080000Z/PT3H,20261126T080000Z/20261126T090000Z"
)


@pytest.mark.parametrize(
    ("event", "begins"),
    [
        # Exchange and Google end repetitions by date or by local time; the library wants UTC.
        (WEEKLY.format("Europe/Berlin", "UNTIL=20261130"), ["2026-11-23T09:00", "2026-11-30T09:00"]),
        (WEEKLY.format("Europe/Berlin", "UNTIL=20261130T090000"), ["2026-11-23T09:00", "2026-11-30T09:00"]),
        (WEEKLY.format("Europe/Berlin", "COUNT=2; BYDAY=MO, TU"), ["2026-11-23T09:00", "2026-11-24T09:00"]),
        # Zones as Outlook, Evolution and Mozilla call them, without a definition beside them.
        (WEEKLY.format("W. Europe Standard Time", "COUNT=1"), ["2026-11-23T09:00"]),
        (WEEKLY.format('"Eastern Standard Time"', "COUNT=1"), ["2026-11-23T15:00"]),
        (WEEKLY.format("/freeassociation.sourceforge.net/Europe/Berlin", "COUNT=1"), ["2026-11-23T09:00"]),
        (WEEKLY.format("/mozilla.org/20070129_1/America/New_York", "COUNT=1"), ["2026-11-23T15:00"]),
        ("DTSTART:20261123T090000\nDTEND:20261123T100000", ["2026-11-23T09:00"]),
        ("DTSTART:20261123T090000\nDTEND:20261123T100000\nDURATION:PT1H\nSTATUS:Confirmed", ["2026-11-23T09:00"]),
        # Apple, Exchange and CalDAV servers add what the library can't read.
        (
            OF_OTHERS,
            ["2026-11-23T09:00"],
        ),
        # Dates beside repetitions, and times that are added as periods.
        (
            "DTSTART;TZID=Europe/Berlin:20261123T090000\nDURATION:PT1H\nRDATE;TZID=Europe/Berlin:20261125T090000",
            ["2026-11-23T09:00", "2026-11-25T09:00"],
        ),
        (
            PERIODS,
            ["2026-11-23T09:00", "2026-11-25T09:00", "2026-11-26T09:00"],
        ),
        # A day that ends on itself, as many exporters write it; one in a gap of daylight saving.
        ("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261224", ["2026-12-24T00:00"]),
        (
            "DTSTART;TZID=Europe/Berlin:20270328T021500\nDTEND;TZID=Europe/Berlin:20270328T030000",
            ["2027-03-28T03:15"],
        ),
        # Excluded and added times without the zone of their series, or in another (icalendar-recurrence#24).
        (f"{DAILY}\nEXDATE:20261124T090000", ["2026-11-23T09:00", "2026-11-25T09:00"]),
        (f"{DAILY}\nEXDATE:20261124T080000Z", ["2026-11-23T09:00", "2026-11-25T09:00"]),
        (f"{DAILY}\nEXDATE;TZID=America/New_York:20261124T030000", ["2026-11-23T09:00", "2026-11-25T09:00"]),
        ("DTSTART:20261123T090000\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=2\nEXDATE:20261124T080000Z", THREE[:1]),
        (f"{DAILY}\nEXDATE;VALUE=DATE:20261124", ["2026-11-23T09:00", "2026-11-25T09:00"]),
        (f"{DAILY}\nRDATE:20261127T090000", [*THREE, "2026-11-27T09:00"]),
        ("DTSTART:20261123T080000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=2\nEXDATE:20261124T080000", THREE[:1]),
        ("DTSTART;VALUE=DATE:20261123\nRDATE;VALUE=DATE:20261127", ["2026-11-23T00:00", "2026-11-27T00:00"]),
        # Rules in the words of others.
        (DAILY.replace("FREQ=DAILY;COUNT", "freq=daily;count"), THREE),
        (f"{DAILY};", THREE),
        (f"{DAILY};UNTIL=99991231T235959Z".replace(";COUNT=3", ";BYMONTH=12;BYMONTHDAY=7"), ["2026-12-07T09:00"]),
        (MONTHLY.format("BYDAY=TU;BYSETPOS=3"), ["2026-12-15T19:00", "2027-01-19T19:00"]),
        (MONTHLY.format("BYDAY=TH,FR;BYSETPOS=-1"), ["2026-11-27T19:00", "2026-12-31T19:00", "2027-01-29T19:00"]),
        (MONTHLY.format("BYMONTHDAY=-1"), ["2026-11-30T19:00", "2026-12-31T19:00", "2027-01-31T19:00"]),
        (MONTHLY.format("BYMONTHDAY=31"), ["2026-12-31T19:00", "2027-01-31T19:00"]),
        (MONTHLY.format("BYDAY=5MO"), ["2026-11-30T19:00"]),
        # A time that a zone skips comes at the change; those after the change keep their time of day.
        (
            "DTSTART;TZID=Europe/Berlin:20270321T020000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=3",
            ["2027-03-21T02:00", "2027-03-28T03:00", "2027-04-04T02:00"],
        ),
        ("DTSTART:20261024T080000Z\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=5", ["2026-11-21T09:00"]),
        # Never over, as Exchange says it; words of others; folded lines that look like others.
        ("DTSTART:20261224T100000Z\nDTEND:99991231T235959Z", ["2026-12-24T11:00"]),
        (f"{DAY}\nSTATUS:BUSY", ["2026-12-24T00:00"]),
        (f"{DAY}\nDESCRIPTION:x\n BEGIN:VEVENT", ["2026-12-24T00:00"]),
        (f"{DAY}\nSEQUENCE:x\nGEO:1", ["2026-12-24T00:00"]),
        ("dtstart;value=date:20261224", ["2026-12-24T00:00"]),
        ('DTSTART;TZID="tzone://Microsoft/Utc":20261224T100000\nDURATION:PT1H', ["2026-12-24T11:00"]),
        ("DTSTART;TZID=Europe/Berlin:20261224T100000\nDTEND;TZID=Asia/Tokyo:20261224T190000", ["2026-12-24T10:00"]),
        # What no longer matters keeps no calendar away.
        ("DTSTART:20201224T100000Z\nSUMMARY:Reminder", []),
        ("DTSTART:20261224T100000Z\nSTATUS:CANCELLED", []),
    ],
)  # fmt: skip
def test_calendars_are_as_others_write_them(event: str, begins: list[str]) -> None:
    assert [each.begin for each in spans(event)] == list(map(at, begins))


@pytest.mark.parametrize(
    ("event", "end"),
    [
        # Hours pass, days are those of a calendar (RFC 5545, section 3.3.6).
        ("DTSTART;TZID=Europe/Berlin:20270328T000000\nDURATION:PT6H", "2027-03-28T07:00"),
        ("DTSTART;TZID=Europe/Berlin:20271031T000000\nDURATION:PT6H", "2027-10-31T05:00"),
        ("DTSTART;TZID=Europe/Berlin:20270328T000000\nDURATION:P1D", "2027-03-29T00:00"),
        ("DTSTART;TZID=Europe/Berlin:20270327T120000\nDURATION:P1DT6H", "2027-03-28T18:00"),
        ("DTSTART;TZID=Europe/Berlin:20270328T000000\nDTEND;TZID=Europe/Berlin:20270328T060000", "2027-03-28T06:00"),
        ("DTSTART;VALUE=DATE:20261224\nDURATION:P2W", "2027-01-07T00:00"),
        ("DTSTART:20261224T100000Z\nDURATION:+PT1H", "2026-12-24T12:00"),
    ],
)
def test_an_event_ends_when_its_duration_is_over(event: str, end: str) -> None:
    assert [each.end for each in spans(event)] == [at(end)]


@pytest.mark.parametrize(
    "onset",
    [
        "DTSTART:16010101T000000",
        "DTSTART:20200101T000000",
        "DTSTART:20200101T000000\nRDATE:20210101T000000",
        "DTSTART:20200101T000000\nRRULE:FREQ=YEARLY;BYMONTH=1",
    ],
)
def test_a_zone_of_the_calendar_without_daylight_saving_counts(onset: str) -> None:
    """The library gave such events the time of UTC."""
    zone = (
        f"BEGIN:VTIMEZONE\nTZID:Customized Time Zone\nBEGIN:STANDARD\n{onset}\nTZOFFSETFROM:+0530\nTZOFFSETTO:+0530\n"
        "END:STANDARD\nEND:VTIMEZONE\n"
    )
    text = calendar("DTSTART;TZID=Customized Time Zone:20261224T100000\nDURATION:PT1H")
    found = freeze_spans(text.replace("BEGIN:VEVENT", f"{zone}BEGIN:VEVENT", 1), "Europe/Berlin", NOW)
    assert [each.begin for each in found] == [at("2026-12-24T05:30")]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC"])
def test_a_repetition_may_be_moved_or_cancelled_by_its_time_in_utc(zone: str) -> None:
    moved = "UID:0\nRECURRENCE-ID:20261130T080000Z\nDTSTART:20261201T120000Z\nDURATION:PT1H"
    cancelled = "UID:0\nRECURRENCE-ID:20261207T080000Z\nDTSTART:20261207T080000Z\nDURATION:PT1H\nSTATUS:CANCELLED"
    series = WEEKLY.format("Europe/Berlin", "COUNT=3")
    if zone == "UTC":
        series = series.replace(";TZID=Europe/Berlin:20261123T090000", ":20261123T080000Z")
    text = calendar(series, moved, cancelled)
    found = freeze_spans(text.replace("UID:1\n", "").replace("UID:2\n", ""), "Europe/Berlin", NOW)
    assert [each.begin for each in found] == [at("2026-11-23T09:00"), at("2026-12-01T13:00")]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert len(freeze_spans("\ufeff" + calendar(DAY), "Europe/Berlin", NOW)) == 1


def test_several_calendars_in_one_text_are_one() -> None:
    day = "DTSTART;VALUE=DATE:20261224\nSUMMARY:{}"
    text = calendar(day.format("a")) + calendar(day.format("b"))
    assert [each.name for each in freeze_spans(text, "Europe/Berlin", NOW)] == ["a", "b"]


WHOLE = calendar("DTSTART;VALUE=DATE:20261224\nSUMMARY:off")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no BEGIN:VCALENDAR"),
        ("Mon-Fri 20:00-06:00", "no BEGIN:VCALENDAR"),
        (WHOLE.replace("END:VCALENDAR\n", ""), "0 times END:VCALENDAR"),
        (WHOLE.replace("END:VEVENT\n", ""), "0 times END:VEVENT"),
        (calendar("DTSTART:20261224T100000Z\nSUMMARY:Freeze"), "'Freeze' has no end"),
        (calendar("DTSTART:20261224T100000Z\nDTEND:20261224T100000Z\nSUMMARY:Freeze"), "'Freeze' has no end"),
        (calendar("DTSTART:20261224T100000Z\nDTEND:20261224T090000Z\nSUMMARY:Freeze"), "'Freeze' has no end"),
        (calendar("SUMMARY:Freeze\nDTEND:20261224T100000Z"), "'Freeze' has no DTSTART"),
        (calendar(WEEKLY.format("UTC", "RSCALE=CHINESE")), "'Release' has RSCALE=CHINESE"),
        (
            calendar(WEEKLY.format("UTC", "COUNT=3"), "RECURRENCE-ID;RANGE=THISANDFUTURE:20261130T090000Z\n" + DAY),
            "has RANGE=THISANDFUTURE",
        ),
        (calendar(WEEKLY.format("Customized Time Zone", "COUNT=1")), "Customized Time Zone"),
        (calendar("DTSTART:2026\nDURATION:PT1H\nSUMMARY:x"), "2026"),
        (calendar("DTSTART:20261124T100000Z\nDURATION:PT1H\nRRULE:FREQ=SECONDLY\nSUMMARY:x"), ""),
        (calendar("DTSTART:20261124T100000Z\nDURATION:PT1M\nRRULE:FREQ=HOURLY;INTERVAL=0\nSUMMARY:x"), ""),
    ],
)  # fmt: skip
def test_what_is_no_calendar_is_refused(text: str, says: str) -> None:
    with pytest.raises(CalendarError) as error:
        freeze_spans(text, "Europe/Berlin", NOW)
    assert says in str(error.value).replace('"', "'")
    assert "\n" not in str(error.value)

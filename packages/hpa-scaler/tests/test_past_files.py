"""Files of the past as Grafana, promtool, VictoriaMetrics, spreadsheets and scripts write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from hpa_scaler.backtest.files import read_csv, read_json, read_promtool
from hpa_scaler.prometheus.samples import RecordingError
from tightship.objects.times import rfc3339

AT = 1_714_993_200  # 2024-05-06T11:00:00Z

TIMES = {
    "RFC 3339": ("2024-05-06T11:00:00Z", "2024-05-06T11:01:00Z"),
    "an offset": ("2024-05-06T13:00:00+02:00", "2024-05-06T13:01:00+02:00"),
    "an offset without a colon": ("2024-05-06 13:00:00 +0200 CEST", "2024-05-06 13:01:00 +0200 CEST"),
    "UTC in words": ("2024-05-06 11:00:00 UTC", "2024-05-06 11:01:00 UTC"),
    "milliseconds in words": ("2024-05-06 11:00:00.000", "2024-05-06 11:01:00.000"),
    "without seconds": ("2024-05-06 11:00", "2024-05-06 11:01"),
    "slashes, the year first": ("2024/05/06 11:00:00", "2024/05/06 11:01:00"),
    "seconds": ("1714993200", "1714993260"),
    "seconds and a fraction": ("1714993200.000", "1714993260.000"),
    "milliseconds": ("1714993200000", "1714993260000"),
    "microseconds": ("1714993200000000", "1714993260000000"),
    "nanoseconds": ("1714993200000000000", "1714993260000000000"),
    "a spreadsheet's exponent": ("1.7149932E+09", "1.71499326E+09"),
    "German": ("06.05.2024 11:00:00", "06.05.2024 11:01:00"),
    "American": ("5/6/2024 11:00:00 AM", "5/6/2024 11:01:00 AM"),
    "named month": ("06 May 2024 11:00:00", "06 May 2024 11:01:00"),
    "named month first": ("May 6, 2024 11:00:00 AM", "May 6, 2024 11:01:00 AM"),
}

NUMBERS = {
    "plain": (",", "200", "200.5", 200, 200.5),
    "an exponent": (",", "2e2", "2.005E+02", 200, 200.5),
    "thousands": (",", '"1,234.5"', '"20,000"', 1234.5, 20000),
    "thousands alone": (",", '"1,234"', '"12,345,678"', 1234, 12345678),
    "thousands beside small ones": (",", "999.5", '"1,234"', 999.5, 1234),
    "decimal commas": (";", "200,0", "200,5", 200, 200.5),
    "decimal commas of three places": (";", "200,125", "200,500", 200.125, 200.5),
    "quoted decimal commas": (",", '"200,0"', '"200,5"', 200, 200.5),
    "points of thousands": (";", "1.234,5", "20.000,0", 1234.5, 20000),
    "points of millions": (";", "1.234.567", "20.000", 1234567, 20000),
    "blanks of thousands": (";", "1 234,5", "20\u00a0000,0", 1234.5, 20000),
    "Swiss thousands": (",", "1'234.5", "20'000", 1234.5, 20000),
    "a unit": (",", "200 req/s", "200.5 req/s", 200, 200.5),
    "a unit without a blank": (",", "200req/s", "200.5req/s", 200, 200.5),
    "shortened": (",", "999", "1.5 K", 999, 1500),
    "shortened with a unit": (",", "999.5 req/s", "1.50K req/s", 999.5, 1500),
    "millions": (",", "1.25 Mil", "900 K", 1.25e6, 9e5),
    "per cent": (",", "45%", "50.5%", 45, 50.5),
    "tabs": ("\t", "200", "200.5", 200, 200.5),
    "bars": ("|", "200", "200.5", 200, 200.5),
}


@pytest.mark.parametrize("form", TIMES)
def test_a_time_is_read_as_it_is_written(form: str) -> None:
    rows = [f'"{text}",{value}' for text, value in zip(TIMES[form], (1, 2), strict=True)]
    columns, _ = read_csv("\n".join(["Time,Value", *rows]), "a.csv")
    found = columns["value"]
    assert (rfc3339(found.begin), found.step, [*found.values]) == (rfc3339(AT), 60, [1, 2])


@pytest.mark.parametrize("form", NUMBERS)
def test_a_number_is_read_as_it_is_written(form: str) -> None:
    separator, first, second, *values = NUMBERS[form]
    lines = [f"Time{separator}Value", f"{AT}{separator}{first}", f"{AT + 60}{separator}{second}"]
    columns, remarks = read_csv("\n".join(lines), "a.csv")
    assert ([*columns["value"].values], remarks) == (values, [])


@pytest.mark.parametrize(
    ("days", "first"),
    [
        (("13/05/2024 11:00", "14/05/2024 11:00"), "2024-05-13T11:00:00Z"),
        (("05/13/2024 11:00", "05/14/2024 11:00"), "2024-05-13T11:00:00Z"),
        (("05/06/2024 11:00", "06/06/2024 11:00"), "2024-06-05T11:00:00Z"),
        (("05/06/2024 11:00", "05/07/2024 11:00"), "2024-05-06T11:00:00Z"),
        (("05/06/2024 11:00 PM", "05/06/2024 11:01 PM"), "2024-05-06T23:00:00Z"),
    ],
)
def test_the_day_is_what_changes_or_is_above_12(days: tuple[str, ...], first: str) -> None:
    columns, _ = read_csv("\n".join(["Time,Value", *(f"{day},1" for day in days)]), "a.csv")
    assert rfc3339(columns["value"].begin) == first


def test_an_order_of_day_and_month_that_nothing_tells_is_said() -> None:
    _, remarks = read_csv("Time,Value\n05/06/2024 11:00,1\n05/06/2024 11:01,1", "a.csv")
    assert any("read as month/day/year" in each for each in remarks)


def test_local_times_are_of_the_zone_and_the_hour_that_comes_twice_is_two() -> None:
    zone = ZoneInfo("Europe/Berlin")
    hours = ["2024-10-27 01:30", "2024-10-27 02:00", "2024-10-27 02:30", "2024-10-27 02:00", "2024-10-27 02:30"]
    columns, remarks = read_csv("\n".join(["Time,Value", *(f"{hour},1" for hour in hours)]), "a.csv", zone)
    assert (rfc3339(columns["value"].begin), rfc3339(columns["value"].end)) == (
        "2024-10-26T23:30:00Z",
        "2024-10-27T01:30:00Z",
    )
    assert remarks == []
    _, remarks = read_csv("Time,Value\n2024-10-27 01:30:00,1\n2024-10-27 01:31:00,1", "a.csv")
    assert any("read as UTC; --time-zone" in each for each in remarks)


@pytest.mark.parametrize(
    ("series", "values"), [("", [1, 1]), ("web-b", [2, 2])], ids=["the first, and it is said", "the one named"]
)
@pytest.mark.parametrize(
    "text",
    [
        f"Time,web-a,web-b\n{AT},1,2\n{AT + 60},1,2",
        f"Series;Time;Value\nweb-a;{AT};1\nweb-b;{AT};2\nweb-a;{AT + 60};1\nweb-b;{AT + 60};2",
    ],
    ids=["a column each", "a row each"],
)
def test_of_several_series_one_is_read(text: str, series: str, values: list[float]) -> None:
    columns, remarks = read_csv(text, "a.csv", None, series)
    assert [*columns["value"].values] == values
    assert bool(remarks) == (not series)
    assert series or "holds 2 series, 'web-a', 'web-b'; the first counts" in remarks[0]
    with pytest.raises(RecordingError, match="no series 'web-c'; allowed are 'web-a', 'web-b'"):
        read_csv(text, "a.csv", None, "web-c")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sep=,\nTime,Value\nyesterday,200", "line 3: 'yesterday' is no time; allowed is RFC 3339"),
        ("Time,Value\n2024-05-06T11:00:00Z,many", "line 2: 'many'; allowed is a number"),
        (f"Time,Value\n{AT},1,234.5", "line 2: .* has 3 cells; allowed are 2, as in the header"),
        ("Time;Value", "holds no sample"),
        ("", "allowed is a header"),
        (f"{AT},1\n{AT + 60},1", "line 1: .*; allowed is a header"),
    ],
)
def test_a_file_without_a_sample_says_its_first_bad_line_and_what_is_allowed(text: str, says: str) -> None:
    with pytest.raises(RecordingError, match=says):
        read_csv(text, "a.csv")


def test_a_unit_that_changes_is_not_added_up() -> None:
    columns, remarks = read_csv(f"Time,Value\n{AT},200 ms\n{AT + 60},1.5 s\n{AT + 120},300 ms", "a.csv")
    assert [*columns["value"].values] == [200, 300]
    assert "line 3: '1.5 s'; allowed is a number" in remarks[0]


ANSWER = '{"status":"success","data":{"resultType":"matrix","result":[%s]}}'
SERIES = '{"metric":{"__name__":"up","pod":"%s"},"values":[[1714993200,"%s"],[1714993260,"%s"]]}'
FRAME = (
    '{"schema":{"fields":[{"name":"Time","type":"time"},{"name":"Value","type":"number","labels":{"pod":"a"}}]},'
    '"data":{"values":[[1714993200000,1714993260000],[1,null]]}}'
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (ANSWER % (SERIES % ("a", 1, 2)), [1, 2]),
        (f"[{SERIES % ('a', 1, 2)}]", [1, 2]),
        (f"[{FRAME}]", [1]),
        (f'{{"results":{{"A":{{"status":200,"frames":[{FRAME}]}}}}}}', [1]),
        ('{"metric":{"pod":"a"},"values":[1,2],"timestamps":[1714993200000,1714993260000]}', [1, 2]),
    ],
    ids=["query_range", "promtool", "Grafana's inspector", "Grafana's API", "VictoriaMetrics' export"],
)
def test_json_with_samples_is_read(text: str, values: list[float]) -> None:
    found, _ = read_json(text.encode(), "a.json")
    assert (rfc3339(found.begin), [each for each in found.values if each == each]) == (rfc3339(AT), values)


def test_what_promtool_prints_is_read() -> None:
    text = '{pod="a"} =>\n200 @[1714993200]\n200.5 @[1714993260]\n'
    found, _ = read_promtool(text, "a.txt")
    assert (rfc3339(found.begin), [*found.values]) == (rfc3339(AT), [200, 200.5])


def test_of_several_series_in_json_the_largest_counts_unless_one_is_named() -> None:
    text = ANSWER % f"{SERIES % ('a', 1, 2)},{SERIES % ('b', 3, 1)}"
    found, remarks = read_json(text.encode(), "a.json")
    assert [*found.values] == [3, 2]
    assert any("""holds 2 series, 'up{pod="a"}', 'up{pod="b"}'""" in each for each in remarks)
    assert [*read_json(text.encode(), "a.json", 'up{pod="a"}')[0].values] == [1, 2]


@pytest.mark.parametrize("text", ["{}", "[]", '{"status":"error","error":"no"}', '{"status":"success","data":{}}'])
def test_other_json_says_what_is_allowed(text: str) -> None:
    with pytest.raises(RecordingError, match=r"a\.json: .*allowed is an answer of query_range"):
        read_json(text.encode(), "a.json")


def test_a_file_of_powershell_and_a_wrong_zone(cli: Any, tmp_path: Path) -> None:
    hpa = Path(__file__).parent / "cases" / "10-csv" / "web.yaml"
    file = tmp_path / "a.csv"
    file.write_bytes("Time,Value\r\n2024-05-06 13:00:00,1\r\n2024-05-06 13:02:00,1\r\n".encode("utf-16"))
    outcome = cli("backtest", "-f", hpa, "--past", file, "--time-zone", "Europe/Berlin")
    assert (outcome.code, "2024-05-06T11:00:00Z to" in outcome.out) == (0, True), outcome.err
    outcome = cli("backtest", "-f", hpa, "--past", file, "--time-zone", "Berlin")
    assert outcome.code == 64
    assert "'Berlin' is no time zone; allowed is an IANA name" in outcome.err

"""Sets of annotations over a recorded past, and how bad pasts are read."""

from __future__ import annotations

import json
import math
import re
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hpa_builder import annotated, hpa, spec

from hpa_scaler.annotations.queries import Failure, Query, value_query
from hpa_scaler.annotations.spec import Rules
from hpa_scaler.backtest.commands import variants_of
from hpa_scaler.backtest.files import decode_past, encode_past, read_csv
from hpa_scaler.backtest.replay import NO_FLOOR, TODAY, BacktestSetup, RecordedHpa, Replay, Span, Variant, backtest
from hpa_scaler.prometheus.answers import Matrix
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.prometheus.ranges import RangeRequest, chunks, fetch
from hpa_scaler.prometheus.samples import Recorded, RecordingError, Trace, trace_of
from tightship.cli.app import UsageError
from tightship.objects.reasons import Reason

QUERY = "sum(rate(requests_total[5m]))"
MINUTE = 60.0


def trace(values: list[float]) -> Trace:
    return Trace(0.0, MINUTE, array("d", values), bytearray(math.isfinite(each) for each in values))


def past(values: list[float], **named: str) -> RecordedHpa:
    """The past of an HPA with 10 requests a second for each replica, one value a minute."""
    notes = {"prometheus_query": QUERY, "requests_per_replica": "10", "minimum_replicas": "1", **named}
    asked = spec(**notes)
    thing = msgspec.structs.replace(hpa(1, 100, None), annotations=annotated(**notes))
    return RecordedHpa(thing, {value_query(asked.queries[0]): trace(values)}, asked)


def replayed(thing: RecordedHpa, *variants: Variant, outages: tuple[Span, ...] = ()) -> list[Replay]:
    [query] = thing.traces
    setup = BacktestSetup(
        Rules(longest_gap=240.0), 0.0, thing.traces[query].end, interval=MINUTE, start=30.0, outages=outages
    )
    [row] = backtest([thing], variants, setup)
    return list(row)


def test_steady_traffic_costs_what_it_needs_and_no_caution() -> None:
    with_floor, without = replayed(past([100.0] * 120), TODAY, NO_FLOOR)
    assert set(with_floor.floors[5:]) == {10}
    assert with_floor.short == without.short == 0
    assert sum(with_floor.caution.values()) == 0
    assert with_floor.replicas == pytest.approx(10 * 119 * MINUTE)


def test_an_outage_holds_the_floor_and_a_server_that_begins_anew_does_not_lower_it() -> None:
    [ours] = replayed(past([200.0] * 240), TODAY, outages=((3600.0, 7200.0),))
    assert [each.held for each in ours.held] == [True]
    assert min(ours.floors[10:]) == 20


def test_many_queries_that_fall_at_once_hold_the_floors_of_all_hpas() -> None:
    def one(number: int) -> RecordedHpa:
        notes = {"prometheus_query": f"rate(x{number}[5m])", "requests_per_replica": "10"}
        asked = spec(**notes)
        thing = msgspec.structs.replace(hpa(1, 100, None, name=f"web-{number}"), annotations=annotated(**notes))
        values = [100.0 + number] * 30 + [40.0 if number < 11 else 100.0] * 90
        return RecordedHpa(thing, {value_query(asked.queries[0]): trace(values)}, asked)

    setup = BacktestSetup(Rules(longest_gap=240.0), 0.0, 120 * MINUTE, interval=MINUTE)
    rows = backtest([one(number) for number in range(13)], [TODAY, NO_FLOOR], setup)
    assert rows[0][0].reasons[Reason.CORRELATED_DROP] > 30


def test_the_lowering_window_is_what_a_fall_costs() -> None:
    [ours] = replayed(past([200.0] * 60 + [50.0] * 120), TODAY)
    assert ours.caution["lowering-window"] > 0
    assert ours.caution["outage"] == ours.caution["cold-source"] == 0
    assert ours.floors[-1] == 5


def test_a_rise_finds_too_few_replicas_and_the_floor_does_not_make_that_worse() -> None:
    ours, without = replayed(past([20.0] * 60 + [400.0] * 60), TODAY, NO_FLOOR)
    assert 0 < ours.short <= without.short
    assert without.worst is not None
    assert without.worst[1] == 40


def test_where_nobody_knows_the_traffic_nothing_is_judged() -> None:
    ours, _ = replayed(past([100.0] * 60 + [math.nan] * 60 + [100.0] * 60), TODAY, NO_FLOOR)
    assert ours.unknown == 60 * MINUTE
    assert ours.short == 0
    assert [each.held for each in ours.held] == [True]


def test_a_set_changes_annotations_side_by_side() -> None:
    tried = variants_of(["shop/web:requests-per-replica=5", "b@*:delta=2", "b@*:requests-per-replica=20"])
    assert [each.name for each in tried] == ["today", "no floor", "shop/web:requests-per-replica=5", "b"]
    row = replayed(past([100.0] * 60), *tried)
    assert [each.floors[-1] for each in row] == [10, 1, 20, 7]


def test_defaults_of_the_configuration_count_in_a_replay_as_in_the_controller() -> None:
    thing = past([100.0] * 60)
    bare = {name: text for name, text in thing.hpa.annotations.items() if "requests-per-replica" not in name}
    thing = msgspec.structs.replace(thing, hpa=msgspec.structs.replace(thing.hpa, annotations=bare))
    setup = BacktestSetup(
        Rules(longest_gap=240.0), 0.0, 3600.0, interval=MINUTE, defaults={"requests-per-replica": "10"}
    )
    [[ours]] = backtest([thing], [TODAY], setup)
    assert ours.floors[-1] == 10


@pytest.mark.parametrize("text", ["web:delta=1", "shop/web:dleta=1", "shop/web:delta", "=", "shop/web=3"])
def test_a_set_that_is_none_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        variants_of([text])


def test_csv_out_of_order_twice_unreadable_and_not_a_number_is_used_as_far_as_it_goes() -> None:
    lines = ["time,rps", "120,3", "0,1", "60,2", "60,2.5", "x,1", "180,NaN", "240,many", "300,6"]
    columns, remarks = read_csv("\n".join(lines), "a.csv")
    found = columns["value"]
    assert (found.begin, found.step) == (0, 60)
    assert [found.value(at) for at in (0, 60, 120, 180, 240, 300)] == [1, 2.5, 3, None, None, 6]
    said = " ".join(remarks)
    for word in ("out of order", "more than one a step", "unreadable", "NaN or infinity"):
        assert word in said


def test_a_counter_is_not_taken_for_a_rate_in_silence() -> None:
    _, remarks = trace_of([[(at * 60.0, at * 100.0 % 7000) for at in range(200)]], "q")
    assert "with 2 resets: a counter? wrap it in rate()" in remarks[0]


@pytest.mark.parametrize("text", ["", "60,1\n120,2", "time,rps\n", "time,rps\n0,1\n99999999999,1"])
def test_a_csv_that_holds_no_past_is_an_error(text: str) -> None:
    with pytest.raises(RecordingError, match=r"a\.csv"):
        read_csv(text, "a.csv")


def test_two_series_count_as_the_larger_one_and_as_two() -> None:
    found, remarks = trace_of([[(0.0, 1.0), (60.0, 5.0)], [(0.0, 3.0)]], "q")
    assert (found.answer(0.0).series, found.answer(0.0).highest) == (2, 3.0)
    assert found.answer(60.0).series == 1
    assert "several series" in remarks[0]


def test_a_saved_past_reads_back() -> None:
    known = {Query("q"): trace([1.0, math.nan, 3.0])}
    again = decode_past(encode_past(Recorded(known, ("remark",))), "past.json")
    assert again.remarks == ("remark",)
    assert [again.traces[Query("q")].value(at) for at in (0, 60, 120)] == [1, None, 3]


class _Server:
    """Answers with one number a minute; what *refuses* says, by begin and end, is too much for it."""

    def __init__(self, longest: float, since: float = 0.0) -> None:
        self.longest, self.since, self.asked = longest, since, 0

    async def ask_range(self, query: Query, begin: float, end: float, step: float) -> Matrix | Failure:
        self.asked += 1
        if end - begin > self.longest:
            return Failure(Reason.QUERY_REJECTED, "query processing would load too many samples")
        times = [begin + step * number for number in range(int((end - begin) / step) + 1)]
        return Matrix((tuple((at, 1.0) for at in times if at >= self.since),))


async def asked(server: Any) -> Recorded:
    client: PrometheusClient = server
    return await fetch(client, [Query("q")], RangeRequest(0.0, 3 * 86_400.0, 60.0), lambda _: None)


async def test_a_server_that_limits_samples_is_asked_for_less_at_a_time() -> None:
    found = await asked(_Server(longest=4 * 3600))
    assert found.remarks == ()
    assert not found.traces[Query("q")].gaps(60)


async def test_a_server_that_refuses_everything_is_soon_left_alone_and_told_of() -> None:
    server = _Server(longest=-1)
    found = await asked(server)
    assert not found.traces
    assert "too many samples" in found.remarks[0]
    assert server.asked < 60


async def test_a_retention_shorter_than_asked_is_told() -> None:
    found = await asked(_Server(longest=86_400, since=86_400.0 * 2))
    assert "the data begin only at 1970-01-03T00:00:00Z" in found.remarks[0]


async def test_what_is_so_of_many_queries_is_told_once() -> None:
    server: Any = _Server(longest=86_400, since=86_400.0 * 2)
    found = await fetch(server, [Query(text) for text in "qrs"], RangeRequest(0.0, 3 * 86_400.0, 60.0), lambda _: None)
    assert len(found.remarks) == 1
    assert found.remarks[0].startswith("server default: q and 2 other queries: the data begin only at")


def test_chunks_are_cut_at_midnight_and_neither_overlap_nor_leave_gaps() -> None:
    found = list(chunks(RangeRequest(3600.0, 2 * 86_400.0 + 5, 60.0)))
    assert found[0] == (3600.0, 86_340.0)
    assert found[1] == (86_400.0, 172_740.0)
    assert found[2] == (172_800.0, 172_800.0)


def test_the_command_prints_sets_side_by_side(cli: Any, tmp_path: Path) -> None:
    rows = [f"{minute * 60},{25 + minute % 7}" for minute in range(240)]
    (tmp_path / "web.csv").write_text("\n".join(["time,rps", *rows]), encoding="utf-8")
    example = Path(__file__).parents[3] / "docs" / "examples" / "august.yaml"
    arguments = ("backtest", "-f", str(example), "--past", str(tmp_path / "web.csv"), "--set", "spare@*:delta=3")
    money = ("--replica-price", "m6i.xlarge/6")
    ended = cli(*arguments, *money, "-o", "json")
    assert ended.code == 0, ended.err
    document = json.loads(ended.out)
    assert document["sets"] == ["today", "no floor", "spare"]
    assert document["currency"] == "USD"
    assert document["hpas"][0]["sets"][0]["shortMinutes"] == 0
    html = cli(*arguments, "-o", "html").out
    assert re.findall(r"<li>(today|no floor|spare): [0-9,]+</li>", html) == document["sets"]
    assert re.findall(r"<li>(today|no floor|spare): [0-9,]+ min</li>", html) == document["sets"]
    short = [each["shortMinutes"] > 0 for each in document["hpas"][0]["sets"]]
    assert [">short of replicas</li>" in each for each in html.split("</figure>")[:3]] == short
    assert any(short)
    assert "REPLICA-HOURS" in cli(*arguments).out

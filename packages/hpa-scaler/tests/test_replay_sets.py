"""Other annotations over a decision log, and the annotations that a log's spec was read from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hpa_builder import FREE, NOW, HpaCycles, annotated, answer, hpa, spec

from hpa_scaler.annotations.parsing import parse_spec
from hpa_scaler.annotations.queries import Query, value_query
from hpa_scaler.backtest.files import pasts_of_log, texts_of
from hpa_scaler.judge.decision import Subject
from hpa_scaler.judge.decision_log import LogError, decision_line
from hpa_scaler.judge.judge import judge_one

QUERY = "sum(rate(x[5m]))"

WRITTEN: list[dict[str, str]] = [
    {},
    {"prometheus_query": "q", "requests_per_replica": "2.5", "delta": "-1", "prometheus_server": "main"},
    {"prometheus_query": "q", "prometheus_query_2": "r", "delta_2": "3", "prometheus_server_url_2": "http://a.example"},
    {"deadband": "5%", "missing_data": "replicas=7", "missing_data_after": "5", "several_series": "max"},
    {"deadband": "2", "lowering_window": "10m", "query_range": "90", "scale_up_max_pods": "4"},
    {"scale_up_max_ratio": "0.5", "enable_scale_down_ratio_deployment_checking": "true"},
    {"paused": "2027-01-02T03:04:05Z", "paused_scale_up": "true", "dry_run": "true", "max_replicas_policy": "clamp"},
    {"hold_query": "down", "hold_cool_down": "1h", "hold_query_server": "alerts", "minimum_replicas": "0"},
    {"forecast": "weekly", "forecast_ahead": "20m", "prometheus_query": "q", "maximum_replicas": "9"},
    {"forecast": "daily", "scale_down_max_ratio": "0.2", "honour_scale_up_behavior": "false"},
]


@pytest.mark.parametrize("named", WRITTEN)
def test_the_annotations_of_a_spec_read_back(named: dict[str, str]) -> None:
    asked = parse_spec(annotated(**named))
    written = {name.replace("-", "_"): text for name, text in texts_of(asked).items()}  # type: ignore[arg-type]
    assert parse_spec(annotated(**written)) == asked


def log(cycles: int = 120) -> list[bytes]:
    """The log of an HPA whose traffic doubles in the middle, with three cycles without an answer."""
    asked = spec(prometheus_query=QUERY, requests_per_replica="10", minimum_replicas="1")
    web = HpaCycles(hpa(3, 100, 10), asked, FREE)
    lines = []
    for number in range(cycles):
        outcomes = {} if 90 <= number < 93 else {Query(QUERY): answer(100 if number < cycles / 2 else 200)}
        thing = msgspec.structs.replace(web.hpa, current_replicas=max(10, web.hpa.min_replicas))
        subject = Subject(hpa=thing, asked=asked, outcomes=outcomes, history=web.history, now=web.now, rules=FREE)
        lines.append(decision_line(f"{number}", judge_one(subject)))
        web.hpa = thing
        web.cycle(outcomes.get(Query(QUERY)))
    return lines


def test_a_log_holds_the_past_of_its_hpas() -> None:
    [past], web = pasts_of_log(log())
    assert (web.begin, web.interval) == (NOW, 75)
    assert (past.hpa.min_replicas, past.hpa.max_replicas) == (3, 100)
    trace = past.traces[value_query(past.yardstick.queries[0])]
    assert [trace.value(NOW + 75 * number) for number in (0, 59, 61, 91)] == [100, 100, 200, None]
    assert len(trace.gaps(150)) == 1


def test_replay_tries_other_annotations_over_a_log(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(log()))
    ended = cli("replay", str(path), "--set", "shop/web:requests-per-replica=5", "-o", "json")
    assert ended.code == 0, ended.err
    [found] = json.loads(ended.out)["hpas"]
    today, none, tried = found["sets"]
    assert (today["highestFloor"], none["highestFloor"], tried["highestFloor"]) == (20, 3, 40)
    assert today["shortMinutes"] <= none["shortMinutes"]
    assert "REPLICA-HOURS" in cli("replay", str(path), "--set", "*:delta=2").out
    assert "no annotation" in cli("replay", str(path), "--set", "*:dleta=2").err
    assert "needs --set" in cli("replay", str(path), "-o", "json").err


def test_a_log_without_a_judged_hpa_is_an_error() -> None:
    with pytest.raises(LogError, match="no HPA"):
        pasts_of_log([])

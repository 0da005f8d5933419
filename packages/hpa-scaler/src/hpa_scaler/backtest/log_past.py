"""The past of HPAs as a decision log holds it, so that other annotations can live through it. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from statistics import median

import msgspec

from hpa_scaler.annotations.parsing import name_of
from hpa_scaler.annotations.queries import Outcome, Query, QueryAnswer
from hpa_scaler.annotations.spec import ENABLE, Band, FloorSpec, ForecastSpec, HoldSpec, PauseSpec, Rules, ServerRef
from hpa_scaler.annotations.values import format_float
from hpa_scaler.backtest.variants import BacktestSetup, HpaPast
from hpa_scaler.judge.cycle import DecisionLine, LogError, read_log
from hpa_scaler.prometheus.samples import LONGEST, Trace
from tightship.objects.times import rfc3339

STEP = 15.0
"""Seconds of one step of a trace: cycles are not regular."""
_CYCLES = 2.5
"""Cycles for which an answer counts."""


def pasts_of_log(lines: Iterable[bytes]) -> tuple[list[HpaPast], BacktestSetup]:
    """Return the past of each HPA in a decision log, and the stretch that the log spans.

    An HPA has the annotations of its last line, and the bounds of its user. Raises :class:`LogError` for an unreadable
    line, and if the log holds no judged HPA.
    """
    logged: dict[str, list[DecisionLine]] = {}
    for _, line in read_log(lines):
        if isinstance(line, DecisionLine) and line.spec is not None and not line.cycle.endswith("-again"):
            logged.setdefault(line.hpa.key, []).append(line)
    if not logged:
        raise LogError("holds no HPA that was judged")
    times = sorted({line.now for each in logged.values() for line in each})
    if times[-1] - times[0] > LONGEST:
        raise LogError(f"spans {rfc3339(times[0])} to {rfc3339(times[-1])}, which is more than a year")
    apart = [after - before for before, after in pairwise(times)]
    interval = min(3600.0, max(5.0, round(median(apart)) if apart else 75.0))
    rules = next(iter(logged.values()))[-1].rules
    setup = BacktestSetup(rules=rules, begin=times[0], end=times[-1] + interval, interval=interval)
    return [_past(each, interval, rules) for each in logged.values()], setup


def _past(lines: list[DecisionLine], interval: float, rules: Rules) -> HpaPast:
    last, first = lines[-1], lines[0]
    assert isinstance(last.spec, FloorSpec)
    notes = {name_of(rules.prefix, name): text for name, text in texts_of(last.spec).items()}
    history = last.history
    hpa = msgspec.structs.replace(
        last.hpa,
        annotations={f"{rules.prefix}/{ENABLE}": "true", **notes},
        min_replicas=first.hpa.min_replicas if history.original_min is None else history.original_min,
        max_replicas=first.hpa.max_replicas if history.original_max is None else history.original_max,
    )
    outcomes = [(line.now, dict(line.outcomes)) for line in lines]
    queries = {query for _, each in outcomes for query in each if not query.labels}
    traces = {query: _trace([(at, each.get(query)) for at, each in outcomes], interval) for query in queries}
    replicas: list[tuple[float, Outcome | None]] = [
        (line.now, None if line.hpa.current_replicas is None else QueryAnswer(1, float(line.hpa.current_replicas)))
        for line in lines
    ]
    return HpaPast(hpa, _with_answers(traces), last.spec, replicas=_trace(replicas, interval))


def _with_answers(traces: Mapping[Query, Trace]) -> dict[Query, Trace]:
    return {query: trace for query, trace in traces.items() if any(trace.counts)}


def _trace(outcomes: list[tuple[float, Outcome | None]], interval: float) -> Trace:
    """Return the answers at regular steps: each counts until the next, for a few cycles at most."""
    begin = outcomes[0][0]
    length = int((outcomes[-1][0] + interval - begin) // STEP) + 1
    values, counts = array("d", [math.nan]) * length, bytearray(length)
    for number, (at, outcome) in enumerate(outcomes):
        if not isinstance(outcome, QueryAnswer):
            continue
        until = outcomes[number + 1][0] if number + 1 < len(outcomes) else at + interval
        until = min(until, at + _CYCLES * interval)
        place = math.ceil((at - begin) / STEP)
        while place < length and begin + place * STEP < until:
            counts[place] = min(255, outcome.series)
            values[place] = math.nan if outcome.highest is None else outcome.highest
            place += 1
    return Trace(begin, STEP, values, counts)


def texts_of(spec: FloorSpec) -> dict[str, str]:
    """Return annotations by their names after ``hpa-scaler-``; reading them again gives *spec*."""
    found = dict(_queries(spec)) | dict(_rest(spec))
    defaults = dict(_rest(FloorSpec()))
    return {name: text for name, text in found.items() if defaults.get(name) != text}


def _queries(spec: FloorSpec) -> Iterator[tuple[str, str]]:
    for number, query in enumerate(spec.queries, 1):
        suffix = "" if number == 1 else f"-{number}"
        yield f"prometheus-query{suffix}", query.text
        yield f"requests-per-replica{suffix}", format_float(query.per_replica)
        yield f"delta{suffix}", format_float(query.delta)
        yield from _server("prometheus-server", query.server, suffix)


def _server(name: str, server: ServerRef, suffix: str = "") -> Iterator[tuple[str, str]]:
    if server.name:
        yield f"{name}{suffix}", server.name
    elif server.url:
        yield f"{name}-url{suffix}", server.url


def _rest(spec: FloorSpec) -> Iterator[tuple[str, str]]:
    hold, forecast = spec.hold or HoldSpec(""), spec.forecast
    yield "several-series", spec.series
    yield "missing-data", str(spec.missing)
    yield "missing-data-after", str(spec.missing.after)
    yield "scale-down-max-ratio", format_float(spec.ratio)
    yield "enable-scale-down-ratio-deployment-checking", _switch(spec.rollout_check)
    yield "honour-scale-up-behavior", _switch(spec.honour_behavior)
    yield "deadband", _band(spec.deadband)
    yield "max-replicas-policy", spec.max_replicas
    yield "paused", _pause(spec.paused)
    yield "paused-scale-down", _pause(spec.paused_down)
    yield "paused-scale-up", _pause(spec.paused_up)
    yield "dry-run", _switch(spec.dry_run)
    yield "forecast", forecast.season if forecast is not None else "off"
    if forecast is not None and forecast != ForecastSpec(forecast.season):
        yield "forecast-ahead", format_float(forecast.ahead)
    if hold.text:
        yield "hold-query", hold.text
        yield "hold-cool-down", format_float(hold.cool_down)
        if hold.server.name:
            yield "hold-query-server", hold.server.name
    for name, value in (
        ("query-range", spec.query_range),
        ("scale-up-max-ratio", spec.up_ratio),
        ("scale-up-max-pods", spec.up_pods),
        ("lowering-window", spec.window),
        ("minimum-replicas", spec.lowest),
        ("maximum-replicas", spec.highest),
    ):
        if value is not None:
            yield name, format_float(value)


def _switch(on: bool) -> str:
    return "true" if on else "false"


def _band(band: Band) -> str:
    return f"{format_float(round(band.share * 100, 9))}%" if band.share else str(band.pods)


def _pause(pause: PauseSpec) -> str:
    return rfc3339(pause.until) if pause.on and pause.until is not None else _switch(pause.on)

"""The annotations that a spec was read from, as far as they differ from the defaults. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hpa_scaler.spec.spec import Band, FloorSpec, ForecastSpec, HoldSpec, PauseSpec, ServerRef
from hpa_scaler.spec.values import format_float
from tightship.core.times import rfc3339


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

"""The HPAs that a command about the past names, with their recorded past."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

import hpa_scaler
from hpa_scaler.annotations.queries import (
    Query,
    QueryAnswer,
    hold_query,
    operand_answer,
    operand_queries,
    recorded_instead,
    value_query,
)
from hpa_scaler.annotations.spec import FloorSpec, Problems, QuerySpec, Rules
from hpa_scaler.backtest.options import DEFAULT_SPAN, LONGEST_SPAN
from hpa_scaler.backtest.past_files import encode_past, read_pasts, smoothed
from hpa_scaler.backtest.proposals import proposed_specs
from hpa_scaler.backtest.variants import (
    EVERY,
    BacktestSetup,
    HpaPast,
    Variant,
    floor_query,
    replicas_query,
    wanted_query,
)
from hpa_scaler.documents.document import FloorHead
from hpa_scaler.judge.cycle import asked_of
from hpa_scaler.judge.ownership import ownership, state_of
from hpa_scaler.process.commands import CommandSettings, named, selection_of
from hpa_scaler.process.fleet import (
    HpaFleet,
    Say,
    UnknownNamespaceError,
    fleet_of_cluster,
    fleet_of_files,
)
from hpa_scaler.process.run_settings import PROGRAM
from hpa_scaler.process.settings import CYCLES_APART, allowed_of, limits_of, servers_of
from hpa_scaler.process.status import settings_view
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.prometheus.ranges import Asking, fetch
from hpa_scaler.prometheus.samples import Recorded, Trace
from tightship.cli.app import CliError, UsageError
from tightship.cli.basics import near
from tightship.cli.output import write_file
from tightship.cli.source import connected, file_source, files_of, reading
from tightship.documents.document import API_VERSION, Generator, Source
from tightship.kube import host
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.counting import counted
from tightship.objects.times import rfc3339


class LoadedPast(Struct, frozen=True):
    """The HPAs with a usable past, the stretch of it, and what to say about the rest."""

    head: FloorHead
    pasts: tuple[HpaPast, ...]
    setup: BacktestSetup
    warnings: tuple[str, ...]


async def load(
    arguments: argparse.Namespace,
    configured: CommandSettings,
    variants: Sequence[Variant],
    say: Say,
    *,
    propose: bool = False,
) -> LoadedPast:
    """Return the selected HPAs with their past. With *propose*, a query is looked for where an HPA has none."""
    process, settings, rules = configured.process, configured.settings, configured.rules
    interval = process.interval if arguments.interval is None else arguments.interval
    fleet, source = await _fleet(arguments, configured, say)
    hpas = named(arguments.names, fleet.hpas) if arguments.names else list(fleet.hpas)
    check_targets(variants, hpas)
    now = arguments.now if arguments.now is not None else host.wall()
    specs = {
        hpa.key: [_spec(variant, hpa, configured) for variant in variants if variant.kind != "none"] for hpa in hpas
    }
    proposed: dict[str, FloorSpec] = {}
    if propose and not arguments.past:
        without = [hpa for hpa in hpas if not any(spec is not None and spec.queries for spec in specs[hpa.key])]
        say(f"looking for queries of {counted(len(without), 'HPA')}")
        servers = servers_of(settings, process)
        async with PrometheusClient(servers, allowed_of(settings), limits=limits_of(settings)) as client:
            proposed = await proposed_specs(client, without, settings.query_deadline)
        specs |= {key: [spec] for key, spec in proposed.items()}
    asked = [hpa for hpa in hpas if any(spec is not None for spec in specs[hpa.key])]
    if not asked:
        number = counted(len(hpas), "HPA")
        if propose:
            raise CliError(
                f"none of {number} has a query, and no usual request rate answers; annotate prometheus-query"
            )
        raise CliError(f"none of {number} has annotations to replay; give some by --set")
    pairs = [(hpa, next((spec for spec in specs[hpa.key] if spec is not None), None)) for hpa in asked]
    if arguments.past:
        say(reading(arguments.past))
        recorded = read_pasts(arguments.past, pairs, arguments.time_zone, arguments.series)
    else:
        recorded = await _asked(arguments, configured, _questions(asked, specs), now, say)
    if arguments.save_past is not None:
        write_file("--save-past", arguments.save_past, encode_past(recorded))
    warnings = [*fleet.problems, *fleet.warnings, *recorded.remarks]
    pasts = []
    for hpa, yardstick in pairs:
        past = _past(arguments, hpa, specs[hpa.key], recorded, rules)
        if yardstick is not None and any(value_query(query) in past.traces for query in yardstick.queries):
            pasts.append(msgspec.structs.replace(past, proposed=hpa.key in proposed))
        else:
            warnings.append(f"{hpa.key}: has no recorded past, and is left out")
    if not pasts:
        raise CliError("no HPA has a recorded past", *warnings)
    begin, end = _stretch(arguments, pasts)
    setup = BacktestSetup(
        rules=msgspec.structs.replace(rules, longest_gap=CYCLES_APART * interval),
        begin=begin,
        end=end,
        interval=interval,
        start=arguments.pod_start,
        outages=tuple(arguments.outage),
        forecasts=arguments.forecasts,
    )
    head = FloorHead(
        api_version=API_VERSION,
        generator=Generator(PROGRAM, hpa_scaler.__version__),
        source=source,
        evaluated_at=rfc3339(now if not arguments.past else end),
        settings=settings_view(
            settings, process, configured.config, ", ".join(arguments.past) if arguments.past else None
        ),
    )
    return LoadedPast(head, tuple(pasts), setup, (*warnings, *_assumed(arguments, pasts)))


async def _fleet(arguments: argparse.Namespace, configured: CommandSettings, say: Say) -> tuple[HpaFleet, Source]:
    settings = configured.settings
    selection = selection_of(arguments, settings.namespaces, settings.label_selector)
    paths = files_of(arguments)
    try:
        if paths:
            say(reading(paths))
            return fleet_of_files(paths, selection), file_source(paths)
        say("connecting")
        async with await connected(arguments) as connection:
            return await fleet_of_cluster(connection, selection, say), Source("cluster", connection.context)
    except UnknownNamespaceError as error:
        raise CliError(*error.problems) from error


def check_targets(variants: Sequence[Variant], hpas: Sequence[HorizontalPodAutoscaler]) -> None:
    """Raise :class:`CliError` if a set is for an HPA that is not among *hpas*."""
    known = {hpa.key for hpa in hpas}
    wrong = [
        f'--set: HPA "{change.target}" not found{near(change.target, known)}'
        for variant in variants
        for change in variant.changes
        if change.target != EVERY and change.target not in known
    ]
    if wrong:
        raise CliError(*dict.fromkeys(wrong))


def _spec(variant: Variant, hpa: HorizontalPodAutoscaler, configured: CommandSettings) -> FloorSpec | None:
    asked = asked_of(variant.hpa(hpa, configured.rules.prefix), configured.rules.prefix, configured.settings.defaults)
    if isinstance(asked, Problems) and variant.kind == "changed":
        raise CliError(*(f"{hpa.key} with the set {variant.name}: {line}" for line in asked.lines))
    return asked if isinstance(asked, FloorSpec) else None


def _questions(hpas: Sequence[HorizontalPodAutoscaler], specs: Mapping[str, Sequence[FloorSpec | None]]) -> list[Query]:
    found: dict[Query, None] = {}
    for hpa in hpas:
        for spec in specs[hpa.key]:
            if spec is None or not spec.queries:
                continue
            for query in spec.queries:
                found |= dict.fromkeys([value_query(query), *(each for _, each in operand_queries(query))])
            if spec.hold is not None:
                found[hold_query(spec.hold)] = None
            server = spec.queries[0].server
            found[replicas_query(hpa.namespace, hpa.name, server)] = None
            found[wanted_query(hpa.namespace, hpa.name, server)] = None
            found[floor_query(hpa.namespace, hpa.name, server)] = None
    return list(found)


async def _asked(
    arguments: argparse.Namespace, configured: CommandSettings, queries: Sequence[Query], now: float, say: Say
) -> Recorded:
    end = now if arguments.end is None else arguments.end
    begin = end - DEFAULT_SPAN if arguments.begin is None else arguments.begin
    if not 0 < end - begin <= LONGEST_SPAN:
        raise UsageError(f"--from {rfc3339(begin)} --to {rfc3339(end)}: allowed is a stretch of up to a year")
    settings = configured.settings
    servers = servers_of(settings, configured.process)
    async with PrometheusClient(servers, allowed_of(settings), limits=limits_of(settings)) as client:
        return await fetch(client, queries, Asking(begin, end, arguments.step), say)


def _past(
    arguments: argparse.Namespace,
    hpa: HorizontalPodAutoscaler,
    specs: Sequence[FloorSpec | None],
    recorded: Recorded,
    rules: Rules,
) -> HpaPast:
    yardstick = next((spec for spec in specs if spec is not None), None)
    queries = () if yardstick is None else yardstick.queries
    server = queries[0].server if queries else None
    history = state_of(hpa, rules.prefix)[0].history
    own = ownership(hpa, history, rules, 0.0)
    asked = _questions([hpa], {hpa.key: specs})
    traces = {query: recorded.traces[query] for query in asked if query in recorded.traces}
    for spec in specs:
        for query, instead, whole in recorded_instead(spec, recorded.traces) if spec is not None else ():
            traces[query] = _operand_trace(recorded, instead, whole)
    for query in {value_query(each) for each in queries}:
        if query in traces:
            traces[query] = smoothed(traces[query].scaled(arguments.scale), arguments.smooth)
    return HpaPast(
        hpa=msgspec.structs.replace(hpa, min_replicas=own.minimum, max_replicas=own.maximum),
        traces=traces,
        yardstick=yardstick,
        wanted=None if server is None else traces.get(wanted_query(hpa.namespace, hpa.name, server)),
        replicas=None if server is None else traces.get(replicas_query(hpa.namespace, hpa.name, server)),
        share=1 / arguments.hpa_target,
        floor=None if server is None else traces.get(floor_query(hpa.namespace, hpa.name, server)),
    )


def _operand_trace(recorded: Recorded, instead: Query, whole: QuerySpec | None) -> Trace:
    """Return the past of an operand that a fallback hides, from what is recorded *instead*."""
    found = recorded.traces[instead]
    value = None if whole is None else recorded.traces.get(value_query(whole))
    if whole is None or value is None:
        return found
    times = [value.begin + place * value.step for place in range(len(value.values))]
    answers = (operand_answer(found.answer(at), whole, value.answer(at)) for at in times)
    counts = bytearray(isinstance(each, QueryAnswer) and each.series > 0 for each in answers)
    return Trace(value.begin, value.step, value.values, counts)


def _stretch(arguments: argparse.Namespace, pasts: Sequence[HpaPast]) -> tuple[float, float]:
    """Return the stretch to replay: what was asked for, as far as there are data."""
    traces = [trace for past in pasts for query, trace in past.traces.items() if _is_value(past, query)]
    first, last = min(trace.begin for trace in traces), max(trace.end for trace in traces)
    begin = first if arguments.begin is None else max(first, arguments.begin)
    end = last if arguments.end is None else min(last, arguments.end)
    if arguments.begin is None and arguments.past and end - begin > LONGEST_SPAN:
        begin = end - LONGEST_SPAN
    if end <= begin:
        raise CliError(f"the recorded past is from {rfc3339(first)} to {rfc3339(last)}, not in the stretch asked for")
    return begin, end


def _is_value(past: HpaPast, query: Query) -> bool:
    return past.yardstick is not None and any(value_query(each) == query for each in past.yardstick.queries)


def _assumed(arguments: argparse.Namespace, pasts: Sequence[HpaPast]) -> list[str]:
    """Return what the numbers rest on that nobody measured."""
    blind = [past.hpa.key for past in pasts if past.wanted is None]
    assumed = []
    if blind:
        which = blind[0] if len(blind) == 1 else counted(len(blind), "HPA")
        assumed.append(
            f"{which}: the HPA's own metrics are not recorded; it is taken to follow the traffic, at "
            f"{arguments.hpa_target:g} of what requests-per-replica says"
        )
    rollouts = [past.hpa.key for past in pasts if past.yardstick is not None and past.yardstick.rollout_check]
    if rollouts:
        assumed.append(f"{counted(len(rollouts), 'HPA')}: rollouts are not recorded, and hold nothing")
    return assumed

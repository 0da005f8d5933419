"""``backtest``: its flags, the HPAs and their past, and the sets of annotations to try."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

import hpa_scaler
from hpa_scaler.app.commands import CommandSettings, add_selection, named, selection_of
from hpa_scaler.app.fleet import (
    KINDS,
    HpaFleet,
    Say,
    UnknownNamespaceError,
    fleet_of_cluster,
    fleet_of_files,
)
from hpa_scaler.app.past_source import Asking, fetch, read_pasts
from hpa_scaler.app.run_settings import PROGRAM, ScalerRunSettings
from hpa_scaler.app.settings import CYCLES_APART, allowed_of, limits_of, servers_of
from hpa_scaler.app.status import settings_view
from hpa_scaler.decide.backtest import EVERY, OLDER, AnnotationChange, HpaPast, Span, Variant, World, backtest
from hpa_scaler.decide.cycle import asked_of
from hpa_scaler.decide.ownership import ownership, state_of
from hpa_scaler.decide.recording import Recorded, encode_past, replicas_query, smoothed, wanted_query
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.report.backtests import Tested
from hpa_scaler.report.document import FloorHead
from hpa_scaler.spec.annotations import BY_NAME
from hpa_scaler.spec.queries import Query, bare_query, hold_query, value_query
from hpa_scaler.spec.spec import FloorSpec, Problems, Rules
from hpa_scaler.spec.values import parse_float
from tightship.app.cli.app import CliError, UsageError
from tightship.app.cli.arguments import add_cluster_arguments, add_flags, add_time_argument, value_of
from tightship.app.cli.basics import near
from tightship.app.cli.output import write_file
from tightship.app.cli.source import connected, file_source, files_of, reading
from tightship.app.settings.prices import no_list, read_prices
from tightship.core.counting import counted
from tightship.core.durations import ALLOWED_FORMS, parse_duration
from tightship.core.objects import HorizontalPodAutoscaler, Node
from tightship.core.quoting import quoted
from tightship.core.resources import NOTHING
from tightship.core.times import parse_rfc3339, rfc3339
from tightship.kube import host
from tightship.planning.prices import INSTANCE_TYPE_LABELS, MICROS, NodePrice, parse_price
from tightship.report.document import API_VERSION, Generator, Source

DEFAULT_SPAN = 14 * 86_400.0
LONGEST_SPAN = 366 * 86_400.0
LEAST_STEP, MOST_STEP = 5.0, 3600.0


def add_past_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the flags that say which HPAs, and where their past comes from; return the group of the past."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="an HPA: NAME, or NAMESPACE/NAME (default: all)")
    cluster = add_cluster_arguments(parser, KINDS)
    add_selection(cluster)
    settings = parser.add_argument_group("settings")
    settings.add_argument(
        "--config", metavar="FILE", help="what the controller's ConfigMap holds, or the manifest of one"
    )
    add_flags(settings, ScalerRunSettings, "floors", plan=True)
    add_time_argument(settings)
    past = parser.add_argument_group("past")
    past.add_argument(
        "--past",
        metavar="[NAMESPACE/NAME=]FILE",
        action="append",
        help="take the past from FILE instead of asking servers: what --save-past wrote, CSV with a header (time, "
        "value, perhaps replicas and wanted), or an answer of query_range; .gz too, repeatable",
    )
    past.add_argument("--save-past", metavar="FILE", help="write the past to FILE, for another --past")
    past.add_argument(
        "--from", dest="begin", metavar="TIME", type=value_of(parse_rfc3339), help="RFC 3339 (default: 14 days ago)"
    )
    past.add_argument("--to", dest="end", metavar="TIME", type=value_of(parse_rfc3339), help="RFC 3339 (default: now)")
    past.add_argument(
        "--step",
        metavar="DURATION",
        type=value_of(_step),
        default=60.0,
        help="ask for one answer each DURATION (default: 1m)",
    )
    past.add_argument("--scale", metavar="FACTOR", type=value_of(_factor), default=1.0, help="multiply the traffic")
    past.add_argument(
        "--smooth",
        metavar="DURATION",
        type=value_of(_duration),
        default=0.0,
        help="take the mean of the last DURATION for each value of the traffic, as rate() over a range does",
    )
    past.add_argument(
        "--outage",
        metavar="TIME/DURATION",
        action="append",
        type=value_of(parse_outage),
        default=[],
        help="as if no query had been answered from TIME on, and the server had then begun without data; repeatable",
    )
    past.add_argument(
        "--interval",
        metavar="DURATION",
        type=value_of(_step),
        help="between two cycles (default: $SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS, else 75s)",
    )
    past.add_argument(
        "--pod-start", metavar="DURATION", type=value_of(_duration), default=60.0, help="until a new pod is ready (1m)"
    )
    past.add_argument(
        "--hpa-target",
        metavar="PART",
        type=value_of(_factor),
        default=1.0,
        help="without the HPA's own metrics: the load at which the HPA keeps its pods, as a part of what one carries, "
        "such as 0.8 (default: 1)",
    )
    past.add_argument(
        "--replica-price",
        metavar="PRICE",
        help="what a replica costs an hour: a number such as 0.02, or an instance type and how many replicas share "
        "one, such as m6i.xlarge/6",
    )
    past.add_argument("--prices", metavar="FILE", help="prices of instance types, as for plans: see docs/money.md")
    return past


def add_backtest_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``backtest``."""
    past = add_past_options(parser)
    past.add_argument(
        "--set",
        dest="sets",
        metavar="[SET@]NAMESPACE/NAME:ANNOTATION=VALUE",
        action="append",
        default=[],
        help="a set of annotations to try beside today's, such as shop/web:requests-per-replica=40; * is every HPA; an "
        "empty VALUE removes the annotation. Those with the same SET@ are one set; repeatable",
    )
    past.add_argument("--older", action="store_true", help="also try the older controller's rules, without any guard")


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds > LONGEST_SPAN:
        raise ValueError(f"{quoted(text)} is too long; allowed is up to a year")
    return seconds


def _step(text: str) -> float:
    seconds = parse_duration(text)
    if not LEAST_STEP <= seconds <= MOST_STEP:
        raise ValueError(f"{quoted(text)}: allowed is {ALLOWED_FORMS}, of 5s to 1h")
    return seconds


def _factor(text: str) -> float:
    number = parse_float(text)
    if number is None or not 1e-9 <= number <= 1e9:
        raise ValueError(f"{quoted(text)} is not a factor; allowed is a number above 0, up to a billion")
    return number


def parse_outage(text: str) -> Span:
    """Return the stretch that *text* spells: ``2026-03-01T10:00:00Z/2h``. Raises :class:`ValueError`."""
    begin, slash, length = text.rpartition("/")
    if not slash:
        raise ValueError(f"{quoted(text)}: allowed is a time and a duration, such as 2026-03-01T10:00:00Z/2h")
    at, seconds = parse_rfc3339(begin), _duration(length)
    return Span(at, at + seconds)


def parse_set(text: str) -> tuple[str, AnnotationChange]:
    """Return the name of a set (empty: its own) and the change that *text* spells. Raises :class:`UsageError`."""
    allowed = "[SET@]NAMESPACE/NAME:ANNOTATION=VALUE, such as shop/web:requests-per-replica=40"
    left, equals, value = text.partition("=")
    where, colon, annotation = left.rpartition(":")
    name, _, target = where.rpartition("@")
    if not equals or not colon or not (target == EVERY or target.count("/") == 1):
        raise UsageError(f"--set {quoted(text)}: allowed is {allowed}")
    plain = annotation.rstrip("0123456789").removesuffix("-")
    if annotation not in BY_NAME and plain not in BY_NAME:
        raise UsageError(
            f"--set {quoted(text)}: there is no annotation {quoted(annotation)}{near(annotation, BY_NAME)}"
        )
    return name, AnnotationChange(target, annotation, value or None)


def variants_of(texts: Sequence[str], *, older: bool) -> list[Variant]:
    """Return the sets to try: today's, no floor, the older controller's if wished, and those of *texts*."""
    found: dict[str, list[AnnotationChange]] = {}
    for text in texts:
        name, change = parse_set(text)
        found.setdefault(name or text, []).append(change)
    tried = [Variant("today", "today"), Variant("no floor", "none")]
    if older:
        tried.append(Variant("older", "older", OLDER))
    return tried + [Variant(name, "changed", tuple(changes)) for name, changes in found.items()]


class Loaded(Struct, frozen=True):
    """The HPAs with a usable past, the stretch of it, and what to say about the rest."""

    head: FloorHead
    pasts: tuple[HpaPast, ...]
    world: World
    warnings: tuple[str, ...]


async def tested(arguments: argparse.Namespace, configured: CommandSettings, say: Say) -> Tested:
    """Return the backtest that *arguments* ask for. Raises :class:`CliError` and the errors of files and of the API."""
    variants = variants_of(arguments.sets, older=arguments.older)
    price = replica_price(arguments)
    loaded = await load(arguments, configured, variants, say)
    lived = backtest(
        loaded.pasts,
        variants,
        loaded.world,
        lambda part: say(f"replaying {counted(len(loaded.pasts), 'HPA')}: {part:.0%}"),
    )
    return Tested(loaded.head, loaded.world, loaded.pasts, lived, price, loaded.warnings)


async def load(
    arguments: argparse.Namespace, configured: CommandSettings, variants: Sequence[Variant], say: Say
) -> Loaded:
    """Return the selected HPAs with their past."""
    process, settings, rules = configured.process, configured.settings, configured.rules
    interval = process.interval if arguments.interval is None else arguments.interval
    fleet, source = await _fleet(arguments, configured, say)
    hpas = named(arguments.names, fleet.hpas) if arguments.names else list(fleet.hpas)
    _check_targets(variants, hpas)
    now = arguments.now if arguments.now is not None else host.wall()
    specs = {
        hpa.key: [_spec(variant, hpa, configured) for variant in variants if variant.kind != "none"] for hpa in hpas
    }
    asked = [hpa for hpa in hpas if any(spec is not None for spec in specs[hpa.key])]
    if not asked:
        raise CliError(f"none of {counted(len(hpas), 'HPA')} has annotations to replay; give some by --set")
    pairs = [(hpa, next((spec for spec in specs[hpa.key] if spec is not None), None)) for hpa in asked]
    if arguments.past:
        say(reading(arguments.past))
        recorded = read_pasts(arguments.past, pairs)
    else:
        recorded = await _asked(arguments, configured, _questions(asked, specs), now, say)
    if arguments.save_past is not None:
        write_file("--save-past", arguments.save_past, encode_past(recorded))
    warnings = [*fleet.problems, *fleet.warnings, *recorded.remarks]
    pasts = []
    for hpa, yardstick in pairs:
        past = _past(arguments, (hpa, yardstick), recorded, rules, now)
        if yardstick is not None and any(value_query(query) in past.traces for query in yardstick.queries):
            pasts.append(past)
        else:
            warnings.append(f"{hpa.key}: has no recorded past, and is left out")
    if not pasts:
        raise CliError("no HPA has a recorded past", *warnings)
    begin, end = _stretch(arguments, pasts)
    world = World(
        rules=msgspec.structs.replace(rules, longest_gap=CYCLES_APART * interval),
        begin=begin,
        end=end,
        interval=interval,
        start=arguments.pod_start,
        outages=tuple(arguments.outage),
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
    return Loaded(head, tuple(pasts), world, (*warnings, *_assumed(arguments, pasts)))


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


def _check_targets(variants: Sequence[Variant], hpas: Sequence[HorizontalPodAutoscaler]) -> None:
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
                bare = bare_query(query)
                found |= dict.fromkeys([value_query(query), *([bare] if bare is not None else [])])
            if spec.hold is not None:
                found[hold_query(spec.hold)] = None
            server = spec.queries[0].server
            found[replicas_query(hpa.namespace, hpa.name, server)] = None
            found[wanted_query(hpa.namespace, hpa.name, server)] = None
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
    pair: tuple[HorizontalPodAutoscaler, FloorSpec | None],
    recorded: Recorded,
    rules: Rules,
    now: float,
) -> HpaPast:
    hpa, yardstick = pair
    queries = () if yardstick is None else yardstick.queries
    server = queries[0].server if queries else None
    history = state_of(hpa, rules.prefix)[0].history
    own = ownership(hpa, history, rules, now)
    traces = dict(recorded.traces)
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
    )


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
    told = []
    if blind:
        which = blind[0] if len(blind) == 1 else counted(len(blind), "HPA")
        told.append(
            f"{which}: the HPA's own metrics are not recorded; it is taken to follow the traffic, at "
            f"{arguments.hpa_target:g} of what requests-per-replica says"
        )
    rollouts = [past.hpa.key for past in pasts if past.yardstick is not None and past.yardstick.rollout_check]
    if rollouts:
        told.append(f"{counted(len(rollouts), 'HPA')}: rollouts are not recorded, and hold nothing")
    return told


def replica_price(arguments: argparse.Namespace) -> NodePrice | None:
    """Return the price of a replica-hour, ``None`` if none was asked for. Raises :class:`UsageError`."""
    text = arguments.replica_price
    prices = no_list() if arguments.prices is None else read_prices(arguments.prices)
    if text is None:
        if arguments.prices is not None:
            raise UsageError(
                "--prices has prices of instance types: say by --replica-price which, and how many share one"
            )
        return None
    kind, slash, number = text.partition("/")
    try:
        if not slash:
            micros = parse_price(text)
            return NodePrice(micros, "list", f"{text} {prices.currency} for a replica-hour", prices.currency)
    except ValueError as error:
        raise UsageError(f"--replica-price {error}, or an instance type such as m6i.xlarge/6") from error
    share = parse_float(number)
    if share is None or not 0 < share <= 1000:
        raise UsageError(f"--replica-price {quoted(text)}: allowed is a number of replicas after the slash, up to 1000")
    found = prices.price(_node(kind))
    if found is None:
        raise UsageError(f"--replica-price {quoted(text)}: no price is known for the instance type {quoted(kind)}")
    basis = f"{kind} at {found.hourly / MICROS:g} {found.currency} an hour ({found.basis}), {share:g} replicas on each"
    return NodePrice(math.floor(found.hourly / share + 0.5), found.source, basis, found.currency)


def _node(kind: str) -> Node:
    """Return a node of which only the instance type is known."""
    labels = {INSTANCE_TYPE_LABELS[0]: kind}
    return Node(kind, "", labels, {}, (), False, NOTHING, True, 0, None, "")

"""``backtest``, ``suggest`` and ``replay --set``: their flags, the recorded past of the HPAs that they name, and what
other annotations would have done over it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Struct

import hpa_scaler
from hpa_scaler.annotations.parsing import BY_NAME
from hpa_scaler.annotations.queries import (
    Query,
    QueryAnswer,
    hold_query,
    operand_answer,
    operand_queries,
    recorded_instead,
    value_query,
)
from hpa_scaler.annotations.spec import FloorSpec, Problems, QuerySpec, ServerRef
from hpa_scaler.annotations.values import parse_float
from hpa_scaler.backtest.files import encode_past, own_queries, pasts_of_log, read_pasts, smoothed
from hpa_scaler.backtest.fit import FloorSuggestions, suggest
from hpa_scaler.backtest.replay import (
    EVERY,
    NO_FLOOR,
    TODAY,
    AnnotationChange,
    BacktestSetup,
    Found,
    RecordedHpa,
    Span,
    Variant,
    backtest,
    backtest_document,
)
from hpa_scaler.backtest.views import SUGGESTIONS, backtest_view
from hpa_scaler.documents.document import FloorHead
from hpa_scaler.judge.decision_log import LogError
from hpa_scaler.judge.judge import asked_of
from hpa_scaler.judge.ownership import ownership, state_of
from hpa_scaler.process.commands import EXITS, CommandSettings, add_inputs, client_of, named, selected_fleet
from hpa_scaler.process.fleet import Say
from hpa_scaler.process.forecasts import Forecasts
from hpa_scaler.process.settings import CYCLES_APART, PROGRAM
from hpa_scaler.process.status import settings_view
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.prometheus.ranges import RangeRequest, fetch
from hpa_scaler.prometheus.samples import Recorded, Trace
from tightship.cli.app import CliError, UsageError
from tightship.cli.arguments import (
    CommandParser,
    add_logging_arguments,
    add_output_arguments,
    environment,
    value_of,
)
from tightship.cli.object_file import DocumentError, read_bytes, unpack
from tightship.cli.output import Progress, write_file, write_rendered
from tightship.cli.source import reading
from tightship.documents.document import API_VERSION, Generator, SettingsView, Source
from tightship.documents.formats import formats_of
from tightship.kube import host
from tightship.objects import HorizontalPodAutoscaler, Node
from tightship.objects.counting import counted
from tightship.objects.money import INSTANCE_TYPE_LABELS, MICROS, NO_PRICES, NodePrice, PriceReader, parse_price
from tightship.objects.quoting import near, quoted
from tightship.objects.resources import NOTHING
from tightship.objects.times import ALLOWED_FORMS, parse_duration, parse_rfc3339, rfc3339

_T = TypeVar("_T")

_DEFAULT_SPAN = 14 * 86_400.0
_LONGEST_SPAN = 366 * 86_400.0


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds > _LONGEST_SPAN:
        raise ValueError(f"{quoted(text)} is too long; allowed is up to a year")
    return seconds


def _step(text: str) -> float:
    seconds = parse_duration(text)
    if not 5 <= seconds <= 3600:
        raise ValueError(f"{quoted(text)}: allowed is {ALLOWED_FORMS}, of 5s to 1h")
    return seconds


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{quoted(text)} is no time zone; allowed is an IANA name such as Europe/Berlin") from error


def _factor(text: str) -> float:
    number = parse_float(text)
    if number is None or not 1e-9 <= number <= 1e9:
        raise ValueError(f"{quoted(text)} is not a factor; allowed is a number above 0, up to a billion")
    return number


def _outage(text: str) -> Span:
    begin, slash, length = text.rpartition("/")
    if not slash:
        raise ValueError(f"{quoted(text)}: allowed is a time and a duration, such as 2026-03-01T10:00:00Z/2h")
    at = parse_rfc3339(begin)
    return at, at + _duration(length)


_PAST: Mapping[str, tuple[Callable[[str], object], object, str]] = {
    "--past [NAMESPACE/NAME=]FILE": (
        str,
        [],
        (
            "take the past from FILE instead of asking servers: what --save-past wrote, CSV with a header (time, "
            "value, perhaps replicas and wanted), or JSON (an answer of query_range, Grafana's data frames, "
            "promtool's or VictoriaMetrics' output); .gz too, repeatable"
        ),
    ),
    "--series NAME": (str, "", "of several series in a file of --past, read the one called so"),
    "--time-zone ZONE": (
        _zone,
        None,
        "of times without an offset in a file of --past, such as Europe/Berlin (default: UTC)",
    ),
    "--save-past FILE": (str, None, "write the past to FILE, for another --past"),
    "--from TIME": (parse_rfc3339, None, "RFC 3339 (default: 14 days ago)"),
    "--to TIME": (parse_rfc3339, None, "RFC 3339 (default: now)"),
    "--step DURATION": (_step, 60.0, "ask for one answer each DURATION (default: 1m)"),
    "--scale FACTOR": (_factor, 1.0, "multiply the traffic"),
    "--smooth DURATION": (
        _duration,
        0.0,
        "take the mean of the last DURATION for each value of the traffic, as rate() over a range does",
    ),
    "--outage TIME/DURATION": (
        _outage,
        [],
        "as if no query had been answered from TIME on, and the server had then begun without data; repeatable",
    ),
    "--interval DURATION": (
        _step,
        None,
        "between two cycles (default: $INTERVAL, else 75s)",
    ),
    "--pod-start DURATION": (_duration, 60.0, "until a new pod is ready (1m)"),
    "--hpa-target PART": (
        _factor,
        1.0,
        (
            "without the HPA's own metrics: the load at which the HPA keeps its pods, as a part of what one carries, "
            "such as 0.8 (default: 1)"
        ),
    ),
    "--replica-price PRICE": (
        str,
        None,
        (
            "what a replica costs an hour: a number such as 0.02, or an instance type and how many replicas share one, "
            "such as m6i.xlarge/6"
        ),
    ),
    "--prices FILE": (str, None, "prices of instance types, as for plans: see docs/money.md"),
}
"""The flags for the past with their placeholders: reader, default, help. One with a list by default is repeatable."""


def add_backtest(
    commands: argparse._SubParsersAction[CommandParser],
    replay: CommandParser,
    forecasts: Callable[[], Forecasts],
    prices: PriceReader | None,
) -> None:
    """Add ``backtest`` and ``suggest`` to *commands*, and ``--set`` to the parser of *replay*.

    *forecasts* makes the source of an HPA's forecasts; *prices* reads lists of prices, if anything does.
    """
    sets: dict[str, Any] = {
        "dest": "sets",
        "action": "append",
        "default": [],
        "help": "a set of annotations to try beside today's, such as shop/web:requests-per-replica=40; * is every HPA; "
        "an empty VALUE removes the annotation. Those with the same SET@ are one set; repeatable",
    }
    past = commands.add_parser(
        "backtest",
        help="show what these annotations, or others, would have done over the past",
        epilog=EXITS,
        description="Replay the recorded past, cycle by cycle, with the controller's own judgement and a model of the "
        "HPA: floors, replicas, replica-hours, money, and minutes short of replicas, for several sets of annotations "
        "side by side. Writes nothing to the cluster.",
    )
    past.usage = f"{PROGRAM} backtest [-f FILE | --context NAME] [--past FILE] [--set SET] [flags] [NAME ...]"
    _add_past(past).add_argument("--set", metavar="[SET@]NAMESPACE/NAME:ANNOTATION=VALUE", **sets)
    fit = commands.add_parser(
        "suggest",
        help="show which values to annotate, fitted to the past",
        epilog=EXITS,
        description="Fit what one replica carries to the recorded past, and print the annotations that follow, with "
        "the reason of each, or why the past does not tell. Each suggestion is replayed beside today's annotations. "
        "Writes nothing to the cluster.",
    )
    fit.usage = f"{PROGRAM} suggest [-f FILE | --context NAME] [--past FILE] [flags] [NAME ...]"
    _add_past(fit)
    plain = backtest_view()
    for parser, forms, run in ((past, formats_of(plain), _backtest), (fit, formats_of(SUGGESTIONS), _suggest)):
        add_output_arguments(parser, forms, table=False)
        add_logging_arguments(parser)
        parser.set_defaults(run=run, forecasts=forecasts, read_prices=prices)
    output = add_output_arguments(replay, ("text", *formats_of(plain)), table=False)
    output.description = "Without --set: text, the differences."
    replay.add_argument("--set", metavar="SET", **sets)
    replay.set_defaults(run=partial(_replay, replay.get_default("run")), forecasts=forecasts)


def _add_past(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add what says which HPAs, and where their past comes from; return the group of the past."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="an HPA: NAME, or NAMESPACE/NAME (default: all)")
    add_inputs(parser)
    past = parser.add_argument_group("past")
    for name, (read, default, words) in _PAST.items():
        flag, metavar = name.split(" ")
        dest = {"--from": "begin", "--to": "end"}.get(flag, flag[2:].replace("-", "_"))
        action = "append" if isinstance(default, list) else "store"
        kind = value_of(read)
        past.add_argument(flag, dest=dest, metavar=metavar, type=kind, default=default, action=action, help=words)
    return past


def _backtest(arguments: argparse.Namespace) -> int:
    _print_backtest(arguments, *_with_progress(arguments, tested))
    return 0


def _suggest(arguments: argparse.Namespace) -> int:
    document = _with_progress(arguments, suggested)
    write_rendered(PROGRAM, SUGGESTIONS, document, arguments, document.warnings)
    return 0


def _replay(plain: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Replay other sets of annotations over a decision log; without ``--set``, replay the log as *plain* does."""
    if not arguments.sets:
        if arguments.output != "text":
            raise UsageError(f"-o {arguments.output} needs --set; without, text is allowed")
        return plain(arguments)
    raw, name = read_bytes(arguments.log)
    try:
        past, found = _replayed(unpack(raw).splitlines(), name, arguments)
    except (LogError, DocumentError) as error:
        raise CliError(f"{name}: {error}") from error
    if arguments.output == "text":
        arguments.output = "table"
    _print_backtest(arguments, past, found, None)
    return 0


def _replayed(lines: Iterable[bytes], name: str, arguments: argparse.Namespace) -> tuple[RecordedHpas, Found]:
    """Return the past in the decision log called *name*, and the replays of the sets over it."""
    variants = variants_of(arguments.sets)
    pasts, setup = pasts_of_log(lines)
    _check_targets(variants, [past.hpa for past in pasts])
    for variant in variants:
        for past in pasts:
            _spec(variant, past.hpa, setup.rules.prefix, {})
    source, settings = Source("file", name), SettingsView("the rules of the log", {})
    head = FloorHead(API_VERSION, Generator(PROGRAM, hpa_scaler.__version__), source, rfc3339(setup.end), settings)
    warning = f"{counted(len(pasts), 'HPA')}: a log has no metrics of the HPA; each HPA is taken to follow the traffic"
    setup = msgspec.structs.replace(setup, forecasts=arguments.forecasts)
    return RecordedHpas(head, pasts, setup, (warning,)), backtest(pasts, variants, setup)


class RecordedHpas(Struct, frozen=True):
    """The HPAs with a usable past, the stretch of it, and what to say about the rest."""

    head: FloorHead
    pasts: Sequence[RecordedHpa]
    setup: BacktestSetup
    warnings: tuple[str, ...]


def _with_progress(
    arguments: argparse.Namespace,
    make: Callable[[argparse.Namespace, CommandSettings, Say], Coroutine[Any, Any, _T]],
) -> _T:
    configured = CommandSettings.of(arguments, environment())
    with Progress() as progress:
        # With files alone there is nobody to wait for.
        say = progress.say if arguments.filename and arguments.past else progress.wait
        return host.run(make(arguments, configured, say))


def _print_backtest(arguments: argparse.Namespace, past: RecordedHpas, found: Found, price: NodePrice | None) -> None:
    document = backtest_document(past.head, past.setup, found, price, past.warnings)
    write_rendered(PROGRAM, backtest_view(found), document, arguments, past.warnings)


async def tested(
    arguments: argparse.Namespace, configured: CommandSettings, say: Say
) -> tuple[RecordedHpas, Found, NodePrice | None]:
    """Return the past, the replays and the price that *arguments* ask for.

    Raises :class:`CliError`, and the errors of files and of the API.
    """
    variants, price = variants_of(arguments.sets), replica_price(arguments)
    past = await _load(arguments, configured, variants, say)
    what = f"replaying {counted(len(past.pasts), 'HPA')}"
    return past, backtest(past.pasts, variants, past.setup, lambda part: say(f"{what}: {part:.0%}")), price


async def suggested(arguments: argparse.Namespace, configured: CommandSettings, say: Say) -> FloorSuggestions:
    """Return the suggestions that *arguments* ask for. Raises as :func:`tested` does."""
    loaded = await _load(arguments, configured, [TODAY], say, propose=True)
    found = []
    for past in loaded.pasts:
        say(f"fitting {past.hpa.key}")
        found.append(suggest(past, loaded.setup, say))
    return FloorSuggestions(
        **msgspec.structs.asdict(loaded.head),
        begin=rfc3339(loaded.setup.begin),
        end=rfc3339(loaded.setup.end),
        hpas=tuple(found),
        warnings=loaded.warnings,
    )


def variants_of(texts: Sequence[str]) -> list[Variant]:
    """Return the sets to try: today's, no floor, and those of *texts*. Raises :class:`UsageError`."""
    found: dict[str, list[AnnotationChange]] = {}
    for text in texts:
        left, equals, value = text.partition("=")
        where, colon, annotation = left.rpartition(":")
        name, _, target = where.rpartition("@")
        if not equals or not colon or not (target == EVERY or target.count("/") == 1):
            allowed = "[SET@]NAMESPACE/NAME:ANNOTATION=VALUE, such as shop/web:requests-per-replica=40"
            raise UsageError(f"--set {quoted(text)}: allowed is {allowed}")
        if not {annotation, annotation.rstrip("0123456789").removesuffix("-")} & BY_NAME.keys():
            known = f"there is no annotation {quoted(annotation)}{near(annotation, BY_NAME)}"
            raise UsageError(f"--set {quoted(text)}: {known}")
        found.setdefault(name or text, []).append(AnnotationChange(target, annotation, value or None))
    return [TODAY, NO_FLOOR, *(Variant(name, "changed", tuple(changes)) for name, changes in found.items())]


def replica_price(arguments: argparse.Namespace) -> NodePrice | None:
    """Return the price of a replica-hour, ``None`` if none was asked for. Raises :class:`UsageError`."""
    text = arguments.replica_price
    read: PriceReader | None = arguments.read_prices
    prices = NO_PRICES if read is None else read(None, arguments.prices)
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
    # Of this node only the instance type is known.
    node = Node(kind, "", {INSTANCE_TYPE_LABELS[0]: kind}, {}, (), False, NOTHING, True, 0, None, "")
    found = prices.price(node)
    if found is None:
        raise UsageError(f"--replica-price {quoted(text)}: no price is known for the instance type {quoted(kind)}")
    basis = f"{kind} at {found.hourly / MICROS:g} {found.currency} an hour ({found.basis}), {share:g} replicas on each"
    return NodePrice(math.floor(found.hourly / share + 0.5), found.source, basis, found.currency)


async def _load(
    arguments: argparse.Namespace,
    configured: CommandSettings,
    variants: Sequence[Variant],
    say: Say,
    *,
    propose: bool = False,
) -> RecordedHpas:
    """Return the selected HPAs with their past. With *propose*, a query is looked for where an HPA has none."""
    process, settings, rules = configured.process, configured.settings, configured.rules
    async with selected_fleet(arguments, configured, say) as (fleet, source, _):
        hpas = named(arguments.names, fleet.hpas) if arguments.names else list(fleet.hpas)
    _check_targets(variants, hpas)
    now = arguments.now if arguments.now is not None else host.wall()
    specs: dict[str, list[FloorSpec]] = {}
    for hpa in hpas:
        tried = (_spec(variant, hpa, rules.prefix, settings.defaults) for variant in variants if variant.kind != "none")
        specs[hpa.key] = [spec for spec in tried if spec is not None]
    proposed: dict[str, FloorSpec] = {}
    if propose and not arguments.past:
        without = [hpa for hpa in hpas if not any(spec.queries for spec in specs[hpa.key])]
        say(f"looking for queries of {counted(len(without), 'HPA')}")
        async with client_of(configured) as client:
            proposed = await proposed_specs(client, without, settings.query_deadline)
        specs |= {key: [spec] for key, spec in proposed.items()}
    asked = [hpa for hpa in hpas if specs[hpa.key]]
    if not asked:
        lacks = "annotations to replay; give some by --set"
        if propose:
            lacks = "a query, and no usual request rate answers; annotate prometheus-query"
        raise CliError(f"none of {counted(len(hpas), 'HPA')} has {lacks}")
    if arguments.past:
        say(reading(arguments.past))
        pairs = [(hpa, specs[hpa.key][0]) for hpa in asked]
        recorded = read_pasts(arguments.past, pairs, arguments.time_zone, arguments.series)
    else:
        end = now if arguments.end is None else arguments.end
        begin = end - _DEFAULT_SPAN if arguments.begin is None else arguments.begin
        if not 0 < end - begin <= _LONGEST_SPAN:
            stretch = f"--from {rfc3339(begin)} --to {rfc3339(end)}"
            raise UsageError(f"{stretch}: allowed is a stretch of up to a year")
        queries = dict.fromkeys(query for hpa in asked for query in _questions(hpa, specs[hpa.key]))
        async with client_of(configured) as client:
            recorded = await fetch(client, list(queries), RangeRequest(begin, end, arguments.step), say)
    if arguments.save_past is not None:
        write_file("--save-past", arguments.save_past, encode_past(recorded))
    warnings = [*fleet.problems, *fleet.warnings, *recorded.remarks]
    pasts = []
    for hpa in asked:
        past = _past(arguments, configured, hpa, specs[hpa.key], recorded)
        if any(value_query(query) in past.traces for query in past.yardstick.queries):
            pasts.append(msgspec.structs.replace(past, proposed=hpa.key in proposed))
        else:
            warnings.append(f"{hpa.key}: has no recorded past, and is left out")
    if not pasts:
        raise CliError("no HPA has a recorded past", *warnings)
    begin, end = _stretch(arguments, pasts)
    interval = process.interval if arguments.interval is None else arguments.interval
    setup = BacktestSetup(
        rules=msgspec.structs.replace(rules, longest_gap=CYCLES_APART * interval),
        begin=begin,
        end=end,
        interval=interval,
        start=arguments.pod_start,
        outages=tuple(arguments.outage),
        forecasts=arguments.forecasts,
        defaults=settings.defaults,
    )
    files = ", ".join(arguments.past) if arguments.past else None
    head = FloorHead(
        api_version=API_VERSION,
        generator=Generator(PROGRAM, hpa_scaler.__version__),
        source=source,
        evaluated_at=rfc3339(now if not arguments.past else end),
        settings=settings_view(settings, process, configured.config, files),
    )
    return RecordedHpas(head, pasts, setup, (*warnings, *_assumed(arguments, pasts)))


def _check_targets(variants: Sequence[Variant], hpas: Sequence[HorizontalPodAutoscaler]) -> None:
    """Raise :class:`CliError` if a set is for an HPA that is not among *hpas*."""
    known = {hpa.key for hpa in hpas}
    targets = dict.fromkeys(change.target for variant in variants for change in variant.changes)
    wrong = [target for target in targets if target != EVERY and target not in known]
    if wrong:
        raise CliError(*(f'--set: HPA "{target}" not found{near(target, known)}' for target in wrong))


def _spec(variant: Variant, hpa: HorizontalPodAutoscaler, prefix: str, defaults: Mapping[str, str]) -> FloorSpec | None:
    asked = asked_of(variant.hpa(hpa, prefix), prefix, defaults)
    if isinstance(asked, Problems) and variant.kind == "changed":
        raise CliError(*(f"{hpa.key} with the set {variant.name}: {line}" for line in asked.lines))
    return asked if isinstance(asked, FloorSpec) else None


def _questions(hpa: HorizontalPodAutoscaler, specs: Sequence[FloorSpec]) -> Iterator[Query]:
    """Yield the queries for the past of *hpa*: those of its *specs*, and those about the HPA itself."""
    for spec in specs:
        for query in spec.queries:
            yield value_query(query)
            yield from (each for _, each in operand_queries(query))
        if spec.queries:
            if spec.hold is not None:
                yield hold_query(spec.hold)
            yield from own_queries(hpa, spec.queries[0].server).values()


def _past(
    arguments: argparse.Namespace,
    configured: CommandSettings,
    hpa: HorizontalPodAutoscaler,
    specs: Sequence[FloorSpec],
    recorded: Recorded,
) -> RecordedHpa:
    yardstick, rules = specs[0], configured.rules
    bounds = ownership(hpa, state_of(hpa, rules.prefix)[0].history, rules, 0.0)
    traces = {query: recorded.traces[query] for query in _questions(hpa, specs) if query in recorded.traces}
    for spec in specs:
        for query, instead, whole in recorded_instead(spec, recorded.traces):
            traces[query] = _operand_trace(recorded, instead, whole)
    for query in {value_query(each) for each in yardstick.queries} & traces.keys():
        traces[query] = smoothed(traces[query].scaled(arguments.scale), arguments.smooth)
    own = own_queries(hpa, yardstick.queries[0].server) if yardstick.queries else {}
    return RecordedHpa(
        hpa=msgspec.structs.replace(hpa, min_replicas=bounds.minimum, max_replicas=bounds.maximum),
        traces=traces,
        yardstick=yardstick,
        share=1 / arguments.hpa_target,
        replicas=traces.get(own["replicas"]) if own else None,
        wanted=traces.get(own["wanted"]) if own else None,
        floor=traces.get(own["floor"]) if own else None,
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


def _stretch(arguments: argparse.Namespace, pasts: Sequence[RecordedHpa]) -> tuple[float, float]:
    """Return the stretch to replay: what was asked for, as far as there are data."""
    traces = [
        past.traces[value_query(query)]
        for past in pasts
        for query in past.yardstick.queries
        if value_query(query) in past.traces
    ]
    first, last = min(trace.begin for trace in traces), max(trace.end for trace in traces)
    begin = first if arguments.begin is None else max(first, arguments.begin)
    end = last if arguments.end is None else min(last, arguments.end)
    if arguments.begin is None and arguments.past:
        begin = max(begin, end - _LONGEST_SPAN)
    if end <= begin:
        raise CliError(f"the recorded past is from {rfc3339(first)} to {rfc3339(last)}, not in the stretch asked for")
    return begin, end


def _assumed(arguments: argparse.Namespace, pasts: Sequence[RecordedHpa]) -> Iterator[str]:
    """Yield what the numbers rest on that nobody measured."""
    blind = [past.hpa.key for past in pasts if past.wanted is None]
    if blind:
        which = blind[0] if len(blind) == 1 else counted(len(blind), "HPA")
        yield (
            f"{which}: the HPA's own metrics are not recorded; it is taken to follow the traffic, at "
            f"{arguments.hpa_target:g} of what requests-per-replica says"
        )
    rollouts = sum(1 for past in pasts if past.yardstick.rollout_check)
    if rollouts:
        yield f"{counted(rollouts, 'HPA')}: rollouts are not recorded, and hold nothing"


PROPOSED = 100
"""HPAs whose proposed queries are asked at once."""
_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
"""The characters of names that the API server allows; they need no quoting in a selector."""
_RATES = (
    (
        'istio_requests_total{reporter="destination",destination_workload_namespace="NAMESPACE",'
        'destination_workload="TARGET"}'
    ),
    'response_total{direction="inbound",namespace="NAMESPACE",deployment="TARGET"}',
    'envoy_cluster_upstream_rq_total{envoy_cluster_name=~"httproute/NAMESPACE/TARGET/.*"}',
    'nginx_ingress_controller_requests{exported_namespace="NAMESPACE",exported_service="TARGET"}',
    'nginx_ingress_controller_requests{namespace="NAMESPACE",service="TARGET"}',
    'traefik_service_requests_total{service=~"NAMESPACE-TARGET-[^-]*@.*"}',
    'haproxy_backend_http_requests_total{proxy=~"NAMESPACE_(svc_)?TARGET_.*"}',
    *(
        f'{metric}{{namespace="NAMESPACE",{label}="TARGET"}}'
        for metric in (
            "http_server_request_duration_seconds_count",
            "http_server_requests_seconds_count",
            "http_requests_total",
            "http_request_duration_seconds_count",
            "grpc_server_handled_total",
        )
        for label in ("service", "job", "app", "deployment")
    ),
)
"""The usual names of request rates, from the most specific source to the least: what a mesh or a gateway counts for the
target itself, what an ingress counts for the Service of the target's name, and what the pods count themselves, by the
names of client libraries."""


def proposals(hpa: HorizontalPodAutoscaler) -> list[Query]:
    """Return the queries that may tell the requests a second of the target of *hpa*, the best first."""
    if not _NAME.issuperset(hpa.namespace + hpa.target.name):
        return []
    selectors = (each.replace("NAMESPACE", hpa.namespace).replace("TARGET", hpa.target.name) for each in _RATES)
    return [Query(f"sum(rate({selector}[5m]))", ServerRef()) for selector in selectors]


async def proposed_specs(
    client: PrometheusClient, hpas: Sequence[HorizontalPodAutoscaler], seconds: float
) -> dict[str, FloorSpec]:
    """Return a spec with a query for each of *hpas* for which one answers above 0, by the HPA's key.

    A hundred HPAs at a time are asked for, within so many *seconds*.
    """
    found: dict[str, FloorSpec] = {}
    for first in range(0, len(hpas), PROPOSED):
        asked = {hpa.key: proposals(hpa) for hpa in hpas[first : first + PROPOSED]}
        outcomes = await client.ask(dict.fromkeys(query for each in asked.values() for query in each), seconds)
        for key, tried in asked.items():
            for query in tried:
                outcome = outcomes.get(query)
                if isinstance(outcome, QueryAnswer) and outcome.highest is not None and outcome.highest > 0:
                    found[key] = FloorSpec(queries=(QuerySpec(query.text, server=query.server),))
                    break
    return found

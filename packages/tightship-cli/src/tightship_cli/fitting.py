"""The command ``fit``: which machines would carry what runs at the least money. Writes nothing to a cluster."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Collection, Iterator
from functools import partial

import msgspec

from hpa_scaler.process.settings import ScalerRunSettings, read_settings, servers_of
from tightship.cli.app import CliError, UsageError
from tightship.cli.arguments import (
    CommandParser,
    add_cluster_arguments,
    add_logging_arguments,
    add_output_arguments,
    add_time_argument,
    environment,
    value_of,
)
from tightship.cli.object_file import FileError, documents, read_bytes, unpack
from tightship.cli.output import Progress, text_of, write_document, write_rendered
from tightship.cli.source import load_snapshot
from tightship.documents.document import Generator
from tightship.documents.formats import formats_of
from tightship.documents.money import money
from tightship.fit import fit
from tightship.fit.model import MODES, Advised, Asked, FitError, Fitted
from tightship.fit.snippets import FORMS, best_of, snippets
from tightship.fit.view import FIT, fit_document
from tightship.nodes.annexes import PRICES
from tightship.objects.counting import counted
from tightship.objects.money import HOURS_PER_MONTH, Prices
from tightship.objects.quantity import amount
from tightship.objects.query_servers import parse_server
from tightship.objects.quoting import near, quoted
from tightship.objects.selectors import parse_selector
from tightship.objects.times import rfc3339
from tightship.objects.unreadable import UNREADABLE
from tightship.objects.vertical import Recommended, VerticalPodAutoscalerWire
from tightship.planning.demand import ReservedDemand
from tightship.process.settings.process import load_process
from tightship_cli.past import DAYS, read_past

_DESCRIPTION = """Show which machine types, and how many, would carry the pods of a pool or of the cluster at the least
money: every pod with its requests, selectors, taints, affinity, spread and volumes, beside DaemonSets and what kubelets
keep. A proven bound stands beside each alternative. Writes nothing to the cluster."""

_EXITS = "exit codes: 0 done; 1 an error; 64 wrong usage; 130 interrupted; 141 the reader closed the pipe."


def add_fit(commands: argparse._SubParsersAction[CommandParser], generator: Generator) -> None:
    """Add the command to *commands* of the program *generator*."""
    program = generator.name
    parser = commands.add_parser(
        "fit",
        help="show which machine types would carry what runs at the least money",
        description=_DESCRIPTION,
        epilog=f"examples:\n  {program} fit --pool web                    # one pool, of any types\n"
        f"  {program} fit --types m7i,c7i --at-most 2   # two types of two families\n"
        f"  {program} fit --pool web --as nodepool     # the pool as configuration\n"
        f"  {program} fit -f cluster.json -o json\n\n{_EXITS}",
    )
    parser.usage = f"{program} fit [-f FILE | --context NAME] [flags]"
    add_cluster_arguments(parser)
    group = parser.add_argument_group("which machines")
    group.add_argument(
        "--pool", metavar="NAME", action="append", help="carry the pods of this pool; repeatable (default: all)"
    )
    group.add_argument(
        "--choose-from",
        metavar="WHICH",
        type=value_of(partial(_one_of, allowed=MODES, what="choice of machines")),
        help=f"only this alternative: {', '.join(MODES)} (default: all three)",
    )
    group.add_argument(
        "--types", metavar="LIST", type=value_of(_words), help="only these types and families: m7i,c7i.2xlarge"
    )
    group.add_argument("--at-most", metavar="N", type=value_of(_count), help="use at most N types")
    group.add_argument(
        "--spot",
        metavar="SELECTOR",
        type=value_of(parse_selector),
        help="pods with these labels may run on spot machines too, as for kubectl: a=b, 'a in (b,c)'",
    )
    group.add_argument(
        "--usage",
        metavar="FILE",
        type=value_of(_usage),
        help="the same again with requests as FILE recommends: the JSON of krr, or of `kubectl get vpa -A -o json`",
    )
    group.add_argument(
        "--prometheus",
        metavar="URL",
        type=value_of(parse_server),
        help=f"the same again for the peak of the last {DAYS} days, by the metrics of kube-state-metrics",
    )
    group.add_argument(
        "--floors-config",
        metavar="FILE",
        help="hpa-scaler's configuration: its prometheusServers have the credentials for --prometheus",
    )
    group.add_argument("--prices", metavar="FILE", help="prices of machines, as for plan: see docs/money.md")
    group.add_argument(
        "--as",
        metavar="FORM",
        dest="form",
        type=value_of(partial(_one_of, allowed=FORMS, what="form of pools")),
        help="print the pools of the cheapest alternative as configuration instead: one of " + ", ".join(FORMS),
    )
    add_time_argument(group)
    add_output_arguments(parser, formats_of(FIT), table=False)
    add_logging_arguments(parser)

    def begin(arguments: argparse.Namespace) -> int:
        return _fit(arguments, generator)

    parser.set_defaults(run=begin)


def _one_of(text: str, *, allowed: Collection[str], what: str) -> str:
    if text not in allowed:
        raise ValueError(f"{quoted(text)} is no {what}; allowed are {', '.join(allowed)}{near(text, allowed)}")
    return text


def _words(text: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(each.strip() for each in text.split(",")))
    if not all(words):
        raise ValueError(f"{quoted(text)} is no list of types; allowed are types and families joined by commas")
    return words


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{quoted(text)} is not a count; allowed is a whole number from 1")
    return int(text)


class _Amount(msgspec.Struct, frozen=True):
    value: float | str | None = None


class _Requests(msgspec.Struct, frozen=True):
    requests: dict[str, _Amount] = {}


class _Scanned(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    container: str = ""
    kind: str = ""


class _Scan(msgspec.Struct, frozen=True):
    object: _Scanned
    recommended: _Requests


class _Usage(msgspec.Struct, frozen=True):
    """krr's result has *scans* (robusta_krr/core/models/result.py), a list of VPAs *items*."""

    kind: str = ""
    scans: tuple[_Scan, ...] = ()
    items: tuple[VerticalPodAutoscalerWire, ...] = ()


def _usage(path: str) -> Advised:
    """Return what the file *path* recommends. Raises :class:`ValueError` for one that does not."""
    allowed = "allowed is the JSON of krr (-f json), or of `kubectl get vpa -A -o json`"
    found: dict[tuple[str, str, str], dict[str, Recommended]] = {}
    scalers: list[VerticalPodAutoscalerWire] = []
    try:
        for raw in documents(unpack(read_bytes(path)[0])):
            read = msgspec.json.decode(raw, type=_Usage)
            scalers += read.items
            if read.kind == "VerticalPodAutoscaler":
                scalers.append(msgspec.json.decode(raw, type=VerticalPodAutoscalerWire))
            for scan in read.scans:
                of = scan.object
                found.setdefault((of.namespace, of.kind, of.name), {})[of.container] = Recommended(dict(_wanted(scan)))
        for each in scalers:
            scaler = each.autoscaler(advice=True)
            if scaler.problem:
                raise ValueError(f"VerticalPodAutoscaler {scaler.key}: {scaler.problem}")
            kind, name = scaler.target
            found.setdefault((scaler.namespace, kind.partition(".")[0], name), {}).update(scaler.containers)
    except FileError as error:
        raise ValueError(str(error)) from error
    except (ValueError, *UNREADABLE) as error:
        raise ValueError(f"{path}: {error}; {allowed}") from error
    if not any(each.requests for containers in found.values() for each in containers.values()):
        raise ValueError(f"{path}: recommends nothing; {allowed}")
    return Advised(path, found)


def _wanted(scan: _Scan) -> Iterator[tuple[str, str]]:
    for name, told in scan.recommended.requests.items():
        if told.value not in (None, "?"):  # unwanted, or too few data
            try:
                amount(name, str(told.value))
            except ValueError as error:
                of = scan.object
                raise ValueError(f"{of.namespace}/{of.name}/{of.container}: {name}: {error}") from error
            yield name, str(told.value)


def _fit(arguments: argparse.Namespace, generator: Generator) -> int:
    if arguments.form is not None and arguments.output != "table":
        raise UsageError(f"--as prints configuration, and -o {arguments.output} a document; allowed is one of them")
    prices = _prices(arguments.prices)
    with Progress() as progress:
        loaded = load_snapshot(arguments, progress, ReservedDemand())
        past = None
        if arguments.prometheus is not None:
            progress.say(f"reading the past of {arguments.prometheus}")
            run = load_process(ScalerRunSettings, environment(), {})
            servers = servers_of(read_settings(arguments.floors_config), run)
            past = asyncio.run(read_past(arguments.prometheus, loaded.at, servers.values()))
        asked = Asked(
            snapshot=loaded.snapshot,
            prices=prices,
            pools=None if arguments.pool is None else frozenset(arguments.pool),
            modes=MODES if arguments.choose_from is None else (arguments.choose_from,),
            types=arguments.types or (),
            at_most=arguments.at_most,
            spot=arguments.spot,
            recommended=arguments.usage,
            past=past,
        )
        progress.say(f"looking for machines for {counted(loaded.snapshot.pod_count, 'pod')}")
        try:
            fitted = fit(asked)
            written = None if arguments.form is None else _snippets(arguments.form, fitted)
        except FitError as error:
            raise CliError(str(error)) from error
    if written is not None:
        write_document(written, always_utf8=True)
        return 0
    document = fit_document(generator, loaded.source, rfc3339(loaded.at), fitted, loaded.warnings)
    write_rendered(generator.name, FIT, document, arguments, loaded.warnings)
    return 0


def _snippets(form: str, fitted: Fitted) -> str:
    """Return the pools of the best alternative as configuration, after a line on what this is."""
    best = best_of(fitted)
    cost = money(best.micros_per_hour * HOURS_PER_MONTH, fitted.currency)
    left = f"; {counted(len(best.unplaced), 'pod')} without a place" if best.unplaced else ""
    told = f"# {best.mode}, for {fitted.answers[-1].told}: {counted(best.nodes, 'node')}, {cost} a month{left}\n"
    between = "---\n" if form in ("nodepool", "computeclass") else ""
    return told + between.join(text_of(each) for each in snippets(form, fitted, best))


def _prices(path: str | None) -> Prices:
    if PRICES is None:
        return Prices()
    prices = PRICES(None, path)
    return prices if prices.ask is None else msgspec.structs.replace(prices, nodes=prices.ask())

"""``backtest``, ``suggest`` and ``replay --set``: what other annotations would have done over a recorded past."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

import hpa_scaler
from hpa_scaler.annotations.spec import Problems
from hpa_scaler.backtest.document import Tested, backtest_document
from hpa_scaler.backtest.fitting import suggest
from hpa_scaler.backtest.loading import check_targets, load
from hpa_scaler.backtest.log_past import pasts_of_log
from hpa_scaler.backtest.options import SETS, add_backtest_options, add_past_options, replica_price, variants_of
from hpa_scaler.backtest.replaying import backtest
from hpa_scaler.backtest.suggestions import SUGGESTIONS, FloorSuggestions, suggestions_document
from hpa_scaler.backtest.variants import Variant
from hpa_scaler.backtest.views import BACKTEST, backtest_view
from hpa_scaler.documents.document import FloorHead
from hpa_scaler.judge.cycle import LogError, asked_of
from hpa_scaler.process.commands import CommandSettings
from hpa_scaler.process.fleet import Say
from hpa_scaler.process.forecasts import Forecasts
from hpa_scaler.process.run_settings import PROGRAM
from tightship.cli.app import CliError, UsageError
from tightship.cli.arguments import CommandParser, add_logging_arguments, add_output_arguments, environment
from tightship.cli.basics import write_rendered
from tightship.cli.documents import DocumentError, unpack
from tightship.cli.object_file import read_bytes
from tightship.cli.progress import Progress
from tightship.documents.document import API_VERSION, Generator, SettingsView, Source
from tightship.documents.formats import formats_of
from tightship.kube import host
from tightship.objects.counting import counted
from tightship.objects.money import PriceReader
from tightship.objects.times import rfc3339

_EXITS = """exit codes: 0 done; 1 an error, or a difference in a replay; 2 with --exit-code, when a floor would move;
64 wrong usage; 130 interrupted; 141 the reader closed the pipe."""

_TODAY = Variant("today", "today")


def add_backtest(
    commands: argparse._SubParsersAction[CommandParser],
    replay: CommandParser,
    forecasts: Callable[[], Forecasts],
    prices: PriceReader | None,
) -> None:
    """Add ``backtest`` and ``suggest`` to *commands*, and ``--set`` to the parser of *replay*.

    *forecasts* makes the source of an HPA's forecasts; *prices* reads lists of prices, if anything does.
    """
    past = commands.add_parser(
        "backtest",
        help="show what these annotations, or others, would have done over the past",
        epilog=_EXITS,
        description="Replay the recorded past, cycle by cycle, with the controller's own judgement and a model of the "
        "HPA: floors, replicas, replica-hours, money, and minutes short of replicas, for several sets of annotations "
        "side by side. Writes nothing to the cluster.",
    )
    past.usage = f"{PROGRAM} backtest [-f FILE | --context NAME] [--past FILE] [--set SET] [flags] [NAME ...]"
    add_backtest_options(past)
    add_output_arguments(past, formats_of(BACKTEST), table=False)
    add_logging_arguments(past)
    past.set_defaults(run=_backtest, forecasts=forecasts, read_prices=prices)
    fit = commands.add_parser(
        "suggest",
        help="show which values to annotate, fitted to the past",
        epilog=_EXITS,
        description="Fit what one replica carries to the recorded past, and print the annotations that follow, with "
        "the reason of each, or why the past does not tell. Each suggestion is replayed beside today's annotations. "
        "Writes nothing to the cluster.",
    )
    fit.usage = f"{PROGRAM} suggest [-f FILE | --context NAME] [--past FILE] [flags] [NAME ...]"
    add_past_options(fit)
    add_output_arguments(fit, formats_of(SUGGESTIONS), table=False)
    add_logging_arguments(fit)
    fit.set_defaults(run=_suggest, forecasts=forecasts)
    forms = add_output_arguments(replay, ("text", *formats_of(BACKTEST)), table=False)
    forms.description = "Without --set: text, the differences."
    replay.add_argument("--set", dest="sets", metavar="SET", action="append", default=[], help=SETS)
    replay.set_defaults(run=partial(_replay, replay.get_default("run")), forecasts=forecasts)


def _backtest(arguments: argparse.Namespace) -> int:
    configured = CommandSettings.of(arguments, environment())
    with Progress() as progress:
        say = progress.say if arguments.filename and arguments.past else progress.wait
        found = host.run(tested(arguments, configured, say))
    document = backtest_document(found)
    write_rendered(PROGRAM, backtest_view(found), document, arguments, found.warnings)
    return 0


def _suggest(arguments: argparse.Namespace) -> int:
    configured = CommandSettings.of(arguments, environment())
    with Progress() as progress:
        say = progress.say if arguments.filename and arguments.past else progress.wait
        document = host.run(suggested(arguments, configured, say))
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
        found = replayed_sets(unpack(raw).splitlines(), name, arguments.sets, arguments.forecasts)
    except (LogError, DocumentError) as error:
        raise CliError(f"{name}: {error}") from error
    if arguments.output == "text":
        arguments.output = "table"
    write_rendered(PROGRAM, backtest_view(found), backtest_document(found), arguments, found.warnings)
    return 0


async def tested(arguments: argparse.Namespace, configured: CommandSettings, say: Say) -> Tested:
    """Return the backtest that *arguments* ask for. Raises :class:`CliError` and the errors of files and of the API."""
    variants = variants_of(arguments.sets)
    price = replica_price(arguments)
    loaded = await load(arguments, configured, variants, say)
    result = backtest(
        loaded.pasts,
        variants,
        loaded.setup,
        lambda part: say(f"replaying {counted(len(loaded.pasts), 'HPA')}: {part:.0%}"),
    )
    return Tested(loaded.head, loaded.setup, loaded.pasts, result, price, loaded.warnings)


async def suggested(arguments: argparse.Namespace, configured: CommandSettings, say: Say) -> FloorSuggestions:
    """Return the suggestions that *arguments* ask for. Raises as ``backtest`` does."""
    loaded = await load(arguments, configured, [_TODAY], say, propose=True)
    found = []
    for past in loaded.pasts:
        say(f"fitting {past.hpa.key}")
        found.append(suggest(past, loaded.setup, _TODAY, say))
    return suggestions_document(loaded.head, loaded.setup, found, loaded.warnings)


def replayed_sets(
    lines: Iterable[bytes], name: str, texts: Sequence[str], forecasts: Callable[[], Forecasts]
) -> Tested:
    """Return the backtest of the sets *texts* over the decision log called *name*.

    Raises :class:`~hpa_scaler.judge.cycle.LogError` and :class:`CliError`.
    """
    variants = variants_of(texts)
    pasts, setup = pasts_of_log(lines)
    setup = msgspec.structs.replace(setup, forecasts=forecasts)
    check_targets(variants, [past.hpa for past in pasts])
    for variant in variants:
        for past in pasts:
            asked = asked_of(variant.hpa(past.hpa, setup.rules.prefix), setup.rules.prefix)
            if isinstance(asked, Problems):
                raise CliError(*(f"{past.hpa.key} with the set {variant.name}: {line}" for line in asked.lines))
    head = FloorHead(
        api_version=API_VERSION,
        generator=Generator(PROGRAM, hpa_scaler.__version__),
        source=Source("file", name),
        evaluated_at=rfc3339(setup.end),
        settings=SettingsView("the rules of the log", {}),
    )
    warning = f"{counted(len(pasts), 'HPA')}: a log has no metrics of the HPA; each HPA is taken to follow the traffic"
    return Tested(head, setup, pasts, backtest(pasts, variants, setup), None, (warning,))

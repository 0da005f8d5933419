"""The command ``hpa-scaler``. ``plan``, ``explain``, ``replay`` and ``version`` write nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import hpa_scaler
from hpa_scaler.annexes import COMMANDS, FORECASTS, PRICES
from hpa_scaler.annotations.outcome_file import OutcomeFileError, asked_at
from hpa_scaler.documents import EXPLANATION, PLAN, PlanContext, explanation_document, plan_document
from hpa_scaler.documents.views import replay_text
from hpa_scaler.judge.decision import DropState
from hpa_scaler.judge.decision_log import LogError, log_lines, replay
from hpa_scaler.process.commands import EXITS, ORDERS, CommandSettings, add_options, judge_selected
from hpa_scaler.process.forecasts import made_by, offline
from hpa_scaler.process.loop import serve
from hpa_scaler.process.release import add_release
from hpa_scaler.process.settings import PROGRAM, ScalerRunSettings
from tightship.cli.app import EXIT_ERROR, EXIT_WOULD_CHANGE, CliError, run
from tightship.cli.arguments import (
    CommandParser,
    Parser,
    add_logging_arguments,
    add_output_arguments,
    add_run,
    environment,
    set_up_logging,
)
from tightship.cli.object_file import DocumentError, read_bytes, unpack
from tightship.cli.output import (
    Progress,
    no_command,
    print_version,
    version_line,
    write_document,
    write_file,
    write_rendered,
)
from tightship.documents.formats import formats_of
from tightship.kube import host

_serve = partial(serve, forecasts_from=made_by(FORECASTS))


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    sys.exit(run(PROGRAM, command))


def command(arguments: Sequence[str]) -> int:
    """Run the command with *arguments* and return its exit code."""
    parsed = build_parser().parse_args(arguments)
    set_up_logging(parsed.log_level, parsed.verbose)
    code: int = parsed.run(parsed)
    return code


def build_parser() -> Parser:
    """Return the parser of the whole command."""
    parser = Parser()
    commands = fill(parser, PROGRAM)
    add_run(commands, PROGRAM, hpa_scaler.__version__, ScalerRunSettings, _serve)
    add_release(commands)
    return parser


def fill(parser: Parser, program: str) -> argparse._SubParsersAction[CommandParser]:
    """Make *parser* the parser of the commands that write nothing, under the name *program*, and return these."""
    parser.prog, parser.epilog = program, EXITS
    parser.description = "Keeps minReplicas of HorizontalPodAutoscalers in line with traffic."
    parser.set_defaults(run=lambda _: no_command(parser), log_level=None, verbose=0)
    parser.add_argument("--version", action="version", version=version_line(program, hpa_scaler.__version__))
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=CommandParser)
    plan = commands.add_parser(
        "plan",
        help="show where the floor of each HPA would go, and why",
        epilog=EXITS,
        description="Show where the floor of each annotated HPA would go in the next cycle, by what its queries answer "
        "now, and why. Writes nothing to the cluster.",
    )
    plan.usage = f"{program} plan [-f FILE | --context NAME] [--outcomes FILE] [flags]"
    add_options(plan)
    output = add_output_arguments(plan, formats_of(PLAN), table=False)
    output.add_argument(
        "--sort-by",
        choices=ORDERS,
        default=next(iter(ORDERS)),
        metavar="KEY",
        help=f"order of the HPAs in every output: one of {', '.join(ORDERS)} (default: name)",
    )
    output.add_argument("--exit-code", action="store_true", help="exit with 2 when a floor would move, 0 when none")
    output.add_argument("--decision-log", metavar="FILE", help="write every judgement to FILE, for `replay`")
    add_logging_arguments(plan)
    plan.set_defaults(run=_plan)
    explain = commands.add_parser(
        "explain",
        help="show everything about the named HPAs: queries, floors, reasons, what is remembered",
        epilog=EXITS,
        description="Show all about the named HPAs: their queries and answers, every floor that was compared, all "
        "reasons, and what is remembered of them. Looks at these HPAs alone. Writes nothing to the cluster.",
    )
    explain.usage = f"{program} explain [-f FILE | --context NAME] [--outcomes FILE] [flags] NAME ..."
    explain.add_argument("names", nargs="+", metavar="NAME", help="an HPA: NAME, or NAMESPACE/NAME")
    add_options(explain)
    add_output_arguments(explain, formats_of(EXPLANATION), table=False)
    add_logging_arguments(explain)
    explain.set_defaults(run=_explain)
    again = commands.add_parser(
        "replay",
        help="repeat every decision of a decision log, and show what differs",
        epilog=EXITS,
        description="Repeat every decision of a decision log offline, and print each one that comes out differently.",
    )
    again.usage = f"{program} replay [--set SET] LOG"
    again.set_defaults(run=_replay)
    for add in COMMANDS:
        add(commands, again, offline(made_by(FORECASTS)), PRICES)
    again.add_argument("log", metavar="LOG", help="a decision log, .gz too; - for standard input")
    add_logging_arguments(again)
    version = commands.add_parser("version", help="print the version", description="Print the version.")
    version.set_defaults(run=lambda _: print_version(program, hpa_scaler.__version__))
    return commands


def _plan(arguments: argparse.Namespace) -> int:
    context = _look(arguments, None)
    if arguments.decision_log is not None:
        lines = log_lines(context.cycle, str(int(context.now)), DropState(), context.rules, context.now)
        write_file("--decision-log", arguments.decision_log, b"".join(lines))
    document = plan_document(context, ORDERS[arguments.sort_by])
    write_rendered(PROGRAM, PLAN, document, arguments, context.warnings)
    changes = any(each.changes for each in context.cycle.decisions)
    return EXIT_WOULD_CHANGE if arguments.exit_code and changes else 0


def _explain(arguments: argparse.Namespace) -> int:
    context = _look(arguments, arguments.names)
    document = explanation_document(context, [each.key for each in context.cycle.decisions])
    write_rendered(PROGRAM, EXPLANATION, document, arguments, context.warnings)
    return 0


def _look(arguments: argparse.Namespace, names: Sequence[str] | None) -> PlanContext:
    configured = CommandSettings.of(arguments, environment())
    try:
        with Progress() as progress:
            # With files alone there is nobody to wait for.
            offline = arguments.filename and arguments.outcomes is not None
            say = progress.say if offline else progress.wait
            found = judge_selected(arguments, configured, _now(arguments), names, say, forecasts=made_by(FORECASTS))
            context = host.run(found)
    except OutcomeFileError as error:
        raise CliError(*error.problems) from error
    return context


def _now(arguments: argparse.Namespace) -> float:
    """Return the time of the judgement: ``--now``, else that of the recorded answers, else now."""
    if arguments.now is not None:
        return float(arguments.now)
    recorded = None
    if arguments.outcomes is not None:
        with suppress(OSError):
            recorded = asked_at(Path(arguments.outcomes).read_bytes())
    return host.wall() if recorded is None else recorded


def _replay(arguments: argparse.Namespace) -> int:
    raw, name = read_bytes(arguments.log)
    try:
        found = replay(unpack(raw).splitlines())
    except (LogError, DocumentError) as error:
        raise CliError(f"{name}: {error}") from error
    differences = "".join(f"{each}\n" for each in found.differences)
    write_document(f"{differences}{replay_text(found)}\n", always_utf8=False)
    return EXIT_ERROR if found.differences else 0


if __name__ == "__main__":
    main()

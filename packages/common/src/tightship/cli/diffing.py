"""The command ``diff``: two plans side by side, such as before and after a change, for a pull request."""

from __future__ import annotations

import argparse

import msgspec

from tightship.cli.app import EXIT_WOULD_CHANGE, CliError
from tightship.cli.arguments import CommandParser, add_logging_arguments, add_output_arguments
from tightship.cli.basics import write_rendered
from tightship.cli.documents import DocumentError, unpack
from tightship.cli.object_file import FileError, read_bytes
from tightship.documents.difference import DIFFERENCE, difference
from tightship.documents.document import Generator, NodePlan
from tightship.documents.formats import formats_of
from tightship.objects.unreadable import UNREADABLE

_EXITS = """exit codes: 0 done; 1 an error; 2 with --exit-code, when a node is decided otherwise; 64 wrong usage;
130 interrupted; 141 the reader closed the pipe."""


def add_diff(commands: argparse._SubParsersAction[CommandParser], generator: Generator) -> None:
    """Add the command to *commands* of the program *generator*."""
    parser = commands.add_parser(
        "diff",
        help="show which nodes two plans decide differently",
        epilog=_EXITS,
        description="Show which nodes two plans decide differently, and the figures of both. Each plan is a file that "
        "`plan -o json` wrote; - is standard input. `-o markdown` fits a comment of a pull request.",
    )
    parser.usage = f"{generator.name} diff [flags] BEFORE AFTER"
    parser.add_argument("before", metavar="BEFORE", help="a plan as JSON, .gz too")
    parser.add_argument("after", metavar="AFTER", help="the plan to compare with")
    output = add_output_arguments(parser, formats_of(DIFFERENCE), table=False)
    output.add_argument("--exit-code", action="store_true", help="exit with 2 when a node is decided otherwise")
    add_logging_arguments(parser)

    def run(arguments: argparse.Namespace) -> int:
        if arguments.before == arguments.after == "-":
            raise CliError("BEFORE and AFTER are both standard input; allowed is one")
        found = difference(generator, _plan(arguments.before), _plan(arguments.after))
        write_rendered(generator.name, DIFFERENCE, found, arguments, ())
        return EXIT_WOULD_CHANGE if arguments.exit_code and found.nodes else 0

    parser.set_defaults(run=run)


def _plan(file: str) -> NodePlan:
    try:
        raw, name = read_bytes(file)
    except FileError as error:
        raise CliError(*error.problems) from error
    try:
        return msgspec.json.decode(unpack(raw), type=NodePlan)
    except (*UNREADABLE, DocumentError) as error:
        raise CliError(f"{name}: {error}; allowed is what `plan -o json` writes") from error

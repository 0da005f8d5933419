"""The command ``tightship``: what the commands of all three controllers show, without their ``run``.

``plan``, ``explain`` and ``diff`` are node-compactor's. ``refine`` holds the commands of node-refiner, ``floors`` those
of hpa-scaler. Nothing here writes to a cluster. kubectl finds the command as a plugin: ``kubectl tightship plan``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

import shtab
from msgspec.structs import replace

import hpa_scaler.cli
import node_compactor.cli
import node_refiner.cli
from tightship.cli.app import run
from tightship.cli.arguments import CommandParser, Parser, set_up_logging
from tightship.cli.commands import Program
from tightship.cli.output import write_document
from tightship_cli import __version__
from tightship_cli.converting import add_config

PROGRAM = "tightship"

_DESCRIPTION = "Shows which nodes a cluster could do without, which floors of HPAs would move, and why. Writes nothing."


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
    compactor = _named(node_compactor.cli.COMMAND, PROGRAM)
    compactor = replace(compactor, version=__version__, description=_DESCRIPTION, add_commands=partial(_add, parser))
    compactor.fill(parser)
    return parser


def _named(program: Program, name: str) -> Program:
    return replace(program, name=name, add_commands=None)


def _add(whole: Parser, commands: argparse._SubParsersAction[CommandParser]) -> None:
    refiner = _named(node_refiner.cli.COMMAND, f"{PROGRAM} refine")
    refiner.fill(commands.add_parser("refine", help="the same by node-refiner: excess nodes of the whole cluster"))
    floors = commands.add_parser("floors", help="the same for HPAs by hpa-scaler, and its backtest, suggest and replay")
    hpa_scaler.cli.fill(floors, f"{PROGRAM} floors")
    add_config(commands)
    completion = commands.add_parser(
        "completion",
        help="print the completion for a shell",
        description="Print what completes this command in a shell, such as `source <(tightship completion bash)`.",
    )
    completion.add_argument(
        "shell", choices=shtab.SUPPORTED_SHELLS, metavar="SHELL", help=", ".join(shtab.SUPPORTED_SHELLS)
    )
    completion.set_defaults(run=lambda arguments: _complete(whole, arguments.shell))


def _complete(whole: Parser, shell: str) -> int:
    write_document(shtab.complete(whole, shell) + "\n", always_utf8=True)
    return 0

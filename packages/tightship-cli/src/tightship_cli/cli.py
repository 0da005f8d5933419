"""The command ``tightship``: what the commands of all three controllers show, without their ``run``.

``plan``, ``explain`` and ``diff`` are node-compactor's. ``refine`` holds the commands of node-refiner, ``floors`` those
of hpa-scaler. Nothing here writes to a cluster. kubectl finds the command as a plugin: ``kubectl tightship plan``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import shtab

import hpa_scaler.cli
from node_compactor.advice import CompactorChanges
from node_compactor.controller import COMPACTOR
from node_refiner.advice import RefinerChanges
from node_refiner.controller import REFINER
from tightship.cli.app import run
from tightship.cli.arguments import CommandParser, Parser, set_up_logging
from tightship.cli.commands import Commands
from tightship.cli.output import write_document
from tightship_cli import __version__

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
    _PlanCommands().fill(parser)
    return parser


class _PlanCommands(Commands):
    """node-compactor's commands under the name ``tightship``, with those of the other controllers beside them."""

    def __init__(self) -> None:
        super().__init__(
            COMPACTOR, changes=CompactorChanges, name=PROGRAM, version=__version__, description=_DESCRIPTION
        )

    def add_commands(self, commands: argparse._SubParsersAction[CommandParser]) -> None:
        """Add the commands of node-refiner and of hpa-scaler."""
        _add(commands)


class _RefineCommands(Commands):
    """node-refiner's commands without ``run``."""

    def __init__(self) -> None:
        super().__init__(REFINER, changes=RefinerChanges, name=f"{PROGRAM} refine")

    def add_commands(self, commands: argparse._SubParsersAction[CommandParser]) -> None:
        """Add nothing."""


def _add(commands: argparse._SubParsersAction[CommandParser]) -> None:
    _RefineCommands().fill(
        commands.add_parser("refine", help="the same by node-refiner: excess nodes of the whole cluster")
    )
    floors = commands.add_parser("floors", help="the same for HPAs by hpa-scaler, and its backtest, suggest and replay")
    hpa_scaler.cli.fill(floors, f"{PROGRAM} floors")
    completion = commands.add_parser(
        "completion",
        help="print the completion for a shell",
        description="Print what completes this command in a shell, such as `source <(tightship completion bash)`.",
    )
    completion.add_argument(
        "shell", choices=shtab.SUPPORTED_SHELLS, metavar="SHELL", help=", ".join(shtab.SUPPORTED_SHELLS)
    )
    completion.set_defaults(run=lambda arguments: _complete(arguments.shell))


def _complete(shell: str) -> int:
    write_document(shtab.complete(build_parser(), shell) + "\n", always_utf8=True)
    return 0

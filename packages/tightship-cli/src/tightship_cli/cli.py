"""The command ``tightship``: what the commands of all three controllers show, without their ``run``.

``plan``, ``explain`` and ``diff`` are node-compactor's. ``refine`` holds the commands of node-refiner, ``floors`` those
of hpa-scaler. Nothing here writes to a cluster. kubectl finds the command as a plugin: ``kubectl tightship plan``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import get_args

import shtab

import hpa_scaler.cli
from node_compactor.controller import COMPACTOR
from node_refiner.controller import REFINER
from tightship.cli.app import run
from tightship.cli.arguments import CommandParser, Parser, set_up_logging
from tightship.cli.commands import Commands
from tightship.cli.output import write_document
from tightship.cli.snapshot_command import add_snapshot
from tightship.cluster.pools import KNOWN_POOL_LABELS
from tightship.documents.document import Generator
from tightship.planning.plan import STRATEGIES, Placement
from tightship.rules.evictability import SWITCHABLE as POD_RULES
from tightship.rules.nodes import SWITCHABLE as NODE_RULES
from tightship_cli import __version__
from tightship_cli.converting import add_config
from tightship_cli.fitting import add_fit
from tightship_cli.fleet import add_fleet
from tightship_cli.lint import add_lint
from tightship_cli.mcp import add_mcp

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
        super().__init__(COMPACTOR, name=PROGRAM, version=__version__, description=_DESCRIPTION)

    several = True

    def add_to_plan(self, plan: CommandParser) -> None:
        """Let ``plan`` take several clusters."""
        add_fleet(self, plan)

    def add_commands(self, commands: argparse._SubParsersAction[CommandParser]) -> None:
        """Add the commands of node-refiner and of hpa-scaler."""
        _add(commands)


class _RefineCommands(Commands):
    """node-refiner's commands without ``run``."""

    def __init__(self) -> None:
        super().__init__(REFINER, name=f"{PROGRAM} refine")

    several = True

    def add_to_plan(self, plan: CommandParser) -> None:
        """Let ``plan`` take several clusters."""
        add_fleet(self, plan)

    def add_commands(self, commands: argparse._SubParsersAction[CommandParser]) -> None:
        """Add nothing."""


def _add(commands: argparse._SubParsersAction[CommandParser]) -> None:
    _RefineCommands().fill(
        commands.add_parser("refine", help="the same by node-refiner: excess nodes of the whole cluster")
    )
    floors = commands.add_parser("floors", help="the same for HPAs by hpa-scaler, and its backtest, suggest and replay")
    hpa_scaler.cli.fill(floors, f"{PROGRAM} floors")
    add_config(commands)
    add_snapshot(commands, PROGRAM)
    add_lint(commands, PROGRAM, __version__)
    add_mcp(commands, PROGRAM, __version__, command)
    add_fit(commands, Generator(PROGRAM, __version__))
    completion = commands.add_parser(
        "completion",
        help="print the completion for a shell",
        description="Print what completes this command in a shell, such as `source <(tightship completion bash)`.",
    )
    completion.add_argument(
        "shell", choices=shtab.SUPPORTED_SHELLS, metavar="SHELL", help=", ".join(shtab.SUPPORTED_SHELLS)
    )
    completion.set_defaults(run=lambda arguments: _complete(arguments.shell))


_ASK = {
    "context": "kubectl config get-contexts -o name 2>/dev/null",
    "nodes": "kubectl get nodes -o name 2>/dev/null | cut -d/ -f2",
    "pool": "kubectl get nodes --no-headers 2>/dev/null -o custom-columns="
    + ",".join(
        f"P{at}:.metadata.labels.{label}"
        for at, label in enumerate(each.replace(".", r"\.") for each in KNOWN_POOL_LABELS)
    )
    + r" | tr -s ' ' '\n' | grep -v '<none>' | sort -u",
    "strategy": f"echo {' '.join(STRATEGIES)}",
    "placement": f"echo {' '.join(get_args(Placement))}",
    "disabled_rules": f"echo {' '.join(sorted(POD_RULES | NODE_RULES))}",
}
"""What prints the values of an argument, by its name."""


def _ask(parser: argparse.ArgumentParser) -> None:
    """Tell shtab which command prints the values of the arguments of *parser* and its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _ask(each)
        elif action.dest in _ASK and action.choices is None:
            name, command = f"_tightship_{action.dest}", _ASK[action.dest]
            action.complete = {  # type: ignore[attr-defined]
                "bash": name,
                "zsh": name,
                "fish": f"({command})",
                "tcsh": f"`{command}`",
                "preamble": {
                    "bash": f'{name}() {{ compgen -W "$({command})" -- "$1"; }}\n',
                    "zsh": f"{name}() {{ compadd -- $({command}); }}\n",
                },
            }


def _complete(shell: str) -> int:
    whole = build_parser()
    _ask(whole)
    write_document(shtab.complete(whole, shell) + "\n", always_utf8=True)
    return 0

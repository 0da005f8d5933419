"""The command ``node-refiner``. ``plan``, ``explain`` and ``version`` write nothing; ``run`` is the controller."""

from __future__ import annotations

import argparse
import sys

import node_refiner
from node_refiner.advice import RefinerChanges
from node_refiner.configuration import add_options, configure, flags_given
from node_refiner.describing import excess_summary, summarize
from node_refiner.gates import RefinerGates
from node_refiner.judge import RefinerJudge
from node_refiner.run_settings import RefinerRunSettings
from node_refiner.running import serve
from tightship.cli.app import run
from tightship.cli.arguments import environment
from tightship.cli.commands import Configured, Program, priced
from tightship.cli.run_command import add_run
from tightship.documents.document import SettingsView
from tightship.process.settings.loading import wire

PROGRAM = "node-refiner"


def _configure(arguments: argparse.Namespace) -> Configured[RefinerGates]:
    given = flags_given(arguments)
    settings = priced(configure(arguments.config, environment(), given))
    view = SettingsView(summarize(settings, arguments.config), wire(settings))
    return Configured(
        view,
        RefinerJudge(settings),
        lambda gates: excess_summary(gates.outlooks, settings),
        changes=RefinerChanges(settings, given),
    )


COMMAND = Program(
    name=PROGRAM,
    version=node_refiner.__version__,
    description="Counts the nodes that a cluster could do without, and drains one at a time.",
    add_options=add_options,
    configure=_configure,
    add_commands=lambda commands: add_run(commands, PROGRAM, node_refiner.__version__, RefinerRunSettings, serve),
)


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    sys.exit(run(PROGRAM, COMMAND.command))


if __name__ == "__main__":
    main()

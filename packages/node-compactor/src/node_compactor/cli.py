"""The command ``node-compactor``. ``plan``, ``explain`` and ``version`` write nothing; ``run`` is the controller."""

from __future__ import annotations

import argparse
import sys

import node_compactor
from node_compactor.advice import CompactorChanges
from node_compactor.configuration import add_options, configure, flags_given
from node_compactor.describing import summarize
from node_compactor.gates import CompactorGates
from node_compactor.judge import CompactorJudge
from node_compactor.run_settings import CompactorRunSettings
from node_compactor.running import serve
from tightship.cli.app import run
from tightship.cli.arguments import environment
from tightship.cli.commands import Configured, Program, priced
from tightship.cli.run_command import add_run
from tightship.documents.document import SettingsView
from tightship.process.settings.loading import wire

PROGRAM = "node-compactor"


def _configure(arguments: argparse.Namespace) -> Configured[CompactorGates]:
    given = flags_given(arguments)
    settings = priced(configure(arguments.config, environment(), given))
    view = SettingsView(summarize(settings, arguments.config), wire(settings))
    return Configured(
        view,
        CompactorJudge(settings),
        search=settings.search,
        changes=CompactorChanges(settings, given),
    )


COMMAND = Program(
    name=PROGRAM,
    version=node_compactor.__version__,
    description="Drains the least utilized nodes of each pool, so that Cluster Autoscaler can delete them.",
    add_options=add_options,
    configure=_configure,
    add_commands=lambda commands: add_run(commands, PROGRAM, node_compactor.__version__, CompactorRunSettings, serve),
)


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    sys.exit(run(PROGRAM, COMMAND.command))


if __name__ == "__main__":
    main()

"""The command ``node-compactor``. ``plan``, ``explain`` and ``version`` write nothing; ``run`` is the controller."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection

import node_compactor
from node_compactor.configuration import add_options, configure, flags_given
from node_compactor.describing import summarize, wire
from node_compactor.gates import GateChecks
from node_compactor.policy import Marks, Policy
from node_compactor.run_settings import RunSettings
from node_compactor.running import serve
from node_compactor.settings import CompactorSettings
from node_compactor.strategies import strategy_of
from tightship.app.cli import run
from tightship.app.cli.arguments import environment
from tightship.app.cli.commands import Configured, Program
from tightship.app.cli.run_command import add_run
from tightship.planning.cluster import Snapshot
from tightship.planning.plan import Judgement
from tightship.report import GateCheck, SettingsView

PROGRAM = "node-compactor"


class CompactorJudging:
    """See :class:`tightship.app.cli.commands.Judging`."""

    def __init__(
        self, settings: CompactorSettings, snapshot: Snapshot, now: float, only: Collection[str] | None
    ) -> None:
        marks = Marks.of(snapshot)
        self._snapshot = snapshot
        self._policy = Policy(settings, now, marks, only)
        self.facts = self._policy.facts(snapshot)
        self.ground = self._policy.plannable(snapshot)
        self.strategy = strategy_of(settings, {name: fact.pool for name, fact in self.facts.items()})
        self._checks = GateChecks(settings, self.facts, now, marks)

    def judge(self, current: Snapshot) -> Judgement:
        """Judge the whole snapshot first, then what rounds have left of it."""
        if current is self.ground:
            return self._policy.judgement(self._snapshot, self.facts)
        return self._policy.judge(current)

    def gates(self, name: str) -> tuple[GateCheck, ...]:
        """Return the gates of node *name*."""
        return self._checks.of(name)

    def excess(self) -> None:
        """The compactor knows no excess."""


def _configure(arguments: argparse.Namespace) -> Configured:
    settings = configure(arguments.config, environment(), flags_given(arguments))
    return Configured(
        settings=SettingsView(summarize(settings, arguments.config), wire(settings)),
        placement=settings.placement,
        ahead=settings.ahead,
        judging=lambda snapshot, now, only: CompactorJudging(settings, snapshot, now, only),
    )


COMMAND = Program(
    name=PROGRAM,
    version=node_compactor.__version__,
    description="Drains the least utilized nodes of each pool, so that Cluster Autoscaler can delete them.",
    add_options=add_options,
    configure=_configure,
    add_commands=lambda commands: add_run(commands, PROGRAM, node_compactor.__version__, RunSettings, serve),
)


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    sys.exit(run(PROGRAM, COMMAND.command))


if __name__ == "__main__":
    main()

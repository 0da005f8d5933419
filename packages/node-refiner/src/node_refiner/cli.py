"""The command ``node-refiner``. ``plan``, ``explain`` and ``version`` write nothing; ``run`` is the controller."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection

import node_refiner
from node_refiner.configuration import add_options, configure, flags_given
from node_refiner.describing import excess_summary, summarize, wire
from node_refiner.gates import GateChecks
from node_refiner.policy import Policy
from node_refiner.run_settings import RunSettings
from node_refiner.running import serve
from node_refiner.settings import RefinerSettings
from tightship.app.cli import run
from tightship.app.cli.arguments import environment
from tightship.app.cli.commands import Configured, Program
from tightship.app.cli.run_command import add_run
from tightship.planning.cluster import Snapshot
from tightship.planning.plan import Judgement
from tightship.report import ExcessSummary, GateCheck, SettingsView

PROGRAM = "node-refiner"


class RefinerJudging:
    """See :class:`tightship.app.cli.commands.Judging`."""

    def __init__(self, settings: RefinerSettings, snapshot: Snapshot, now: float, only: Collection[str] | None) -> None:
        self._settings = settings
        self._snapshot = snapshot
        self._policy = Policy(settings, now, only)
        self.facts = self._policy.facts(snapshot)
        self.ground = self._policy.plannable(snapshot)
        self.strategy = self._policy.strategy
        self._ahead = self._policy.outlook(snapshot, self.facts)
        self._checks = GateChecks(settings, self.ground, self.facts, self._ahead, now)

    def judge(self, current: Snapshot) -> Judgement:
        """Judge the whole snapshot first, then what rounds have left of it."""
        if current is self.ground:
            return self._policy.judgement(self._snapshot, self.facts, self._ahead)
        return self._policy.judge(current)

    def gates(self, name: str) -> tuple[GateCheck, ...]:
        """Return the gates of node *name*."""
        return self._checks.of(name)

    def excess(self) -> ExcessSummary:
        """Return the figures that the refiner goes by."""
        return excess_summary(self._ahead, self._settings)


def _configure(arguments: argparse.Namespace) -> Configured:
    settings = configure(arguments.config, environment(), flags_given(arguments))
    return Configured(
        settings=SettingsView(summarize(settings, arguments.config), wire(settings)),
        placement=settings.placement,
        ahead=settings.ahead,
        judging=lambda snapshot, now, only: RefinerJudging(settings, snapshot, now, only),
    )


COMMAND = Program(
    name=PROGRAM,
    version=node_refiner.__version__,
    description="Counts the nodes that a cluster could do without, and drains one at a time.",
    add_options=add_options,
    configure=_configure,
    add_commands=lambda commands: add_run(commands, PROGRAM, node_refiner.__version__, RunSettings, serve),
)


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    sys.exit(run(PROGRAM, COMMAND.command))


if __name__ == "__main__":
    main()

"""The commands ``plan``, ``explain`` and ``version`` of every controller of nodes. They write nothing to a cluster.

A controller brings a :class:`Program`: its words, its flags, and its judgement of a snapshot.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from tightship.app.cli.app import EXIT_WOULD_CHANGE, CliError, UsageError
from tightship.app.cli.arguments import (
    Parser,
    add_cluster_arguments,
    add_logging_arguments,
    add_output_arguments,
    set_up_logging,
)
from tightship.app.cli.basics import near, no_command, print_version, write_rendered
from tightship.app.cli.progress import Progress
from tightship.app.cli.source import load_snapshot
from tightship.app.settings.loading import BadFlagsError, SettingsError
from tightship.core.counting import counted
from tightship.kube.host import wall
from tightship.planning.cluster import Snapshot
from tightship.planning.demand import Ahead, with_demand
from tightship.planning.facts import NodeFacts, candidates_of
from tightship.planning.plan import Judgement, Placement, Strategy, forecast, make_plan
from tightship.planning.pools import shown
from tightship.report import ExcessSummary, GateCheck, Generator, SettingsView
from tightship.report.build import plan_document
from tightship.report.explain import explanation_document
from tightship.report.explanation_view import EXPLANATION
from tightship.report.formats import formats_of
from tightship.report.inputs import Inputs
from tightship.report.plan_view import PLAN
from tightship.report.warnings import warnings_of

EXITS = """exit codes: 0 done; 1 an error; 2 with --exit-code, when a node would be removed; 64 wrong usage;
130 interrupted; 141 the reader closed the pipe."""


class Judging(Protocol):
    """A controller's judgement of one snapshot at one time, and what it has to say about it."""

    @property
    def facts(self) -> Mapping[str, NodeFacts]:
        """What is known of each node before a plan."""
        ...

    @property
    def ground(self) -> Snapshot:
        """What the plan is made on: the snapshot, perhaps without its PodDisruptionBudgets."""
        ...

    @property
    def strategy(self) -> Strategy:
        """Which nodes go, and in what order."""
        ...

    def judge(self, current: Snapshot) -> Judgement:
        """Judge the ground, or what a round of planning has left of it."""
        ...

    def gates(self, name: str) -> tuple[GateCheck, ...]:
        """Return the gates of node *name*, open ones too."""
        ...

    def excess(self) -> ExcessSummary | None:
        """Return how many nodes the cluster could do without, where the controller goes by that."""
        ...


class Configured(Struct, frozen=True):
    """A controller with its settings. *judging* takes a snapshot, the time, and which nodes may go (``None``: all).

    *ahead* says for which demand without pods room is kept.
    """

    settings: SettingsView
    placement: Placement
    ahead: Ahead
    judging: Callable[[Snapshot, float, Collection[str] | None], Judging]


class Program(Struct, frozen=True):
    """The command of one controller: *name*, *version*, and one sentence of *description*.

    *add_options* adds its flags to ``plan`` and ``explain``, *configure* makes settings of them and raises
    :class:`~tightship.app.settings.loading.SettingsError`; *add_commands* adds what else there is.
    """

    name: str
    version: str
    description: str
    add_options: Callable[[argparse.ArgumentParser], None]
    configure: Callable[[argparse.Namespace], Configured]
    add_commands: Callable[[argparse._SubParsersAction[Parser]], None] | None = None

    def command(self, arguments: Sequence[str]) -> int:
        """Run the command with *arguments* and return its exit code."""
        parsed = self.parser().parse_args(arguments)
        set_up_logging(parsed.log_level, parsed.verbose)
        code: int = parsed.run(parsed)
        return code

    def parser(self) -> Parser:
        """Return the parser of the whole command."""
        parser = Parser(self.name, self.description, EXITS)
        parser.set_defaults(run=lambda _: no_command(parser), log_level=None, verbose=0)
        commands = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
        plan = commands.add_parser(
            "plan",
            help="show which nodes would go, where their pods would land, and why the others stay",
            epilog=EXITS,
            description="Show which nodes would go, where their pods would land, and why every other node stays. "
            "Writes nothing to the cluster.",
        )
        plan.usage = f"{self.name} plan [-f FILE | --context NAME] [flags]"
        output = self._common(plan, formats_of(PLAN), table=True)
        output.add_argument(
            "--exit-code", action="store_true", help="exit with 2 when a node would be removed, 0 when none would"
        )
        plan.set_defaults(run=self._plan)
        explain = commands.add_parser(
            "explain",
            help="show everything about the named nodes: each pod, each blocker, what would free it",
            epilog=EXITS,
            description="Show all about the named nodes: gates, pods and where they could go, what keeps them, and "
            "the smallest change that would free them. Writes nothing to the cluster.",
        )
        explain.usage = f"{self.name} explain [-f FILE | --context NAME] [flags] NODE ..."
        explain.add_argument("nodes", nargs="+", metavar="NODE", help="name of a node")
        self._common(explain, formats_of(EXPLANATION), table=False)
        explain.set_defaults(run=self._explain)
        if self.add_commands is not None:
            self.add_commands(commands)
        version = commands.add_parser("version", help="print the version", description="Print the version.")
        version.set_defaults(run=self._version)
        return parser

    def _common(
        self, parser: argparse.ArgumentParser, outputs: Mapping[str, object], *, table: bool
    ) -> argparse._ArgumentGroup:
        add_cluster_arguments(parser)
        self.add_options(parser)
        output = add_output_arguments(parser, outputs, table=table)
        add_logging_arguments(parser)
        return output

    def _version(self, arguments: argparse.Namespace) -> int:
        del arguments
        return print_version(self.name, self.version)

    def _plan(self, arguments: argparse.Namespace) -> int:
        inputs, _ = self._judge(arguments)
        document = plan_document(inputs, arguments.sort_by)
        write_rendered(self.name, PLAN, document, arguments, inputs.warnings)
        return EXIT_WOULD_CHANGE if arguments.exit_code and inputs.plan.removals else 0

    def _explain(self, arguments: argparse.Namespace) -> int:
        inputs, judging = self._judge(arguments, arguments.nodes)
        names = tuple(dict.fromkeys(arguments.nodes))
        document = explanation_document(inputs, names, {name: judging.gates(name) for name in names})
        write_rendered(self.name, EXPLANATION, document, arguments, inputs.warnings)
        return 0

    def _judge(self, arguments: argparse.Namespace, named: Sequence[str] = ()) -> tuple[Inputs, Judging]:
        try:
            configured = self.configure(arguments)
        except BadFlagsError as error:
            raise UsageError(*error.problems) from error
        except SettingsError as error:
            raise CliError(*error.problems) from error
        now = wall() if arguments.now is None else arguments.now
        with Progress() as progress:
            snapshot, source = load_snapshot(arguments, progress, configured.ahead)
            snapshot = with_demand(snapshot, configured.ahead)
            _check_names(named, snapshot)
            progress.say(f"judging {counted(len(snapshot.nodes), 'node')}")
            judging = configured.judging(snapshot, now, None)
            selected = _selected(arguments, judging.facts)
            if selected is not None:
                judging = configured.judging(snapshot, now, selected)
            candidates = candidates_of(judging.facts)

            def tell(rounds: int, removed: int) -> None:
                progress.say(f"planning: {counted(removed, 'removal')} after round {rounds}")

            progress.say(f"planning {counted(len(candidates), 'candidate')}")
            plan = make_plan(
                judging.ground,
                judging.judge,
                judging.strategy,
                configured.placement,
                until_stable=arguments.until_stable,
                progress=tell,
            )
            expected = None
            if configured.placement == "possible" and plan.removals:
                progress.say("modelling kube-scheduler's own choices")
                expected = forecast(judging.ground, plan, candidates)
        warnings = warnings_of(snapshot)
        if selected is not None and not selected:
            warnings = ("--selector and --pool select no node, so the plan removes none", *warnings)
        inputs = Inputs(
            generator=Generator(self.name, self.version),
            source=source,
            settings=configured.settings,
            snapshot=snapshot,
            facts=judging.facts,
            plan=plan,
            now=now,
            forecast=expected,
            warnings=warnings,
            excess=judging.excess(),
        )
        return inputs, judging


def _check_names(named: Sequence[str], snapshot: Snapshot) -> None:
    unknown = [name for name in dict.fromkeys(named) if name not in snapshot.nodes]
    problems = [f'node "{name}" not found{near(name, snapshot.nodes)}' for name in unknown]
    if problems:
        raise CliError(*problems)


def _selected(arguments: argparse.Namespace, facts: Mapping[str, NodeFacts]) -> frozenset[str] | None:
    """Return the nodes that ``--pool`` and ``--selector`` together allow to go, ``None`` without either."""
    if arguments.pool is None and arguments.selector is None:
        return None
    pools = sorted({fact.pool for fact in facts.values()})
    unknown = [name for name in arguments.pool or () if name not in pools]
    if unknown:
        known = ", ".join(shown(pool) for pool in pools)
        raise CliError(*(f'no node is in pool "{name}"; the pools are {known}' for name in unknown))
    return frozenset(
        name
        for name, fact in facts.items()
        if (arguments.pool is None or fact.pool in arguments.pool)
        and (arguments.selector is None or arguments.selector.matches(fact.view.node.labels))
    )

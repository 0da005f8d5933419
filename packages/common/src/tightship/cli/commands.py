"""The commands ``plan``, ``explain``, ``diff`` and ``version`` of a controller of nodes, which write to no cluster.

A controller supplies its texts, its flags, and its judgement of a snapshot; see
:class:`tightship.nodes.controller.NodeController`.

``diff`` shows two plans side by side, such as before and after a change, for a pull request.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TextIO, TypeAlias, TypeVar

import msgspec

from tightship.cli.app import EXIT_WOULD_CHANGE, CliError, UsageError
from tightship.cli.arguments import (
    CommandParser,
    Parser,
    add_cluster_arguments,
    add_logging_arguments,
    add_output_arguments,
    add_run,
    environment,
    set_up_logging,
    value_of,
)
from tightship.cli.object_file import DocumentError, FileError, read_bytes, unpack
from tightship.cli.output import Progress, no_command, print_version, version_line, write_rendered
from tightship.cli.source import LoadedCluster, load_snapshot
from tightship.cluster import Snapshot
from tightship.cluster.pools import pool_of, shown
from tightship.documents.build import Inputs, plan_document
from tightship.documents.difference import DIFFERENCE, difference
from tightship.documents.document import SUMMARY_FROM, Generator, NodeExplanation, NodePlan, PendingSummary, ShownRows
from tightship.documents.explain import explanation_document
from tightship.documents.explanation_view import EXPLANATION
from tightship.documents.formats import formats_of
from tightship.documents.frontier import FRONTIER as FRONTIER_VIEW
from tightship.documents.frontier import frontier_document
from tightship.documents.plan_view import PLAN, plan_view
from tightship.documents.warnings import warnings_of
from tightship.kube.host import monotonic
from tightship.nodes.annexes import ADVISE, FRONTIER, SEARCH
from tightship.nodes.controller import AnyController
from tightship.nodes.loop import serve_nodes
from tightship.objects.counting import counted
from tightship.objects.drain_record import PastDrains
from tightship.objects.quoting import near, quoted
from tightship.objects.reasons import Reason
from tightship.objects.times import parse_duration
from tightship.objects.unreadable import UNREADABLE
from tightship.planning.changes import AdviceAsked, Scenario, TimeLimit, Tunable
from tightship.planning.demand import ReservedDemand
from tightship.planning.evaluate import Evaluation, Horizon, evaluate
from tightship.planning.plan import Plan, Proven, SearchRules
from tightship.planning.plan.reserving import pending_pods
from tightship.process.settings.loading import seconds
from tightship.process.settings.sections import NodeSettings

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


EXITS = """exit codes: 0 done; 1 an error; 2 with --exit-code, when a node would be removed; 64 wrong usage;
130 interrupted; 141 the reader closed the pipe."""

_EXPLAINED = """exit codes: 0 done; 1 an error; 64 wrong usage; 130 interrupted; 141 the reader closed the pipe."""

ADVICE_TIME = 10.0
"""Seconds to plan again for advice."""

SOLVING = 60.0
"""Most seconds of wall time for the solver of a search's bound; after that the bound is the one that guided it."""

_EVICTIONS = "what evictions buy"

_OF_PLAN = frozenset({"positional arguments", "options", "cluster", "which nodes may go", "plan", _EVICTIONS, "output"})
"""The groups that the help of ``plan`` lists; ``--help-all`` lists all."""

_OF_EXPLAIN = frozenset({"positional arguments", "options", "cluster", "output", "logging"})
"""The groups that the help of ``explain`` lists; the help of ``plan`` lists all."""

N = TypeVar("N", bound=NodeSettings)

Loader: TypeAlias = Callable[[argparse.Namespace, Progress, ReservedDemand, bool], LoadedCluster]
"""Loads the cluster that arguments name; :func:`~tightship.cli.source.load_snapshot` has its errors."""


class Commands:
    """The commands of *controller*.

    *name*, *version* and *description* are the controller's own unless another command has these as a part.
    """

    def __init__(self, controller: AnyController, *, name: str = "", version: str = "", description: str = "") -> None:
        self.controller = controller
        self.name = name or controller.name
        self.version = version or controller.version
        self.description = description or controller.description

    several = False
    """Whether ``plan`` takes several clusters."""

    def add_to_plan(self, plan: CommandParser) -> None:
        """Add what else ``plan`` takes."""

    def add_commands(self, commands: argparse._SubParsersAction[CommandParser]) -> None:
        """Add the commands besides those that every controller's plans have: ``run``."""
        controller = self.controller
        add_run(commands, self.name, self.version, controller.process, partial(serve_nodes, controller))

    def command(self, arguments: Sequence[str]) -> int:
        """Run the command with *arguments* and return its exit code."""
        parsed = self.parser().parse_args(arguments)
        set_up_logging(parsed.log_level, parsed.verbose)
        code: int = parsed.run(parsed)
        return code

    def parser(self) -> Parser:
        """Return the parser of the whole command."""
        parser = Parser()
        self.fill(parser)
        return parser

    def fill(self, parser: Parser) -> None:
        """Make *parser* the parser of the whole command, perhaps as a part of another one."""
        parser.prog, parser.description, parser.epilog = self.name, self.description, EXITS
        parser.set_defaults(run=lambda _: no_command(parser), log_level=None, verbose=0)
        parser.add_argument("--version", action="version", version=version_line(self.name, self.version))
        commands = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=CommandParser)
        plan = commands.add_parser(
            "plan",
            help="show which nodes would go, where their pods would land, and why the others stay",
            epilog=_examples(
                f"{self.name} plan                              # the current context of your kubeconfig",
                f"{self.name} plan -f cluster.json -o markdown  # a file, for the comment of a pull request",
                f"{self.name} plan --pool web --show removals   # what would go in one pool",
                f"{self.name} plan --frontier                   # what each eviction buys, and where to stop",
                EXITS,
            ),
            description="Show which nodes would go, where their pods would land, and why every other node stays. "
            "Writes nothing to the cluster.",
        )
        plan.usage = f"{self.name} plan [-f FILE | --context NAME] [flags]"
        output = self._common(plan, formats_of(PLAN), table=True, several=self.several)
        output.add_argument(
            "--exit-code", action="store_true", help="exit with 2 when a node would be removed, 0 when none would"
        )
        if FRONTIER is not None:
            _add_frontier_arguments(plan)
        plan.shorten_help(_OF_PLAN)
        plan.set_defaults(run=self.plan)
        self.add_to_plan(plan)
        explain = commands.add_parser(
            "explain",
            help="show everything about the named nodes: each pod, each blocker, what would free it",
            epilog=_examples(
                f"{self.name} explain NODE                   # why does this node stay?",
                f"{self.name} explain NODE --until-stable    # and in later rounds?",
                f"{self.name} explain -f cluster.json A B    # two nodes of a file",
                f"The flags that say which nodes may go, the gates, the plan and the rules are those of "
                f"`{self.name} plan`: see its --help-all.\n{_EXPLAINED}",
            ),
            description="Show all about the named nodes: gates, pods and where they could go, what keeps them, and "
            "the smallest change that would free them. Writes nothing to the cluster.",
        )
        explain.usage = f"{self.name} explain [-f FILE | --context NAME] [flags] NODE ..."
        explain.add_argument("nodes", nargs="+", metavar="NODE", help="name of a node")
        self._common(explain, formats_of(EXPLANATION), table=False)
        explain.shorten_help(_OF_EXPLAIN)
        explain.set_defaults(run=self._explain)
        add_diff(commands, Generator(self.name, self.version))
        self.add_commands(commands)
        version = commands.add_parser("version", help="print the version", description="Print the version.")
        version.set_defaults(run=self._version)

    def _common(
        self, parser: argparse.ArgumentParser, outputs: Mapping[str, object], *, table: bool, several: bool = False
    ) -> argparse._ArgumentGroup:
        add_cluster_arguments(parser, several=several)
        self.controller.add_options(parser)
        output = add_output_arguments(parser, outputs, table=table)
        _add_advice_argument(output)
        add_logging_arguments(parser)
        return output

    def _version(self, arguments: argparse.Namespace) -> int:
        del arguments
        return print_version(self.name, self.version)

    def plan(self, arguments: argparse.Namespace) -> int:
        """Print the plan of one cluster, and return the exit code."""
        if getattr(arguments, "frontier", False):
            inputs, _, prove, _ = self._judge(arguments, (), load_snapshot)
            assert prove is not None
            curve = frontier_document(inputs, prove(inputs.plan))
            write_rendered(self.name, FRONTIER_VIEW, curve, arguments, inputs.warnings)
            return EXIT_WOULD_CHANGE if arguments.exit_code and curve.points else 0
        document, inputs = self.planned(arguments, load_snapshot)
        if arguments.output is None:
            few = len(inputs.snapshot.nodes) < SUMMARY_FROM or arguments.no_headers
            arguments.output = "table" if few else "summary"
        unasked = {Reason.NOT_SELECTED} | ({Reason.MAX_NODES_REACHED} if arguments.max_nodes is not None else set())
        unasked |= {Reason.MAX_EVICTIONS_REACHED}
        view = plan_view(ShownRows(arguments.show or "", arguments.limit_rows, frozenset(unasked)))
        write_rendered(self.name, view, document, arguments, inputs.warnings)
        return EXIT_WOULD_CHANGE if arguments.exit_code and document.summary.nodes.removed else 0

    def planned(
        self, arguments: argparse.Namespace, load: Loader, stream: TextIO | None = None
    ) -> tuple[NodePlan, Inputs]:
        """Return the plan of the cluster that *load* gives, and what it is made of; progress goes to *stream*."""
        inputs, _, _, advising = self._judge(arguments, (), load, stream)
        only_rows = arguments.no_headers and arguments.output in (None, "table", "wide", "summary")
        if advising is not None and not only_rows:
            with Progress(stream) as progress:
                asked = "what would free more nodes?" if inputs.plan.searched is None else "which setting costs most?"
                progress.say(f"planning again for at most {arguments.advice_time:g} s: {asked}")
                inputs = advising(inputs, ())
        del advising
        gc.collect()  # the space of a plan, which would stay beside the document of a large fleet
        return plan_document(inputs, arguments.sort_by), inputs

    def _explain(self, arguments: argparse.Namespace) -> int:
        document, warnings = self.explained(arguments, load_snapshot)
        write_rendered(self.name, EXPLANATION, document, arguments, warnings)
        return 0

    def explained(self, arguments: argparse.Namespace, load: Loader) -> tuple[NodeExplanation, tuple[str, ...]]:
        """Return all about the nodes that *arguments* name, in the cluster that *load* gives, and warnings."""
        inputs, evaluation, _, advising = self._judge(arguments, arguments.nodes, load)
        names = tuple(dict.fromkeys(arguments.nodes))
        # A searched plan ends by time, so planning again without a search would compare two different things.
        if advising is not None and evaluation.plan.searched is None:
            with Progress() as progress:
                progress.say(f"planning again for at most {arguments.advice_time:g} s: what would free the nodes?")
                inputs = advising(inputs, names)
        checks = {name: evaluation.checks(name) for name in names}
        return explanation_document(inputs, names, checks), inputs.warnings

    def _judge(
        self,
        arguments: argparse.Namespace,
        named: Sequence[str],
        load: Loader,
        stream: TextIO | None = None,
    ) -> tuple[Inputs, Evaluation, Callable[[Plan], Proven] | None, Callable[[Inputs, Sequence[str]], Inputs] | None]:
        most = _choose_places(arguments)
        curve = getattr(arguments, "frontier", False)
        improve, prove = SEARCH, None
        if FRONTIER is not None and (curve or most is not None):
            improve, prove = FRONTIER(most)
        controller, given = self.controller, self.controller.flags_given(arguments)
        settings = priced(controller.planned(arguments.config, environment(), given))
        changes, seconds = controller.changes(settings, given), controller.search(settings)
        judge, search = controller.judge(settings), None
        if seconds and SEARCH is not None and judge.placement == "possible":
            solving = 0.0 if named else SOLVING  # an explanation shows no bound
            search = SearchRules(seconds=seconds, clock=monotonic, solving=solving)
        with Progress(stream) as progress:
            loaded = load(arguments, progress, judge.ahead, judge.rules.eviction.restarts != "off")
            snapshot, now = loaded.snapshot, loaded.at
            _check_names(named, snapshot)
            selected = _selected(arguments, snapshot, judge.rules.pool_labels)

            def tell(rounds: int, removed: int) -> None:
                progress.say(f"planning: {counted(removed, 'removal')} after round {rounds}")

            doing = "judging" if search is None else f"searching for {search.seconds:g} s for a better plan of"
            if prove is not None:
                doing, search = "looking for what evictions buy on", SearchRules()
            progress.say(f"{doing} {counted(len(snapshot.nodes), 'node')}")
            horizon = Horizon(arguments.until_stable, only=selected, forecast=not curve, search=search)
            began, past = monotonic(), PastDrains(begun=loaded.begun)
            evaluation = evaluate(snapshot, judge, now, horizon, history=past, improve=improve, progress=tell)
            planned = monotonic() - began
            as_if = None
            if not named and changes is not None and evaluation.plan.refuses(Reason.KARPENTER_MANAGED):
                progress.say("asking as if Karpenter did not consolidate")
                as_if = _as_if_unmanaged(changes, snapshot, now, arguments.until_stable, selected)
        unknown = () if named else evaluation.unknown_minimums
        windows = {} if named else evaluation.untold
        warnings = (*loaded.warnings, *warnings_of(evaluation.snapshot, unknown, windows))
        if any(evaluation.rates.values()):
            warnings = (*loaded.uncounted, *warnings)
        if selected is not None and not selected:
            warnings = ("--selector and --pool select no node, so the plan removes none", *warnings)
        waiting, could_run = pending_pods(evaluation.snapshot)
        inputs = Inputs(
            generator=Generator(self.name, self.version),
            source=loaded.source,
            settings=controller.describe(settings, arguments.config),
            snapshot=evaluation.snapshot,
            facts=evaluation.facts,
            plan=evaluation.plan,
            now=now,
            forecast=evaluation.forecast,
            warnings=warnings,
            excess=controller.excess(evaluation, settings),
            held=evaluation.held,
            as_if_unmanaged=as_if,
            pending=None if not waiting else PendingSummary(waiting, could_run),
        )
        advising = None
        if ADVISE is not None and changes is not None and arguments.advice_time and prove is None:
            limits = TimeLimit(arguments.advice_time, monotonic, planned)
            advising = partial(ADVISE, AdviceAsked(changes, loaded.snapshot, evaluation, horizon, limits))
        return inputs, evaluation, prove, advising


def _add_advice_argument(group: argparse._ArgumentGroup) -> None:
    """Add how long to look for changes that would free nodes."""
    group.add_argument(
        "--advice-time",
        metavar="DURATION",
        type=value_of(lambda text: parse_duration(text, plain_unit="s")),
        default=ADVICE_TIME,
        help="plan again for at most this long to say what each blocker costs and which changes would free nodes, the "
        f"most promising first; 0 for no advice (default: {ADVICE_TIME:g}s)",
    )


def _examples(*lines: str) -> str:
    """Return the end of a help: three examples, and the last of *lines*."""
    return "examples:\n" + "\n".join(f"  {each}" for each in lines[:-1]) + f"\n\n{lines[-1]}"


def priced(settings: N) -> N:
    """Return *settings* with what nodes cost now, if their price list names a server.

    Raises :class:`~tightship.process.settings.loading.SettingsError` if the server doesn't say.
    """
    ask = settings.prices.ask
    return settings if ask is None else settings.priced(ask())


def _as_if_unmanaged(
    changes: Tunable, snapshot: Snapshot, now: float, until_stable: bool, only: Collection[str] | None
) -> Plan:
    """Return the plan as if Karpenter consolidated nothing itself."""
    asked = Scenario(snapshot, changes.settings).after([changes.without(Reason.KARPENTER_MANAGED)])
    return evaluate(snapshot, changes.judge(asked.settings), now, Horizon(until_stable=until_stable, only=only)).plan


def _add_frontier_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the questions about evictions."""
    group = parser.add_argument_group(_EVICTIONS)
    group.add_argument(
        "--frontier",
        action="store_true",
        help="one plan in the order of what nodes cost in evictions, told at ten points beside the fewest that are "
        "proven; sets --placement possible",
    )
    group.add_argument(
        "--evictions",
        type=value_of(_parse_evictions),
        metavar="N",
        help="the plan that saves most with at most N evictions: most money, without prices most nodes; sets "
        "--placement possible",
    )


def _parse_evictions(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise ValueError(f"{quoted(text)} is no number of evictions; allowed is a whole number from 1")
    return int(text)


def _choose_places(arguments: argparse.Namespace) -> int | None:
    """Plan what is ``possible`` if a flag is given that chooses the places; return the limit to evictions, if any."""
    frontier, most = getattr(arguments, "frontier", False), getattr(arguments, "evictions", None)
    try:
        searches = seconds(getattr(arguments, "search", None) or "0") != 0
    except ValueError:
        return None  # the settings refuse it
    flag = "--frontier" if frontier else "--search" if most is None else "--evictions"
    if not (searches or frontier or most is not None):
        return None
    others = {"--evictions": most is not None, "--search": most is not None and searches}
    others |= {"--until-stable": flag != "--search" and arguments.until_stable}
    for other, there in others.items():
        if there and other != flag:
            raise UsageError(f"{flag} and {other} don't go together; allowed is one of them")
    if frontier and arguments.output not in (None, *formats_of(FRONTIER_VIEW)):
        allowed = ", ".join(formats_of(FRONTIER_VIEW))
        raise UsageError(f"--frontier has no output {quoted(arguments.output)}; allowed are {allowed}")
    if frontier and arguments.output is None:
        arguments.output = "table"
    if arguments.placement not in (None, "possible"):
        raise UsageError(
            f"{flag} goes with --placement possible only, because it chooses the places; "
            f"--placement is {quoted(arguments.placement)}"
        )
    arguments.placement = "possible"
    most_evictions: int | None = most
    return most_evictions


def _check_names(named: Sequence[str], snapshot: Snapshot) -> None:
    unknown = [name for name in dict.fromkeys(named) if name not in snapshot.nodes]
    problems = [f'node "{name}" not found{near(name, snapshot.nodes)}' for name in unknown]
    if problems:
        raise CliError(*problems)


def _selected(arguments: argparse.Namespace, snapshot: Snapshot, pool_labels: Sequence[str]) -> frozenset[str] | None:
    """Return the nodes that both ``--pool`` and ``--selector`` allow to go, ``None`` without either flag."""
    if arguments.pool is None and arguments.selector is None:
        return None
    pools = {name: pool_of(view.node, pool_labels) for name, view in snapshot.nodes.items()}
    known = ", ".join(shown(pool) for pool in sorted(set(pools.values())))
    unknown = [name for name in arguments.pool or () if name not in pools.values()]
    if unknown:
        raise CliError(*(f'no node is in pool "{name}"; the pools are {known}' for name in unknown))
    return frozenset(
        name
        for name, pool in pools.items()
        if (arguments.pool is None or pool in arguments.pool)
        and (arguments.selector is None or arguments.selector.matches(snapshot.nodes[name].node.labels))
    )

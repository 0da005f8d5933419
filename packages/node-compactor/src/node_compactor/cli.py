"""The command ``node-compactor``. ``plan``, ``explain`` and ``version`` write nothing; ``run`` is the controller."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

import node_compactor
from node_compactor.configuration import BadFlagsError, configure
from node_compactor.describing import summarize, wire
from node_compactor.gates import GateChecks
from node_compactor.options import add_options, flags_of
from node_compactor.policy import Marks, NodeFacts, Policy, plannable, shown
from node_compactor.run_command import add_run
from node_compactor.settings import CompactorSettings
from node_compactor.strategies import strategy_of
from tightship.cli import EXIT_WOULD_CHANGE, CliError, Parser, Progress, UsageError, load_snapshot, run
from tightship.cli.arguments import (
    add_cluster_arguments,
    add_logging_arguments,
    add_output_arguments,
    environment,
    set_up_logging,
)
from tightship.cli.basics import near, no_command, print_version, write_rendered
from tightship.cluster import Snapshot
from tightship.plan import forecast, make_plan
from tightship.report import (
    EXPLANATION_OUTPUTS,
    PLAN_OUTPUTS,
    Generator,
    Inputs,
    SettingsView,
    explanation_document,
    plan_document,
    warnings_of,
)
from tightship.settings.loading import SettingsError

PROGRAM = "node-compactor"

_EXITS = """exit codes: 0 done; 1 an error; 2 with --exit-code, when a node would be removed; 64 wrong usage;
130 interrupted; 141 the reader of the pipe has gone."""


class Judged(Struct, frozen=True):
    """A cluster judged and planned, ready to be reported."""

    inputs: Inputs
    facts: Mapping[str, NodeFacts]
    settings: CompactorSettings
    marks: Marks


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
    parser = Parser(
        PROGRAM,
        "Empties the least utilized nodes of a pool, so that the Cluster Autoscaler can take them away.",
        _EXITS,
    )
    parser.set_defaults(run=lambda _: no_command(parser), log_level=None, verbose=0)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    plan = commands.add_parser(
        "plan",
        help="show which nodes would go, where their pods would land, and why the rest stays",
        epilog=_EXITS,
        description="Show which nodes would go, where their pods would land, and why every other node stays. "
        "Writes nothing to the cluster.",
    )
    plan.usage = f"{PROGRAM} plan [-f FILE | --context NAME] [flags]"
    output = _common(plan, PLAN_OUTPUTS, table=True)
    output.add_argument(
        "--exit-code", action="store_true", help="exit with 2 when a node would be removed, 0 when none would"
    )
    plan.set_defaults(run=_plan)
    explain = commands.add_parser(
        "explain",
        help="show everything about single nodes: each pod, each blocker, what would free it",
        epilog=_EXITS,
        description="Show everything about single nodes: gates, pods and where they could go, what keeps them, and the "
        "smallest change that would free them. Writes nothing to the cluster.",
    )
    explain.usage = f"{PROGRAM} explain [-f FILE | --context NAME] [flags] NODE ..."
    explain.add_argument("nodes", nargs="+", metavar="NODE", help="name of a node")
    _common(explain, EXPLANATION_OUTPUTS, table=False)
    explain.set_defaults(run=_explain)
    add_run(commands, PROGRAM)
    version = commands.add_parser("version", help="print the version", description="Print the version.")
    version.set_defaults(run=_version)
    return parser


def _common(parser: argparse.ArgumentParser, outputs: Mapping[str, object], *, table: bool) -> argparse._ArgumentGroup:
    add_cluster_arguments(parser)
    add_options(parser)
    output = add_output_arguments(parser, outputs, table=table)
    add_logging_arguments(parser)
    return output


def _version(arguments: argparse.Namespace) -> int:
    del arguments
    return print_version(PROGRAM, node_compactor.__version__)


def _plan(arguments: argparse.Namespace) -> int:
    judged = _judge(arguments)
    document = plan_document(judged.inputs, arguments.sort_by)
    write_rendered(PROGRAM, PLAN_OUTPUTS[arguments.output], document, arguments, judged.inputs.warnings)
    return EXIT_WOULD_CHANGE if arguments.exit_code and judged.inputs.plan.removals else 0


def _explain(arguments: argparse.Namespace) -> int:
    judged = _judge(arguments, arguments.nodes)
    names = tuple(dict.fromkeys(arguments.nodes))
    checks = GateChecks(judged.settings, judged.facts, judged.inputs.now, judged.marks)
    document = explanation_document(judged.inputs, names, {name: checks.of(name) for name in names})
    write_rendered(PROGRAM, EXPLANATION_OUTPUTS[arguments.output], document, arguments, judged.inputs.warnings)
    return 0


def _judge(arguments: argparse.Namespace, named: Sequence[str] = ()) -> Judged:
    try:
        settings = configure(arguments.config, environment(), flags_of(arguments))
    except BadFlagsError as error:
        raise UsageError(*error.problems) from error
    except SettingsError as error:
        raise CliError(*error.problems) from error
    now = time.time() if arguments.now is None else arguments.now
    with Progress() as progress:
        snapshot, source = load_snapshot(arguments, progress)
        _check_names(named, snapshot)
        progress.say(f"judging {len(snapshot.nodes):,} nodes")
        marks = Marks.of(snapshot)
        facts = Policy(settings, now, marks).facts(snapshot)
        selected = _selected(arguments, facts)
        policy = Policy(settings, now, marks, selected)
        if selected is not None:
            facts = policy.facts(snapshot)
        judgement = policy.judge(snapshot)

        def tell(rounds: int, removed: int) -> None:
            progress.say(f"planning: {removed:,} removals after round {rounds}")

        progress.say(f"planning {len(judgement.candidates):,} candidates")
        strategy = strategy_of(settings, {name: fact.pool for name, fact in facts.items()})
        ground = plannable(snapshot, settings)
        plan = make_plan(
            ground,
            lambda current: policy.judge(snapshot if current is ground else current),
            strategy,
            settings.placement,
            until_stable=arguments.until_stable,
            progress=tell,
        )
        expected = None
        if settings.placement == "possible" and plan.removals:
            progress.say("modelling kube-scheduler's own choices")
            expected = forecast(ground, plan, judgement.candidates)
    warnings = warnings_of(snapshot)
    if selected is not None and not selected:
        warnings = ("no node is selected (--selector, --pool), so none may be removed", *warnings)
    inputs = Inputs(
        generator=Generator(PROGRAM, node_compactor.__version__),
        source=source,
        settings=SettingsView(summarize(settings, arguments.config), wire(settings)),
        snapshot=snapshot,
        facts=facts,
        plan=plan,
        now=now,
        forecast=expected,
        warnings=warnings,
    )
    return Judged(inputs, facts, settings, marks)


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


if __name__ == "__main__":
    main()

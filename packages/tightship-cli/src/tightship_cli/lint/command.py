"""The command ``lint``: of a cluster, of a file of one, or of the manifests of a repository."""

from __future__ import annotations

import argparse
import sys

import msgspec

from hpa_scaler.annotations.spec import Rules
from hpa_scaler.process.settings import ScalerRunSettings, read_settings, rules_of
from node_compactor.controller import COMPACTOR
from tightship.cli.app import EXIT_WOULD_CHANGE, cut
from tightship.cli.arguments import (
    CommandParser,
    add_cluster_arguments,
    add_logging_arguments,
    add_time_argument,
    environment,
)
from tightship.cli.output import Progress, terminal_of, write_document
from tightship.cli.snapshot_file import parsed
from tightship.cli.source import LoadedCluster, file_source, files_of, load_snapshot
from tightship.documents.document import Generator
from tightship.documents.presentation import written
from tightship.kube.host import wall
from tightship.planning.demand import ReservedDemand
from tightship.process.settings.process import load_process
from tightship.rules.evictability import EvictionRules
from tightship_cli.lint.manifests import Manifests, is_cluster, read_manifests, read_paths
from tightship_cli.lint.rules import LEVELS, lint
from tightship_cli.lint.views import LintReport, at_least, junit, printout, report, sarif

_OUTPUTS = ("table", "json", "sarif", "junit")

_MOST_WARNINGS = 20


def add_lint(commands: argparse._SubParsersAction[CommandParser], program: str, version: str) -> None:
    """Add the command ``lint`` of *program*."""
    parser = commands.add_parser(
        "lint",
        help="show what will block drains and floors: in a cluster, or in the manifests of a repository",
        description="Show what will block drains and floors for good: budgets that never allow an eviction, pods that "
        "nothing would recreate, local data without a word, HPAs that can't scale, floors above maxReplicas. Files "
        "with a Node are a cluster; all others are manifests, whose templates are judged like the pods they make. "
        "Writes nothing to the cluster.",
        epilog="examples:\n"
        f"  {program} lint                               # the current context of your kubeconfig\n"
        f"  {program} lint -f manifests/ -o sarif        # a repository, for code scanning\n"
        f"  helm template . | {program} lint -f -        # a chart, as Helm renders it\n\n"
        "exit codes: 0 nothing as bad as --fail-on; 1 an error; 2 something is; 64 wrong usage; 130 interrupted; "
        "141 the reader closed the pipe.",
    )
    parser.usage = f"{program} lint [-f PATH | --context NAME] [flags]"
    add_cluster_arguments(parser)
    for each in parser._actions:
        if each.dest == "filename":
            each.help = (
                f"read manifests, or a folder of them, instead; or the cluster: {(each.help or '').partition(': ')[2]}"
            )
    judging = parser.add_argument_group("judging")
    judging.add_argument("--config", metavar="FILE", help="node-compactor's configuration: its rules about pods count")
    judging.add_argument("--floors-config", metavar="FILE", help="hpa-scaler's configuration: its rules count")
    add_time_argument(judging)
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o", "--output", choices=_OUTPUTS, default="table", metavar="FORM", help=f"one of {', '.join(_OUTPUTS)}"
    )
    levels = (*LEVELS, "never")
    output.add_argument(
        "--fail-on",
        choices=levels,
        default="warning",
        metavar="LEVEL",
        help=f"exit with 2 from this level on: one of {', '.join(levels)} (default: warning)",
    )
    add_logging_arguments(parser)
    parser.set_defaults(run=lambda arguments: _lint(arguments, program, version))


def linted(
    loaded: LoadedCluster, generator: Generator, config: str | None = None, floors_config: str | None = None
) -> LintReport:
    """Return the report about a cluster."""
    findings = lint(loaded.snapshot, *_rules(config, floors_config), loaded.at)
    return report(generator, loaded.source, loaded.at, findings)


def _rules(config: str | None, floors_config: str | None) -> tuple[EvictionRules, Rules]:
    run = load_process(ScalerRunSettings, environment(), {})
    return COMPACTOR.planned(config, environment(), {}).eviction_rules, rules_of(read_settings(floors_config), run)


def _lint(arguments: argparse.Namespace, program: str, version: str) -> int:
    with Progress() as progress:
        loaded = _load(arguments, progress)
    generator = Generator(program, version)
    if isinstance(loaded, Manifests):
        now = wall() if arguments.now is None else arguments.now
        rules = _rules(arguments.config, arguments.floors_config)
        findings = loaded.located([*loaded.findings, *lint(loaded.snapshot, *rules, now)])
        document = report(generator, file_source(arguments.filename), now, findings)
    else:
        document = linted(loaded, generator, arguments.config, arguments.floors_config)
    for each in loaded.warnings[:_MOST_WARNINGS]:
        sys.stderr.write(f"{program}: warning: {cut(each)}\n")
    if len(loaded.warnings) > _MOST_WARNINGS:
        sys.stderr.write(f"{program}: warning: and {len(loaded.warnings) - _MOST_WARNINGS:,} more\n")
    if arguments.output == "table":
        text = written(printout(document), terminal_of(sys.stdout, environment()))
    elif arguments.output == "json":
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    else:
        text = sarif(document) if arguments.output == "sarif" else junit(document, arguments.fail_on)
    write_document(text, always_utf8=arguments.output != "table")
    return EXIT_WOULD_CHANGE if at_least(document.findings, arguments.fail_on) else 0


def _load(arguments: argparse.Namespace, progress: Progress) -> LoadedCluster | Manifests:
    """Return the cluster that *arguments* name, or their manifests if no file holds a node."""
    paths = files_of(arguments)
    if paths:
        files = read_paths(paths)
        if not any(is_cluster(raw) for raw, _, _ in files):
            return read_manifests(files)
        if paths == ("-",):
            found = parsed(files[0][0], "standard input")
            at = arguments.now if arguments.now is not None else found.newest or wall()
            return LoadedCluster(found.snapshot, file_source(paths), at, found.warnings)
        del files
    return load_snapshot(arguments, progress, ReservedDemand(replicas=1, buffers=False))

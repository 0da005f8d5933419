"""The command ``hpa-scaler release``: HPAs are given back to their users."""

from __future__ import annotations

import argparse

import hpa_scaler
from hpa_scaler.app.looking import named
from hpa_scaler.app.options import add_selection
from hpa_scaler.app.run_settings import PROGRAM, RunSettings
from hpa_scaler.app.sighting import Say, Selection, fleet_of_cluster
from hpa_scaler.decide.writing import state_of
from hpa_scaler.report import RELEASE, FloorRelease
from hpa_scaler.spec.rules import Rules
from hpa_scaler.write.releasing import Leaders, Release, leaders_of, refuse_while_led
from tightship.app.cli import EXIT_ERROR, CliError, Parser, Progress, UsageError
from tightship.app.cli.arguments import add_logging_arguments, add_output_arguments, environment
from tightship.app.cli.basics import write_rendered
from tightship.app.settings.loading import SettingsError
from tightship.app.settings.process import load_process
from tightship.kube.connection import connect
from tightship.kube.host import run, wall
from tightship.report.document import API_VERSION, Generator, Source
from tightship.report.formats import formats_of

_EXITS = """exit codes: 0 nothing of the controller is left on any of them; 1 an error, an HPA that could not be given
back, or a controller that runs (nothing is done then); 64 wrong usage; 130 interrupted."""


def add_release(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the command to *commands*."""
    release = commands.add_parser(
        "release",
        help="give HPAs back: the bounds that their users had, and nothing of the controller on them",
        epilog=_EXITS,
        description="Give HPAs back to their users: minReplicas and maxReplicas are what they were before the "
        "controller first set them, and its state annotation is gone. A bound that somebody else has changed since is "
        "theirs, and stays. Needs no Prometheus. Stop the controller first: it would take up again what is opted in.",
    )
    release.usage = f"{PROGRAM} release [-A | -n NAMESPACE | NAME ...] [--dry-run] [flags]"
    release.add_argument("names", nargs="*", metavar="NAME", help="an HPA: NAME, or NAMESPACE/NAME")
    cluster = release.add_argument_group("cluster")
    cluster.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig (default: $KUBECONFIG, ~/.kube/config, in-cluster)"
    )
    cluster.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    add_selection(cluster, all_by_default=False)
    how = release.add_argument_group("release")
    how.add_argument("--dry-run", action="store_true", help="show what would be given back, and write nothing")
    how.add_argument("--force", action="store_true", help="release though a controller runs")
    how.add_argument(
        "--controller-namespace",
        metavar="NAME",
        default="",
        help="where the controller's Lease is (default: it is looked for in all namespaces)",
    )
    how.add_argument(
        "--annotation-prefix",
        metavar="PREFIX",
        help="what annotations begin with (default: $ANNOTATION_PREFIX, else estafette.io)",
    )
    add_output_arguments(release, formats_of(RELEASE), table=False)
    add_logging_arguments(release)
    release.set_defaults(run=_release)


def _release(arguments: argparse.Namespace) -> int:
    if not (arguments.names or arguments.all_namespaces or arguments.namespace):
        raise UsageError("nothing is named: give names of HPAs, -n NAMESPACE, or -A for all")
    given = {} if arguments.annotation_prefix is None else {"annotation_prefix": arguments.annotation_prefix}
    try:
        process = load_process(RunSettings, environment(), given)
    except SettingsError as error:
        raise CliError(*error.problems) from error
    with Progress() as progress:
        done = run(_released(arguments, process, progress.say))
    write_rendered(PROGRAM, RELEASE, done, arguments, done.warnings)
    return 0 if done.complete else EXIT_ERROR


async def _released(arguments: argparse.Namespace, process: RunSettings, say: Say) -> FloorRelease:
    rules, now = Rules(prefix=process.annotation_prefix), wall()
    selection = Selection(tuple(dict.fromkeys(arguments.namespace or ())), arguments.selector or "")
    say("connecting")
    async with await connect(arguments.kubeconfig, arguments.context) as connection:
        fleet = await fleet_of_cluster(connection, selection, say)
        chosen = named(arguments.names, fleet.hpas) if arguments.names else list(fleet.hpas)
        release = Release(connection, rules, now)
        planned = release.plan(chosen)
        if not arguments.names:
            planned = [each for each in planned if each[1] is not None or state_of(each[0], rules.prefix)[1]]
        ours = [hpa for hpa, given in planned if given is not None]
        leaders = await leaders_of(connection, process.lease_name, arguments.controller_namespace, now)
        if arguments.dry_run:
            entries = [release.shown(hpa, given) for hpa, given in planned]
        else:
            if not arguments.force:
                refuse_while_led(ours, leaders, rules)
            entries = await release.carry_out(planned, say)
        return FloorRelease(
            api_version=API_VERSION,
            generator=Generator(PROGRAM, hpa_scaler.__version__),
            source=Source("cluster", connection.context),
            dry_run=arguments.dry_run,
            leaders=leaders.texts,
            hpas=tuple(entries),
            warnings=(*fleet.problems, *_warnings(leaders)),
        )


def _warnings(leaders: Leaders) -> list[str]:
    if leaders.unknown:
        return [
            f"whether a controller runs can't be told, and it would take up again what is opted in: {leaders.unknown}"
        ]
    return [f"a controller runs, and takes up again what is opted in: {text}" for text in leaders.texts]


__all__ = ["add_release"]

"""The command ``hpa-scaler release``: gives HPAs back to their users. Needs no Prometheus.

As on opt-out, the command compares three values. A bound that differs from the value we last set is somebody's newer
value, and stays. A running controller would take up an opted-in HPA again at once, so while a controller leads, only
``--force`` releases such an HPA.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

import hpa_scaler
from hpa_scaler.annotations.parsing import enabled, state_text
from hpa_scaler.annotations.spec import ENABLE, Rules
from hpa_scaler.documents import RELEASE, FloorRelease
from hpa_scaler.documents.document import BoundMove, ReleaseEntry, ReleaseOutcome
from hpa_scaler.judge.ownership import Restoration, restoration, state_of, surged
from hpa_scaler.process.commands import add_selection, named
from hpa_scaler.process.fleet import Say, Selection, UnknownNamespaceError, fleet_of_cluster
from hpa_scaler.process.settings import PROGRAM, ScalerRunSettings
from hpa_scaler.write.applying import AT_ONCE, PlannedPatch, send
from tightship.cli.app import EXIT_ERROR, CliError, UsageError
from tightship.cli.arguments import (
    CommandParser,
    add_logging_arguments,
    add_output_arguments,
    add_server_arguments,
    environment,
)
from tightship.cli.output import Progress, write_rendered
from tightship.cli.source import connected
from tightship.documents.document import API_VERSION, Generator, Source
from tightship.documents.formats import formats_of
from tightship.kube.connection import Connection
from tightship.kube.host import run, wall
from tightship.kube.leases import held_leases
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.api_errors import KubeError, one_line
from tightship.objects.counting import some
from tightship.objects.reasons import Reason, Refusal
from tightship.process.loop import a_few_at_a_time
from tightship.process.settings.process import load_process

_NAMED = 5

_OUTCOMES: dict[str, ReleaseOutcome] = {
    "written": "restored",
    "unneeded": "nothing-ours",
    "refused": "refused",
    "gone": "gone",
    "failed": "failed",
    "unheard": "failed",
    "left": "failed",
}

_EXITS = """exit codes: 0 nothing of the controller is left on any of them; 1 an error, an HPA that could not be given
back, or a controller that runs (nothing is done then); 64 wrong usage; 130 interrupted."""


async def _leaders(connection: Connection, name: str, namespace: str, now: float) -> tuple[tuple[str, ...], str]:
    """Return who leads by a Lease called *name*, in *namespace* (empty: in any), or why that is unknown."""
    try:
        leases = await held_leases(connection, name, now, namespace)
    except KubeError as error:
        return (), one_line(error)
    return tuple(f"{each.holder} by the Lease {each.namespace}/{each.name}" for each in leases), ""


def _refuse_while_led(hpas: Iterable[HorizontalPodAutoscaler], leaders: Sequence[str], rules: Rules) -> None:
    """Raise :class:`CliError` if one of *leaders* would take up some of *hpas* again."""
    keys = [hpa.key for hpa in hpas if enabled(hpa.annotations, rules.prefix)]
    if not leaders or not keys:
        return
    raise CliError(
        f"a controller runs: {'; '.join(leaders)}. It would take up again what is opted in: {some(keys, _NAMED)}",
        f"stop it (kubectl scale deployment hpa-scaler --replicas=0), or opt out (annotation {rules.prefix}/{ENABLE}), "
        "which gives back by itself; --force releases all the same",
    )


class Release(Struct, frozen=True):
    """Gives HPAs back by *rules*, at *now*."""

    connection: Connection
    rules: Rules
    now: float

    def given(self, hpa: HorizontalPodAutoscaler) -> Restoration | None:
        """Return the restoration of *hpa*, ``None`` with nothing of ours on it."""
        return restoration(hpa, state_of(hpa, self.rules.prefix)[0].history, self.rules, self.now)

    async def carry_out(
        self, planned: Sequence[tuple[HorizontalPodAutoscaler, Restoration | None]], say: Callable[[str], None]
    ) -> list[ReleaseEntry]:
        """Carry out the *planned* restorations, and return the results in the same order."""
        entries: dict[str, ReleaseEntry] = {}

        async def one(each: tuple[HorizontalPodAutoscaler, Restoration | None]) -> None:
            hpa, given = each
            surge = surged(hpa) if state_text(hpa.annotations, self.rules.prefix) is not None else None
            if surge is not None:
                entries[hpa.uid] = self.entry(hpa, None, "failed", f"{surge}; release it then")
            else:
                entries[hpa.uid] = self.entry(hpa, None, "nothing-ours") if given is None else await self._give(hpa)
            say(f"giving back: {len(entries):,} of {len(planned):,}")

        await a_few_at_a_time(one, planned, AT_ONCE)
        return [entries[hpa.uid] for hpa, _ in planned]

    async def _give(self, hpa: HorizontalPodAutoscaler) -> ReleaseEntry:
        def make(present: HorizontalPodAutoscaler) -> PlannedPatch[tuple[HorizontalPodAutoscaler, Restoration | None]]:
            given = self.given(present)
            return PlannedPatch(None if given is None else given.patch, (present, given))

        async def always() -> bool:
            return True

        sent = await send(self.connection, hpa, make, always, lambda: True)
        return self.entry(*sent.write.of, _OUTCOMES[sent.ending], sent.detail)

    def entry(
        self, hpa: HorizontalPodAutoscaler, given: Restoration | None, outcome: ReleaseOutcome, detail: str = ""
    ) -> ReleaseEntry:
        """Return the *outcome* of a release for *hpa*, by its restoration *given*."""
        moves = given is not None and outcome in ("restored", "would-restore")
        problem = state_of(hpa, self.rules.prefix)[1]
        if problem:
            detail = str(Refusal(Reason.STATE_UNREADABLE, detail=problem))
        return ReleaseEntry(
            namespace=hpa.namespace,
            name=hpa.name,
            outcome="failed" if problem else outcome,
            opted_in=enabled(hpa.annotations, self.rules.prefix),
            minimum=BoundMove(hpa.min_replicas, given.minimum if given is not None and moves else hpa.min_replicas),
            maximum=BoundMove(hpa.max_replicas, given.maximum if given is not None and moves else hpa.max_replicas),
            left="" if given is None else given.left,
            detail=detail,
        )


def add_release(commands: argparse._SubParsersAction[CommandParser]) -> None:
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
    add_server_arguments(cluster)
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
        help="what annotations begin with (default: $ANNOTATION_PREFIX, else tightship.dev)",
    )
    add_output_arguments(release, formats_of(RELEASE), table=False)
    add_logging_arguments(release)
    release.set_defaults(run=_release)


def _release(arguments: argparse.Namespace) -> int:
    if not (arguments.names or arguments.all_namespaces or arguments.namespace):
        raise UsageError("nothing is named: give names of HPAs, -n NAMESPACE, or -A for all")
    given = {} if arguments.annotation_prefix is None else {"annotation_prefix": arguments.annotation_prefix}
    process = load_process(ScalerRunSettings, environment(), given)
    try:
        with Progress() as progress:
            done = run(_released(arguments, process, progress.wait))
    except UnknownNamespaceError as error:
        raise CliError(*error.problems) from error
    write_rendered(PROGRAM, RELEASE, done, arguments, done.warnings)
    return 0 if done.complete else EXIT_ERROR


async def _released(arguments: argparse.Namespace, process: ScalerRunSettings, say: Say) -> FloorRelease:
    rules, now = Rules(prefix=process.annotation_prefix), wall()
    named_ones = tuple(dict.fromkeys(arguments.namespace or ()))
    selection = Selection(named_ones, arguments.selector or "", named_ones)
    say("connecting")
    async with await connected(arguments) as connection:
        say(f"connecting to {connection.server}")
        fleet = await fleet_of_cluster(connection, selection, say)
        chosen = named(arguments.names, fleet.hpas) if arguments.names else list(fleet.hpas)
        release = Release(connection, rules, now)
        planned = [(hpa, release.given(hpa)) for hpa in chosen]
        if not arguments.names:
            planned = [each for each in planned if each[1] is not None or state_of(each[0], rules.prefix)[1]]
        ours = [hpa for hpa, given in planned if given is not None]
        leaders, unknown = await _leaders(connection, process.lease_name, arguments.controller_namespace, now)
        if arguments.dry_run:
            entries = [
                release.entry(hpa, given, "nothing-ours" if given is None else "would-restore")
                for hpa, given in planned
            ]
        else:
            if not arguments.force:
                _refuse_while_led(ours, leaders, rules)
            entries = await release.carry_out(planned, say)
        warnings = [f"a controller runs, and takes up again what is opted in: {text}" for text in leaders]
        if unknown:
            uncertain = "whether a controller runs can't be told, and it would take up again what is opted in"
            warnings = [f"{uncertain}: {unknown}"]
        return FloorRelease(
            api_version=API_VERSION,
            generator=Generator(PROGRAM, hpa_scaler.__version__),
            source=Source("cluster", connection.context),
            dry_run=arguments.dry_run,
            leaders=leaders,
            hpas=tuple(entries),
            warnings=(*fleet.problems, *warnings),
        )

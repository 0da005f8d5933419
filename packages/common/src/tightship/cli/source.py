"""The cluster of a command: from an API server, or from files. Commands only read it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from tightship.cli.app import UsageError
from tightship.cli.arguments import REQUEST_TIMEOUT, environment
from tightship.cli.output import Progress
from tightship.cluster import Snapshot
from tightship.documents.document import Source
from tightship.draining.begun import counts_of
from tightship.kube.host import run, wall
from tightship.objects.api_errors import KubeError, one_line
from tightship.objects.drain_record import Begun, begun_in
from tightship.planning.demand import ReservedDemand

if TYPE_CHECKING:
    from tightship.kube.connection import Connection


class LoadedCluster(Struct, frozen=True):
    """A cluster, where it comes from, its time in seconds since 1970, and what drains have *begun* there.

    *uncounted* says why nobody may read that, where rates are asked.
    """

    snapshot: Snapshot
    source: Source
    at: float
    warnings: tuple[str, ...] = ()
    begun: Begun = Begun()
    uncounted: tuple[str, ...] = ()


def load_snapshot(
    arguments: argparse.Namespace, progress: Progress, ahead: ReservedDemand, restarts: bool = False
) -> LoadedCluster:
    """Return the cluster that the arguments of :func:`~tightship.cli.arguments.add_cluster_arguments` name.

    *ahead* limits the demand without pods that is read; Deployments are read for *restarts* only. The time is that of
    ``--now``; else the latest on which the clocks in a file agree, so that an old file is judged as the cluster was.

    Raises :class:`UsageError`, :class:`~tightship.cli.object_file.FileError` or a
    :class:`~tightship.objects.api_errors.KubeError`.
    """
    paths = files_of(arguments)
    if paths:
        from tightship.cli.snapshot_file import read_files
        from tightship.kube.resources import resources

        progress.say(reading(paths))
        wanted = resources(autoscalers=ahead.replicas > 0, buffers=ahead.buffers, restarts=restarts)
        found = read_files(paths, wanted)
        at = arguments.now if arguments.now is not None else found.newest or wall()
        live = found.head is not None and not found.head.anonymized
        source = Source("cluster", found.head.cluster) if found.head and live else file_source(paths)
        return LoadedCluster(found.snapshot, source, at, found.warnings, begun_in(found.counts))
    found_live = run(_read_live(arguments, progress, ahead, restarts))
    return found_live if arguments.now is None else msgspec.structs.replace(found_live, at=arguments.now)


def files_of(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the files that replace a cluster, none for an API server. Raises :class:`UsageError`."""
    paths = tuple(arguments.filename or ())
    if paths:
        for flag in ("kubeconfig", "context", "request_timeout"):
            if getattr(arguments, flag) is not None:
                name = flag.replace("_", "-")
                raise UsageError(f"--{name} is about a cluster and --filename names a file: give only one")
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise UsageError(f"--filename {twice} is given twice")
    return paths


def reading(paths: Sequence[str]) -> str:
    """Return the progress text for reading the files *paths*."""
    return f"reading {', '.join('standard input' if path == '-' else path for path in paths)}"


def file_source(paths: Sequence[str]) -> Source:
    """Return the files *paths*, without their folders, as the source of a document."""
    names = [path if path == "-" else os.path.basename(path) for path in paths]  # noqa: PTH119
    return Source("file", ", ".join(names))


async def connected(arguments: argparse.Namespace) -> Connection:
    """Return the connection that the arguments name. A request gets a limited time for its answer, retries included."""
    # Reading a file needs none of these modules, and importing them takes longer than reading most files.
    from tightship.kube.connection import connect
    from tightship.kube.pacing import RetryPolicy

    given: float | None = arguments.request_timeout
    patience = REQUEST_TIMEOUT if given is None else given
    retry = RetryPolicy(give_up=patience)
    return await connect(arguments.kubeconfig, arguments.context, retry=retry, timeout=patience, longest=patience)


def counting_of(progress: Progress) -> Callable[[str, int], None]:
    """Return what tells *progress* how many objects of a kind have been read."""
    counts: dict[str, int] = {}

    def tell(kind: str, count: int) -> None:
        counts[kind] = count
        progress.wait(f"reading the cluster: {_most(counts)}")

    return tell


async def read_counts(connection: Connection) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the annotations of the claims' Lease that count what has begun, and a warning if nobody may read it."""
    from tightship.draining.ledger import CLAIMS_LEASE, CLAIMS_NAMESPACE, Ledger

    names = environment()
    namespace = names.get("CLAIMS_LEASE_NAMESPACE", CLAIMS_NAMESPACE)
    ledger = Ledger(connection, namespace=namespace, name=names.get("CLAIMS_LEASE_NAME", CLAIMS_LEASE))
    try:
        return counts_of((await ledger.read()).annotations), ()
    except KubeError as error:
        return {}, (f"{ledger.store} can't be read, so rates count nothing that has begun: {one_line(error)}",)


async def _read_live(
    arguments: argparse.Namespace, progress: Progress, ahead: ReservedDemand, restarts: bool
) -> LoadedCluster:
    from tightship.kube.cache import read_cluster
    from tightship.kube.resources import resources

    progress.wait("connecting")
    async with await connected(arguments) as connection:
        progress.wait(f"connecting to {connection.server}")
        wanted = resources(autoscalers=ahead.replicas > 0, buffers=ahead.buffers, restarts=restarts)
        snapshot = await read_cluster(connection, progress=counting_of(progress), resources=wanted)
        counts, uncounted = await read_counts(connection)
        source = Source("cluster", connection.context)
        return LoadedCluster(snapshot, source, wall(), begun=begun_in(counts), uncounted=uncounted)


def _most(counts: Mapping[str, int]) -> str:
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]
    return ", ".join(f"{count:,} {kind}" for kind, count in largest)

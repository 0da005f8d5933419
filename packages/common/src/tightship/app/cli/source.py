"""The cluster of a command: from an API server, or from a file. Commands only read it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from tightship.app.cli.app import UsageError
from tightship.app.cli.progress import Progress
from tightship.kube.host import run
from tightship.planning.cluster import Snapshot
from tightship.planning.demand import Ahead
from tightship.report.document import Source


def load_snapshot(arguments: argparse.Namespace, progress: Progress, ahead: Ahead) -> tuple[Snapshot, Source]:
    """Return the cluster that the arguments of :func:`~tightship.app.cli.arguments.add_cluster_arguments` name.

    *ahead* limits the demand without pods that an API server is asked for.

    Raises :class:`UsageError`, :class:`~tightship.files.object_file.FileError` or a
    :class:`~tightship.core.api_errors.KubeError`.
    """
    path = file_of(arguments)
    if path is not None:
        from tightship.files.snapshot_file import read_file

        progress.say(reading(path))
        return read_file(path), file_source(path)
    return run(_read_live(arguments.kubeconfig, arguments.context, progress, ahead))


def file_of(arguments: argparse.Namespace) -> str | None:
    """Return the file that replaces a cluster, ``None`` for an API server. Raises :class:`UsageError`."""
    path: str | None = arguments.filename
    if path is not None:
        for flag in ("kubeconfig", "context"):
            if getattr(arguments, flag) is not None:
                raise UsageError(f"--{flag} names a cluster and --filename a file: give only one")
    return path


def reading(path: str) -> str:
    """Return the progress text for reading the file *path*."""
    return f"reading {'standard input' if path == '-' else path}"


def file_source(path: str) -> Source:
    """Return the file *path*, without its folder, as the source of a document."""
    return Source("file", path if path == "-" else os.path.basename(path))  # noqa: PTH119


async def _read_live(
    kubeconfig: str | None, context: str | None, progress: Progress, ahead: Ahead
) -> tuple[Snapshot, Source]:
    # Reading a file needs none of these modules, and importing them takes longer than reading most files.
    from tightship.kube.cache import read_cluster
    from tightship.kube.connection import connect
    from tightship.kube.resources import resources

    counts: dict[str, int] = {}

    def tell(kind: str, count: int) -> None:
        counts[kind] = count
        progress.say(f"reading the cluster: {_most(counts)}")

    progress.say("connecting")
    async with await connect(kubeconfig, context) as connection:
        wanted = resources(autoscalers=ahead.replicas > 0, buffers=ahead.buffers)
        snapshot = await read_cluster(connection, progress=tell, resources=wanted)
        return snapshot, Source("cluster", connection.context)


def _most(counts: Mapping[str, int]) -> str:
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]
    return ", ".join(f"{count:,} {kind}" for kind, count in largest)

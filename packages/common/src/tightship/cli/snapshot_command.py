"""The command ``snapshot``: a cluster in one file, which ``plan -f`` reads as the cluster itself."""

from __future__ import annotations

import argparse
import gzip
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from tightship.cli.app import CliError, UsageError
from tightship.cli.arguments import CommandParser, add_logging_arguments, add_server_arguments
from tightship.cli.output import Progress, abandon
from tightship.cli.pseudonyms import anonymous
from tightship.cli.snapshot_file import LEASE, SnapshotHead
from tightship.cli.source import connected, counting_of, read_counts
from tightship.cluster import NOT_SERVED
from tightship.documents.warnings import UNREADABLE_SHOWN
from tightship.draining.begun import without_names
from tightship.kube.cache import read_lists
from tightship.kube.host import run, wall
from tightship.objects import ObjectError, decode
from tightship.objects.counting import counted
from tightship.objects.projection import projected

_DESCRIPTION = """Write all that planning reads of a cluster into one file, for `plan -f`, which then plans as on the
cluster itself. Only the fields that planning reads: no environment, no images, no arguments of containers, no names of
Secrets, and no annotations but those that some rule reads. Writes nothing to the cluster."""

_LEVEL = 6
"""gzip's own default: beyond that a file takes twice the time and is a few percent smaller."""

Lists = dict[tuple[str, str], list[bytes]]
"""The objects of each kind and ``apiVersion``, as JSON."""


def add_snapshot(commands: argparse._SubParsersAction[CommandParser], program: str) -> None:
    """Add the command to *commands* of *program*."""
    parser = commands.add_parser(
        "snapshot", help="write the cluster into one file for plan -f, without secrets", description=_DESCRIPTION
    )
    add_server_arguments(parser.add_argument_group("cluster"))
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the file, compressed if the name ends in .gz; - for standard output (default: standard output, unless "
        "that is a terminal)",
    )
    output.add_argument(
        "--anonymize",
        action="store_true",
        help="replace names (of nodes, namespaces, workloads, pods, pools, and in values of labels) by pseudonyms, the "
        "same name by the same one everywhere; keys of labels, machine types and zones stay",
    )
    add_logging_arguments(parser)

    def begin(arguments: argparse.Namespace) -> int:
        return _snapshot(arguments, program)

    parser.set_defaults(run=begin)


def _snapshot(arguments: argparse.Namespace, program: str) -> int:
    path: str | None = arguments.output
    if path is None and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError("a snapshot is not for a terminal: name a file by -o cluster.json.gz, or give -o -")
    with Progress() as progress:
        head, lists, warnings, counts = run(_read(arguments, progress))
        if arguments.anonymize:
            progress.say("replacing names")
            head = msgspec.structs.replace(head, cluster="", anonymized=True)
            anonymous(lists)
            counts = without_names(counts)
        if counts:
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": LEASE, "metadata": {"annotations": counts}}
            lists[LEASE, "coordination.k8s.io/v1"] = [msgspec.json.encode(lease)]
        progress.say(f"writing {path or 'standard output'}")
        if path in (None, "-"):
            _write_stdout(_chunks(head, lists))
        else:
            _write(str(path), _chunks(head, lists))
    sys.stderr.write("".join(f"{program}: warning: {text}\n" for text in warnings))
    return 0


async def _read(
    arguments: argparse.Namespace, progress: Progress
) -> tuple[SnapshotHead, Lists, list[str], Mapping[str, str]]:
    unreadable: list[str] = []

    def keep(kind: str, raw: msgspec.Raw) -> bytes:
        try:
            decode(kind, raw)
        except ObjectError as error:
            unreadable.append(f"{kind} {'/'.join(filter(None, (error.namespace, error.name)))}: {error.problem}")
        return projected(kind, raw)

    progress.wait("connecting")
    async with await connected(arguments) as connection:
        progress.wait(f"connecting to {connection.server}")
        found = await read_lists(connection, progress=counting_of(progress), decode=keep)
        counts, unread = await read_counts(connection)
        head = SnapshotHead(cluster=connection.context, time=wall(), missing=found.missing)
    lists = {
        (kind, f"{resource.group}/{resource.version}".lstrip("/")): listing.things
        for kind, (resource, listing) in sorted(found.held.items())
    }
    warnings = [
        f"{kind}s are {why}, so the file lacks them" for kind, why in found.missing.items() if why != NOT_SERVED
    ]
    warnings += unread
    warnings += [f"{each}; the file has it as it is" for each in unreadable[:UNREADABLE_SHOWN]]
    if more := len(unreadable[UNREADABLE_SHOWN:]):
        warnings.append(f"{counted(more, 'more object')} can't be read either")
    return head, lists, warnings, counts


def _chunks(head: SnapshotHead, lists: Lists) -> Iterator[bytes]:
    """Yield a ``List`` of *head* and of a list of each kind, which kubectl and older versions can read."""
    yield b'{"apiVersion":"v1","kind":"List","items":[\n' + msgspec.json.encode(head)
    for (kind, version), things in lists.items():
        yield b',\n{"apiVersion":"%s","kind":"%sList","items":[' % (version.encode(), kind.encode())
        for number, each in enumerate(things):
            yield (b",\n" if number else b"\n") + each
        yield b"]}"
    yield b"]}\n"


def _write_stdout(chunks: Iterable[bytes]) -> None:
    stream = sys.stdout
    if stream is None:
        raise CliError("standard output is closed")
    try:
        stream.buffer.writelines(chunks)
        stream.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon(stream)
        raise CliError(f"standard output: {error.strerror or error}") from error


def _write(path: str, chunks: Iterable[bytes]) -> None:
    """Write the file *path* as a whole or not at all: beside it first. Raises :class:`CliError`."""
    whole = Path(path).resolve()
    beside = whole.with_name(f".{whole.name}.{os.getpid()}")
    # What is no regular file, such as /dev/stdout or a pipe, is written as it is.
    special = whole.exists() and not whole.is_file()
    try:
        try:
            with open(whole if special else beside, "wb") as file:  # noqa: PTH123 - a path or a device
                _fill(file, chunks, compressed=path.endswith(".gz"))
            if not special:
                beside.replace(whole)
        except BaseException:
            if not special:
                with suppress(OSError):
                    beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CliError(f"--output {path}: {error.strerror or error}") from error


def _fill(file: BinaryIO, chunks: Iterable[bytes], *, compressed: bool) -> None:
    if not compressed:
        file.writelines(chunks)
        return
    # Neither a name nor a time: the same cluster gives the same bytes.
    with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as stream:
        for each in chunks:
            stream.write(each)

"""Files in place of a cluster: of ``tightship snapshot``, or the output of ``kubectl get nodes,pods,... -A -o json``.

Of two objects of one kind, namespace and name the later one counts. Unused kinds are ignored, and finished pods are
left out, as in a live cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from tightship.cli.clocks import agreed_time, odd_clocks
from tightship.cli.object_file import FileError, FileObjects, read_all, read_objects
from tightship.cli.remarks import Repeated, partial, remarks_of
from tightship.cluster import NOT_IN_FILE, ClusterState, Snapshot
from tightship.kube.resources import BY_KIND, RESOURCES, Resource, node_of
from tightship.objects import CONFIG_MAP, ApiObject, Node, ObjectError, Pod, decode
from tightship.objects.autoscaler_status import MACHINE_KINDS, STATUS_NAME
from tightship.objects.mistyped import explained
from tightship.objects.times import parse_rfc3339
from tightship.objects.unreadable import UNREADABLE

_MACHINE_GROUPS = frozenset({"cluster.x-k8s.io", "machine.openshift.io"})

_KINDS = ",".join(each.qualified for each in RESOURCES if not each.extension)
_HOW = f"tightship snapshot -o cluster.json.gz, or kubectl get {_KINDS} -A -o json"


SNAPSHOT = "ClusterSnapshot"
"""The kind of the first item of what ``tightship snapshot`` writes."""

_GROUP = "tightship.dev"


class SnapshotHead(Struct, frozen=True, rename="camel"):
    """What a live cluster tells beside its objects: the *cluster* that the kubeconfig names, the *time* of the reading
    in seconds since 1970, and why kinds are *missing*.
    """

    cluster: str
    time: float
    missing: dict[str, str] = {}
    anonymized: bool = False
    kind: str = SNAPSHOT
    api_version: str = f"{_GROUP}/v1"


_heads = msgspec.json.Decoder(SnapshotHead)


class FileCluster(Struct, frozen=True):
    """The cluster in files: *warnings* are about contradictions in them; *newest* is the latest time in them.

    *newest* is in seconds since 1970, 0 without any time: the latest on which most clocks agree, about when the files
    were written (:func:`~tightship.cli.clocks.agreed_time`). *head* is that of a snapshot that is the only file: an API
    server has prevented contradictions, and *newest* is the time of the reading.
    """

    snapshot: Snapshot
    warnings: tuple[str, ...]
    newest: float
    head: SnapshotHead | None = None


def read_files(paths: Sequence[str | os.PathLike[str]], resources: Sequence[Resource] = RESOURCES) -> FileCluster:
    """Return the *resources* of the cluster in the files *paths* together, ``-`` for standard input.

    Raises :class:`FileError` with all problems; files without a node are one.
    """
    reader = _Reader(resources)
    return reader.cluster(read_all(paths, _known, reader.take))


def read_file(path: str | os.PathLike[str]) -> Snapshot:
    """Return the snapshot of *path*, ``-`` for standard input. Raises :class:`FileError` with all problems."""
    return read_files([path]).snapshot


def parse(raw: bytes, name: str) -> Snapshot:
    """Return the snapshot of *raw*, the bytes of the file called *name*.

    Raises :class:`FileError` with all problems; a file without a node is one.
    """
    return parsed(raw, name).snapshot


def parsed(raw: bytes, name: str) -> FileCluster:
    """Return the cluster of *raw* as :func:`parse` reads it."""
    reader = _Reader()
    return reader.cluster(read_objects(raw, name, _known, reader.take))


class _Reader:
    def __init__(self, resources: Sequence[Resource] = RESOURCES) -> None:
        self._resources = resources
        self._unused = BY_KIND.keys() - {each.kind for each in resources}
        self._head: SnapshotHead | None = None
        self._state = ClusterState()
        self._repeated = Repeated()
        self._heard: dict[str, int] = {}
        self._started: dict[str, int] = {}
        """The latest time by each node's kubelet: in the node's status, and in those of its pods."""
        self._silent: set[str] = set()
        """Nodes whose kubelet has stopped to report, by the word of the node controller."""
        self._stamped = 0

    def take(self, kind: str, thing: bytes | msgspec.Raw) -> None:
        """Take one object. An unreadable one of a kind that most clusters lack counts as in a live cluster.

        Raises :class:`~tightship.objects.ObjectError` for any other.
        """
        if kind == SNAPSHOT:
            self._head = _read_head(thing)
            return
        if kind in self._unused:
            return
        try:
            decoded = decode(kind, thing)
        except ObjectError as error:
            whole = self._head is not None or (kind in BY_KIND and BY_KIND[kind].extension)
            if not (whole and error.name):
                raise
            self._state.mark_unreadable(error, node_of(kind, thing) if self._head is not None else "")
            return
        if kind == CONFIG_MAP and decoded.name != STATUS_NAME:
            return  # a ConfigMap of somebody else
        self._repeated.saw(kind, decoded)
        self._note_time(decoded, thing)
        self._state.upsert(CONFIG_MAP if kind in MACHINE_KINDS else kind, decoded)

    def cluster(self, held: FileObjects) -> FileCluster:
        """Return the cluster of everything taken, of which *held* tells. Raises :class:`FileError`."""
        if not held.problems and not held.counts["Node"]:
            held.problems.append(f"{held.name}: holds no Node (only {held.described()}); write it by: {_HOW}")
        if held.problems:
            raise FileError(tuple(held.problems))
        head = self._head
        for resource in self._resources:
            if resource.kind not in held.present:
                why = NOT_IN_FILE if head is None else head.missing.get(resource.kind, NOT_IN_FILE)
                self._state.mark_missing(resource.kind, why)
        snapshot = self._state.snapshot()
        if head is not None and len(held.named) == 1:
            return FileCluster(snapshot, (), head.time, head)
        reports = {**self._started, **self._heard}
        still = {name: at for name, at in reports.items() if name not in self._silent} or reports
        at = agreed_time(still, self._stamped)
        remarks = [*remarks_of(snapshot, self._state.strays()), *partial(snapshot, held.lists["Pod"])]
        return FileCluster(snapshot, (*self._repeated.remarks(), *odd_clocks(still, self._stamped, at), *remarks), at)

    def _note_time(self, thing: ApiObject, raw: bytes | msgspec.Raw) -> None:
        """Note when *thing*, a node or a pod, was created, and what time its kubelet has written."""
        if isinstance(thing, Pod):
            self._stamped = max(self._stamped, thing.created)
            if thing.started is not None and thing.node:
                self._started[thing.node] = max(self._started.get(thing.node, 0), thing.started)
        elif isinstance(thing, Node):
            heard, silent, written = _report(raw)
            self._stamped = max(self._stamped, thing.created, written)
            if heard:
                self._heard[thing.name] = heard
            if silent:
                self._silent.add(thing.name)


class _Heartbeat(Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    last_heartbeat_time: str | None = None


class _Heartbeats(Struct, frozen=True, gc=False):
    conditions: tuple[_Heartbeat, ...] | None = None


class _Write(Struct, frozen=True, gc=False):
    time: str | None = None


class _Writes(Struct, frozen=True, gc=False, rename="camel"):
    managed_fields: tuple[_Write, ...] | None = None


class _Reporting(Struct, frozen=True, gc=False):
    metadata: _Writes | None = None
    status: _Heartbeats | None = None


_reporting = msgspec.json.Decoder(_Reporting)


def _report(raw: bytes | msgspec.Raw) -> tuple[int, bool, int]:
    """Return the latest time by a node's kubelet, whether the kubelet is silent, and when the node was last written."""
    try:
        node = _reporting.decode(raw)
    except UNREADABLE:
        return 0, False, 0
    conditions = (node.status.conditions if node.status is not None else None) or ()
    writes = (node.metadata.managed_fields if node.metadata is not None else None) or ()
    silent = any(each.type == "Ready" and each.status == "Unknown" for each in conditions)
    return _latest(each.last_heartbeat_time for each in conditions), silent, _latest(each.time for each in writes)


def _read_head(raw: bytes | msgspec.Raw) -> SnapshotHead:
    try:
        return _heads.decode(raw)
    except UNREADABLE as error:
        raise ObjectError(SNAPSHOT, "", "", explained(raw, str(error))) from error


def _latest(times: Iterable[str | None]) -> int:
    latest = 0
    for each in times:
        with suppress(ValueError):
            latest = max(latest, int(parse_rfc3339(each or "")))
    return latest


def _known(kind: str, api_version: str) -> bool:
    """Whether *kind* in any version of its own group is in use: other groups have Nodes too."""
    resource = BY_KIND.get(kind)
    group, _, _ = api_version.rpartition("/")
    if kind == SNAPSHOT:
        return group == _GROUP
    if resource is None:
        return kind in MACHINE_KINDS and group in _MACHINE_GROUPS
    return not api_version or group == resource.group

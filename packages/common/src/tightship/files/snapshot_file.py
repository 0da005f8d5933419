"""Files in place of a cluster: the output of ``kubectl get nodes,pods,... -A -o json`` (or ``-o yaml``).

Of two objects of one kind, namespace and name the later one counts. Unused kinds are ignored, and finished pods are
left out, as in a live cluster.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from tightship.core.objects import CONFIG_MAP, ApiObject, Node, ObjectError, Pod, decode
from tightship.core.objects.autoscaler_status import MACHINE_KINDS, STATUS_NAME
from tightship.core.times import parse_rfc3339
from tightship.files.object_file import FileError, FileObjects, read_all, read_objects
from tightship.files.remarks import Repeated, remarks_of
from tightship.kube.resources import BY_KIND, RESOURCES
from tightship.planning.cluster import NOT_IN_FILE, ClusterState, Snapshot

_MACHINE_GROUPS = frozenset({"cluster.x-k8s.io", "machine.openshift.io"})

_HOW = f"kubectl get {','.join(each.qualified for each in RESOURCES if not each.extension)} -A -o json"


class FileCluster(Struct, frozen=True):
    """The cluster in files: *warnings* are about contradictions in them; *newest* is the latest time in them.

    *newest* is in seconds since 1970, 0 without any time. A kubelet reports every few minutes, so that *newest* is
    about when the file was written.
    """

    snapshot: Snapshot
    warnings: tuple[str, ...]
    newest: int


def read_files(paths: Sequence[str | os.PathLike[str]]) -> FileCluster:
    """Return the cluster in the files *paths* together, ``-`` for standard input.

    Raises :class:`FileError` with all problems; files without a node are one.
    """
    reader = _Reader()
    return reader.cluster(read_all(paths, _known, reader.take))


def read_file(path: str | os.PathLike[str]) -> Snapshot:
    """Return the snapshot of *path*, ``-`` for standard input. Raises :class:`FileError` with all problems."""
    return read_files([path]).snapshot


def parse(raw: bytes, name: str) -> Snapshot:
    """Return the snapshot of *raw*, the bytes of the file called *name*.

    Raises :class:`FileError` with all problems; a file without a node is one.
    """
    reader = _Reader()
    return reader.cluster(read_objects(raw, name, _known, reader.take)).snapshot


class _Reader:
    def __init__(self) -> None:
        self._state = ClusterState()
        self._repeated = Repeated()
        self._newest = 0

    def take(self, kind: str, thing: bytes | msgspec.Raw) -> None:
        """Take one object. An unreadable one of a kind that most clusters lack counts as in a live cluster.

        Raises :class:`~tightship.core.objects.ObjectError` for any other.
        """
        try:
            decoded = decode(kind, thing)
        except ObjectError as error:
            if kind not in BY_KIND or not (BY_KIND[kind].extension and error.name):
                raise
            self._state.mark_unreadable(error)
            return
        if kind == CONFIG_MAP and decoded.name != STATUS_NAME:
            return  # a ConfigMap of somebody else
        self._repeated.saw(kind, decoded)
        self._newest = max(self._newest, _newest(decoded, thing))
        self._state.upsert(CONFIG_MAP if kind in MACHINE_KINDS else kind, decoded)

    def cluster(self, held: FileObjects) -> FileCluster:
        """Return the cluster of everything taken, of which *held* tells. Raises :class:`FileError`."""
        if not held.problems and not held.counts["Node"]:
            held.problems.append(f"{held.name}: holds no Node (only {held.described()}); write it by: {_HOW}")
        if held.problems:
            raise FileError(tuple(held.problems))
        for resource in RESOURCES:
            if resource.kind not in held.present:
                self._state.mark_missing(resource.kind, NOT_IN_FILE)
        snapshot = self._state.snapshot()
        return FileCluster(
            snapshot, (*self._repeated.remarks(), *remarks_of(snapshot, self._state.strays())), self._newest
        )


class _Heartbeat(Struct, frozen=True, gc=False, rename="camel"):
    last_heartbeat_time: str = ""


class _Heartbeats(Struct, frozen=True, gc=False):
    conditions: tuple[_Heartbeat, ...] | None = None


class _Reporting(Struct, frozen=True, gc=False):
    status: _Heartbeats | None = None


_reporting = msgspec.json.Decoder(_Reporting)


def _newest(thing: ApiObject, raw: bytes | msgspec.Raw) -> int:
    """Return the latest time that a node or a pod tells, in seconds since 1970; 0 without any."""
    if isinstance(thing, Pod):
        return max(thing.created, thing.started or 0)
    return max(thing.created, _heard(raw)) if isinstance(thing, Node) else 0


def _heard(raw: bytes | msgspec.Raw) -> int:
    try:
        status = _reporting.decode(raw).status
    except msgspec.DecodeError:
        return 0
    heard = 0
    for each in (status.conditions or ()) if status is not None else ():
        with suppress(ValueError):
            heard = max(heard, int(parse_rfc3339(each.last_heartbeat_time)))
    return heard


def _known(kind: str, api_version: str) -> bool:
    """Whether *kind* in any version of its own group is in use: other groups have Nodes too."""
    resource = BY_KIND.get(kind)
    group, _, _ = api_version.rpartition("/")
    if resource is None:
        return kind in MACHINE_KINDS and group in _MACHINE_GROUPS
    return not api_version or group == resource.group

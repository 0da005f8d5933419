"""A file in place of a cluster: the output of ``kubectl get nodes,pods,... -A -o json`` (or ``-o yaml``).

Of two objects of one kind, namespace and name the later one counts. Unused kinds are ignored, and finished pods are
left out, as in a live cluster.
"""

from __future__ import annotations

import os

import msgspec

from tightship.core.objects import decode
from tightship.files.object_file import FileError, read_bytes, read_objects
from tightship.kube.resources import BY_KIND, RESOURCES
from tightship.planning.cluster import NOT_IN_FILE, ClusterState, Snapshot

_HOW = f"kubectl get {','.join(resource.qualified for resource in RESOURCES)} -A -o json"


def read_file(path: str | os.PathLike[str]) -> Snapshot:
    """Return the snapshot of *path*, ``-`` for standard input. Raises :class:`FileError` with all problems."""
    return parse(*read_bytes(path))


def parse(raw: bytes, name: str) -> Snapshot:
    """Return the snapshot of *raw*, the bytes of the file called *name*.

    Raises :class:`FileError` with all problems; a file without a node is one.
    """
    state = ClusterState()

    def take(kind: str, thing: bytes | msgspec.Raw) -> None:
        state.upsert(kind, decode(kind, thing))

    held = read_objects(raw, name, _known, take)
    if not held.problems and not held.counts["Node"]:
        held.problems.append(f"{name}: holds no Node (only {held.described()}); write it by: {_HOW}")
    if held.problems:
        raise FileError(tuple(held.problems))
    for resource in RESOURCES:
        if resource.kind not in held.present:
            state.mark_missing(resource.kind, NOT_IN_FILE)
    return state.snapshot()


def _known(kind: str, api_version: str) -> bool:
    """Whether *kind* in any version of its own group is in use: other groups have Nodes too."""
    resource = BY_KIND.get(kind)
    if resource is None:
        return False
    group, _, _ = api_version.rpartition("/")
    return not api_version or group == resource.group

"""The status of Cluster Autoscaler, which it keeps in a ConfigMap: the minimum size of each of its node groups.

Up to 1.29 the status is a text for people, since 1.30 YAML (``clusterstate/api/types.go``). Both come in lines, a group
at a time; times and counts, which change all the time, are left out, but for the hour of the last update.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from tightship.objects.meta import Metadata, Namespaced
from tightship.objects.quoting import LONGEST, quoted

STATUS_NAME = "cluster-autoscaler-status"
"""The ConfigMap's name; its namespace is that of Cluster Autoscaler."""

MACHINE_KINDS = ("MachineDeployment", "MachineSet", "MachinePool")
"""Kinds of which Cluster Autoscaler makes node groups with Cluster API; files may hold them."""

MACHINE_MINIMUMS = (
    "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size",
    "machine.openshift.io/cluster-api-autoscaler-node-group-min-size",
)
"""The annotation of such an object with the minimum size of its group."""

LAST_UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
"""The annotation with the time of the last update (``clusterstate/utils/status.go``), which the status has too."""

_GO_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d+)? ([+-]\d{4})")
_OLD_SIZE = re.compile(r"\(minSize=(-?\d+), maxSize=-?\d+\)")
_WORD = re.compile(r"\w+")


class NodeGroup(Struct, frozen=True, gc=False):
    """A node group of Cluster Autoscaler, and its minimum size. *problem* says why the size is unreadable.

    *setter*, followed by a number, is a command that sets the minimum size, if an object of the cluster says it.
    """

    name: str
    minimum: int
    problem: str = ""
    setter: str = ""


class AutoscalerStatus(Namespaced, frozen=True, gc=False):
    """The groups in one status. *problem* says why no group is readable.

    *updated* is the full hour (in seconds since 1970) in which Cluster Autoscaler last wrote the status, 0 if unknown.
    """

    groups: tuple[NodeGroup, ...] = ()
    problem: str = ""
    updated: int = 0


class _Data(Struct, frozen=True, gc=False):
    status: str = ""


class ConfigMapWire(Struct, frozen=True, gc=False):
    """A ConfigMap on the wire."""

    metadata: Metadata
    data: _Data | None = None

    def status(self) -> AutoscalerStatus:
        """Return the status in the ConfigMap; another ConfigMap's is empty."""
        meta = self.metadata
        if meta.name != STATUS_NAME:
            return AutoscalerStatus(meta.namespace, meta.name)
        text = self.data.status if self.data is not None else ""
        if not re.search(r"^(nodeGroups|NodeGroups|autoscalerStatus|Cluster-wide):|Initializing", text, re.MULTILINE):
            return AutoscalerStatus(meta.namespace, meta.name, problem="its key status holds no status of node groups")
        groups = _new(text) if re.search(r"^(nodeGroups|autoscalerStatus):", text, re.MULTILINE) else _old(text)
        written = (meta.annotations or {}).get(LAST_UPDATED) or text[:200]
        return AutoscalerStatus(meta.namespace, meta.name, tuple(groups), updated=_hour(written))


class MachinesWire(Struct, frozen=True, gc=False):
    """A MachineDeployment, MachineSet or MachinePool of Cluster API or OpenShift on the wire."""

    metadata: Metadata

    def status(self, kind: str) -> AutoscalerStatus:
        """Return the group that Cluster Autoscaler makes of it, with the minimum size of its annotation, if any.

        Cluster Autoscaler makes no group of a MachineSet that a MachineDeployment owns.
        """
        meta = self.metadata
        notes = meta.annotations or {}
        key = next((each for each in MACHINE_MINIMUMS if each in notes), "")
        owned = any(each.kind == MACHINE_KINDS[0] for each in meta.owner_references or ())
        if not key or owned:
            return AutoscalerStatus(meta.namespace, f"{kind} {meta.name}")
        minimum, name = minimum_size(notes[key]), f"{kind}/{meta.namespace}/{meta.name}"
        setter = f"kubectl -n {meta.namespace} annotate --overwrite {kind.lower()} {meta.name} {key}="
        problem = f"annotation {key} is {quoted(notes[key])}; allowed is a whole number" if minimum is None else ""
        group = NodeGroup(name, minimum or 0, problem, setter)
        return AutoscalerStatus(meta.namespace, f"{kind} {meta.name}", (group,))


def _hour(text: str) -> int:
    """Return the full hour of the time that Go has written in *text*, 0 without one."""
    found = _GO_TIME.search(text)
    try:
        time = datetime.strptime(" ".join(found.groups()), "%Y-%m-%d %H:%M:%S %z") if found is not None else None
    except ValueError:
        time = None
    return 0 if time is None else int(time.timestamp()) // 3600 * 3600


def _old(text: str) -> Iterator[NodeGroup]:
    """Yield the groups of a text for people."""
    name = ""
    for line in text.partition("\nNodeGroups:")[2].splitlines():
        words = line.split()
        if words[:1] == ["Name:"] and len(words) == 2 and line[0].isspace():
            if name:
                yield _group(name, "")
            name = words[1]
        elif name and line.lstrip().startswith("Health:"):
            size = _OLD_SIZE.search(line)
            yield _group(name, size[1] if size else "")
            name = ""
    if name:
        yield _group(name, "")


def _new(text: str) -> Iterator[NodeGroup]:
    """Yield the groups of YAML as Go writes it: a key a line, and no other form of lists and mappings."""
    name = size = ""
    inside, begun, dash, health = False, False, -1, -1
    for line in text.splitlines():
        body = line.lstrip(" ")
        item = body.startswith("- ")
        if item:
            body = body[2:].lstrip(" ")
        key, colon, value = body.partition(":")
        if not colon or not _WORD.fullmatch(key):
            continue
        indent, value = len(line) - len(body), value.strip().strip("'\"")
        if not item and indent == 0:
            inside = key == "nodeGroups"
            continue
        if not inside:
            continue
        if item and dash in (-1, indent):
            if begun:
                yield _group(name, size)
            name = size = ""
            begun, dash, health = True, indent, -1
        if indent == dash:
            health = indent if key == "health" else -1
            name = value if key == "name" else name
        elif health >= 0 and key == "minSize":
            size = value
    if begun:
        yield _group(name, size)


def minimum_size(text: str) -> int | None:
    """Return the size of a group in *text*, ``None`` if that is no whole number below a billion."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _group(name: str, size: str) -> NodeGroup:
    minimum = minimum_size(size)
    if minimum is not None:
        return NodeGroup(name, minimum)
    return NodeGroup(
        name, 0, f"minSize is {size[:LONGEST]}; allowed is a whole number" if size else "it has no minSize"
    )

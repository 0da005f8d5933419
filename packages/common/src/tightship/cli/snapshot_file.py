"""Files in place of a cluster: of ``tightship snapshot``, or the output of ``kubectl get nodes,pods,... -A -o json``.

Of two objects of one kind, namespace and name the later one counts. Unused kinds are ignored, and finished pods are
left out, as in a live cluster.

The time of such a cluster is the moment on which most of its clocks agree. Every kubelet writes the time of its own
clock into its node's status, at least every five minutes and up to half as much later (``nodeStatusReportFrequency``).
The API server writes the time of each object's creation, and in ``managedFields`` the time of each write; no file is
older than the newest of these. A wrong clock is outvoted.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from tightship.cli.object_file import FileError, FileObjects, read_all, read_objects
from tightship.cluster import NOT_IN_FILE, ClusterState, Snapshot
from tightship.draining.begun import counts_of
from tightship.kube.resources import BY_KIND, RESOURCES, Resource, node_of
from tightship.objects import CONFIG_MAP, ApiObject, Node, ObjectError, Pod, decode
from tightship.objects.autoscaler_status import MACHINE_KINDS, STATUS_NAME
from tightship.objects.counting import counted
from tightship.objects.mistyped import explained
from tightship.objects.quantity import MOST
from tightship.objects.quoting import quoted
from tightship.objects.selectors import LabelSelector, NodeSelector, Requirement
from tightship.objects.times import format_duration, parse_rfc3339, rfc3339
from tightship.objects.unreadable import UNREADABLE

WINDOW = 450
"""Seconds between the reports of kubelets whose clocks agree."""

ODD = 900
"""Seconds from the time of a file from which a clock is wrong."""

RARELY = 3600
"""Seconds between the reports of kubelets that are told to report rarely, so that the API server's times are newer."""

_SHOWN = 3


def agreed_time(reports: Mapping[str, int], stamped: int) -> int:
    """Return the time of a file in seconds since 1970, 0 without any.

    *reports* are the latest times by the kubelets of nodes that still report, *stamped* is the latest time by the API
    server, 0 without any. Each kubelet has a vote, for the time up to a :data:`WINDOW` after its report. The API server
    has one and a half, for any time that is not before its own: it outvotes one kubelet, and two outvote it. Of moments
    with as many votes the earliest counts, because most protections end with time.
    """
    times = sorted(reports.values())

    def votes(at: int) -> float:
        agreeing = bisect_right(times, at) - bisect_left(times, at - WINDOW)
        return agreeing + 1.5 * (0 < stamped <= at + RARELY)

    best = max(sorted({*times, *([stamped] if stamped else [])}), key=votes, default=0)
    return max(best, stamped) if stamped <= best + RARELY else best


def odd_clocks(reports: Mapping[str, int], stamped: int, at: int) -> list[str]:
    """Return sentences about the clocks that are wrong by the time *at* of the file; see :func:`agreed_time`."""
    last = max((each for each in reports.values() if at - RARELY <= each <= at), default=at)
    odd = sorted(
        (name for name in reports if abs(reports[name] - last) > ODD), key=lambda name: -abs(reports[name] - at)
    )
    found = []
    if odd:
        named = ", ".join(f"{name} ({_off(reports[name] - at)})" for name in odd[:_SHOWN])
        more = f" and {len(odd) - _SHOWN:,} more" if len(odd) > _SHOWN else ""
        what = "a clock is wrong, that of node" if len(odd) == 1 else f"{len(odd):,} clocks are wrong, those of nodes"
        found.append(f"{what} {named}{more}: most of the file is of {rfc3339(at)}")
    if stamped > at + ODD:
        found.append(
            f"the API server has written {rfc3339(stamped)} on an object, {_off(stamped - at)} of what the nodes "
            f"report: most of the file is of {rfc3339(at)}"
        )
    return found


def _off(seconds: int) -> str:
    return f"{format_duration(abs(seconds))} {'ahead' if seconds > 0 else 'behind'}"


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

LEASE = "Lease"
"""The kind of which a file may hold the one with the claims: other Leases count nothing."""


class _LeaseMeta(Struct):
    annotations: dict[str, str] | None = None


class _Lease(Struct):
    metadata: _LeaseMeta


_leases = msgspec.json.Decoder(_Lease)


class FileCluster(Struct, frozen=True):
    """The cluster in files: *warnings* are about contradictions in them; *newest* is the latest time in them.

    *newest* is in seconds since 1970, 0 without any time: the latest on which most clocks agree, about when the files
    were written (:func:`agreed_time`). *head* is that of a snapshot that is the only file: an API server has prevented
    contradictions, and *newest* is the time of the reading. *counts* are the annotations of the claims' Lease that
    count what has begun.
    """

    snapshot: Snapshot
    warnings: tuple[str, ...]
    newest: float
    head: SnapshotHead | None = None
    counts: Mapping[str, str] = {}


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
        self._counts: Mapping[str, str] = {}
        self._state = ClusterState()
        self._repeated = Repeated()
        self._reported: dict[str, int] = {}
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
        if kind == LEASE:
            with suppress(*UNREADABLE):
                self._counts = counts_of(_leases.decode(thing).metadata.annotations or {}) or self._counts
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
            return FileCluster(snapshot, (), head.time, head, self._counts)
        reports = {**self._started, **self._reported}
        still = {name: at for name, at in reports.items() if name not in self._silent} or reports
        at = agreed_time(still, self._stamped)
        remarks = [*remarks_of(snapshot, self._state.strays()), *partial(snapshot, held.lists["Pod"])]
        remarks = [*self._repeated.remarks(), *odd_clocks(still, self._stamped, at), *remarks]
        remarks += [f"{each}: a list without a kind, passed over" for each in held.untyped]
        return FileCluster(snapshot, tuple(remarks), at, counts=self._counts)

    def _note_time(self, thing: ApiObject, raw: bytes | msgspec.Raw) -> None:
        """Note when *thing*, a node or a pod, was created, and what time its kubelet has written."""
        if isinstance(thing, Pod):
            self._stamped = max(self._stamped, thing.created)
            if thing.started is not None and thing.node:
                self._started[thing.node] = max(self._started.get(thing.node, 0), thing.started)
        elif isinstance(thing, Node):
            reported, silent, written = _report(raw)
            self._stamped = max(self._stamped, thing.created, written)
            if reported:
                self._reported[thing.name] = reported
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
    if kind in (SNAPSHOT, LEASE):
        return group == (_GROUP if kind == SNAPSHOT else "coordination.k8s.io")
    if resource is None:
        return kind in MACHINE_KINDS and group in _MACHINE_GROUPS
    return not api_version or group == resource.group


SOME_NAMESPACES = 2
"""Namespaces that ``kubectl cluster-info dump`` writes by itself."""

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_PERCENTAGE = re.compile(r"[0-9]{1,9}%", re.ASCII)


class Repeated:
    """Counts objects that occur more than once; the last of them counts."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        """Hashes, since a fleet has hundreds of thousands of keys."""
        self._repeated: dict[str, dict[str, None]] = {}

    def saw(self, kind: str, thing: ApiObject) -> None:
        """Record an object."""
        key = _key(thing)
        before = len(self._seen)
        self._seen.add(hash((kind, key)))
        if len(self._seen) == before:
            self._repeated.setdefault(kind, {})[key] = None

    def remarks(self) -> Iterator[str]:
        """Yield a remark for each kind with objects that occur more than once."""
        for kind, keys in sorted(self._repeated.items()):
            yield f"{_some(kind, list(keys))} more than once in the files: the last one counts"


def remarks_of(snapshot: Snapshot, strays: Sequence[Pod] = ()) -> tuple[str, ...]:
    """Return sentences about the contradictions in *snapshot*; *strays* are pods on nodes that the files don't have.

    An API server would have prevented them. None is an error: a plan is possible, but perhaps not of the cluster that
    somebody meant.
    """
    found: list[str] = [*_pods(snapshot, strays)]
    for each in (_amounts(snapshot), _operators(snapshot), _budgets(snapshot)):
        alike = list(each)
        found += alike[:_SHOWN]
        if len(alike) > _SHOWN:
            found.append(f"and {counted(len(alike) - _SHOWN, 'more contradiction')} of this sort")
    return tuple(found)


def _pods(snapshot: Snapshot, strays: Sequence[Pod]) -> Iterator[str]:
    if "Pod" in snapshot.missing:
        yield "Pods are not in the file: every node looks empty. Give them too: -f nodes.json -f pods.json"
    if strays:
        nodes = list(dict.fromkeys(pod.node for pod in strays))
        keys = [pod.key for pod in strays]
        names = f"{', '.join(nodes[:_SHOWN])}{_rest(nodes)}"
        where = "a node" if len(nodes) == 1 else "nodes"
        yield f"{_some('Pod', keys)} on {where} that the files don't have ({names}): nothing is planned there"


def partial(snapshot: Snapshot, lists: int) -> Iterator[str]:
    """Tell of pods that may be missing: ``kubectl cluster-info dump`` writes a PodList for each namespace, and without
    ``--all-namespaces`` only those of kube-system and one more. *lists* is how many PodLists there are.
    """
    spaces = sorted({pod.namespace for pod in _all_pods(snapshot)})
    if spaces and len(spaces) <= lists <= SOME_NAMESPACES:
        what = f"all pods are in {' and '.join(spaces)}: if there are more namespaces, nodes look emptier than they are"
        yield f"{what}; kubectl cluster-info dump writes the others only with --all-namespaces"


def _amounts(snapshot: Snapshot) -> Iterator[str]:
    for name, view in snapshot.nodes.items():
        for resource, amount in view.node.allocatable.items():
            if amount >= MOST:
                yield f"Node {name} says that it has more {resource} than any machine: {_count(resource)} counts"
    for pod in _all_pods(snapshot):
        for resource, amount in pod.requests.items():
            if amount >= MOST:
                yield f"Pod {pod.key} requests more {resource} than any machine has: {_count(resource)} counts"


def _count(resource: str) -> str:
    return f"{MOST // 1000:,}" if resource == "cpu" else f"{MOST:,}"


def _operators(snapshot: Snapshot) -> Iterator[str]:
    for operator, keys in _unknown(_pod_requirements(snapshot), _OPERATORS).items():
        yield f"{_some('Pod', keys)} with the unknown operator {quoted(operator)} in an affinity: it matches nothing"
    wanted = ((budget.key, _of(budget.selector)) for budget in snapshot.budgets)
    for operator, keys in _unknown(wanted, _OPERATORS).items():
        yield f"{_some('PodDisruptionBudget', keys)} with the unknown operator {quoted(operator)}: it selects nothing"


def _pod_requirements(snapshot: Snapshot) -> Iterator[tuple[str, Iterable[Requirement]]]:
    seen: set[int] = set()
    for pod in _all_pods(snapshot):
        spec = pod.spec
        if id(spec) in seen:
            continue
        seen.add(id(spec))
        found = [*_terms(spec.node_affinity)]
        for term in (*spec.affinity, *spec.anti_affinity):
            found += [*_of(term.label_selector), *_of(term.namespace_selector)]
        for constraint in spec.spread:
            found += _of(constraint.label_selector)
        if found:
            yield pod.key, found


def _terms(selector: NodeSelector | None) -> Iterator[Requirement]:
    for term in selector.node_selector_terms if selector is not None else ():
        for each in (*(term.match_expressions or ()), *(term.match_fields or ())):
            # A node affinity alone may compare numbers.
            if each.operator not in ("Gt", "Lt"):
                yield each


def _of(selector: LabelSelector | None) -> tuple[Requirement, ...]:
    return () if selector is None else selector.match_expressions or ()


def _unknown(named: Iterable[tuple[str, Iterable[Requirement]]], known: frozenset[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, requirements in named:
        for operator in {each.operator for each in requirements} - known:
            found.setdefault(operator, []).append(key)
    return dict(sorted(found.items()))


def _budgets(snapshot: Snapshot) -> Iterator[str]:
    for budget in snapshot.budgets:
        for rule, value in (("maxUnavailable", budget.max_unavailable), ("minAvailable", budget.min_available)):
            if isinstance(value, str) and not _PERCENTAGE.fullmatch(value):
                allowed = "allowed is a number such as 1, or a percentage such as 50%"
                yield f"PodDisruptionBudget {budget.key}: {rule} {quoted(value)} is neither; {allowed}"
        if budget.max_unavailable is not None and budget.min_available is not None:
            yield f"PodDisruptionBudget {budget.key} has both maxUnavailable and minAvailable: one is allowed"


def _all_pods(snapshot: Snapshot) -> Iterator[Pod]:
    for view in snapshot.nodes.values():
        yield from view.pods
    yield from snapshot.unscheduled


def _some(kind: str, keys: list[str]) -> str:
    verb = "is" if len(keys) == 1 else "are"
    plural = kind if len(keys) == 1 else f"{len(keys):,} {kind}s"
    return f"{plural} {', '.join(keys[:_SHOWN])}{_rest(keys)} {verb}"


def _rest(names: list[str]) -> str:
    return f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""


def _key(thing: ApiObject) -> str:
    namespace = getattr(thing, "namespace", "")
    return f"{namespace}/{thing.name}" if namespace else thing.name

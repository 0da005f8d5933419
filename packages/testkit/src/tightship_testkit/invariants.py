"""What must hold of a cluster at any moment while our controllers drain it, as seen by watches of its own.

    async with Recorder(plane) as recorder:
        ...
        await recorder.check()       # raises with everything that was wrong, in the order in which it was seen

No object goes through our code: all are plain JSON, names and words are written out. Every write of a node is one event
of its watch, so that no state in between is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from types import TracebackType
from typing import Protocol, Self

import aiohttp

from tightship.kube.connector import connector
from tightship.kube.host import monotonic
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import RESOURCES, Client, Json, break_off, wait_for
from tightship_testkit.faults import Record

OURS = "tightship.dev/"
ANNOTATION = "tightship.dev/drain"
TAINT = "tightship.dev/draining"
STEERING = "tightship.dev/candidate"
OWNING = frozenset({"Claimed", "Evicting", "Drained", "Restoring", "Yielded"})
MANAGER = "tightship"
"""The manager of the fields that our controllers write: their user agent up to the slash."""
MAY_WRITE = frozenset({"metadata/annotations/" + ANNOTATION, "spec/taints", "spec/unschedulable"})
STARTUP = "startup-taint.cluster-autoscaler.kubernetes.io/"
"""What keys of taints begin with that a node has until it has started."""
LIFECYCLE = ("node.kubernetes.io/", "ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", STARTUP)
"""Taints that come and go by the controller-manager's hand and by the autoscaler's."""
PENDING = 30.0
"""Seconds that a pod may be without a node."""
DEADLINE = 90.0
RECONNECT = 0.1
KINDS = ("Node", "Pod", "PodDisruptionBudget")


@dataclass
class Moment:
    """A change of a node's phase: seconds since the recorder began, the node, its phase ('' is none, 'gone')."""

    at: float
    node: str
    phase: str
    reason: str = ""


@dataclass
class _Waiting:
    since: float
    key: str


class Watched(Protocol):
    """A cluster, such as a plane."""

    def client(self) -> Client:
        """Return an administrator's client, not yet opened."""


@dataclass
class Recorder:
    """Watches nodes, pods and budgets of a cluster, and notes what was wrong. *budget* nodes may be in drain at once.

    *human* are nodes that the test itself cordons or changes: there the rule that foreign things stay as they are does
    not hold. *pending* is how long a pod may be without a node.
    """

    cluster: Watched
    budget: int = 1
    pending: float = PENDING
    human: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    most_in_drain: int = 0
    longest_pending: float = 0.0
    least_spare: dict[str, int] = field(default_factory=dict)
    """By budget: Ready pods above its minimum, at the worst moment."""

    def __post_init__(self) -> None:
        self._objects: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
        self._versions: dict[str, str] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._began = monotonic()
        self._session: aiohttp.ClientSession | None = None
        self._short: set[str] = set()

    async def __aenter__(self) -> Self:
        api = self.cluster.client()
        self._session = aiohttp.ClientSession(
            api.server,
            connector=connector(tls=api.trust),
            headers={**api.headers, "User-Agent": "recorder"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            read_bufsize=1 << 20,
        )
        try:
            for kind in KINDS:
                await self._list(kind)
        except BaseException:
            await self._session.close()
            raise
        self._began = monotonic()
        for kind in KINDS:
            self._tasks.append(asyncio.create_task(self._watch(kind), name=f"recorder of {kind}"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            if self._session:
                await self._session.close()

    # What is seen.

    async def _list(self, kind: str) -> None:
        assert self._session is not None
        async with self._session.get(RESOURCES[kind].path()) as answer:
            answer.raise_for_status()
            found = json.loads(await answer.read())
        for item in found.get("items") or []:
            self._objects[kind][_key(item)] = item
            if kind == "Pod":
                self._pod(item, None)
        self._versions[kind] = str(found["metadata"]["resourceVersion"])

    async def _watch(self, kind: str) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                await self._stream(kind)
            await asyncio.sleep(RECONNECT)

    async def _stream(self, kind: str) -> None:
        """Watch on from what was seen last: an event that came twice would look like a change back."""
        assert self._session is not None
        params = {"watch": "1", "resourceVersion": self._versions[kind]}
        async with self._session.get(RESOURCES[kind].path(), params=params) as answer:
            transport = answer.connection.transport if answer.connection else None
            try:
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        self._wrong(f"the recorder's watch of {kind} ended: {event['object'].get('message')}")
                        await self._list(kind)
                        return
                    self._versions[kind] = event["object"]["metadata"]["resourceVersion"]
                    self._event(kind, event["type"], event["object"])
            finally:
                break_off(transport)

    def _event(self, kind: str, what: str, item: Json) -> None:
        known = self._objects[kind]
        key = _key(item)
        before = known.get(key)
        now = None if what == "DELETED" else item
        if now is None:
            known.pop(key, None)
        else:
            known[key] = now
        match kind:
            case "Node":
                self._node(key, before, now)
            case "Pod":
                self._pod(item, now)
                self._budgets()
            case _:
                self._budgets()

    # What must hold.

    def _node(self, name: str, before: Json | None, now: Json | None) -> None:
        self._phase(name, before, now)
        if now is None:
            return
        record = drain(now)
        owned = record.get("phase") in OWNING
        values = [each.get("value", "") for each in taints(now) if each["key"] == TAINT]
        if values and not owned:
            self._wrong(f"{name} is tainted without a drain: {now['metadata'].get('annotations')}")
        if values and owned and values != [record.get("op")]:
            self._wrong(f"{name} has the taint of {values} in drain {record.get('op')}")
        if now["spec"].get("unschedulable") and not owned and name not in self.human:
            self._wrong(f"{name} is cordoned and nobody is responsible: {record}")
        if before is not None and before["metadata"]["uid"] == now["metadata"]["uid"] and name not in self.human:
            for what, told in (("taints", _foreign_taints), ("labels", _labels), ("annotations", _annotations)):
                if told(before) != told(now):
                    self._wrong(f"{name}: {what} of others changed from {told(before)} to {told(now)}")
        written = set(_written(now)) - MAY_WRITE
        if written:
            self._wrong(f"{name}: we have written {sorted(written)}")
        draining = [each for each, node in self._objects["Node"].items() if drain(node).get("phase") in OWNING]
        self.most_in_drain = max(self.most_in_drain, len(draining))
        if len(draining) > self.budget:
            self._wrong(f"{len(draining)} nodes are in drain, {self.budget} may be: {draining}")

    def _phase(self, name: str, before: Json | None, now: Json | None) -> None:
        was = drain(before).get("phase", "") if before else ""
        record = drain(now) if now else {}
        phase = record.get("phase", "") if now else "gone"
        if phase != was:
            self.moments.append(Moment(monotonic() - self._began, name, phase, record.get("reason", "")))

    def _pod(self, item: Json, now: Json | None) -> None:
        del now
        uid = item["metadata"]["uid"]
        there = _key(item) in self._objects["Pod"]
        unbound = there and not item["spec"].get("nodeName") and not item["metadata"].get("deletionTimestamp")
        if unbound and not item["spec"].get("schedulingGates"):
            self._waiting.setdefault(uid, _Waiting(monotonic(), _key(item)))
        elif waited := self._waiting.pop(uid, None):
            self._waited(waited)

    def _waited(self, waited: _Waiting) -> None:
        seconds = monotonic() - waited.since
        self.longest_pending = max(self.longest_pending, seconds)
        if seconds > self.pending:
            self._wrong(f"{waited.key} was without a node for {seconds:.0f} s")

    def _budgets(self) -> None:
        pods = [pod for pod in self._objects["Pod"].values() if healthy(pod)]
        for key, budget in self._objects["PodDisruptionBudget"].items():
            status = budget.get("status") or {}
            if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
                continue
            labels = ((budget["spec"].get("selector") or {}).get("matchLabels") or {}).items()
            space = budget["metadata"]["namespace"]
            count = sum(
                pod["metadata"]["namespace"] == space and labels <= (pod["metadata"].get("labels") or {}).items()
                for pod in pods
            )
            spare = count - status.get("desiredHealthy", 0)
            self.least_spare[key] = min(self.least_spare.get(key, spare), spare)
            if spare >= 0:
                self._short.discard(key)
            elif key not in self._short and status.get("currentHealthy", 0) > 0:
                self._short.add(key)
                self._wrong(f"budget {key} needs {status.get('desiredHealthy')} healthy pods, {count} are")

    def _wrong(self, what: str) -> None:
        self.problems.append(f"{monotonic() - self._began:.2f} s: {what}")

    # What tests ask.

    def phases(self, node: str) -> list[str]:
        """Return the phases a node went through, one after another."""
        return [each.phase for each in self.moments if each.node == node]

    def node(self, name: str) -> Json | None:
        """Return a node as it was last seen."""
        return self._objects["Node"].get(name)

    def ready(self, pod: str) -> bool:
        """Return whether a pod, by namespace and name, was last seen Ready."""
        found = self._objects["Pod"].get(pod)
        return found is not None and healthy(found)

    def in_drain(self) -> dict[str, str]:
        """Return the phase of each node that is in drain."""
        phases = {name: drain(node).get("phase", "") for name, node in self._objects["Node"].items()}
        return {name: phase for name, phase in phases.items() if phase in OWNING}

    async def until(self, condition: Callable[[], bool], what: str, deadline: float = 60.0) -> None:
        """Wait for something that is seen here."""

        async def holds() -> bool:
            return condition()

        try:
            await wait_for(holds, deadline, what)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    async def check(self) -> None:
        """Wait until everything there is has been seen, and raise AssertionError with all that was wrong."""
        async with self.cluster.client() as api:
            await wait_for(lambda: self._caught_up(api), DEADLINE, "the recorder has caught up")
        for waited in list(self._waiting.values()):
            self._waited(waited)
        if self.problems:
            raise AssertionError("\n".join(["invariants were broken:", *self.problems, "what happened:", self.story()]))

    async def _caught_up(self, api: Client) -> bool:
        nodes = {_key(each): each["metadata"]["resourceVersion"] for each in await api.list("Node")}
        return nodes == {key: each["metadata"]["resourceVersion"] for key, each in self._objects["Node"].items()}

    def story(self) -> str:
        """Return what became of the nodes, for a failed test."""
        return "\n".join(f"{each.at:7.2f} s  {each.node:12} {each.phase:10} {each.reason}" for each in self.moments)


def drain(node: Json) -> Json:
    """Return a node's drain annotation, empty where there is none."""
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    try:
        found: Json = json.loads(text) if text else {}
    except ValueError:
        return {"phase": "unreadable"}
    return found


def taints(node: Json) -> list[Json]:
    """Return a node's taints."""
    return list(node["spec"].get("taints") or [])


def healthy(pod: Json) -> bool:
    """Return whether a budget counts a pod."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def successful_evictions(records: Iterable[Record]) -> dict[str, int]:
    """Return how often each pod's eviction was granted, by the UID that was asked for, from the log of a proxy."""
    return Counter(_evicted(record) for record in records if _granted(record))


def evicted_again(records: Iterable[Record]) -> set[str]:
    """Return the pods, by UID, whose eviction was granted once more to who had heard that it was, from a proxy's log.

    An eviction whose answer was lost may be asked for again, and is granted again while the pod is on its way.
    """
    heard: set[str] = set()
    again: set[str] = set()
    for record in filter(_granted, records):
        uid = _evicted(record)
        if uid in heard:
            again.add(uid)
        if record.answered is not None:
            heard.add(uid)
    return again


def _granted(record: Record) -> bool:
    return record.call.path.endswith("/eviction") and record.status == 201


def _evicted(record: Record) -> str:
    return str(json.loads(record.call.body)["deleteOptions"]["preconditions"]["uid"])


def evictions_by(events: Iterable[AuditEvent], user: str) -> dict[str, int]:
    """Return how often each pod's eviction was granted to *user*, by namespace and name, from the audit log."""
    found: dict[str, int] = defaultdict(int)
    for event in events:
        ref = event.object_ref
        if event.user.username == user and ref.subresource == "eviction" and event.code == 201:
            found[f"{ref.namespace}/{ref.name}"] += 1
    return dict(found)


@dataclass(frozen=True)
class NodeWrite:
    """A write of a node as the API server answered it: when, by whom, and the node after it, None when deleted."""

    at: str
    user: str
    name: str
    node: Json | None
    received: str = ""

    @property
    def seconds(self) -> float:
        """The time in seconds since 1970."""
        return datetime.fromisoformat(self.at).timestamp()

    @property
    def asked(self) -> float:
        """When it was asked for, in seconds since 1970: what a pause counts from is a moment before."""
        return datetime.fromisoformat(self.received).timestamp()

    @property
    def drain(self) -> Json:
        """The drain annotation after it."""
        return drain(self.node) if self.node is not None else {}


def node_writes(events: Iterable[AuditEvent]) -> list[NodeWrite]:
    """Return the writes of nodes that succeeded, but for those of their status, in the order in which they were stored.

    The log has their answers, any of which may be held up. A deletion comes after what was stored before it was asked
    for.
    """
    stored: list[NodeWrite] = []
    deleted: list[NodeWrite] = []
    for event in events:
        ref = event.object_ref
        if ref.resource != "nodes" or ref.subresource or event.code not in (200, 201):
            continue
        if event.verb == "delete":
            deleted.append(NodeWrite(event.request_received_timestamp, event.user.username, ref.name, None))
        elif event.verb in ("patch", "update"):
            node = json.loads(bytes(event.response_object))
            received = event.request_received_timestamp
            stored.append(NodeWrite(event.stage_timestamp, event.user.username, ref.name, node, received))
    stored.sort(key=_version)
    # None was stored later than the answer to one of a later version.
    times = [*accumulate((each.at for each in reversed(stored)), min)][::-1]
    placed = [*zip(times, stored, strict=True), *((each.at, each) for each in deleted)]
    return [write for _, write in sorted(placed, key=lambda each: each[0])]


def most_in_drain(events: Iterable[AuditEvent]) -> int:
    """Return how many nodes were in drain at once at most, from what the API server says it has stored."""
    in_drain: set[str] = set()
    last: dict[str, str] = {}
    gone: set[str] = set()
    most = 0
    for each in node_writes(events):
        if each.node is None:
            gone |= {last[each.name]} if each.name in last else set()
        else:
            last[each.name] = uid = each.node["metadata"].get("uid", "")
            if uid in gone:
                continue  # answered after its deletion was asked for, and so carried out before it
        (in_drain.add if each.drain.get("phase") in OWNING else in_drain.discard)(each.name)
        most = max(most, len(in_drain))
    return most


def claims_made(events: Iterable[AuditEvent]) -> list[NodeWrite]:
    """Return the writes that began a drain."""
    begun: dict[str, NodeWrite] = {}
    for each in node_writes(events):
        if each.drain.get("phase") == "Claimed":
            begun.setdefault(each.drain["op"], each)
    return list(begun.values())


def quarrels(events: Iterable[AuditEvent], controllers: Mapping[str, str]) -> list[str]:
    """Return what one of *controllers* (names by user) has done to what is another's, from the audit log.

    A node in drain and its cordon are that controller's who drains it. A mark goes with its node's drain, whoever
    drains it, and else with who wrote it; a soft taint goes with who put it there.
    """
    wrong: list[str] = []
    last: dict[str, Json] = {}
    for each in node_writes(events):
        before, own = last.get(each.name), controllers.get(each.user)
        if each.node is not None:
            last[each.name] = each.node
        if before is None or each.node is None or own is None:
            continue
        record, after = drain(before), drain(each.node)
        theirs = record.get("controller") not in (None, "", own)
        if theirs and record.get("phase") in OWNING and (_held(before) != _held(each.node)):
            wrong.append(f"{own} wrote {after} and cordon and taint of {each.name} over {record}")
        if theirs and record.get("phase") == "Marked" and after != record and after.get("phase") != "Claimed":
            wrong.append(f"{own} wrote {after} over the mark {record} of {each.name}")
        lost = _soft(before) - _soft(each.node) - {own}
        if lost:
            wrong.append(f"{own} took the soft taint of {', '.join(lost)} off {each.name}")
    return wrong


def _version(write: NodeWrite) -> int:
    return int(write.node["metadata"]["resourceVersion"]) if write.node is not None else 0


def _held(node: Json) -> tuple[Json, bool, list[Json]]:
    held = [each for each in taints(node) if each["key"] == TAINT]
    return drain(node), bool(node["spec"].get("unschedulable")), held


def _soft(node: Json) -> set[str]:
    return {each.get("value", "") for each in taints(node) if each["key"] == STEERING}


def forbidden(events: Iterable[AuditEvent], user: str) -> list[str]:
    """Return what *user* asked for and was not allowed, from the audit log."""
    return sorted(
        {f"{each.verb} {each.request_uri}" for each in events if each.user.username == user and each.code == 403}
    )


def mutating(events: Iterable[AuditEvent], user: str) -> list[str]:
    """Return what *user* wrote or tried to, from the audit log."""
    reads = {"get", "list", "watch"}
    return [f"{e.verb} {e.request_uri}: {e.code}" for e in events if e.user.username == user and e.verb not in reads]


def _key(item: Json) -> str:
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _foreign_taints(node: Json) -> list[Json]:
    return [each for each in taints(node) if not each["key"].startswith((OURS, *LIFECYCLE))]


def _labels(node: Json) -> Json:
    return dict(node["metadata"].get("labels") or {})


def _annotations(node: Json) -> Json:
    found = node["metadata"].get("annotations") or {}
    theirs = ("node.alpha.kubernetes.io/", "volumes.kubernetes.io/")
    return {key: value for key, value in found.items() if not key.startswith((OURS, *theirs))}


def _written(node: Json) -> list[str]:
    """Return the fields that our controllers have written, as the API server remembers it."""
    found: list[str] = []
    for entry in node["metadata"].get("managedFields") or []:
        if entry.get("manager") == MANAGER:
            for part, fields in (entry.get("fieldsV1") or {}).items():
                for name, inner in fields.items():
                    path = f"{part.removeprefix('f:')}/{name.removeprefix('f:')}"
                    below = [each for each in inner if each.startswith("f:")]
                    found += [f"{path}/{each.removeprefix('f:')}" for each in below] or [path]
    return found

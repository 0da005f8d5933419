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
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

import aiohttp

from tightship.kube.connector import connector
from tightship.kube.host import monotonic
from tightship_testkit.client import RESOURCES, Client, Json, break_off, wait_for
from tightship_testkit.marks import LIFECYCLE, MANAGER, MAY_WRITE, OURS, OWNING, TAINT, drain, healthy, taints

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
    least_spare: dict[str, int] = field(default_factory=dict)
    """By budget: Ready pods above its minimum, at the worst moment."""

    def __post_init__(self) -> None:
        self._objects: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
        self._versions: dict[str, str] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._began = monotonic()
        self._session: aiohttp.ClientSession | None = None
        self._short: dict[str, str] = {}

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
                if now is None and key in self._short:
                    self.problems.remove(self._short.pop(key))
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
            for what, reported in (("taints", _foreign_taints), ("labels", _labels), ("annotations", _annotations)):
                if reported(before) != reported(now):
                    self._wrong(f"{name}: {what} of others changed from {reported(before)} to {reported(now)}")
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
                short = self._short.pop(key, None)
                if short is not None and status.get("expectedPods") == 0:
                    # Who deletes a workload, as an uninstall does, deletes all its pods at once.
                    self.problems.remove(short)
            elif key not in self._short and status.get("currentHealthy", 0) > 0:
                self._wrong(f"budget {key} needs {status.get('desiredHealthy')} healthy pods, {count} are")
                self._short[key] = self.problems[-1]

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
        for kind in ("Node", "PodDisruptionBudget"):
            there = {_key(each): each["metadata"]["resourceVersion"] for each in await api.list(kind)}
            if there != {key: each["metadata"]["resourceVersion"] for key, each in self._objects[kind].items()}:
                return False
        return True

    def story(self) -> str:
        """Return what became of the nodes, for a failed test."""
        return "\n".join(f"{each.at:7.2f} s  {each.node:12} {each.phase:10} {each.reason}" for each in self.moments)


def _key(item: Json) -> str:
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _foreign_taints(node: Json) -> list[Json]:
    return [each for each in taints(node) if not each["key"].startswith((OURS, *LIFECYCLE))]


def _labels(node: Json) -> Json:
    return {key: value for key, value in (node["metadata"].get("labels") or {}).items() if not key.startswith(OURS)}


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

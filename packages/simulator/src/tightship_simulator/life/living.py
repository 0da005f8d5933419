"""Brings an embedded cluster to life: asks every behaviour what it wants, and writes that into the store.

Durations are divided by *speed*, so that minutes of a cluster pass in seconds; the wall clock, and with it every time
that is written, stays the real one, because controllers are processes of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.objects import KINDS
from tightship_simulator.api.errors import Expired, Refused
from tightship_simulator.api.objects import timestamp
from tightship_simulator.api.patches import MERGE_PATCH, patched
from tightship_simulator.api.store import Part, Store
from tightship_simulator.api.subresources import bind, evict
from tightship_simulator.life.changes import Bind, Change, Create, Delete, Evict, Json, Look, Patch, key_of
from tightship_simulator.life.horizontal import HorizontalAutoscaler, Measure
from tightship_simulator.life.index import Index
from tightship_simulator.life.kubelet import Kubelets, Pace
from tightship_simulator.life.node_autoscaler import NodeAutoscaler, NodeGroup, Rules
from tightship_simulator.life.reading import Reading
from tightship_simulator.life.scheduler import schedule
from tightship_simulator.life.workloads import Workloads

_log = logging.getLogger(__name__)

TICK = 0.2
"""Seconds of the loop's clock between two looks while something happens."""

_LOOKED_AT = tuple(sorted(KINDS | {"DaemonSet", "Deployment", "HorizontalPodAutoscaler", "ReplicaSet", "StatefulSet"}))


class Speeds(Struct, frozen=True):
    """The durations of all behaviours, in seconds of the cluster; the two periods are those of the real loops."""

    pods: Pace = Pace()
    nodes: Rules = Rules()
    horizontal_every: float = 15.0
    nodes_every: float = 10.0
    stabilization: float = 300.0


class Behaviour(Protocol):
    """What lives in a cluster besides: it is looked at with all else, and at *due*."""

    @property
    def due(self) -> float:
        """When it wants to look again even if nothing changes, by the clock of the steps."""

    def step(self, look: Look, now: float, at: str) -> list[Change]:
        """Return what it wants changed at *now* (seconds); *at* is the time in RFC 3339."""


PARTS = ("horizontal", "workloads", "scheduler", "kubelets", "nodes")
"""What can be paused."""


class Living:
    """Scheduler, workload controllers, kubelets and both autoscalers of one store.

    *others* are looked at after them, and may come and go; who changes them calls :meth:`wake`.
    """

    def __init__(
        self,
        store: Store,
        groups: Sequence[NodeGroup] = (),
        measure: Measure = lambda *_: None,
        *,
        speeds: Speeds = Speeds(),
        speed: float = 1.0,
        seed: int = 0,
    ) -> None:
        pods, nodes = speeds.pods, speeds.nodes
        self._store = store
        self._index, self._reading = Index(), Reading()
        self._known = 0
        self._full: Snapshot | None = None
        self._workloads = Workloads(random.Random(seed))  # noqa: S311 - names, not secrets
        self._kubelets = Kubelets(Pace(pods.start / speed, pods.stop / speed, pods.boot / speed, pods.lost / speed))
        rules = Rules(nodes.unneeded / speed, nodes.taint_delay / speed, nodes.eviction / speed, nodes.threshold)
        self._nodes = NodeAutoscaler(groups, rules)
        self._horizontal = HorizontalAutoscaler(measure, speeds.stabilization / speed, speed)
        self._every = {"horizontal": speeds.horizontal_every / speed, "nodes": speeds.nodes_every / speed}
        self._last: dict[str, float] = {}
        self._paused: set[str] = set()
        self._pause: asyncio.Timeout | None = None
        self._woken = False
        self.others: list[Behaviour] = []

    @contextlib.contextmanager
    def paused(self, *parts: str) -> Iterator[None]:
        """Have these of :data:`PARTS` do nothing for the body's time; what changes meanwhile they see afterwards."""
        assert set(parts) <= set(PARTS)
        before, self._paused = self._paused, self._paused | set(parts)
        try:
            yield
        finally:
            self._paused = before
            self.wake()

    def wake(self) -> None:
        """Look as soon as may be, though nothing has changed."""
        self._woken = True
        if self._pause is not None and not self._pause.expired():
            self._pause.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Live until cancelled: look whenever something has changed, or is due."""
        loop, store = asyncio.get_running_loop(), self._store
        while True:
            self._woken = False
            before = store.changed(_LOOKED_AT)
            due = self.step(loop.time())
            await asyncio.sleep(TICK)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(None if due == math.inf else due) as self._pause:
                    if not self._woken:
                        await store.wait(before, _LOOKED_AT)
            self._pause = None

    def step(self, now: float) -> float:
        """Let everything happen that is due at *now* (seconds of any clock that goes on).

        Returns when something is due again even if nothing changes until then.
        """
        at = timestamp(self._store.now())
        if self._due("horizontal", now):
            self.carry_out(self._horizontal.step(self._look().every, now, at))
        if "workloads" not in self._paused:
            self.carry_out(self._workloads.step(self._look()))
        if "scheduler" not in self._paused:
            self._schedule(at)
        if "kubelets" not in self._paused:
            self.carry_out(self._kubelets.step(self._look(), now, at))
        if self._due("nodes", now):
            index = self._look()
            self.carry_out(self._nodes.step(self._reading.snapshot(), index.nodes, index.pods, now))
        for other in self.others:
            self.carry_out(other.step(self._look().every, now, at))
        again = [self._last[name] + every for name, every in self._every.items() if name not in self._paused]
        again += [other.due for other in self.others]
        if "kubelets" not in self._paused:
            again.append(self._kubelets.due)
        return min(again, default=math.inf)

    def _schedule(self, at: str) -> None:
        if (index := self._look()).unbound and (snapshot := self._reading.snapshot()) is not self._full:
            changes = schedule(snapshot, index.pods, at)
            # What has no place now has none until something changes.
            self._full = None if changes else snapshot
            self.carry_out(changes)

    def _look(self) -> Index:
        """Return what there is now."""
        store = self._store
        if self._known == store.version:
            return self._index
        try:
            for kind in _LOOKED_AT:
                for change in store.changes(kind, self._known):
                    self._take(change.type == "DELETED", change.object)
        except Expired:
            self._index, self._reading = Index(), Reading()
            for kind in _LOOKED_AT:
                for item in store.list(kind):
                    self._take(False, item)
        self._known = store.version
        return self._index

    def _take(self, gone: bool, item: Json) -> None:
        if gone:
            self._index.drop(item)
            self._reading.drop(item)
        else:
            self._index.put(item)
            self._reading.put(item)

    def _due(self, name: str, now: float) -> bool:
        if name in self._paused or now - self._last.get(name, -1e9) < self._every[name]:
            return False
        self._last[name] = now
        return True

    def carry_out(self, changes: Iterable[Change]) -> None:
        """Write *changes*; what the API refuses is left for the next look."""
        for change in changes:
            try:
                apply(self._store, change)
            except Refused as refused:
                # Somebody was faster, or a budget says no: the next look judges anew.
                self._index.again(change.item)
                self._full = None
                _log.debug("%s of %s: %s", type(change).__name__, key_of(change.item), refused.message)


def apply(store: Store, change: Change) -> None:
    """Write one change. Raises :class:`~tightship_simulator.api.errors.Refused`."""
    item = change.item
    kind, (namespace, name) = item["kind"], key_of(item)
    match change:
        case Create():
            store.create(kind, item)
        case Delete(grace=grace):
            store.delete(kind, name, namespace, grace=grace, uid=item["metadata"]["uid"])
        case Patch(merge=merge, status=status, guarded=guarded):
            version = {"metadata": {"resourceVersion": item["metadata"]["resourceVersion"]}}
            wanted = {**merge, **version} if guarded else merge
            part: Part = "status" if status else "main"
            store.modify(kind, name, namespace, lambda old: patched(old, wanted, MERGE_PATCH), part=part)
        case Bind(node=node):
            bind(store, name, namespace, node)
        case Evict():
            evict(store, name, namespace, {"preconditions": {"uid": item["metadata"]["uid"]}})


__all__ = ["PARTS", "TICK", "Behaviour", "Living", "Speeds", "apply"]

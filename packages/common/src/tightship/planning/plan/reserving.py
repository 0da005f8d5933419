"""The room that a plan keeps: for pods that it does not evict (pending, leaving a node in drain, about to start), and
for CapacityBuffers.

kube-scheduler ignores buffers, and pods take any free room. Afterwards an autoscaler checks again and again whether the
pods of a buffer would still fit anywhere, and adds nodes if they don't. So nothing is placed for buffers: what counts
is how many pods would fit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.cluster import Headroom, Snapshot, Starting
from tightship.cluster.state import add
from tightship.objects import Pod
from tightship.objects.counting import some
from tightship.objects.drain_record import Phase
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.resources import Resources
from tightship.objects.selectors import Taint
from tightship.planning.plan.model import Candidate, Placement
from tightship.rules.nodes import displaces, drain_record, draining
from tightship.scheduler.scoring import best_fit, nodes_to_find, scheduler_choice
from tightship.scheduler.space import Memory, PodDemand, Space
from tightship.scheduler.topology import NodeMask

_TRIES = 20
"""Nodes to try one by one before all are looked at together, which takes about as long."""

MOST_IN_THE_WAY = 100
"""Most replicas for which to look for another place to let one node go; about as many pods as a node may have."""

SHOWN = 3
"""HPAs, buffers or nodes that a refusal names."""


class PlacedPod(Struct, frozen=True):
    """A pod in the space: the node from which this plan took it, and its demands.

    A placed pod without an *origin* is not an eviction of ours and only needs room: it is pending, it leaves a node in
    drain, somebody else will move it *because* of something, or it is one of the replicas *starting*.
    """

    pod: Pod
    demand: PodDemand
    origin: str
    starting: Starting | None = None
    because: str = ""


def is_starting(placed_pod: PlacedPod) -> bool:
    """Whether *placed_pod* is a replica about to start."""
    return placed_pod.starting is not None


def is_displaced(placed_pod: PlacedPod) -> bool:
    """Whether *placed_pod* is on a node that somebody else empties, or that has failed."""
    return bool(placed_pod.because)


class RoomOf:
    """Adds up the amounts that pods of one *kind* take on each node of *space*. Other pods leave it as it is."""

    def __init__(self, space: Space, kind: Callable[[PlacedPod], bool]) -> None:
        self._space = space
        self._kind = kind
        self._held: NDArray[np.int64] | None = None
        self._count: NDArray[np.int64] = np.zeros(len(space.nodes), dtype=np.int64)

    def copied(self) -> RoomOf:
        """Return the same amounts, to be changed apart."""
        copy = RoomOf(self._space, self._kind)
        copy._held = None if self._held is None else self._held.copy()
        copy._count = self._count.copy()
        return copy

    def add(self, placed_pod: PlacedPod, node: int, step: int = 1) -> None:
        """Record that *placed_pod* is on *node*, or, with *step* -1, that it no longer is."""
        if not self._kind(placed_pod):
            return
        if self._held is None:
            self._held = np.zeros_like(self._space.free)
        for row, amount in placed_pod.demand.rows:
            self._held[row, node] += step * amount
        self._count[node] += step

    def shift(self, placed_pod: PlacedPod, origin: int, target: int) -> None:
        """Record the move of *placed_pod*."""
        self.add(placed_pod, origin, -1)
        self.add(placed_pod, target)

    def in_the_way(
        self, demands: Sequence[PodDemand], waiting: Mapping[int, Sequence[PlacedPod]]
    ) -> list[tuple[int, PlacedPod]]:
        """Return the placed pods of the kind, with their nodes, that take places from one of *demands*.

        *waiting* holds the placed pods of each node. Only open nodes count.
        """
        space, held = self._space, self._held
        if held is None:
            return []
        nodes = np.flatnonzero((self._count > 0) & space.open)
        useful = np.zeros(len(nodes), dtype=np.bool_)
        for demand in dict.fromkeys(demands):
            fits = demand.static[nodes].copy()
            for row, amount in demand.rows:
                fits &= space.free[row, nodes] + held[row, nodes] >= amount
            useful |= fits
        found: list[tuple[int, PlacedPod]] = []
        for node in nodes[useful].tolist():
            found += [(node, placed_pod) for placed_pod in waiting[node] if self._kind(placed_pod)]
            if len(found) >= MOST_IN_THE_WAY:
                break
        return found


class _Units(Struct, frozen=True):
    """The pods of one buffer, which *demand* alike."""

    of: Headroom
    demand: PodDemand


class BufferRoom:
    """Watches whether buffers lack more room in *space* than they did at first."""

    def __init__(self, space: Space, snapshot: Snapshot) -> None:
        self._space = space
        pods = [(each, each.pod) for each in snapshot.headroom if each.pod is not None and each.count]
        asked = [_Units(each, space.demand_of(pod)) for each, pod in pods if pod.spec.scheduler in snapshot.schedulers]
        self._units = [each for each in asked if each.demand.unknown is None]
        self.held: Mapping[str, Resources] = {}
        """The amounts that buffers would take, by node."""
        self._lacking = self._count(note=True)

    @property
    def promised(self) -> list[tuple[Pod, int]]:
        """Return how many pods of each buffer had room at first: they keep room while a plan grows."""
        return [
            (each.of.pod, each.of.count - lacking)
            for each, lacking in zip(self._units, self._lacking, strict=True)
            if each.of.pod is not None
        ]

    def refusal(self, node: str) -> Refusal | None:
        """Return why *node* can't go, with *space* as it would be then: buffers would lack room they had at first."""
        if not self._units:
            return None
        now = self._count()
        short = [each.of for each, was, lacks in zip(self._units, self._lacking, now, strict=True) if lacks > was]
        if not short:
            return None
        first = some([str(each) for each in short], SHOWN, "; ")
        detail = f"{first}: without this node that room would be too small"
        return Refusal(Reason.BUFFER_NEEDS_NODE, node, detail, "shrink the buffer, or add capacity for it")

    def _count(self, *, note: bool = False) -> Sequence[int]:
        """Return how many pods of each buffer have no room. With *note*, also record where the other pods have room."""
        space, lacking = self._space, list[int]()
        held: dict[str, dict[str, int]] = {}
        mark = space.mark()
        for units in self._units:
            left = units.of.count
            for node, many in self._places(units.demand, left):
                left -= many
                for _ in range(many if note and units.of.pod is not None else 0):
                    add(held.setdefault(space.names[node], {}), units.of.pod.requests if units.of.pod else {})
            lacking.append(left)
        space.rollback(mark)
        if note:
            self.held = held
        return lacking

    def _places(self, demand: PodDemand, count: int) -> list[tuple[int, int]]:
        """Place up to *count* pods. Return the nodes, and how many pods each got."""
        space, found = self._space, list[tuple[int, int]]()
        while count and len(nodes := np.flatnonzero(space.feasible(demand))):
            node = best_fit(space, demand, nodes)
            many = min(count, self._fits(demand, node)) if demand.plain else 1
            for _ in range(many):
                space.place(demand, node)
            found.append((node, many))
            count -= many
        return found

    def _fits(self, demand: PodDemand, node: int) -> int:
        """Return how many pods that request only amounts fit on *node*, at least one."""
        return max(
            1, min((int(self._space.free[row, node]) // amount for row, amount in demand.rows if amount), default=1)
        )


def together(some: Mapping[str, Resources], others: Mapping[str, Resources]) -> Mapping[str, Resources]:
    """Return the amounts of both, by node."""
    if not others:
        return some
    total = {name: dict(amounts) for name, amounts in some.items()}
    for name, amounts in others.items():
        add(total.setdefault(name, {}), amounts)
    return total


class Reserved:
    """Reserves room for pods in *space*. :attr:`waiting` holds them by node, :attr:`scale_ups` the amounts of replicas
    about to start, :attr:`displaced` those of pods that others will move, :attr:`held` both by node.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.waiting: dict[int, list[PlacedPod]] = {}
        self.scale_ups = RoomOf(space, is_starting)
        self.displaced = RoomOf(space, is_displaced)
        self.held: dict[str, dict[str, int]] = {}
        self._many = nodes_to_find(len(space.nodes)) < len(space.nodes)
        self._next = 0

    def pending(self) -> None:
        """Reserve room for every pending pod that could run somewhere, so that no move takes that room.

        A pod that fits nowhere blocks nothing: draining other nodes can't make it worse (k-sigs/karpenter#678). A gated
        pod holds no room, and neither does an expendable one, as for Cluster Autoscaler, nor one of a DaemonSet, which
        goes with its node (``IsProvisionable`` in Karpenter's ``pkg/utils/pod/scheduling.go``). Of a scheduler
        that nobody knows, a pod holds room once it is marked unschedulable: both autoscalers then buy a node for it.
        """
        space = self._space
        queue = [
            pod
            for pod in space.snapshot.unscheduled
            if not pod.gated
            and not pod.expendable
            and not pod.daemon
            and (pod.unschedulable or pod.spec.scheduler in space.snapshot.schedulers)
        ]
        for pod in sorted(queue, key=lambda each: (-each.spec.priority, each.created, each.key)):
            demand = space.demand_of(pod)
            # What a pod wants of devices only narrows its choice: it needs the rest of its room all the same.
            if demand.unknown is not None and demand.unknown[0] is not Reason.RESOURCE_CLAIMS:
                continue
            self._place_best(PlacedPod(pod, demand, ""), pod.nominated_node or space.snapshot.landings.get(pod.uid, ""))

    def moving(self, names: Iterable[str]) -> None:
        """Reserve room for the pods that are about to leave nodes *names*, so that no plan promises a place twice.

        A pod holds the room where its drain wants it to land, if it has a landing that can take it. As with pending
        pods, a pod that fits nowhere blocks nothing by itself: the others have filled every node that could take it. A
        terminating pod holds room only if its replacement comes afterwards.
        """
        space = self._space
        for name in names:
            origin = space.index[name]
            space.close(origin)
            node = space.snapshot.nodes[name].node
            because = "" if draining(node) else displaces(node)
            leaving: list[PlacedPod] = []
            for pod in space.snapshot.nodes[name].pods:
                if pod.daemon or pod.mirror or pod.finished or space.snapshot.replaced(pod) or pod.expendable:
                    continue
                demand = space.demand_of(pod)
                if demand.unknown is None:
                    leaving.append(PlacedPod(pod, demand, "", because=because))
                    # Pods that share a claim go together: none has a place while another is still here.
                    if demand.attachments.shared:
                        space.remove(demand, origin)
            for placed_pod in leaving:
                mark, demand = space.mark(), placed_pod.demand
                # What a closed node holds of node-local pods makes no difference elsewhere.
                if not (demand.attachments.shared or demand.node_local):
                    space.remove(demand, origin)
                if not self._place_best(placed_pod, space.snapshot.landings.get(placed_pod.pod.uid, "")):
                    space.rollback(mark)
                    if demand.attachments.shared:
                        space.place(demand, origin)

    def returning(self, names: Iterable[str]) -> None:
        """Note the pods that terminate on nodes *names* and whose replacements come afterwards.

        Such a pod keeps its room, and its replacement may take that very room: only without the node it needs another.
        """
        space = self._space
        for name in names:
            for pod in space.snapshot.nodes[name].usage.terminating:
                if pod.daemon or pod.mirror or space.snapshot.replaced(pod):
                    continue
                demand = space.demand_of(pod)
                if demand.unknown is None:
                    self.waiting.setdefault(space.index[name], []).append(PlacedPod(pod, demand, ""))

    def starting(self, candidates: Collection[str]) -> None:
        """Reserve room for replicas that HPAs are about to start, first on nodes that are not *candidates*.

        As with pending pods, a replica that fits nowhere blocks nothing by itself. By then the others have filled every
        node that could take one of them, so no such node can go.
        """
        space = self._space
        stays = np.array([name not in candidates for name in space.names], dtype=np.bool_)
        for starting in space.snapshot.starting:
            pod = starting.pod
            if pod is None or pod.spec.scheduler not in space.snapshot.schedulers:
                continue
            placed_pod = PlacedPod(pod, space.demand_of(pod), "", starting)
            for _ in range(0 if placed_pod.demand.unknown is not None else starting.count):
                target = self._likely_place(placed_pod.demand, stays)
                if target is None:
                    break
                self._place(placed_pod, target)

    def _likely_place(self, demand: PodDemand, rather: NodeMask | None = None) -> int | None:
        """Return the node that kube-scheduler would choose, one of *rather* if any of these fits."""
        feasible = self._space.feasible(demand)
        if rather is not None and (feasible & rather).any():
            feasible &= rather
        nodes = np.flatnonzero(feasible)
        able = demand if demand.strays is None else msgspec.structs.replace(demand, strays=None)
        return scheduler_choice(self._space, able, nodes) if len(nodes) else None

    def _next_place(self, demand: PodDemand) -> int | None:
        """Return the first node after the last such choice that takes a pod with *demand*.

        A pool under replacement may have thousands of pods. In such a cluster the scheduler's own choice depends on
        where it continues to look, and the model of that choice would cost more than all the rest of a plan.
        """
        space = self._space
        for number in range(self._next, self._next + _TRIES):
            if space.accepts(demand, number % len(space.nodes)):
                self._next = number + 1
                return number % len(space.nodes)
        nodes = np.flatnonzero(space.feasible(demand))
        return int(nodes[np.searchsorted(nodes, self._next % len(space.nodes)) % len(nodes)]) if len(nodes) else None

    def _place_best(self, placed_pod: PlacedPod, wanted: str) -> bool:
        """Place *placed_pod* on the node *wanted*, if that takes the pod, else where kube-scheduler would."""
        target = self._space.index.get(wanted)
        if target is None or not self._space.accepts(placed_pod.demand, target):
            target = (
                self._next_place(placed_pod.demand)
                if self._many and placed_pod.because
                else self._likely_place(placed_pod.demand)
            )
        if target is None:
            return False
        self._place(placed_pod, target)
        return True

    def _place(self, placed_pod: PlacedPod, target: int) -> None:
        self._space.place(placed_pod.demand, target)
        self.waiting.setdefault(target, []).append(placed_pod)
        self.scale_ups.add(placed_pod, target)
        self.displaced.add(placed_pod, target)
        if is_starting(placed_pod) or is_displaced(placed_pod):
            amounts = self._space.snapshot.requests_anew(placed_pod.pod)
            add(self.held.setdefault(self._space.names[target], {}), amounts)


class PlanStart:
    """Where the plans of one round begin: the space of *snapshot*, with room reserved for pods that no plan evicts.

    Such pods are pending, leave the nodes *in_drain* (by default all that :func:`moving_nodes` finds), or are replicas
    that HPAs are about to start. They go where kube-scheduler would send them without *taint*, the soft one by which a
    controller steers. Plans begin one after another, and each ends the one before it: they share the space.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        candidates: Sequence[Candidate],
        placement: Placement,
        *,
        in_drain: Collection[str] | None = None,
        taint: Taint | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.placement = placement
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.space = Space(snapshot)
        self.space.constraints.volumes.scheduler_chooses = placement != "possible"
        if taint is not None and placement != "possible":
            self.space.leaving_taint, self.space.leaving = taint, np.zeros(len(self.space.names), dtype=np.bool_)
        self.unplanned = Memory(self.space)
        moving = moving_nodes(snapshot) if in_drain is None else in_drain
        self._reserved = reserved = Reserved(self.space)
        reserved.pending()
        reserved.moving(name for name in moving if name in self.space.index and name not in self.candidates)
        reserved.returning(self.candidates)
        reserved.starting(self.candidates)
        self.buffers = BufferRoom(self.space, snapshot)
        self.starting_on: Mapping[str, Resources] = together(reserved.held, self.buffers.held)
        """The amounts that replicas about to start, pods that others will move, and buffers take, by node."""
        self._saved = self.space.saved()

    def of(self, snapshot: Snapshot, candidates: Iterable[Candidate]) -> PlanStart:
        """Return this start for other *candidates* and *snapshot*, whose nodes and demands are the same."""
        new = copy(self)
        new.snapshot, new.candidates = snapshot, {candidate.name: candidate for candidate in candidates}
        vars(new).pop("_rate", None)
        return new

    @cached_property
    def _rate(self) -> tuple[list[float], float]:
        """The nodes' sizes, and what candidates with a price cost an hour for each unit of size."""
        sizes = self.space.sizes()
        priced = [each for each in self.candidates.values() if each.price is not None]
        whole = sum(sizes[self.space.index[each.name]] for each in priced)
        return sizes, sum(each.price or 0 for each in priced) / whole if whole else 1.0

    def worth(self, candidate: Candidate) -> float:
        """Return what an hour of *candidate* costs, in millionths; without a price as much for its size as others'.

        If no candidate has a price, the node's size counts.
        """
        sizes, rate = self._rate
        return rate * sizes[self.space.index[candidate.name]] if candidate.price is None else candidate.price

    def begin(self) -> None:
        """Undo what plans have changed in the space."""
        self.space.restore(self._saved)

    def placed_pods(self) -> tuple[dict[int, list[PlacedPod]], RoomOf, RoomOf]:
        """Return the placed pods by node at the start, and the room of replicas and of displaced pods."""
        waiting = {node: list(placed_pods) for node, placed_pods in self._reserved.waiting.items()}
        return waiting, self._reserved.scale_ups.copied(), self._reserved.displaced.copied()

    @cached_property
    def without_plan(self) -> Space:
        """The space of the snapshot with nothing reserved or planned, for pods that concern more than their node."""
        return Space(self.snapshot)


def pending_pods(snapshot: Snapshot) -> tuple[int, int]:
    """Return how many pods of *snapshot* have no node, and how many of them could run now, beside each other."""
    waiting = sum(pod.deletion is None for pod in snapshot.unscheduled)
    if not waiting:
        return 0, 0
    reserved = Reserved(Space(snapshot))
    reserved.pending()
    return waiting, sum(
        placed_pod.pod.deletion is None for placed_pods in reserved.waiting.values() for placed_pod in placed_pods
    )


_LEAVES = frozenset({Phase.CLAIMED, Phase.EVICTING, Phase.YIELDED})


def moving_nodes(snapshot: Snapshot) -> list[str]:
    """Return the nodes whose pods are about to leave, whoever moves them: those that others empty first, by name, then
    our own drains in the order of their claims.
    """
    found: list[tuple[float, str]] = []
    for name, view in snapshot.nodes.items():
        record = drain_record(view.node)
        if record is not None and record.owns_node:
            if record.phase in _LEAVES:
                found.append((record.entered(Phase.CLAIMED) or 0.0, name))
        elif draining(view.node) or (displaces(view.node) and name not in snapshot.abandoned):
            found.append((0.0, name))
    return [name for _, name in sorted(found)]

"""Reserves room for pods that a plan does not evict: pending, on nodes in drain, or about to start."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
import numpy as np

from tightship.core.drain_record import Phase
from tightship.core.reasons import Reason
from tightship.planning.cluster import Snapshot
from tightship.planning.cluster.state import add
from tightship.planning.displacing import displaces
from tightship.planning.nodes import drain_record, draining
from tightship.planning.placement.scoring import nodes_to_find, scheduler_choice
from tightship.planning.placement.space import Ask, Space
from tightship.planning.placement.topology import NodeMask
from tightship.planning.plan.scale_ups import Guest, RoomOf, is_displaced, is_starting

_TRIES = 20
"""Nodes to try one by one before all are looked at together, which takes about as long."""


class Reserved:
    """Reserves room for guests in *space*. :attr:`waiting` holds the guests by node, :attr:`scale_ups` the amounts of
    replicas about to start, :attr:`displaced` those of pods that others will move, :attr:`held` both by node.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.waiting: dict[int, list[Guest]] = {}
        self.scale_ups = RoomOf(space, is_starting)
        self.displaced = RoomOf(space, is_displaced)
        self.held: dict[str, dict[str, int]] = {}
        self._many = nodes_to_find(len(space.nodes)) < len(space.nodes)
        self._next = 0

    def pending(self) -> None:
        """Reserve room for every pending pod that could run somewhere, so that no move takes that room (M8).

        A pod that fits nowhere blocks nothing: draining other nodes can't make it worse (k-sigs/karpenter#678). A gated
        pod holds no room, and neither does an expendable one, as for Cluster Autoscaler.
        """
        space = self._space
        queue = [
            pod
            for pod in space.snapshot.unscheduled
            if not pod.gated and not pod.expendable and pod.spec.scheduler in space.snapshot.schedulers
        ]
        for pod in sorted(queue, key=lambda each: (-each.spec.priority, each.created, each.key)):
            ask = space.ask(pod)
            # What a pod wants of devices only narrows its choice: it needs the rest of its room all the same.
            if ask.unknown is not None and ask.unknown[0] is not Reason.RESOURCE_CLAIMS:
                continue
            self._place_best(Guest(pod, ask, ""), pod.nominated_node or space.snapshot.landings.get(pod.uid, ""))

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
            leaving: list[Guest] = []
            for pod in space.snapshot.nodes[name].pods:
                if pod.daemon or pod.mirror or pod.finished or space.snapshot.replaced(pod) or pod.expendable:
                    continue
                ask = space.ask(pod)
                if ask.unknown is None:
                    leaving.append(Guest(pod, ask, "", because=because))
                    # Pods that share a claim go together: none has a place while another is still here.
                    if ask.attachments.shared:
                        space.lift(ask, origin)
            for guest in leaving:
                mark, ask = space.mark(), guest.ask
                # What a closed node holds of pods that are apart makes no difference elsewhere.
                if not (ask.attachments.shared or ask.apart):
                    space.lift(ask, origin)
                if not self._place_best(guest, space.snapshot.landings.get(guest.pod.uid, "")):
                    space.rollback(mark)
                    if ask.attachments.shared:
                        space.place(ask, origin)

    def returning(self, names: Iterable[str]) -> None:
        """Note the pods that terminate on nodes *names* and whose replacements come afterwards.

        Such a pod keeps its room, and its replacement may take that very room: only without the node it needs another.
        """
        space = self._space
        for name in names:
            for pod in space.snapshot.nodes[name].usage.terminating:
                if pod.daemon or pod.mirror or space.snapshot.replaced(pod):
                    continue
                ask = space.ask(pod)
                if ask.unknown is None:
                    self.waiting.setdefault(space.index[name], []).append(Guest(pod, ask, ""))

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
            guest = Guest(pod, space.ask(pod), "", starting)
            for _ in range(0 if guest.ask.unknown is not None else starting.count):
                target = self._likely_place(guest.ask, stays)
                if target is None:
                    break
                self._place(guest, target)

    def _likely_place(self, ask: Ask, rather: NodeMask | None = None) -> int | None:
        """Return the node that kube-scheduler would choose, one of *rather* if any of these fits."""
        feasible = self._space.feasible(ask)
        if rather is not None and (feasible & rather).any():
            feasible &= rather
        nodes = np.flatnonzero(feasible)
        able = ask if ask.strays is None else msgspec.structs.replace(ask, strays=None)
        return scheduler_choice(self._space, able, nodes) if len(nodes) else None

    def _next_place(self, ask: Ask) -> int | None:
        """Return the first node after the last such choice that takes a pod with *ask*.

        A pool under replacement may have thousands of pods. In such a cluster the scheduler's own choice depends on
        where it continues to look, and the model of that choice would cost more than all the rest of a plan.
        """
        space = self._space
        for number in range(self._next, self._next + _TRIES):
            if space.accepts(ask, number % len(space.nodes)):
                self._next = number + 1
                return number % len(space.nodes)
        nodes = np.flatnonzero(space.feasible(ask))
        return int(nodes[np.searchsorted(nodes, self._next % len(space.nodes)) % len(nodes)]) if len(nodes) else None

    def _place_best(self, guest: Guest, wanted: str) -> bool:
        """Place *guest* on the node *wanted*, if that takes the pod, else where kube-scheduler would."""
        target = self._space.index.get(wanted)
        if target is None or not self._space.accepts(guest.ask, target):
            target = self._next_place(guest.ask) if self._many and guest.because else self._likely_place(guest.ask)
        if target is None:
            return False
        self._place(guest, target)
        return True

    def _place(self, guest: Guest, target: int) -> None:
        self._space.place(guest.ask, target)
        self.waiting.setdefault(target, []).append(guest)
        self.scale_ups.add(guest, target)
        self.displaced.add(guest, target)
        if is_starting(guest) or is_displaced(guest):
            amounts = self._space.snapshot.requests_anew(guest.pod)
            add(self.held.setdefault(self._space.names[target], {}), amounts)


def pending_pods(snapshot: Snapshot) -> tuple[int, int]:
    """Return how many pods of *snapshot* have no node, and how many of them could run now, beside each other."""
    waiting = sum(pod.deletion is None for pod in snapshot.unscheduled)
    if not waiting:
        return 0, 0
    reserved = Reserved(Space(snapshot))
    reserved.pending()
    return waiting, sum(guest.pod.deletion is None for guests in reserved.waiting.values() for guest in guests)


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

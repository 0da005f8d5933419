"""Reserves room for pods that a plan does not evict: pending, on nodes in drain, or about to start."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
import numpy as np

from tightship.core.drain_record import Phase
from tightship.core.objects import Pod
from tightship.core.reasons import Reason
from tightship.core.resources import Resources
from tightship.planning.cluster import Snapshot
from tightship.planning.cluster.state import add
from tightship.planning.nodes import drain_record, draining, emptied_by_others
from tightship.planning.placement.scoring import scheduler_choice
from tightship.planning.placement.space import Ask, Space
from tightship.planning.placement.topology import NodeMask
from tightship.planning.plan.scale_ups import Guest, ScaleUps


class Reserved:
    """Reserves room for guests in *space*. :attr:`waiting` holds the guests by node, :attr:`scale_ups` the amounts of
    replicas about to start.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.waiting: dict[int, list[Guest]] = {}
        self.scale_ups = ScaleUps(space)

    def pending(self) -> None:
        """Reserve room for every pending pod that could run somewhere, so that no move takes that room (M8).

        A pod that fits nowhere blocks nothing: draining other nodes can't make it worse (k-sigs/karpenter#678). A gated
        pod counts if only our gate holds it: kube-scheduler keeps the room of its nomination, too. An expendable pod
        holds none, as for Cluster Autoscaler.
        """
        space = self._space
        queue = [
            pod
            for pod in space.snapshot.unscheduled
            if not pod.gated_by_others and not pod.expendable and pod.spec.scheduler in space.snapshot.schedulers
        ]
        for pod in sorted(queue, key=lambda each: (-each.spec.priority, each.created, each.key)):
            ask = space.ask(pod)
            # What a pod wants of devices only narrows its choice: it needs the rest of its room all the same.
            if ask.unknown is not None and ask.unknown[0] is not Reason.RESOURCE_CLAIMS:
                continue
            self._place_best(pod, ask, pod.nominated_node or space.snapshot.landings.get(pod.uid, ""))

    def moving(self, names: Iterable[str]) -> None:
        """Reserve room for the pods that are about to leave nodes in drain, so that no plan promises a place twice.

        A pod holds the room where its drain wants it to land, if it has a landing that can take it. A terminating pod
        holds room only if its replacement comes afterwards.
        """
        space = self._space
        for name in names:
            origin = space.index[name]
            space.close(origin)
            leaving: list[tuple[Pod, Ask]] = []
            for pod in space.snapshot.nodes[name].pods:
                if pod.daemon or pod.mirror or pod.finished or space.snapshot.replaced(pod) or pod.expendable:
                    continue
                ask = space.ask(pod)
                if ask.unknown is None:
                    leaving.append((pod, ask))
                    # Pods that share a claim go together: none has a place while another is still here.
                    if ask.attachments.shared:
                        space.lift(ask, origin)
            for pod, ask in leaving:
                mark = space.mark()
                if not ask.attachments.shared:
                    space.lift(ask, origin)
                if not self._place_best(pod, ask, space.snapshot.landings.get(pod.uid, "")):
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

    def starting(self, candidates: Collection[str]) -> dict[str, Resources]:
        """Reserve room for replicas that HPAs are about to start, first on nodes that are not *candidates*.

        Return the amounts that they take, by node. As with pending pods, a replica that fits nowhere blocks nothing by
        itself. By then the others have filled every node that could take one of them, so no such node can go.
        """
        space = self._space
        stays = np.array([name not in candidates for name in space.names], dtype=np.bool_)
        held: dict[str, dict[str, int]] = {}
        for starting in space.snapshot.starting:
            pod = starting.pod
            if pod is None or pod.spec.scheduler not in space.snapshot.schedulers:
                continue
            guest = Guest(pod, space.ask(pod), "", starting)
            for _ in range(0 if guest.ask.unknown is not None else starting.count):
                target = self._likely_place(guest.ask, stays)
                if target is None:
                    break
                space.place(guest.ask, target)
                self.waiting.setdefault(target, []).append(guest)
                self.scale_ups.add(guest, target)
                add(held.setdefault(space.names[target], {}), space.snapshot.requests_anew(pod))
        return dict(held)

    def _likely_place(self, ask: Ask, rather: NodeMask | None = None) -> int | None:
        """Return the node that kube-scheduler would choose, one of *rather* if any of these fits."""
        feasible = self._space.feasible(ask)
        if rather is not None and (feasible & rather).any():
            feasible &= rather
        nodes = np.flatnonzero(feasible)
        able = ask if ask.strays is None else msgspec.structs.replace(ask, strays=None)
        return scheduler_choice(self._space, able, nodes) if len(nodes) else None

    def _place_best(self, pod: Pod, ask: Ask, wanted: str) -> bool:
        """Place *pod* on the node *wanted*, if that takes the pod, else where kube-scheduler would."""
        target = self._space.index.get(wanted)
        if target is None or not self._space.accepts(ask, target):
            return self._place_somewhere(pod, ask)
        self._place(pod, ask, target)
        return True

    def _place_somewhere(self, pod: Pod, ask: Ask) -> bool:
        target = self._likely_place(ask)
        if target is None:
            return False
        self._place(pod, ask, target)
        return True

    def _place(self, pod: Pod, ask: Ask, target: int) -> None:
        self._space.place(ask, target)
        self.waiting.setdefault(target, []).append(Guest(pod, ask, ""))


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
    """Return the nodes whose pods are about to leave, whoever drains them: the longest in drain first, then by name."""
    found: list[tuple[float, str]] = []
    for name, view in snapshot.nodes.items():
        record = drain_record(view.node)
        if record is not None and record.owns_node:
            if record.phase in _LEAVES:
                found.append((record.entered(Phase.CLAIMED) or 0.0, name))
        elif draining(view.node) or emptied_by_others(view.node):
            found.append((0.0, name))
    return [name for _, name in sorted(found)]

"""Asks the model of kube-scheduler whether machines carry their pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.state import sum_up
from tightship.fit.machines import HOSTNAME, Machine
from tightship.fit.packing import Filled
from tightship.objects import Pod
from tightship.scheduler.scoring import Choice, aligned, scheduler_choice
from tightship.scheduler.space import PodDemand, Space


class Kind(Struct, frozen=True, eq=False):
    """*pods* that ask for the same. *columns* (machine) says which of all machines may have them."""

    pods: tuple[Pod, ...]
    columns: NDArray[np.bool_]


class FilledMachines:
    """*machines*, numbers among the *offers*, with the *pods* of each: pairs of a kind and a pod's number in it.

    *snapshot* has the nodes that stay as they are. *left* are pods without a place.
    """

    def __init__(self, snapshot: Snapshot, offers: Sequence[Machine], kinds: Sequence[Kind]) -> None:
        self._snapshot, self._offers, self._kinds = snapshot, offers, kinds
        self.machines: list[int] = []
        self.pods: list[list[tuple[int, int]]] = []
        self.left: list[tuple[int, int]] = [
            (kind, pod) for kind, each in enumerate(kinds) for pod in range(len(each.pods))
        ]

    def add(self, bins: Iterable[Filled]) -> None:
        """Add machines, with those of the pods left that are to be on them."""
        waiting: dict[int, list[tuple[int, int]]] = {}
        for each in reversed(self.left):
            waiting.setdefault(each[0], []).append(each)
        for made in bins:
            self.machines.append(made.column)
            own = [waiting.get(kind, [])[-number:] for kind, number in made.pods.items()]
            self.pods.append([pod for some in own for pod in some])
            for some in own:
                for kind, _ in some:
                    waiting[kind].pop()
        self.left = [each for rest in waiting.values() for each in rest]

    def settle(self) -> None:
        """Ask the scheduler's filters for each pod; what they refuse goes where they let it, or is left."""
        space, demands, first = self._space()
        waiting = [(place, each) for place, own in enumerate(self.pods) for each in own]
        self.pods = [[] for _ in self.machines]
        while waiting:  # a pod may open nodes to another, as a companion or by a spread
            refused = []
            for place, each in waiting:
                if space.accepts(demands[each[0]], first + place):
                    space.place(demands[each[0]], first + place)
                    self.pods[place].append(each)
                else:
                    refused.append((place, each))
            if len(refused) == len(waiting):
                break
            waiting = refused
        self.left += [each for _, each in waiting]
        self.left.sort(key=lambda each: (demands[each[0]].hardness, each))
        rest = []
        for each, node in zip(
            self.left, _chosen(space, (demands[kind] for kind, _ in self.left), aligned), strict=True
        ):
            if node is None:
                rest.append(each)
            else:
                self.pods[node - first].append(each)
        self.left = rest

    def largest_first(self) -> list[Pod]:
        """Return the pods with a place in the order of :meth:`waiting`."""
        return [self._kinds[kind].pods[pod] for kind, pod in self._ordered(self._space()[1])]

    def _ordered(self, demands: Sequence[PodDemand]) -> list[tuple[int, int]]:
        return sorted(
            (each for own in self.pods for each in own), key=lambda each: (demands[each[0]].hardness[1], each)
        )

    def waiting(self, more: Sequence[int]) -> Counter[int]:
        """Return how many pods of each kind wait if kube-scheduler chooses all nodes itself, the largest pods first.

        *more* are machines beside these.
        """
        space, demands, _ = self._space(more)
        kinds = [kind for kind, _ in self._ordered(demands)]
        nodes = _chosen(space, [demands[kind] for kind in kinds], scheduler_choice)
        return Counter(kind for kind, node in zip(kinds, nodes, strict=True) if node is None)

    def nodes(self) -> list[tuple[NodeView, list[Pod]]]:
        """Return the machines as nodes with their DaemonSets' pods, and the pods of each."""
        return [
            (_view(self._offers[each], at), [self._kinds[kind].pods[pod] for kind, pod in own])
            for at, (each, own) in enumerate(zip(self.machines, self.pods, strict=True))
        ]

    def unplaced(self) -> list[Pod]:
        """Return the pods without a place."""
        return [self._kinds[kind].pods[pod] for kind, pod in self.left]

    def _space(self, more: Sequence[int] = ()) -> tuple[Space, list[PodDemand], int]:
        """Return the scheduler's model of the empty machines, what each kind demands of it, and the first machine."""
        machines = [*self.machines, *more]
        views = [_view(self._offers[each], at) for at, each in enumerate(machines)]
        limits = {name: each for name, each in self._snapshot.csi_nodes.items() if name in self._snapshot.nodes}
        for view, each in zip(views, machines, strict=True):
            if (found := self._offers[each].limits) is not None:
                limits[view.name] = msgspec.structs.replace(found, name=view.name)
        nodes = {**self._snapshot.nodes, **{view.name: view for view in views}}
        space = Space(msgspec.structs.replace(self._snapshot, nodes=nodes, csi_nodes=limits))
        first = len(nodes) - len(views)
        offer = np.array([-1] * first + machines, dtype=np.intp)
        demands = []
        for kind in self._kinds:
            demand = space.demand_of(kind.pods[0])
            mask = demand.static & (offer >= 0) & kind.columns[offer]
            demands.append(msgspec.structs.replace(demand, static=mask, strays=None))
        return space, demands, first


def _chosen(space: Space, demands: Iterable[PodDemand], choose: Choice) -> list[int | None]:
    """Place pods one after another; return the node of each, ``None`` where none passes the filters."""
    found: list[int | None] = []
    for demand in demands:
        feasible = space.feasible(demand).nonzero()[0]
        node = choose(space, demand, feasible) if len(feasible) else None
        if node is not None:
            space.place(demand, node)
        found.append(node)
    return found


def _view(machine: Machine, place: int) -> NodeView:
    name = f"fit-{place:05d}"
    node = msgspec.structs.replace(machine.node, name=name, uid=name, labels={**machine.node.labels, HOSTNAME: name})
    pods = tuple(msgspec.structs.replace(pod, name=f"{pod.name}-{place}", node=name) for pod in machine.daemons)
    return NodeView(node, pods, sum_up(pods))

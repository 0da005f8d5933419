"""Puts pods on machines by the model of kube-scheduler, and buys machines for those left over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.state import sum_up
from tightship.fit.machines import HOSTNAME, Machine
from tightship.fit.model import Packed
from tightship.fit.program import Floats, Program
from tightship.objects import Pod
from tightship.scheduler.fitting import fit_all
from tightship.scheduler.scoring import aligned
from tightship.scheduler.space import PodDemand, Space
from tightship.scheduler.topology import NodeMask

ROUNDS = 12
"""Most times that machines are bought for pods left over."""

FAILURES = 12
"""Machines that can't be emptied in a row, after which no more is tried."""


class Kind(Struct, frozen=True, eq=False):
    """*pods* that ask for the same. *columns* (machine) says which of all machines may have them."""

    pods: tuple[Pod, ...]
    columns: NDArray[np.bool_]


class _Share(Struct):
    """So many pods that are *left* go to *nodes* first."""

    nodes: NodeMask
    left: int


class Estate:
    """Machines with pods on them. *around* are the nodes that stay as they are; *offers* all machines on offer."""

    def __init__(self, snapshot: Snapshot, offers: Sequence[Machine], kinds: Sequence[Kind]) -> None:
        self._snapshot = snapshot
        self._offers = offers
        self._kinds = kinds
        self._pods = [pod for kind in kinds for pod in kind.pods]
        self._kind_of = [number for number, kind in enumerate(kinds) for _ in kind.pods]
        self.machines: list[int] = []
        """The number of the offer that each machine is of."""
        self.places: list[int] = [-1] * len(self._pods)
        """The machine of each pod, -1 for none."""

    @property
    def left(self) -> list[int]:
        """How many pods of each kind have no place."""
        found = Counter(self._kind_of[pod] for pod, place in enumerate(self.places) if place < 0)
        return [found[number] for number in range(len(self._kinds))]

    def nodes(self) -> list[Packed]:
        """Return the machines as nodes, with their pods."""
        own: list[list[Pod]] = [[] for _ in self.machines]
        for pod, place in enumerate(self.places):
            if place >= 0:
                own[place].append(self._pods[pod])
        return [
            Packed(view.node, view.pods, tuple(pods))
            for view, pods in zip(
                (_view(self._offers[each], at) for at, each in enumerate(self.machines)), own, strict=True
            )
        ]

    def unplaced(self) -> list[Pod]:
        """Return the pods without a place."""
        return [self._pods[pod] for pod, place in enumerate(self.places) if place < 0]

    def settle(self, worth: Floats, shares: Mapping[int, Sequence[tuple[frozenset[int], int]]] = {}) -> None:
        """Give places to pods without one, those with the fewest choices and the dearest first.

        *shares* are machines (their numbers on offer) by kind, and how many pods of the kind go there first.
        """
        space, demands = self._space()
        offer = np.full(len(space.nodes), -1, dtype=np.intp)
        for column, place in self._own.items():
            offer[column] = self.machines[place]
        there = {some: np.isin(offer, list(some)) for own in shares.values() for some, _ in own}
        rest_of = {kind: [_Share(there[some], count) for some, count in own] for kind, own in shares.items()}
        order = sorted(
            (pod for pod, place in enumerate(self.places) if place < 0),
            key=lambda pod: (demands[self._kind_of[pod]].hardness[0], -worth[self._kind_of[pod]], self._kind_of[pod]),
        )
        for again in (False, True):  # a pod may open nodes to another, as a companion or by a spread
            full: set[int] = set()
            rest: list[int] = []
            for pod in order:
                kind = self._kind_of[pod]
                if kind in full:
                    rest.append(pod)
                    continue
                demand = demands[kind]
                mask = space.feasible(demand)
                share = next((each for each in rest_of.get(kind, ()) if each.left > 0), None)
                if share is not None:
                    share.left -= 1
                    mask = mask & share.nodes
                elif shares and not again:
                    rest.append(pod)
                    continue
                feasible = mask.nonzero()[0]
                if not len(feasible) and share is not None:
                    rest.append(pod)
                    continue
                if not len(feasible):
                    rest.append(pod)
                    full.add(kind)
                    continue
                node = int(feasible[0]) if len(feasible) == 1 else aligned(space, demand, feasible)
                space.place(demand, node)
                self.places[pod] = self._own[node]
            order = rest
            rest_of = {}
            if again or not (shares or any(not demands[self._kind_of[pod]].plain for pod in rest)):
                break

    def trim(self) -> None:
        """Give up machines whose pods have room on the others, the emptiest first; then take smaller ones."""
        space, demands = self._space()
        column_of = {place: column for column, place in self._own.items()}
        pods_of: dict[int, list[int]] = {place: [] for place in range(len(self.machines))}
        for pod, place in enumerate(self.places):
            if place >= 0:
                pods_of[place].append(pod)
        cost = [self._offers[each].price.hourly for each in self.machines]

        def used(place: int) -> float:
            column = column_of[place]
            known = space.known[:, column]
            return float(((known - space.free[:2, column]) / known).max()) * cost[place]

        failures, gone = 0, set[int]()
        for place in sorted(pods_of, key=used):
            if failures >= FAILURES:
                break
            own, column = pods_of[place], column_of[place]
            mark = space.mark()
            for pod in own:
                space.remove(demands[self._kind_of[pod]], column)
            space.close(column)
            fit = fit_all(space, [demands[self._kind_of[pod]] for pod in own], aligned, 2, explain=False)
            if not fit.complete:
                space.rollback(mark)
                failures += 1
                continue
            failures = 0
            gone.add(place)
            for pod, node in zip(own, fit.nodes, strict=True):
                self.places[pod] = self._own[node]
                pods_of[self._own[node]].append(pod)
            pods_of[place] = []
        self._drop(gone)

    def _drop(self, gone: set[int]) -> None:
        kept = [place for place in range(len(self.machines)) if place not in gone]
        new = {place: number for number, place in enumerate(kept)}
        self.machines = [self.machines[place] for place in kept]
        self.places = [new[place] if place >= 0 else -1 for place in self.places]

    def shrink(self, program: Program) -> None:
        """Swap each machine for the cheapest one of its pool and zone that holds what it holds."""
        held: list[Counter[int]] = [Counter() for _ in self.machines]
        for pod, place in enumerate(self.places):
            if place >= 0:
                held[place][self._kind_of[pod]] += 1
        spots: dict[tuple[str, str], list[int]] = {}
        for number, offer in enumerate(self._offers):
            spots.setdefault((offer.pool, offer.zone), []).append(number)
        for place, has in enumerate(held):
            offer = self._offers[self.machines[place]]
            kinds = list(has)
            need = np.array([has[kind] for kind in kinds], dtype=np.float64) @ program.request[kinds]
            same = np.array(spots[offer.pool, offer.zone])
            fits = (program.room[same] >= need).all(axis=1)
            fits &= program.allowed[np.ix_(same, np.array(kinds, dtype=np.intp))].all(axis=1)
            fits &= program.cost[same] < program.cost[self.machines[place]]
            if fits.any():
                cheaper = same[fits]
                self.machines[place] = int(cheaper[program.cost[cheaper].argmin()])

    def _space(self) -> tuple[Space, list[PodDemand]]:
        """Return the scheduler's model of machines and pods as they are, and what each kind demands of it."""
        views = {(view := _view(self._offers[each], at)).name: view for at, each in enumerate(self.machines)}
        limits = {name: each for name, each in self._snapshot.csi_nodes.items() if name in self._snapshot.nodes}
        for at, each in enumerate(self.machines):
            if (found := self._offers[each].limits) is not None:
                limits[_name(at)] = msgspec.structs.replace(found, name=_name(at))
        nodes = dict(sorted({**self._snapshot.nodes, **views}.items()))
        space = Space(msgspec.structs.replace(self._snapshot, nodes=nodes, csi_nodes=limits))
        self._own = {space.index[_name(at)]: at for at in range(len(self.machines))}
        offer = np.full(len(nodes), -1, dtype=np.intp)
        for column, place in self._own.items():
            offer[column] = self.machines[place]
        demands = [_only(space.demand_of(kind.pods[0]), kind, offer) for kind in self._kinds]
        column_of = {place: column for column, place in self._own.items()}
        for pod, place in enumerate(self.places):
            if place >= 0:
                space.place(demands[self._kind_of[pod]], column_of[place])
        return space, demands


def _only(demand: PodDemand, kind: Kind, offer: NDArray[np.intp]) -> PodDemand:
    """Return *demand* on machines of the kind's columns alone."""
    mask: NodeMask = demand.static & (offer >= 0) & kind.columns[offer]
    return msgspec.structs.replace(demand, static=mask, strays=None)


def _name(place: int) -> str:
    return f"fit-{place:05d}"


def _view(machine: Machine, place: int) -> NodeView:
    name = _name(place)
    node = msgspec.structs.replace(machine.node, name=name, uid=name, labels={**machine.node.labels, HOSTNAME: name})
    pods = tuple(msgspec.structs.replace(pod, name=f"{pod.name}-{place}", node=name) for pod in machine.daemons)
    return NodeView(node, pods, sum_up(pods))


def bought(program: Program, columns: NDArray[np.intp], worth: Floats, left: Sequence[int], most: int) -> list[int]:
    """Return columns of machines to buy for the pods *left* of each kind: each time the one with the most in it for its
    price, and as many alike as the pods fill, *most* in all.
    """
    count = np.array(left, dtype=np.float64)
    found: list[int] = []
    order = np.argsort(-worth, kind="stable")
    while len(found) < most:
        kinds = order[count[order] > 0]
        if not len(kinds):
            break
        best, filled, score = -1, None, -1.0
        for column in columns.tolist():
            takes = _filled(program, column, kinds, count)
            value = float(takes @ worth[kinds]) / float(program.cost[column])
            if value > score * (1 + 1e-9) and takes.any():
                best, filled, score = column, takes, value
        if filled is None:
            break
        some = filled > 0
        times = int(np.floor(count[kinds[some]] / filled[some]).min())
        times = max(1, min(times, most - len(found)))
        count[kinds] -= filled * times
        found += [best] * times
    return found


def _filled(program: Program, column: int, kinds: NDArray[np.intp], count: Floats) -> Floats:
    """Return how many pods of each of *kinds* an empty machine takes, the dearest first."""
    room = program.room[column].copy()
    takes = np.zeros(len(kinds))
    requests, allowed = program.request[kinds], program.allowed[column, kinds]
    at = 0
    while True:
        fits = allowed[at:] & (requests[at:] <= room + 1e-12).all(axis=1)
        if not fits.any():
            break
        at += int(fits.argmax())
        need = requests[at] > 0
        number = float(np.floor(room[need] / requests[at][need] + 1e-9).min(initial=np.inf))
        number = max(1.0, min(number, count[kinds[at]], 1.0 if program.alone[kinds[at]] else np.inf))
        takes[at] = number
        room -= number * requests[at]
        at += 1
    return takes


__all__ = ["Estate", "Kind", "bought"]

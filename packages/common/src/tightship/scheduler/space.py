"""A what-if copy of a cluster's scheduling state, on which planners try, keep and undo moves.

The filters are kube-scheduler's default ones. A node is one column of the resource matrix; masks are numpy arrays in
node-name order. A journal records every change, so a failed attempt costs only its own undoing.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tightship.cluster import Anew, Snapshot
from tightship.objects import Node, Pod, PodTemplate
from tightship.objects.reasons import Reason
from tightship.objects.resources import POD_COUNT, largest
from tightship.objects.selectors import Taint
from tightship.scheduler.constraints import Constraints, NodeFilters, Platforms, PodDemand, restrict_ports
from tightship.scheduler.topology import NodeMask, clear
from tightship.scheduler.volumes import NO_ATTACHMENTS, VolumeUnknownError

CPU, MEMORY, PODS = 0, 1, 2
"""Rows of the resource matrix in every space; other resources follow in name order."""

UNLIMITED = 2**62


class Space:
    """The scheduling state of a snapshot. ``open[i]`` says whether node *i* may receive pods."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.nodes: list[Node] = [view.node for view in snapshot.nodes.values()]
        self.names = [node.name for node in self.nodes]
        self.index = {name: number for number, name in enumerate(self.names)}
        self.open: NodeMask = np.array([self._receives(node, snapshot) for node in self.nodes], dtype=np.bool_)
        templates = self._templates()
        self._rows = self._resource_rows(templates)
        self.capacity: NDArray[np.int64] = np.zeros((len(self._rows), len(self.nodes)), dtype=np.int64)
        for column, node in enumerate(self.nodes):
            for name, amount in node.allocatable.items():
                self.capacity[self._rows[name], column] = min(amount, UNLIMITED)
        self.known: NDArray[np.int64] = np.maximum(self.capacity[: MEMORY + 1], 1)
        """The capacity of CPU and memory as a divisor: at least 1."""
        self.kinds: NDArray[np.int64] = (self.capacity[: MEMORY + 1] > 0).sum(axis=0)
        """How many of CPU and memory each node has."""
        self.free = self.capacity.copy()
        self.assumed: NDArray[np.int64] = np.zeros((2, len(self.nodes)), dtype=np.int64)
        """milli-CPU and bytes requested as kube-scheduler's scoring assumes them."""
        self.next_start = 0
        """Where the modelled scheduler continues to look for feasible nodes."""
        self.leaving: NodeMask | None = None
        self.leaving_taint: Taint | None = None
        """Nodes about to go, which pods should avoid; the soft taint that tells kube-scheduler so, if there is one."""
        self._demands: dict[tuple[PodTemplate, int], PodDemand] = {}
        self.filters = NodeFilters(self.nodes)
        self.platforms = Platforms(snapshot, self.nodes)
        self._journal: list[tuple[PodDemand | None, int, int]] = []
        self._lengths: NDArray[np.float64] | None = None
        self._changed: set[int] = set()
        self.constraints = Constraints(snapshot, self.nodes, self.filters, templates)
        self._sum_up()

    # Building

    @staticmethod
    def _receives(node: Node, snapshot: Snapshot) -> bool:
        # Stricter than kube-scheduler, for safety. An unreadable pod takes an unknown amount from its node.
        if not node.ready or node.unschedulable or node.deletion is not None or node.lifecycle:
            return False
        return all(each.node != node.name for each in snapshot.unreadable)

    def _templates(self) -> list[PodTemplate]:
        bound = (view.pods for view in self.snapshot.nodes.values())
        everyone = (*bound, self.snapshot.unscheduled, self.snapshot.to_come)
        return list({pod.template: None for pods in everyone for pod in pods})

    def _resource_rows(self, templates: list[PodTemplate]) -> dict[str, int]:
        names = {name for node in self.nodes for name in node.allocatable}
        names.update(*(view.usage.requested for view in self.snapshot.nodes.values()))
        names.update(*(each.spec.requests for each in templates), *(pod.requests for pod in self.snapshot.unscheduled))
        rows = {"cpu": CPU, "memory": MEMORY, POD_COUNT: PODS}
        for name in sorted(names - rows.keys()):
            rows[name] = len(rows)
        return rows

    def _sum_up(self) -> None:
        """Subtract the requests of bound pods."""
        for column, view in enumerate(self.snapshot.nodes.values()):
            for name, amount in view.usage.requested.items():
                self.free[self._rows[name], column] -= amount
            self.assumed[:, column] = view.usage.scoring

    # What a pod demands

    def demand_of(self, pod: Pod) -> PodDemand:
        """Return the demands of *pod* on a node.

        During a resize the larger amounts count, since the replacement may request either. Where a VPA changes what the
        replacement of a pod requests, that counts; a pod that has yet to find a node is what it is.
        """
        key = (pod.template, 0 if pod.requests is pod.template.spec.requests else id(pod.requests))
        if self.snapshot.anew and pod.uid and not pod.node and pod.template in self.snapshot.anew:
            key = (pod.template, -1)
        found = self._demands.get(key)
        if found is None:
            found = self._demands[key] = self._compile(
                pod, None if key[1] == -1 else self.snapshot.anew.get(pod.template)
            )
        return found

    def _compile(self, pod: Pod, anew: Anew | None) -> PodDemand:
        template, spec = pod.template, pod.template.spec
        unknown = self.constraints.unknown(template)
        static = self.filters.static(spec)
        attachments = NO_ATTACHMENTS
        if spec.volumes:
            try:
                reach, attachments = self.constraints.volumes.reach(template)
                if reach is not None:
                    static = static & reach
            except VolumeUnknownError as error:
                unknown = unknown or (Reason.UNKNOWN_VOLUME, str(error))
        static, strays = self.platforms.split(template, static)
        affinity, spread = self.constraints.rules(template)
        idle = not (affinity.own or affinity.against or affinity.joins or affinity.group)
        plain = idle and not (spread.own or spread.joins or spec.host_ports or attachments is not NO_ATTACHMENTS)
        amounts, scoring = largest((pod.requests, spec.requests)), spec.scoring
        if anew is not None:
            amounts, scoring = anew.requests, anew.scoring
            if anew.problem:
                unknown = unknown or (
                    Reason.REQUESTS_UNKNOWN,
                    f"VerticalPodAutoscaler {anew.autoscaler} can't be read: {anew.problem}",
                )
        rows = tuple((self._rows[name], amount) for name, amount in amounts.items() if amount > 0)
        count = int(np.count_nonzero(static))
        level = 0 if count * 4 <= len(self.nodes) else 2 if plain else 1
        return PodDemand(
            template=template,
            rows=rows,
            scoring=scoring,
            static=static,
            static_count=count,
            hardness=(level, -max((amount * float(self.scale[row]) for row, amount in rows), default=0.0)),
            affinity=affinity,
            spread=spread,
            attachments=attachments,
            plain=plain,
            unknown=unknown,
            node_local=plain
            or (affinity.node_local and not (spread.own or spread.joins or attachments is not NO_ATTACHMENTS)),
            strays=strays,
        )

    # Judging

    def feasible(self, demand: PodDemand) -> NodeMask:
        """Return the open nodes on which one more pod with *demand* passes every filter now."""
        mask = self.open & demand.static
        for row, amount in demand.rows:
            mask &= self.free[row] >= amount
        if not demand.plain:
            self.constraints.restrict(mask, demand)
        return mask

    def accepts(self, demand: PodDemand, node: int) -> bool:
        """Whether *node* is open and passes every filter."""
        if not (self.open[node] and demand.static[node]):
            return False
        if any(self.free[row, node] < amount for row, amount in demand.rows):
            return False
        return self.constraints.allows(demand, node) if demand.node_local else bool(self.feasible(demand)[node])

    @cached_property
    def scale(self) -> NDArray[np.float64]:
        """One over the largest amount of any node, by row, which makes unlike resources comparable."""
        scale: NDArray[np.float64] = 1.0 / np.maximum(self.capacity.max(axis=1, initial=1), 1)
        return scale

    def free_lengths(self) -> NDArray[np.float64]:
        """Return the Euclidean length of each node's free amounts, in shares of the largest node."""
        if self._lengths is None:
            self._lengths = np.sqrt(((self.free * self.scale[:, None]) ** 2).sum(axis=0))
        elif self._changed:
            columns = sorted(self._changed)
            self._lengths[columns] = np.sqrt(((self.free[:, columns] * self.scale[:, None]) ** 2).sum(axis=0))
        self._changed.clear()
        return self._lengths

    def sizes(self) -> list[float]:
        """Return each node's size: CPU, memory and extended resources as shares of the largest node's, summed."""
        rows = [row for name, row in self._rows.items() if name not in (POD_COUNT, "ephemeral-storage")]
        return list((self.capacity[rows] * self.scale[rows, None]).sum(axis=0).tolist())

    # Changing

    def place(self, demand: PodDemand, node: int) -> None:
        """Bind one pod with *demand* to *node*."""
        self._change(demand, node, 1)
        self._journal.append((demand, node, 1))

    def remove(self, demand: PodDemand, node: int) -> None:
        """Take one pod with *demand* off *node*."""
        self._change(demand, node, -1)
        self._journal.append((demand, node, -1))

    def close(self, node: int) -> None:
        """Cordon *node*: it receives no more pods, but stays a topology domain for the scheduler."""
        if self.open[node]:
            self.open[node] = False
            self.constraints.close(node, 1)
            self._journal.append((None, node, 1))

    def mark(self) -> int:
        """Return a point to :meth:`rollback` to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo everything since *mark*."""
        while len(self._journal) > mark:
            demand, node, step = self._journal.pop()
            if demand is None:
                self.open[node] = True
                self.constraints.close(node, -1)
            else:
                self._change(demand, node, -step)

    def _change(self, demand: PodDemand, node: int, step: int) -> None:
        for row, amount in demand.rows:
            self.free[row, node] -= step * amount
        self.assumed[0, node] += step * demand.scoring[0]
        self.assumed[1, node] += step * demand.scoring[1]
        self._changed.add(node)
        if not demand.plain:
            self.constraints.change(demand, node, step)

    # Explaining

    def resource_names(self) -> list[str]:
        """Names of the matrix' rows, in row order."""
        return sorted(self._rows, key=self._rows.__getitem__)


class Memory:
    """What the nodes of *space* offered when it was made, to pods that concern only the node they run on."""

    def __init__(self, space: Space) -> None:
        self._open, self._free = space.open.copy(), space.free.copy()
        self._taken, self._ports = space.constraints.taken()

    def feasible(self, demand: PodDemand) -> NodeMask:
        """Return what :meth:`Space.feasible` would have returned then for *demand*, a node-local one of the space."""
        mask = self._open & demand.static
        for row, amount in demand.rows:
            mask &= self._free[row] >= amount
        excluded = 0
        for each in demand.affinity.excluding:
            for tally in each.tallies():
                excluded |= self._taken.get(tally, 0)
        clear(mask, excluded)
        restrict_ports(mask, demand, self._ports)
        return mask


__all__ = ["CPU", "MEMORY", "PODS", "UNLIMITED", "Memory", "PodDemand", "Space"]

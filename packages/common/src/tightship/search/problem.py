"""The vector problem of a plan: which nodes may go, which pods then move, and what limits where they go.

Everything is arrays over nodes and over *kinds* of pods, so that a search can judge thousands of changes in a second.
A problem describes amounts, node labels and taints, anti-affinity and PodDisruptionBudgets exactly. For required
affinity, topology spread, host ports and attach limits a search asks the planner's own space.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.objects import Pod
from tightship.planning.plan.planner import Planner
from tightship.scheduler.scoring import best_fit
from tightship.scheduler.space import PodDemand, Space
from tightship.scheduler.topology import DomainSum
from tightship.scheduler.volumes import NO_ATTACHMENTS
from tightship.search.limits import GateLimits

MOST_CELLS = 50_000_000
"""Most nodes times kinds of pods that are searched. Three arrays have a byte for each; more would take too much memory
from a running controller.
"""

EXACT = 2.0**53
"""Whole numbers below this are exact as floats, in which a search computes."""


class Marks(Struct, frozen=True):
    """Anti-affinity as counts by node. Row *i* of *start* counts pods on each node's domain before a plan.

    *members* has for each row the nodes of each node's domain; ``None`` if each node is a domain of its own, and an
    empty array for a node without the label. By kind, *adds* lists the rows that a pod of the kind counts in, *blocks*
    the rows that must be zero on a node for the pod to go there.
    """

    start: NDArray[np.int16]
    members: tuple[tuple[NDArray[np.intp], ...] | None, ...]
    adds: tuple[tuple[int, ...], ...]
    blocks: tuple[tuple[int, ...], ...]


class Limits(Struct, frozen=True):
    """How many nodes the controller's gates let go: *total*, and *pools* for each number of a pool."""

    total: int
    pools: NDArray[np.intp]


class Problem(Struct, frozen=True):
    """Nodes that may go (*closable*) or only receive pods, and the pods that leave with their nodes.

    *free* are the amounts left on each node (node, resource) before the plan; *slack* is what nodes that stay would
    have beside if replicas about to start and CapacityBuffers made room elsewhere. Pod *p* is of kind ``kinds[p]`` and
    lives on node ``homes[p]``; if it is not ``evicted[p]``, it only holds room there (a pending pod, a replica to
    come). All pods that only hold room, also on nodes that stay, are *held*, each with its node.
    *demands* and *requests* (kind, resource) say what a kind needs, *allowed* (node, kind) where labels, taints and
    volumes let it run. Pods of kinds in *tied* are bound by more than arrays say. ``needs[n]`` lists (budget, pods) of
    a node; budget *b* still allows ``allowances[b]`` evictions. ``pools[n]`` is the number of a node's pool.
    """

    space: Space
    names: tuple[str, ...]
    closable: NDArray[np.bool_]
    free: NDArray[np.float64]
    slack: NDArray[np.float64]
    demands: tuple[PodDemand, ...]
    requests: NDArray[np.float64]
    allowed: NDArray[np.bool_]
    pods: tuple[Pod, ...]
    kinds: NDArray[np.intp]
    homes: NDArray[np.intp]
    evicted: NDArray[np.bool_]
    held: tuple[tuple[Pod, int], ...]
    tied: NDArray[np.bool_]
    marks: Marks
    needs: tuple[tuple[tuple[int, int], ...], ...]
    allowances: tuple[int, ...]
    pools: NDArray[np.intp]
    limits: Limits

    def whole(self) -> NDArray[np.float64]:
        """Return what each node offers (node, resource) with none of these pods on it.

        A node that promised more than it has offers its pods at least what they have.
        """
        found: NDArray[np.float64] = np.maximum(self.free, 0.0)
        np.add.at(found, self.homes, self.requests[self.kinds])
        return found

    @property
    def kept_by_gates(self) -> int:
        """How many nodes the gates alone keep."""
        goes = np.bincount(self.pools[self.closable], minlength=len(self.limits.pools))
        return len(self.names) - min(self.limits.total, int(np.minimum(goes, self.limits.pools).sum()))

    @property
    def natives(self) -> list[list[int]]:
        """The pods of each node."""
        found: list[list[int]] = [[] for _ in self.names]
        for pod, home in enumerate(self.homes.tolist()):
            found[home].append(pod)
        return found


def extract(planner: Planner, allowed: GateLimits) -> Problem | None:
    """Return the problem that *planner*, which has planned nothing yet, would plan within the limits *allowed*.

    ``None`` if it has more than :data:`MOST_CELLS`.
    """
    space = planner.space
    nodes = len(space.names)
    closable = np.zeros(nodes, dtype=np.bool_)
    pods: list[tuple[Pod, int, bool]] = []
    needs: list[tuple[tuple[int, int], ...]] = [()] * nodes
    budgets: dict[str, int] = {}
    allowances: list[int] = []
    pools: dict[str, int] = {}
    pool_of = np.zeros(nodes, dtype=np.intp)
    for candidate in planner.candidates.values():
        if candidate.name not in allowed.candidates:
            continue
        if any(space.demand_of(pod).unknown is not None for pod in candidate.evict):
            continue
        node = space.index[candidate.name]
        closable[node] = True
        pool_of[node] = pools.setdefault(candidate.pool, len(pools))
        pods += [(pod, node, True) for pod in candidate.evict]
        pods += [(placed.pod, node, False) for placed in planner.waiting.get(node, ())]
        found: list[tuple[int, int]] = []
        for key, (budget, count) in planner.ledger.needs(candidate.evict).items():
            if key not in budgets:
                budgets[key] = len(budgets)
                allowances.append(planner.ledger.left(budget))
            found.append((budgets[key], count))
        needs[node] = tuple(found)
    mark = space.mark()
    buffers = _buffers(planner, closable)
    pods += [(pod, node, False) for pod, node in buffers if closable[node]]
    free = space.free.copy()
    kinds, demands = _kinds(space, [pod for pod, _, _ in pods])
    if nodes * len(demands) > MOST_CELLS:
        space.rollback(mark)
        return None
    rows = sorted({row for demand in demands for row, _ in demand.rows})
    requests = np.zeros((len(demands), len(rows)))
    for kind, demand in enumerate(demands):
        for row, amount in demand.rows:
            requests[kind, rows.index(row)] = min(amount, EXACT)
    elsewhere = [(placed.pod, node) for node, held in planner.waiting.items() for placed in held if placed.starting]
    slack = np.zeros((nodes, len(rows)))
    for pod, node in (*elsewhere, *buffers):
        for row, amount in () if closable[node] else space.demand_of(pod).rows:
            if row in rows:
                slack[node, rows.index(row)] += amount
    marks = _marks(demands, nodes)
    space.rollback(mark)
    static = np.array([demand.static for demand in demands], dtype=np.bool_).reshape(len(demands), nodes).T
    return Problem(
        space=space,
        names=tuple(space.names),
        closable=closable,
        free=np.ascontiguousarray(np.clip(free[rows].T, -EXACT, EXACT), dtype=np.float64),
        slack=slack,
        demands=tuple(demands),
        requests=requests,
        allowed=np.ascontiguousarray(static & space.open[:, None]),
        pods=tuple(pod for pod, _, _ in pods),
        kinds=np.array(kinds, dtype=np.intp),
        homes=np.array([node for _, node, _ in pods], dtype=np.intp),
        held=(*_held(planner), *buffers),
        evicted=np.array([evicted for _, _, evicted in pods], dtype=np.bool_),
        tied=np.array([_tied(demand) for demand in demands], dtype=np.bool_),
        marks=marks,
        needs=tuple(needs),
        allowances=tuple(allowances),
        pools=pool_of,
        limits=Limits(allowed.total, np.array([allowed.pools[pool] for pool in pools], dtype=np.intp)),
    )


def _held(planner: Planner) -> list[tuple[Pod, int]]:
    """Return the pods that *planner* has placed, with their nodes, without those that terminate where they run."""
    names = planner.space.names
    return [
        (placed.pod, node)
        for node, held in planner.waiting.items()
        for placed in held
        if placed.pod.node != names[node]
    ]


def _buffers(planner: Planner, closable: NDArray[np.bool_]) -> list[tuple[Pod, int]]:
    """Place the pods of CapacityBuffers for which the planner keeps room, first on nodes that stay.

    Return them with their nodes.
    """
    space = planner.space
    found: list[tuple[Pod, int]] = []
    for pod, count in planner.buffered:
        demand = space.demand_of(pod)
        for _ in range(count):
            mask = space.feasible(demand)
            nodes = np.flatnonzero(mask & ~closable)
            if not len(nodes):
                nodes = np.flatnonzero(mask)
            if not len(nodes):
                break
            node = best_fit(space, demand, nodes)
            space.place(demand, node)
            found.append((pod, node))
    return found


def _kinds(space: Space, pods: Sequence[Pod]) -> tuple[list[int], list[PodDemand]]:
    """Return the kind of each pod. Plain pods that request the same and may run on the same nodes are of one kind."""
    numbers: dict[object, int] = {}
    demands: list[PodDemand] = []
    kinds: list[int] = []
    by_ask: dict[int, int] = {}
    for pod in pods:
        demand = space.demand_of(pod)
        kind = by_ask.get(id(demand))
        if kind is None:
            key: object = (demand.rows, demand.static.tobytes()) if demand.plain else id(demand)
            kind = numbers.setdefault(key, len(numbers))
            if kind == len(demands):
                demands.append(demand)
            by_ask[id(demand)] = kind
        kinds.append(kind)
    return kinds, demands


def _tied(demand: PodDemand) -> bool:
    """Whether more than amounts, labels, taints and anti-affinity decides where a pod with *demand* may go."""
    if demand.plain:
        return False
    counted = demand.spread.own or demand.spread.joins or demand.affinity.group or demand.affinity.joins
    return bool(counted or demand.attachments is not NO_ATTACHMENTS or demand.template.spec.host_ports)


def _marks(demands: Sequence[PodDemand], nodes: int) -> Marks:
    numbers: dict[int, int] = {}
    counters: list[DomainSum] = []

    def row(counter: DomainSum) -> int:
        number = numbers.setdefault(id(counter), len(numbers))
        if number == len(counters):
            counters.append(counter)
        return number

    adds: list[tuple[int, ...]] = []
    blocks: list[tuple[int, ...]] = []
    for demand in demands:
        rules = demand.affinity
        adds.append(tuple(sorted({*(row(a.holding) for a in rules.own), *(row(a.matching) for a in rules.against)})))
        blocks.append(tuple(sorted({*(row(a.matching) for a in rules.own), *(row(a.holding) for a in rules.against)})))
    start = np.zeros((len(counters), nodes), dtype=np.int16)
    members: list[tuple[NDArray[np.intp], ...] | None] = []
    nobody = np.empty(0, dtype=np.intp)
    cache: dict[int, tuple[NDArray[np.intp], ...] | None] = {}
    for number, counter in enumerate(counters):
        topology = counter.topology
        for domain, count in counter.counts.items():
            start[number, topology.members[domain]] = min(count, 2**14)
        if id(topology) not in cache:
            alone = all(len(each) == 1 for each in topology.members) and bool(topology.labelled.all())
            cache[id(topology)] = (
                None
                if alone
                else tuple(topology.members[domain] if domain >= 0 else nobody for domain in topology.domain_of)
            )
        members.append(cache[id(topology)])
    return Marks(start, tuple(members), tuple(adds), tuple(blocks))

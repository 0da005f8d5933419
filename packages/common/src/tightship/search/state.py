"""The state of a search: which nodes are kept, where each pod of the others is, and which kinds still fit where.

A change costs some ten microseconds. A journal undoes the changes that a search regrets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tightship.scheduler.space import PodDemand, Space
from tightship.scheduler.topology import NodeMask
from tightship.search.problem import Problem

UNPLACED = -1
"""The location of a pod without a place."""

_POD, _NODE = 0, 1


class Shadow(Space):
    """A space that follows a search's changes without a journal, for the constraints that arrays don't show."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.space.snapshot)
        first = {kind: pod for pod, kind in reversed(list(enumerate(problem.kinds.tolist())))}
        # A space counts by its own demands.
        self.by_kind = [self.demand_of(problem.pods[first[kind]]) for kind in range(len(problem.demands))]
        for pod, node in problem.held:
            self.put(self.demand_of(pod), node, 1)

    def put(self, demand: PodDemand, node: int, step: int) -> None:
        """Bind (*step* 1) or remove (-1) one pod."""
        if not demand.plain:
            self._change(demand, node, step)

    def restrict(self, mask: NodeMask, demand: PodDemand) -> None:
        """Clear *mask* where affinity, spread, ports or attach limits keep a pod with *demand* away."""
        self.constraints.restrict(mask, demand)


class Packing:
    """All pods are on their nodes at first. A *newcomer* is a pod on a node that is not its home.

    Amounts are arrays of (resource, node); ``choices[kind]`` counts the nodes on which a kind fits by amounts, labels
    and taints; ``movable`` is what the newcomers of each node request together; ``moves`` counts evictions.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        nodes = len(problem.names)
        self.natives = problem.natives
        self.kind: list[int] = problem.kinds.tolist()
        self.home: list[int] = problem.homes.tolist()
        self.request = [np.ascontiguousarray(each) for each in problem.requests]
        self.free = problem.free.T.copy()
        self.movable = np.zeros_like(self.free)
        self.kept = np.ones(nodes, dtype=np.bool_)
        self.location: list[int] = list(self.home)
        self.where = problem.homes.copy()
        self.newcomer = np.zeros(len(self.home), dtype=np.bool_)
        self.newcomers: list[list[int]] = [[] for _ in range(nodes)]
        self.unplaced: dict[int, None] = {}
        self.closed: dict[int, None] = {}
        self.moves = 0
        self.marks = problem.marks.start.copy()
        self._requests = problem.requests.T.copy()
        self._evicted: list[bool] = problem.evicted.tolist()
        self.fit: NDArray[np.bool_] = np.zeros((nodes, len(problem.demands)), dtype=np.bool_)
        """Where each kind fits by amounts, labels and taints (node, kind)."""
        self.choices = np.zeros(len(problem.demands), dtype=np.int64)
        for node in range(nodes):
            self._refresh(node)
        self._tied: list[bool] = problem.tied.tolist()
        self._shadow = Shadow(problem) if any(self._tied) else None
        self._removed = [0] * len(problem.limits.pools)
        self._spent: list[dict[int, int]] = [{} for _ in problem.allowances]
        self._journal: list[tuple[int, int, int]] = []

    # Asking

    def fits(self, kind: int) -> NDArray[np.intp]:
        """Return the kept nodes on which one more pod of *kind* fits now."""
        mask: NodeMask = self.fit[:, kind]
        blocks = self.problem.marks.blocks[kind]
        if blocks or self._tied[kind]:
            mask = mask.copy()
            for row in blocks:
                mask &= self.marks[row] == 0
            if self._shadow is not None and self._tied[kind]:
                self._shadow.restrict(mask, self._shadow.by_kind[kind])
        return mask.nonzero()[0]

    def unblocked(self, kind: int) -> NodeMask:
        """Return the kept nodes where all but amounts allow a pod of *kind*."""
        mask: NodeMask = self.problem.allowed[:, kind] & self.kept
        for row in self.problem.marks.blocks[kind]:
            mask &= self.marks[row] == 0
        if self._shadow is not None and self._tied[kind]:
            self._shadow.restrict(mask, self._shadow.by_kind[kind])
        return mask

    def may_close(self, node: int) -> bool:
        """Whether gates and PodDisruptionBudgets let *node* go beside the nodes that are closed already."""
        problem = self.problem
        if not (problem.closable[node] and self.kept[node]):
            return False
        pool = int(problem.pools[node])
        if len(self.closed) >= problem.limits.total or self._removed[pool] >= problem.limits.pools[pool]:
            return False
        for budget, count in problem.needs[node]:
            # The last node of a plan may need more than is left: its pods then go one after another.
            spent = self._spent[budget].values()
            if sum(spent) + count - max(count, *spent, 0) > problem.allowances[budget] - 1:
                return False
        return True

    # Changing

    def move(self, pod: int, node: int) -> None:
        """Put *pod* on *node*, or nowhere (:data:`UNPLACED`)."""
        old = self.location[pod]
        if old != node:
            self._journal.append((_POD, pod, old))
            self._relocate(pod, node)

    def close(self, node: int) -> None:
        """Remove *node*: its own pods and its newcomers have no place then."""
        for pod in (*self.newcomers[node], *self.natives[node]):
            self.move(pod, UNPLACED)
        self._journal.append((_NODE, node, 1))
        self._keep(node, keep=False)

    def reopen(self, node: int) -> None:
        """Keep *node* after all: its own pods return."""
        self._journal.append((_NODE, node, 0))
        self._keep(node, keep=True)
        for pod in self.natives[node]:
            self.move(pod, node)

    def mark(self) -> int:
        """Return a point to :meth:`rollback` to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo everything since *mark*."""
        while len(self._journal) > mark:
            what, which, was = self._journal.pop()
            if what == _POD:
                self._relocate(which, was)
            else:
                self._keep(which, keep=bool(was))

    def forget(self) -> None:
        """Make all changes so far final."""
        self._journal.clear()

    def adopt(self, closed: Sequence[int], location: Sequence[int]) -> None:
        """Become the state in which the nodes *closed* are removed and each pod is at its *location*."""
        wanted = set(closed)
        for pod, where in enumerate(location):
            if self.location[pod] != where:
                self.move(pod, UNPLACED)
        for node in [each for each in self.closed if each not in wanted]:
            self._keep(node, keep=True)
        for node in closed:
            if self.kept[node]:
                self._keep(node, keep=False)
        for pod, where in enumerate(location):
            self.move(pod, where)
        self.forget()

    def _keep(self, node: int, *, keep: bool) -> None:
        pool = int(self.problem.pools[node])
        if keep:
            del self.closed[node]
        else:
            self.closed[node] = None
        self._removed[pool] += -1 if keep else 1
        for budget, count in self.problem.needs[node]:
            if keep:
                del self._spent[budget][node]
            else:
                self._spent[budget][node] = count
        self.kept[node] = keep
        self._refresh(node)

    def _refresh(self, node: int) -> None:
        fit = self.fit[node]
        self.choices -= fit
        if self.kept[node]:
            np.logical_and.reduce(self._requests <= self.free[:, node, None], axis=0, out=fit)
            fit &= self.problem.allowed[node]
            self.choices += fit
        else:
            fit[:] = False

    def _relocate(self, pod: int, new: int) -> None:
        old, kind, home = self.location[pod], self.kind[pod], self.home[pod]
        if old == UNPLACED:
            del self.unplaced[pod]
        else:
            self._put(pod, old, -1)
            if old != home:
                self.newcomers[old].remove(pod)
                self.movable[:, old] -= self.request[kind]
        self.location[pod] = new
        self.where[pod] = new
        self.newcomer[pod] = new not in (home, UNPLACED)
        if new == UNPLACED:
            self.unplaced[pod] = None
        else:
            self._put(pod, new, 1)
            if new != home:
                self.newcomers[new].append(pod)
                self.movable[:, new] += self.request[kind]
        if self._evicted[pod]:
            self.moves += (new != home) - (old != home)

    def _put(self, pod: int, node: int, step: int) -> None:
        kind, marks = self.kind[pod], self.problem.marks
        if step > 0:
            self.free[:, node] -= self.request[kind]
        else:
            self.free[:, node] += self.request[kind]
        for row in marks.adds[kind]:
            members = marks.members[row]
            self.marks[row, node if members is None else members[node]] += step
        if self._shadow is not None:
            self._shadow.put(self._shadow.by_kind[kind], node, step)
        if self.kept[node]:
            self._refresh(node)

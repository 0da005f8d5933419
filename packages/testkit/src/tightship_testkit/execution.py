"""A searched plan carried out without Kubernetes: pass, claims, landings, and the next pass, until nothing is left.

Passes and searches are the controllers' own. Moved pods land where the plan wants them, or, now and then, where
kube-scheduler's scoring, as modelled, would put them; soft taints then keep them off the nodes that go next.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.state import sum_up
from tightship.nodes.annexes import SEARCH
from tightship.nodes.background import BackgroundSearch
from tightship.objects import Owner, Pod
from tightship.planning.evaluate import Evaluator, Judge
from tightship.planning.plan import Plan, Removal
from tightship.scheduler.scoring import scheduler_choice
from tightship.scheduler.space import Space

TAINTED = 300
"""Nodes that the controllers steer away from by default."""


class Carried(Struct, frozen=True, kw_only=True):
    """How an execution ended: nodes *kept*, *evictions*, pods that *missed* their target, and those left *pending*.

    *greedy* nodes would be kept by the strategy alone if all pods landed, *planned* by the first searched plan.
    """

    kept: int
    evictions: int
    missed: int
    pending: int
    passes: int
    searches: int
    greedy: int
    planned: int


class Execution:
    """Carries plans for *snapshot* out: *at_once* nodes a pass, each pod misses its target with chance *miss*.

    With *together*, pods of one workload that move in one pass go to any of their targets, as an admission policy that
    can't count would have them. Searches take *seconds* each, and each pass waits for the one before it. *told* hears
    of every pass.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        judge: Judge,
        seconds: float,
        *,
        miss: float = 0.0,
        together: bool = False,
        at_once: int = 20,
        seed: int = 0,
        reported: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._snapshot = snapshot
        self._judge = judge
        self._seconds = seconds
        self._miss = miss
        self._together = together
        self._at_once = at_once
        self._random = random.Random(seed)  # noqa: S311 - which pods miss is no secret
        self._described = reported
        self._made = self._missed = 0
        self._now = 2e9

    async def run(self) -> Carried:
        """Return how it ended."""
        wake = asyncio.Event()
        search: BackgroundSearch = BackgroundSearch(
            wake, may=lambda: True, clock=lambda: self._now, logger=logging.getLogger(__name__)
        )
        evaluate = Evaluator()
        evictions = passes = greedy = planned = 0
        while True:
            found = evaluate(self._snapshot, self._judge, self._now, search.horizon(self._seconds), improve=SEARCH)
            search.judged(found, self._judge, self._seconds)
            plan, nodes = found.plan, len(self._snapshot.nodes)
            kept = nodes - len(plan.removals)
            state = search.state(self._seconds)
            if search.claims_wait():
                greedy = kept
            elif plan.removals:
                planned = planned or kept
                done = plan.removals[: self._at_once]
                evictions += sum(len(removal.moves) for removal in done)
                self._snapshot = self._landed(plan, done)
                passes += 1
                self._described(f"{nodes} nodes, {kept} to keep, {evictions} evictions of {evictions + plan.evictions}")
            elif state is None or not state.running:
                searches = 0 if state is None else state.searches
                return Carried(
                    kept=nodes,
                    evictions=evictions,
                    missed=self._missed,
                    pending=len(self._snapshot.unscheduled),
                    passes=passes,
                    searches=searches,
                    greedy=greedy,
                    planned=planned,
                )
            while (state := search.state(self._seconds)) is not None and state.running:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
            self._now += self._seconds

    def _landed(self, plan: Plan, done: Sequence[Removal]) -> Snapshot:
        """Return the snapshot after *done*, the first removals of *plan*."""
        space = Space(self._snapshot)
        for removal in done:
            space.close(space.index[removal.node])
        next_ones = {removal.node for removal in plan.removals[:TAINTED]}
        plain = np.array([name not in next_ones for name in space.names], dtype=np.bool_)
        arrivals: dict[str, list[Pod]] = {}
        pending: list[Pod] = []
        moves = [move for removal in done for move in removal.moves]
        aims: defaultdict[Owner | None, dict[int, None]] = defaultdict(dict)
        for move in moves if self._together else ():
            if move.target in space.index:
                aims[move.pod.owner][space.index[move.target]] = None
        for move in moves:
            ask, target = space.demand_of(move.pod), space.index.get(move.target)
            if wanted := [node for node in aims[move.pod.owner] if space.accepts(ask, node)]:
                target = scheduler_choice(space, ask, np.array(sorted(wanted)))
            if self._random.random() < self._miss or target is None or not space.accepts(ask, target):
                self._missed += 1
                feasible = space.feasible(ask)
                nodes = np.flatnonzero(feasible & plain if (feasible & plain).any() else feasible)
                target = scheduler_choice(space, ask, nodes) if len(nodes) else None
            self._made += 1
            pod = msgspec.structs.replace(move.pod, name=f"made-{self._made}", node="")
            if target is None:
                pending.append(pod)
                continue
            space.place(ask, target)
            name = space.names[target]
            arrivals.setdefault(name, []).append(msgspec.structs.replace(pod, node=name))
        nodes_left = _with(self._snapshot.nodes, {removal.node for removal in done}, arrivals)
        unscheduled = (*self._snapshot.unscheduled, *pending)
        return msgspec.structs.replace(self._snapshot, nodes=nodes_left, unscheduled=unscheduled)


def _with(nodes: Mapping[str, NodeView], gone: set[str], arrivals: Mapping[str, Sequence[Pod]]) -> dict[str, NodeView]:
    found: dict[str, NodeView] = {}
    for name, view in nodes.items():
        if name in gone:
            continue
        new = arrivals.get(name, ())
        pods = tuple(sorted((*view.pods, *new), key=lambda pod: (pod.namespace, pod.name))) if new else view.pods
        found[name] = NodeView(view.node, pods, sum_up(pods)) if new else view
    return found

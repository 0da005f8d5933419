"""A model of a running controller on a real cluster: which steering keeps how many nodes, for how many evictions.

    python bench/steering.py                            no taints, as many as by default, all: about a minute a row
    python bench/steering.py --taints 350 --grades 1 2  some of them
    python bench/steering.py --in-drain 1               one node at a time

Plans are the product's own. The model plays the rest without time: it taints the first nodes of the plan, drains the
next ones, and lets every evicted pod go where kube-scheduler's default scoring sends it, with its sampling of feasible
nodes, its spreading of replicas (weight 2, the system's default constraints) and random choice among equals. A node
whose pods don't all find a place comes back. No budgets, pauses, back-offs or stale views: what a live run
(``bench/live.py``) keeps beyond the model is lost to these.

With several *grades* a node carries one soft taint more for each grade that it stands nearer to its turn.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from live import ALL, LIMITS, Way, openb, settings
from numpy.typing import NDArray

from node_compactor.judge import CompactorJudge
from node_compactor.settings import CompactorSettings, load_settings
from tightship.cli.snapshot_file import read_file
from tightship.cluster import NodeView, Snapshot
from tightship.cluster.state import sum_up
from tightship.nodes.soft_taints import next_to_go
from tightship.objects import Owner, Pod
from tightship.objects.selectors import Taint
from tightship.planning.evaluate import Evaluation, Evaluator
from tightship.scheduler.scoring import nodes_to_find, scheduler_scores
from tightship.scheduler.space import Space

SPREAD_WEIGHT = 2
MAX_SKEW = 3
"""Of the scheduler's default constraint on ``kubernetes.io/hostname``."""
TRIES = 5
"""Passes in a row in which no node could be emptied that end a run."""
NOW = 1.8e9
"""Seconds since 1970: every node is old enough."""


@dataclass
class Result:
    """One run. *stuck* counts nodes that came back, *writes* the changes of a node's taints."""

    kept: int
    evictions: int
    moved: int
    passes: int
    stuck: int
    writes: int
    possible: int
    """Nodes that a fresh plan of the end, which may choose places, would still remove."""


class World:
    """A cluster in which nodes are tainted and drained, and a modelled kube-scheduler."""

    def __init__(self, snapshot: Snapshot, seed: int) -> None:
        self.snapshot = snapshot
        self.evicted: Counter[str] = Counter()
        self._random = random.Random(seed)

    def taint(self, wanted: Mapping[str, int]) -> int:
        """Let exactly the nodes in *wanted* carry so many soft taints; return how many nodes that changed."""
        changed: dict[str, NodeView] = {}
        for name, view in self.snapshot.nodes.items():
            count = wanted.get(name, 0)
            if len(view.node.taints) != count:
                taints = tuple(Taint(f"tightship.dev/grade-{grade}", "PreferNoSchedule") for grade in range(count))
                node = msgspec.structs.replace(view.node, taints=taints)
                changed[name] = msgspec.structs.replace(view, node=node)
        self._change(changed)
        return len(changed)

    def drain(self, evict: Mapping[str, Sequence[Pod]]) -> int:
        """Empty and delete nodes, each by evicting these pods, all cordoned at first; return how many came back."""
        scheduler = _Scheduler(self.snapshot, self._random)
        for name in evict:
            scheduler.space.close(scheduler.space.index[name])
        changed: dict[str, NodeView | None] = {}
        arrived: dict[str, list[Pod]] = {}
        for name, leaving in evict.items():
            pods = list(leaving)
            self._random.shuffle(pods)
            targets = scheduler.move(pods, name)
            if targets is None:
                continue
            changed[name] = None
            for pod, target in zip(pods, targets, strict=True):
                self.evicted[pod.key] += 1
                arrived.setdefault(target, []).append(msgspec.structs.replace(pod, node=target))
        for name, more in arrived.items():
            view = self.snapshot.nodes[name]
            pods_now = tuple(sorted((*view.pods, *more), key=lambda pod: (pod.namespace, pod.name)))
            changed[name] = NodeView(view.node, pods_now, sum_up(pods_now))
        self._change(changed)
        return len(evict) - sum(view is None for view in changed.values())

    def _change(self, changed: Mapping[str, NodeView | None]) -> None:
        nodes = {name: changed.get(name, view) for name, view in self.snapshot.nodes.items()}
        left = {name: view for name, view in nodes.items() if view is not None}
        self.snapshot = msgspec.structs.replace(self.snapshot, nodes=left)


class _Scheduler:
    """kube-scheduler over one snapshot, with what the planner's model of its scoring leaves out."""

    def __init__(self, snapshot: Snapshot, choice: random.Random) -> None:
        self.space = Space(snapshot)
        self._random = choice
        self._start = choice.randrange(len(self.space.nodes))
        self._siblings: dict[Owner | None, NDArray[np.int64]] = {}
        for column, view in enumerate(snapshot.nodes.values()):
            for pod in view.pods:
                self._of(pod)[column] += 1

    def move(self, pods: Sequence[Pod], origin: str) -> list[str] | None:
        """Move *pods* off *origin* and return their new nodes; ``None``, and nothing changed, if one has no place."""
        space, node = self.space, self.space.index[origin]
        mark, targets = space.mark(), list[int]()
        for pod in pods:
            space.remove(space.demand_of(pod), node)
        for pod in pods:
            target = self._choose(pod)
            if target is None:
                space.rollback(mark)
                for moved, place in zip(pods, targets, strict=False):
                    self._of(moved)[place] -= 1
                    self._of(moved)[node] += 1
                return None
            space.place(space.demand_of(pod), target)
            self._of(pod)[target] += 1
            self._of(pod)[node] -= 1
            targets.append(target)
        return [space.names[target] for target in targets]

    def _choose(self, pod: Pod) -> int | None:
        ask = self.space.demand_of(pod)
        nodes = self.space.feasible(ask).nonzero()[0]
        if not len(nodes):
            return None
        enough = nodes_to_find(len(self.space.nodes))
        if len(nodes) > enough:
            start = int(np.searchsorted(nodes, self._start))
            nodes = np.concatenate((nodes[start : start + enough], nodes[: max(0, start + enough - len(nodes))]))
            self._start = int(nodes[-1]) + 1
        score = scheduler_scores(self.space, ask, nodes) + SPREAD_WEIGHT * self._spread(pod, nodes)
        return int(nodes[self._random.choice(np.flatnonzero(score == score.max()).tolist())])

    def _spread(self, pod: Pod, nodes: NDArray[np.intp]) -> NDArray[np.int64]:
        """``PodTopologySpread`` with the system's default constraints: the fewer replicas on a node, the better."""
        weight = np.log(len(nodes) + 2.0)
        raw = np.rint(self._of(pod)[nodes] * weight + (MAX_SKEW - 1)).astype(np.int64)
        highest = int(raw.max())
        scaled: NDArray[np.int64] = 100 * (highest + int(raw.min()) - raw) // highest
        return scaled

    def _of(self, pod: Pod) -> NDArray[np.int64]:
        owner = pod.template.owner
        if owner not in self._siblings:
            self._siblings[owner] = np.zeros(len(self.space.nodes), dtype=np.int64)
        return self._siblings[owner]


def graded(names: Sequence[str], grades: int) -> dict[str, int]:
    """Return how many soft taints each of *names* carries, the nearest the most."""
    return {name: grades - number * grades // len(names) for number, name in enumerate(names)}


def run(snapshot: Snapshot, told: Mapping[str, object], grades: int, in_drain: int, seed: int) -> Result:
    """Play one run of a controller with the settings *told* to its end, *in_drain* nodes at once."""

    def evaluation(placement: str) -> Evaluation:
        judge = CompactorJudge(load_settings({**told, "placement": placement}))
        return evaluator(world.snapshot, judge, NOW)

    world, evaluator = World(snapshot, seed), Evaluator()
    passes = stuck = writes = in_vain = 0
    configured = load_settings(told)
    while True:
        found = evaluation(configured.placement)
        passes += 1
        if not found.plan.removals or in_vain >= TRIES:
            break
        if configured.candidate_taints:
            tainted = next_to_go(world.snapshot, found.plan, configured.candidate_taints)
            writes += world.taint(graded(tainted, grades))
        batch = {removal.node: found.facts[removal.node].evict for removal in found.plan.removals[:in_drain]}
        came_back = world.drain(batch)
        stuck += came_back
        in_vain = in_vain + 1 if came_back == len(batch) else 0
    possible = len(evaluation("possible").plan.removals)
    evicted = world.evicted
    return Result(len(world.snapshot.nodes), evicted.total(), len(evicted), passes, stuck, writes, possible)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = CompactorSettings().candidate_taints
    parser.add_argument("--taints", type=int, nargs="*", default=[0, default, ALL], help="most nodes with a taint")
    parser.add_argument("--grades", type=int, nargs="*", default=[1, 2, 3], help="soft taints on the nearest nodes")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each row, of which the means are shown (1)")
    parser.add_argument("--in-drain", type=int, default=10, help="nodes drained at once (10)")
    parser.add_argument("--strategy", default="fewest-nodes", choices=list(LIMITS))
    parser.add_argument("--placement", default="likely", choices=["possible", "likely"])
    parser.add_argument("--limit", type=float, default=0.0, help="CPU ratio below which nodes may go")
    options = parser.parse_args()
    path = openb()
    if path is None:
        print("openb_cluster.json.gz is not at hand: name its folder in TIGHTSHIP_DATA", file=sys.stderr)
        return 1
    snapshot = read_file(str(path))
    columns = ("kept", "evictions", "pods moved", "passes", "came back", "writes", "possible", "s")
    print(f"{'taints':>8}{'grades':>8}" + "".join(f"{name:>12}" for name in columns))
    for taints in options.taints:
        for grades in options.grades if taints else [0]:
            start = time.process_time()
            told = settings(Way(options.strategy, taints), options)
            results = [run(snapshot, told, grades, options.in_drain, seed) for seed in range(1, options.seeds + 1)]
            rows = [(each.kept, each.evictions, each.moved, each.passes, each.stuck, each.writes, each.possible)
                    for each in results]  # fmt: skip
            means = [statistics.mean(column) for column in zip(*rows, strict=True)]
            spent = (time.process_time() - start) / options.seeds
            first = "all" if taints == ALL else f"{taints}"
            shown = "".join(f"{value:>12,.0f}" for value in (*means, spent))
            print(f"{first:>8}{grades or '-':>8}{shown}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

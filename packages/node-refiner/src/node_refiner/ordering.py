"""The order of candidates. Pure.

Each order has its own keys, followed by the score rounded to whole percent. Of equal candidates the most disruptive
come last: a PodDisruptionBudget of their pods would have nothing left or makes them wait, or a pod is the only Ready
one of its controller. Then the exact score decides, then the name. All keys count the pods that the plan has moved to
the node before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import Struct

from node_refiner.settings import CandidateOrder, RefinerSettings
from tightship.cluster import Snapshot
from tightship.objects import Pod, PodDisruptionBudget, PodTemplate
from tightship.planning.plan import Candidate, Planner
from tightship.planning.plan.strategies import saving_per_eviction

_Owner = tuple[str, str, str]
_Keys = tuple[float, ...]

EMPTY = -(2**31) - 1
"""Below the lowest priority of any pod: draining a node without pods disturbs nobody."""

MOST = 10_000.0
"""Ratios above this count as infinite (a node without allocatable resources that holds pods all the same)."""


class Scoring:
    """The score of a node's load: its CPU and memory ratios by their weights, as in the older controller."""

    def __init__(self, settings: RefinerSettings) -> None:
        self._cpu, self._memory = settings.cpu_weight, settings.memory_weight

    def of(self, cpu: float, memory: float) -> float:
        """Return the score of two ratios. The score is a ratio too if the weights add up to 1."""
        return self._cpu * min(cpu, MOST) + self._memory * min(memory, MOST)


class _Pods(Struct, frozen=True):
    """The *count* pods of a node: their keys, the allowances they need, and whether one is the only one of its kind."""

    count: int
    first: _Keys
    needs: Mapping[str, tuple[PodDisruptionBudget, int]]
    only_ones: bool


_NONE = _Pods(0, (), {}, only_ones=False)


class _Seen:
    """What keys of one snapshot have in common, whatever is planned."""

    def __init__(self, snapshot: Snapshot | None) -> None:
        self.snapshot = snapshot
        self.single = frozenset[_Owner]() if snapshot is None else single_replicas(snapshot)
        self.alone: dict[PodTemplate, bool] = {}
        """Whether a template's Ready pod is the only one of its controller."""
        self.own: dict[str, tuple[tuple[Pod, ...], _Pods]] = {}
        """The pods to evict of each candidate, and what is known of them."""


class Keys:
    """The keys of candidates in one order; see :data:`tightship.planning.plan.strategies.Key`."""

    def __init__(self, settings: RefinerSettings) -> None:
        self._scoring = Scoring(settings)
        self._first = _FIRST[settings.candidate_order]
        self._balanced = settings.candidate_order == "balanced"
        self._seen = _Seen(None)
        self._known: tuple[Planner | None, dict[str, _Pods]] = (None, {})

    def of(self, planner: Planner, candidate: Candidate) -> tuple[float, ...]:
        """Return the key of *candidate* after the removals that *planner* has planned."""
        score = self._scoring.of(planner.ratio(candidate.name), planner.memory_ratio(candidate.name))
        facts = self._of_pods(planner, candidate)
        left = planner.ledger.left
        felt = facts.only_ones or any(count >= left(budget) for budget, count in facts.needs.values())
        saving = (-saving_per_eviction(planner, candidate),) if self._balanced else ()
        return (*saving, *facts.first, float(round(score * 100)), float(felt), score)

    def _of_pods(self, planner: Planner, candidate: Candidate) -> _Pods:
        """Return the facts about the candidate's pods, which do not depend on what others leave of their budgets."""
        if self._seen.snapshot is not planner.snapshot:
            self._seen = _Seen(planner.snapshot)
        if self._known[0] is not planner:
            self._known = (planner, {})
        pods, known = planner.pods_of(candidate), self._known[1]
        facts = known.get(candidate.name)
        if facts is None:
            facts = self._of_own(planner, candidate)
        if facts.count < len(pods):
            # In a plan, a node that stays only gains pods, and they come after its own.
            facts = self._and(facts, pods, planner)
        known[candidate.name] = facts
        return facts

    def _of_own(self, planner: Planner, candidate: Candidate) -> _Pods:
        """Return the facts about the pods that a candidate has before anything is planned."""
        evict, facts = self._seen.own.get(candidate.name, (None, _NONE))
        if evict is not candidate.evict:
            facts = self._and(_NONE, list(candidate.evict), planner)
            self._seen.own[candidate.name] = (candidate.evict, facts)
        return facts

    def _and(self, facts: _Pods, pods: list[Pod], planner: Planner) -> _Pods:
        """Return the facts about *pods*, of which *facts* has the first ones."""
        more = pods[facts.count :]
        needs = dict(facts.needs)
        for key, (budget, count) in planner.ledger.needs(more).items():
            needs[key] = (budget, count + needs.get(key, (budget, 0))[1])
        return _Pods(len(pods), self._first(pods), needs, facts.only_ones or self._only_ones(more))

    def _only_ones(self, pods: list[Pod]) -> bool:
        single, known = self._seen.single, self._seen.alone
        for pod in pods:
            if pod.ready:
                alone = known.get(pod.template)
                if alone is None:
                    alone = known[pod.template] = _owner(pod.template) in single
                if alone:
                    return True
        return False


def single_replicas(snapshot: Snapshot) -> frozenset[_Owner]:
    """Return the controllers (namespace, kind, name) that have just one Ready pod in the cluster."""
    # Counted by template first: a fleet has far fewer templates than pods.
    templates = Counter(pod.template for view in snapshot.nodes.values() for pod in view.pods if pod.ready)
    ready: Counter[_Owner] = Counter()
    for template, pods in templates.items():
        owner = _owner(template)
        if owner is not None:
            ready[owner] += pods
    return frozenset(owner for owner, pods in ready.items() if pods == 1)


def _owner(template: PodTemplate) -> _Owner | None:
    owner = template.owner
    return None if owner is None else (template.namespace, owner.kind, owner.name)


def _by_evictions(pods: list[Pod]) -> _Keys:
    return (float(len(pods)),)


def _by_priority(pods: list[Pod]) -> _Keys:
    highest = max((pod.spec.priority for pod in pods), default=EMPTY)
    return float(highest), float(sum(pod.spec.priority == highest for pod in pods))


_FIRST: Mapping[CandidateOrder, Callable[[list[Pod]], _Keys]] = {
    "score": lambda _: (),
    "fewest-evictions": _by_evictions,
    "balanced": _by_priority,
    "pods-priority": _by_priority,
}

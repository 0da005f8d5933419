"""Utilization of nodes, and plans: the nodes to remove in order, where their pods go, and why each other node stays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from tightship.cluster import NodeView
from tightship.objects import Pod
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.resources import Resources
from tightship.objects.selectors import Taint

Placement = Literal["possible", "likely"]
"""How sure a place must be.

``possible``: every pod has a place, chosen to pack well. ``likely``: kube-scheduler's default scoring, as we model it,
finds a place for every pod.
"""

CANDIDATE = "tightship.dev/candidate"
"""The key of the soft taint on nodes that go next; its value is the controller, a dot, and whose installation's."""


class SteeringRules(Struct, frozen=True):
    """How a running controller keeps pods off the nodes that go next: by *taint*, on the first *most* of the plan."""

    taint: Taint
    most: int


class UtilizationRules(Struct, frozen=True):
    """Which pods both sides of the ratio leave out, as with CA's ``--ignore-daemonsets-utilization``."""

    ignore_daemonsets: bool = False
    ignore_mirror_pods: bool = False


class Utilization(Struct, frozen=True, gc=False):
    """Requested and allocatable amounts of one node, as in :mod:`tightship.objects.resources`."""

    requested: Resources
    allocatable: Resources

    def ratio(self, resource: str) -> float:
        """Return requested over allocatable: 0.0 without requests, infinity if nothing is allocatable."""
        requested, allocatable = self.requested.get(resource, 0), self.allocatable.get(resource, 0)
        if allocatable > 0:
            return requested / allocatable
        return 0.0 if requested <= 0 else float("inf")

    @property
    def extended(self) -> Mapping[str, float]:
        """The ratios of the extended resources that the node has."""
        return {name: self.ratio(name) for name, amount in self.allocatable.items() if "/" in name and amount > 0}


Measure = Literal["dominant", "cpu"]
"""Which ratio says how utilized a node is: the largest, much as in CA, or CPU's."""


def measured(ratios: Mapping[str, float], measure: Measure = "dominant") -> float:
    """Return how utilized a node with these *ratios* of its resources is by *measure*; 0.0 without any."""
    return ratios.get("cpu", 0.0) if measure == "cpu" else max(ratios.values(), default=0.0)


def utilization(view: NodeView, now: float, rules: UtilizationRules = UtilizationRules()) -> Utilization:
    """Return what the pods of a node request at *now* (seconds since 1970).

    A terminating pod counts until its grace period has ended, and a pod stuck after that does not. (CA drops such a pod
    30 s plus another grace period later, since ``deletionTimestamp`` already includes the grace period.)
    """
    requested = view.usage.requested
    gone = [pod.requests for pod in view.usage.terminating if pod.deletion is not None and now > pod.deletion]
    ignored = [
        *([view.usage.daemon] if rules.ignore_daemonsets else []),
        *([view.usage.mirror] if rules.ignore_mirror_pods else []),
    ]
    if not gone and not ignored:
        return Utilization(requested, view.node.allocatable)
    return Utilization(_less(requested, [*gone, *ignored]), _less(view.node.allocatable, ignored))


def _less(amounts: Resources, parts: list[Resources]) -> Resources:
    left = dict(amounts)
    for part in parts:
        for name, amount in part.items():
            left[name] = max(0, left.get(name, 0) - amount)
    return left


class Candidate(Struct, frozen=True):
    """A node that passed every rule and gate that does not depend on the plan itself.

    *evict* are the pods that a drain would evict, *stays* how many pods go with the node. *ratio* is requested over
    allocatable CPU, *memory_ratio* the same for memory, *extended* the same for each extended resource, *price* what an
    hour costs, in millionths, if that is known. *maintenance* is whether the node's maintenance is planned, *cost* what
    disrupting its pods costs (:mod:`tightship.rules.disruption_cost`).
    """

    name: str
    pool: str
    ratio: float
    evict: tuple[Pod, ...]
    stays: int = 0
    memory_ratio: float = 0.0
    price: int | None = None
    extended: Mapping[str, float] = {}
    maintenance: bool = False
    cost: int = 0


class Move(Struct, frozen=True):
    """One eviction: *pod* leaves *origin* for *target*. PDB *waits_for*, if any, lets the pod go only after others."""

    pod: Pod
    origin: str
    target: str
    waits_for: str = ""


class Removal(Struct, frozen=True):
    """One node to drain. *round* counts from 1; *stays* are pods that go with the node (DaemonSet and mirror pods)."""

    node: str
    round: int
    moves: tuple[Move, ...]
    stays: int = 0


def distinct(removals: Iterable[Removal]) -> int:
    """Return how many pods *removals* move, those once that move several times."""
    return len({move.pod.key for removal in removals for move in removal.moves})


class Proven(Struct, frozen=True):
    """Beginnings of a plan, each with the nodes removed, the evictions, and the fewest that are *proven*.

    *solved* says whether a linear program proves them, or the nodes with the fewest pods alone.
    """

    points: Sequence[tuple[int, int, int]]
    solved: bool


class Searched(Struct, frozen=True):
    """What a search for a better plan came to, in its first round.

    *seconds* is how long it was allowed to take (``None``: only *iterations* counted), *greedy_removed* and
    *greedy_evictions* what the strategy alone had planned, *removed* and *evictions* the better plan of both. No plan
    keeps fewer than *bound* nodes. *warm_start* says whether a plan known from before still held as a whole, ``None``
    without one. *broken* counts the removals of that plan that had to be planned anew, or could not be. *solved* says
    whether the bound is the best of its linear program.
    """

    seconds: float | None
    iterations: int
    greedy_removed: int
    greedy_evictions: int
    removed: int
    evictions: int
    bound: int
    warm_start: bool | None = None
    broken: int = 0
    solved: bool = False


class Plan(Struct, frozen=True):
    """The outcome of a strategy: *removals* in the order of draining, and all *refusals* of every other node.

    *searched* says what a search added, ``None`` if nothing was searched. *later* are nodes that go when budgets allow
    evictions again: nothing else keeps them.
    """

    strategy: str
    placement: Placement
    removals: tuple[Removal, ...]
    refusals: Mapping[str, tuple[Refusal, ...]]
    rounds: int = 1
    searched: Searched | None = None
    later: tuple[str, ...] = ()

    @property
    def evictions(self) -> int:
        """Evictions over all removals."""
        return sum(len(removal.moves) for removal in self.removals)

    @property
    def pods(self) -> int:
        """Distinct pods that are evicted. Their replacements count as the same pods."""
        return distinct(self.removals)

    @property
    def targets(self) -> Mapping[str, str]:
        """The node where each moved pod is in the end, by the uid of the pod: one may move on when its target goes."""
        return {move.pod.uid: move.target for removal in self.removals for move in removal.moves}

    @property
    def hash(self) -> str:
        """A hash of the plan, for people: plans that remove the same nodes in the same order have the same hash."""
        names = ",".join(removal.node for removal in self.removals)
        return hashlib.sha256(names.encode()).hexdigest()[:12]

    def refuses(self, reason: Reason) -> bool:
        """Whether a node stays for *reason*, alone or with others."""
        return any(each.reason is reason for found in self.refusals.values() for each in found)

    def holding(self, held: Mapping[str, Refusal]) -> Plan:
        """Return the plan with *held*, the reasons why its nodes wait, among the refusals."""
        waiting = {name: (refusal,) for name, refusal in held.items()}
        return msgspec.structs.replace(self, refusals={**self.refusals, **waiting})


class SearchRules(Struct, frozen=True, kw_only=True):
    """How to search: for *iterations*, or *seconds* of *clock*, whichever ends first; or until *stop* is true.

    The same *seed* and iterations give the same plan. *warm* are plans known from before, the best first: what still
    holds of them is planned too, and a search starts from the best. Without iterations, nothing is searched.
    *solving* is how many seconds of wall time the solver, where it is installed, may then take for the best bound.
    """

    iterations: int | None = None
    seconds: float | None = None
    clock: Callable[[], float] | None = None
    seed: int = 0
    warm: tuple[Plan, ...] = ()
    stop: Callable[[], bool] | None = None
    solving: float = 0.0


def subjects(refusals: Mapping[str, Sequence[Refusal]], reason: Reason) -> Iterator[tuple[str, Refusal]]:
    """Yield the refusals with *reason*, each with its node."""
    return ((name, each) for name, found in refusals.items() for each in found if each.reason is reason)

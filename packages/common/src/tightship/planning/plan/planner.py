"""Tries removals one after another on one space. A planned removal keeps its room; a failed one leaves no trace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy

import numpy as np
from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.cluster.owners import named
from tightship.cluster.state import add
from tightship.objects import Pod
from tightship.objects.counting import counted, some
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan.model import Candidate, Measure, Move, Placement, Removal, SteeringRules, measured
from tightship.planning.plan.reserving import SHOWN, PlacedPod, PlanStart, is_displaced
from tightship.rules.after_cordon import parted
from tightship.rules.disruption import Charge, DisruptionLedger
from tightship.rules.disruption_cost import total_cost
from tightship.scheduler.fitting import RETRIES, Fit, Leaving, fit_all, stuck_in_turn, why_nowhere
from tightship.scheduler.scoring import Choice, Indices, best_fit, scheduler_choice
from tightship.scheduler.space import PodDemand, Space
from tightship.scheduler.topology import NodeMask


class Going(Struct, frozen=True):
    """The nodes that go by what is known of a plan before it is made, in their order.

    Where the plan chooses places, all of them come last. Otherwise kube-scheduler chooses, and *steering* tells it of
    the next ones; without *steering*, it does not know. *untried* says that nothing is known yet: every candidate may
    go until its attempt fails. *targets* are the nodes where pods, by ``namespace/name``, end up by the same knowledge;
    they count only where the plan chooses places.
    """

    names: Sequence[str] = ()
    steering: SteeringRules | None = None
    untried: bool = False
    targets: Mapping[str, str] = {}

    def begin(self, space: Space, placement: Placement) -> Steered:
        """Return these nodes as *space* shows them, with nothing planned."""
        return Steered(self, space, placement)


class Steered:
    """The nodes that pods should avoid, kept up to date in a space while a plan grows."""

    def __init__(self, going: Going, space: Space, placement: Placement) -> None:
        self._order = [space.index[name] for name in going.names if name in space.index]
        self._shown = len(self._order)
        self._done: set[int] = set()
        self._untried = going.untried
        self._space = space
        space.leaving, space.leaving_taint = None, None
        if placement != "possible":
            if going.steering is None:
                return
            space.leaving_taint, self._shown = going.steering.taint, going.steering.most
        space.leaving = np.zeros(len(space.names), dtype=np.bool_)
        space.leaving[self._order[: self._shown]] = True

    def gone(self, node: int) -> None:
        """Avoid the next node in place of *node*, which is planned now."""
        leaving = self._space.leaving
        if leaving is None:
            return
        self._done.add(node)
        if leaving[node]:
            leaving[node] = False
            while self._shown < len(self._order):
                following = self._order[self._shown]
                self._shown += 1
                if following not in self._done:
                    leaving[following] = True
                    break

    def stays(self, node: int) -> None:
        """Stop avoiding *node*: its removal failed."""
        if self._untried and self._space.leaving is not None:
            self._space.leaving[node] = False


class PlannedTargets:
    """A :data:`~tightship.scheduler.scoring.Choice` of the targets that are known, where they fit."""

    def __init__(self, otherwise: Choice) -> None:
        self._otherwise = otherwise
        self._wanted: dict[int, list[int]] = {}
        self._taken: list[tuple[int, int, int]] = []

    def expect(self, targets: list[tuple[PodDemand, int]]) -> None:
        """From now on place pods with these asks on these nodes."""
        self._wanted = {}
        self._taken = []
        for demand, node in targets:
            self._wanted.setdefault(id(demand), []).append(node)

    def __call__(self, space: Space, demand: PodDemand, nodes: Indices) -> int:
        mark = space.mark()
        # The planner undoes choices when it starts over: those made at this point of the journal or later.
        while self._taken and self._taken[-1][0] >= mark:
            _, key, node = self._taken.pop()
            self._wanted[key].append(node)
        wanted = self._wanted.get(id(demand), [])
        for node in sorted(wanted):
            if (nodes == node).any():
                wanted.remove(node)
                self._taken.append((mark, id(demand), node))
                return node
        return self._otherwise(space, demand, nodes)


class Tried(Struct, frozen=True):
    """The result of a search for places: *refusals*, or the nodes on which pods are *placed* in the space.

    *shifted* are replicas about to start that had to make way, with their old and new nodes.
    """

    refusals: list[Refusal] = []
    placed: list[tuple[PlacedPod, int]] = []
    shifted: list[tuple[PlacedPod, int, int]] = []


class _Step(Struct, frozen=True):
    """A planned removal: the *candidate* and what its attempt came to, which began at *mark* and *next_start*."""

    candidate: Candidate
    charge: Charge
    tried: Tried
    mark: int
    next_start: int


class Planner:
    """One round of planning over one snapshot.

    *choose* picks among several feasible nodes if *placement* is ``possible``; otherwise *model* does, by default the
    scheduler's.
    Room is reserved as :class:`PlanStart` says; *start*, if given, is that of *snapshot* with these *candidates*. No
    node goes that a CapacityBuffer needs. Without *explain*, a refusal for want of a place does not say why, which
    costs more than the search itself.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: DisruptionLedger,
        candidates: Sequence[Candidate],
        placement: Placement,
        *,
        choose: Choice = best_fit,
        model: Choice = scheduler_choice,
        round_number: int = 1,
        in_drain: Collection[str] | None = None,
        explain: bool = True,
        start: PlanStart | None = None,
        going: Going = Going(),
    ) -> None:
        if start is None:
            taint = None if going.steering is None else going.steering.taint
            start = PlanStart(snapshot, candidates, placement, in_drain=in_drain, taint=taint)
        self.start = start
        self.snapshot = snapshot
        self.ledger = ledger
        self.placement, self.round = placement, round_number
        self.space = start.space
        self.candidates = start.candidates
        self.going = going
        self.explain = explain
        self._retries = RETRIES if placement == "possible" else 0
        self._model = model
        start.begin()
        self._begin()
        self.choose_by(choose)
        self._unplaced = UnplacedPods(self.space, start)

    def _begin(self) -> None:
        self.removals: list[Removal] = []
        self._steps: list[_Step] = []
        self._arrived: dict[int, list[PlacedPod]] = {}
        self._received: dict[str, dict[str, int]] = {}
        self.waiting, self._scale_ups, self._displaced = self.start.placed_pods()
        self._steered = self.going.begin(self.space, self.placement)

    @property
    def buffered(self) -> list[tuple[Pod, int]]:
        """The pods of CapacityBuffers for which room is kept, and how many of each."""
        return self.start.buffers.promised

    def choose_by(self, choose: Choice) -> None:
        """Pick targets by *choose* from now on, unless the model does."""
        self._choose = choose if self.placement == "possible" else self._model
        self._planned: PlannedTargets | None = None
        if self.going.targets and self.placement == "possible" and not isinstance(choose, PlannedTargets):
            self._choose = self._planned = PlannedTargets(choose)

    def ratio(self, name: str) -> float:
        """Return the CPU ratio of a candidate, with the pods moved onto its node in this round."""
        return self.candidates[name].ratio + self.received_ratio(name)

    def memory_ratio(self, name: str) -> float:
        """Return the memory ratio of a candidate, with the pods moved onto its node in this round."""
        return self.candidates[name].memory_ratio + self.received_ratio(name, "memory")

    def utilization(self, name: str, measure: Measure) -> float:
        """Return how utilized a candidate is by *measure*, with the pods moved onto its node in this round."""
        candidate = self.candidates[name]
        ratios = {"cpu": candidate.ratio, "memory": candidate.memory_ratio, **candidate.extended}
        if name in self._received:
            ratios = {each: ratio + self.received_ratio(name, each) for each, ratio in ratios.items()}
        return measured(ratios, measure)

    def cost(self, name: str) -> int:
        """Return what disrupting the pods of a candidate costs, with those moved onto its node in this round."""
        arrived = self._arrived.get(self.space.index[name], ())
        return self.candidates[name].cost + total_cost(placed_pod.pod for placed_pod in arrived)

    def received_ratio(self, name: str, resource: str = "cpu") -> float:
        """Return the amount of *resource* moved onto node *name* in this round, over its allocatable amount."""
        received = 0 if self.going.untried else self._received.get(name, {}).get(resource, 0)
        return received / max(1, self.snapshot.nodes[name].node.allocatable.get(resource, 0)) if received else 0.0

    def pods_of(self, candidate: Candidate) -> list[Pod]:
        """Return the pods to evict if *candidate* goes next, including those moved there meanwhile."""
        return [
            *candidate.evict,
            *(placed_pod.pod for placed_pod in self._arrived.get(self.space.index[candidate.name], ())),
        ]

    def attempt(self, candidate: Candidate, *, keep: bool = True) -> list[Refusal]:
        """Plan the removal of *candidate*'s node, including the pods that it received earlier in the round.

        Return an empty list if the removal is planned. Otherwise return **all** refusals and leave the space and the
        ledger unchanged. Without *keep*, only check whether the removal is possible.
        """
        space, mark, next_start = self.space, self.space.mark(), self.space.next_start
        charge, tried = self._attempt(candidate)
        if tried.refusals or not keep:
            space.rollback(mark)
            self._steered.stays(space.index[candidate.name])
        else:
            self._plan(_Step(candidate, charge, tried, mark, next_start))
        return tried.refusals

    def cut(self, keep: Collection[str], ledger: DisruptionLedger) -> Planner:
        """Return this planner without its removals of other nodes than *keep*. This one plans nothing any more.

        Removals after the first one that is taken back are planned anew. *ledger* has nothing spent yet.
        """
        new, steps = copy(self), self._steps
        new.ledger = ledger
        whole = next((at for at, each in enumerate(steps) if each.candidate.name not in keep), len(steps))
        if whole < len(steps):
            new.space.rollback(steps[whole].mark)
            new.space.next_start = steps[whole].next_start
        new._begin()
        for each in steps[:whole]:
            new._plan(each)
        for each in steps[whole:]:
            if each.candidate.name in keep:
                new.attempt(each.candidate)
        return new

    def _plan(self, step: _Step) -> None:
        """Add a removal to the plan. The pods of its node are at their places in the space."""
        self.ledger.take(step.charge)
        self._steered.gone(self.space.index[step.candidate.name])
        self._settle(step.candidate, step.tried, step.charge.waits)
        self._steps.append(step)

    def _attempt(self, candidate: Candidate) -> tuple[Charge, Tried]:
        """Search places for the pods of *candidate*'s node. The space has them there afterwards, if there are any."""
        space, node = self.space, self.space.index[candidate.name]
        placed_pods = [
            PlacedPod(pod, space.demand_of(pod), candidate.name) for pod in candidate.evict
        ] + self._arrived.get(node, [])
        charge, refusals = self.ledger.charge([placed_pod.pod for placed_pod in placed_pods])
        refusals = [*parted(refusals)[0], *unjudgeable(placed_pods)]
        if refusals:
            return charge, Tried(refusals)
        waiting = self.waiting.get(node, [])
        space.close(node)
        for placed_pod in (*placed_pods, *waiting):
            if not placed_pod.demand.node_local:
                space.remove(placed_pod.demand, node)
        if self._planned is not None:
            known = ((placed_pod.demand, self.going.targets.get(placed_pod.pod.key, "")) for placed_pod in placed_pods)
            self._planned.expect([(demand, space.index[target]) for demand, target in known if target])
        slow = [self._waits_for(placed_pod, charge.waits) for placed_pod in placed_pods]
        tried = self._places(candidate, placed_pods, waiting, slow)
        if any(each.reason is not Reason.SCALE_UP_NEEDS_NODE for each in tried.refusals):
            tried = self._places_before_scale_ups(candidate, placed_pods, waiting, slow, tried)
        short = None if tried.refusals else self.start.buffers.refusal(candidate.name)
        if short is not None:
            tried = Tried([short])
        # Most attempts fail, and these pods make no difference to any other node.
        for placed_pod in (*placed_pods, *waiting) if not tried.refusals else ():
            if placed_pod.demand.node_local:
                space.remove(placed_pod.demand, node)
        return charge, tried

    def _places(
        self, candidate: Candidate, placed_pods: list[PlacedPod], waiting: Sequence[PlacedPod], slow: Sequence[str]
    ) -> Tried:
        """Find places for all pods of a closed node whose pods are removed. Without success nothing changes.

        *slow* names for each of *placed_pods* the budget that lets the pod go only after others, or is empty.
        """
        space, everyone = self.space, (*placed_pods, *waiting)
        mark = space.mark()
        demands = [placed_pod.demand for placed_pod in everyone]
        # A refusal for replicas about to start is another one, so they have to be kept apart from the rest.
        explain = self.explain or any(placed_pod.starting is not None for placed_pod in waiting)
        fit = fit_all(space, demands, self._choose, self._retries, explain=explain)
        if not fit.complete:
            return Tried(self._refusals(candidate, placed_pods, waiting, fit))
        leaving = [
            Leaving(demand, target, bool(wait)) for demand, target, wait in zip(demands, fit.nodes, slow, strict=False)
        ]
        stuck = stuck_in_turn(space, space.index[candidate.name], leaving)
        if stuck:
            space.rollback(mark)
            return Tried(sorted(stuck_together(placed_pods[position].pod, slow[position]) for position in stuck))
        return Tried(placed=list(zip(everyone, fit.nodes, strict=True)))

    def _places_before_scale_ups(
        self,
        candidate: Candidate,
        placed_pods: list[PlacedPod],
        waiting: Sequence[PlacedPod],
        slow: Sequence[str],
        first: Tried,
    ) -> Tried:
        """Find places as if no replica were about to start, and then places for the replicas that were in the way.

        If only such replicas leave pods without a place, they keep the node, unless they can go elsewhere.
        """
        space, node = self.space, self.space.index[candidate.name]
        own = [placed_pod for placed_pod in waiting if placed_pod.starting is not None]
        in_the_way = self._scale_ups.in_the_way([placed_pod.demand for placed_pod in placed_pods], self.waiting)
        if not own and not in_the_way:
            return first
        mark = space.mark()
        for at, placed_pod in in_the_way:
            space.remove(placed_pod.demand, at)
        others = [placed_pod for placed_pod in waiting if placed_pod.starting is None]
        second = self._places(candidate, placed_pods, others, slow)
        if second.refusals:
            space.rollback(mark)
            also = (each for each in first.refusals if each.reason is Reason.SCALE_UP_NEEDS_NODE)
            return Tried(sorted([*second.refusals, *also]))
        shifted: list[tuple[PlacedPod, int, int]] = []
        unplaced: dict[int, PlacedPod] = {}
        for at, placed_pod in (*in_the_way, *((node, placed_pod) for placed_pod in own)):
            if id(placed_pod.demand) in unplaced:
                continue  # equal replicas have no place either
            target = at if space.accepts(placed_pod.demand, at) else _first(space.feasible(placed_pod.demand))
            if target is None:
                unplaced[id(placed_pod.demand)] = placed_pod
            else:
                space.place(placed_pod.demand, target)
                shifted.append((placed_pod, at, target))
        if unplaced:
            space.rollback(mark)
            return Tried([needed(candidate.name, unplaced.values())])
        return Tried(placed=second.placed, shifted=shifted)

    def _waits_for(self, placed_pod: PlacedPod, waits: tuple[str, ...]) -> str:
        """Return the budget that lets this pod go only after others, or an empty string."""
        budgets = self.ledger.budgets_of(placed_pod.pod.template) if waits else ()
        return budgets[0].key if budgets and budgets[0].key in waits else ""

    def _settle(self, candidate: Candidate, tried: Tried, waits: tuple[str, ...]) -> None:
        node = self.space.index[candidate.name]
        moves: list[Move] = []
        for placed_pod, target in tried.placed:
            if placed_pod.origin:
                name = self.space.names[target]
                moves.append(Move(placed_pod.pod, placed_pod.origin, name, self._waits_for(placed_pod, waits)))
                self._arrived.setdefault(target, []).append(PlacedPod(placed_pod.pod, placed_pod.demand, name))
                add(self._received.setdefault(name, {}), self.snapshot.requests_anew(placed_pod.pod))
            else:
                self._shift(placed_pod, node, target)
        for placed_pod, at, target in tried.shifted:
            if target != at:
                self.waiting[at].remove(placed_pod)
                self._shift(placed_pod, at, target)
        self._arrived.pop(node, None)
        self.waiting.pop(node, None)
        self.removals.append(Removal(candidate.name, self.round, tuple(moves), candidate.stays))

    def _shift(self, placed_pod: PlacedPod, origin: int, target: int) -> None:
        self.waiting.setdefault(target, []).append(placed_pod)
        self._scale_ups.shift(placed_pod, origin, target)
        self._displaced.shift(placed_pod, origin, target)

    def _refusals(
        self, candidate: Candidate, placed_pods: list[PlacedPod], waiting: Sequence[PlacedPod], fit: Fit
    ) -> list[Refusal]:
        everyone, planned = (*placed_pods, *waiting), len(self.removals)

        def rivals(placed_pod: PlacedPod) -> list[PlacedPod]:
            return [each for _, each in self._displaced.in_the_way((placed_pod.demand,), self.waiting)]

        return self._unplaced.refusals(
            candidate.name, everyone, fit, planned=planned, explain=self.explain, rivals=rivals
        )


def _first(nodes: NodeMask) -> int | None:
    """Return the first of *nodes*, ``None`` if there is none."""
    first = int(nodes.argmax())
    return first if nodes[first] else None


class UnplacedPods:
    """Explains what pods lack in *space*, the one of a plan that began at *start*."""

    def __init__(self, space: Space, start: PlanStart) -> None:
        self._space = space
        self._start = start
        self._fitting: dict[PodDemand, tuple[int, int]] = {}

    def refusals(
        self,
        node: str,
        everyone: Sequence[PlacedPod],
        fit: Fit,
        *,
        planned: int,
        explain: bool,
        rivals: Callable[[PlacedPod], Sequence[PlacedPod]],
    ) -> list[Refusal]:
        """Return refusals for those of *everyone* on *node* that have no place after *planned* removals.

        The space still has the node closed and its pods removed.
        *rivals* are the pods that others will move and that take a placed pod's places.
        """
        found: list[Refusal] = []
        starting = [placed_pod for position in fit.unplaced if (placed_pod := everyone[position]).starting is not None]
        if starting:
            found.append(needed(node, starting))
        displaced: list[PlacedPod] = []
        explained: dict[int, tuple[str, str]] = {}
        for position in fit.unplaced:
            placed_pod = everyone[position]
            if placed_pod.starting is not None:
                continue
            if not explain:
                return [*found, Refusal(Reason.NO_PLACE, placed_pod.pod.key)]
            alone = position in fit.alone
            here = () if alone else tuple(filter(is_displaced, everyone))
            first = (placed_pod,) if placed_pod.because else (*rivals(placed_pod), *here)
            if first and position not in fit.astray:
                displaced += first
                continue
            if id(placed_pod.demand) not in explained:  # replicas share it
                explained[id(placed_pod.demand)] = why_nowhere(self._space, placed_pod.demand)
            detail, fix = explained[id(placed_pod.demand)]
            if not placed_pod.origin:
                found.append(_needed_here(node, placed_pod.pod, fix))
            elif position in fit.astray:
                found.append(_astray(self._space, node, placed_pod))
            elif not alone:
                found.append(Refusal(Reason.NO_PLACE_TOGETHER, placed_pod.pod.key, _not_together(placed_pod, everyone)))
            elif planned and self._fits_without_plan(placed_pod, node):
                detail = f"no place is left after {counted(planned, 'planned removal')}: the pod {detail}"
                found.append(Refusal(Reason.NO_PLACE_AFTER_PLAN, placed_pod.pod.key, detail, fix))
            else:
                found.append(Refusal(Reason.NO_PLACE, placed_pod.pod.key, detail, fix))
        found += [needed_by_displaced(node, displaced)] if displaced else []
        return sorted(found)

    def _fits_without_plan(self, placed_pod: PlacedPod, origin: str) -> bool:
        demand, node = self._space.demand_of(placed_pod.pod), self._space.index[origin]
        if demand.node_local:  # what the node holds makes no difference elsewhere
            return self._elsewhere(demand, node)
        space = self._start.without_plan
        demand = space.demand_of(placed_pod.pod)
        mark = space.mark()
        space.close(node)
        if placed_pod.pod.node == origin:  # a pod that arrived there is elsewhere without the plan
            space.remove(demand, node)
        fits = bool(space.feasible(demand).any())
        space.rollback(mark)
        return fits

    def _elsewhere(self, demand: PodDemand, node: int) -> bool:
        """Whether *demand* fits on another node than *node* before anything is planned."""
        found = self._fitting.get(demand)
        if found is None:
            nodes = self._start.unplanned.feasible(demand).nonzero()[0]
            found = self._fitting[demand] = (len(nodes), int(nodes[0]) if len(nodes) else -1)
        many, first = found
        return many > 1 or (many == 1 and first != node)


def _not_together(placed_pod: PlacedPod, everyone: Sequence[PlacedPod]) -> str:
    others = {claim for each in everyone if each is not placed_pod for claim, _ in each.demand.attachments.shared}
    shared = next((claim for claim, _ in placed_pod.demand.attachments.shared if claim in others), "")
    who = f"the node's {counted(len(everyone), 'pod')} together"
    if shared:
        who = f"surely on one node with all that share claim {shared} (it is attached to one at a time)"
    return f"this pod alone would fit elsewhere, but not {who}"


def _needed_here(node: str, pod: Pod, fix: str) -> Refusal:
    what = f"pending pod {pod.key}"
    if pod.node:
        what = f"pod {pod.key}, which is leaving the draining node {pod.node},"
    if pod.node == node:
        what = f"the replacement of pod {pod.key}, which comes once the pod has gone,"
    return Refusal(Reason.PENDING_POD_NEEDS_NODE, node, f"{what} could run only here", fix)


def _astray(space: Space, node: str, placed_pod: PlacedPod) -> Refusal:
    """Return why kube-scheduler may send *placed_pod* from *node* to a node where it can't run."""
    others = [(label, other) for label, other, mask in space.platforms.others(placed_pod.demand.template) if mask.any()]
    what = " or ".join(other for _, other in others)
    detail = f"kube-scheduler may send {placed_pod.pod.key} to a node of {what}, where the pod is not known to run"
    fix = (
        f"select {' and '.join(dict.fromkeys(label for label, _ in others))} in {named(space.snapshot, placed_pod.pod)}"
    )
    return Refusal(Reason.SCHEDULER_MAY_STRAND, node, detail, fix)


def unjudgeable(placed_pods: Sequence[PlacedPod]) -> list[Refusal]:
    """Return a refusal for each pod whose demands the model of the scheduler can't judge."""
    found = ((placed_pod, placed_pod.demand.unknown) for placed_pod in placed_pods)
    return [Refusal(unknown[0], placed_pod.pod.key, unknown[1]) for placed_pod, unknown in found if unknown is not None]


def stuck_together(pod: Pod, budget: str) -> Refusal:
    """Return why *pod* and others wait for one another: for the PDB *budget* or, without one, for room."""
    if not budget:
        detail = "this pod finds room only after others have left, which may leave only after this pod runs elsewhere"
        return Refusal(Reason.NO_PLACE_TOGETHER, pod.key, detail)
    detail = f"PDB {budget} lets pods go only one after another, and this pod has no place while the others are here"
    return Refusal(Reason.NO_PLACE_TOGETHER, pod.key, detail, f"let PDB {budget} allow all of them at once")


def needed(node: str, unplaced: Iterable[PlacedPod]) -> Refusal:
    """Return why *node* can't go: replicas about to start, among them *unplaced*, would not all have room."""
    hpas = {placed_pod.starting.hpa: placed_pod.starting for placed_pod in unplaced if placed_pod.starting is not None}
    first = some([str(hpas[key]) for key in sorted(hpas)], SHOWN, "; ")
    detail = f"{first}: without this node not all of them would have room"
    fix = "wait until they run, or add capacity for them"
    return Refusal(Reason.SCALE_UP_NEEDS_NODE, node, detail, fix)


def needed_by_displaced(node: str, placed_pods: Iterable[PlacedPod]) -> Refusal:
    """Return why *node* can't go: without it there is not room for all of *placed_pods*, pods that others will move."""
    homes = {placed_pod.pod.node: placed_pod.because for placed_pod in placed_pods}
    names = sorted(homes)
    first = some([f"{name} ({homes[name]})" for name in names], SHOWN)
    what = "node" if len(names) == 1 else "nodes"
    detail = f"pods of {what} {first} will have to move: without this node not all would have room"
    fix = f"wait until no pod is left on {some(names, SHOWN)}"
    return Refusal(Reason.OTHER_DRAIN_NEEDS_NODE, node, detail, fix)

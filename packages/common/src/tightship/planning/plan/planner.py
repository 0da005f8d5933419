"""Tries removals one after another on one space. A planned removal keeps its room; a failed one leaves no trace."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy

from msgspec import Struct

from tightship.core.objects import Pod
from tightship.core.reasons import Reason, Refusal
from tightship.planning.cluster import Snapshot
from tightship.planning.cluster.state import add
from tightship.planning.disruption import Charge, DisruptionLedger
from tightship.planning.disruption_cost import total_cost
from tightship.planning.placement.fitting import RETRIES, Fit, Leaving, certain, fit_all, stuck_in_turn
from tightship.planning.placement.scoring import Choice, best_fit, scheduler_choice
from tightship.planning.placement.topology import NodeMask
from tightship.planning.plan.going import Going
from tightship.planning.plan.homeless import Homeless, stuck_together, unjudgeable
from tightship.planning.plan.model import Candidate, Move, Placement, Removal
from tightship.planning.plan.planned_targets import PlannedTargets
from tightship.planning.plan.reserving import PlanStart
from tightship.planning.plan.scale_ups import Guest, needed
from tightship.planning.utilization import Measure, measured


class Tried(Struct, frozen=True):
    """The result of a search for places: *refusals*, or the nodes on which pods are *placed* in the space.

    *shifted* are replicas about to start that had to make way, with their old and new nodes.
    """

    refusals: list[Refusal] = []
    placed: list[tuple[Guest, int]] = []
    shifted: list[tuple[Guest, int, int]] = []


class _Step(Struct, frozen=True):
    """A planned removal: the *candidate* and what its attempt came to, which began at *mark* and *next_start*."""

    candidate: Candidate
    charge: Charge
    tried: Tried
    mark: int
    next_start: int


class Planner:
    """One round of planning over one snapshot.

    *choose* picks among several feasible nodes if *placement* is ``possible``; otherwise the scheduler's model does.
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
        start.begin()
        self._begin()
        self.choose_by(choose)
        self._homeless = Homeless(self.space, lambda: start.without_plan)

    def _begin(self) -> None:
        self.removals: list[Removal] = []
        self._steps: list[_Step] = []
        self._arrived: dict[int, list[Guest]] = {}
        self._received: dict[str, dict[str, int]] = {}
        self.waiting, self._scale_ups, self._displaced = self.start.guests()
        self._steered = self.going.begin(self.space, self.placement)

    @property
    def buffered(self) -> list[tuple[Pod, int]]:
        """The pods of CapacityBuffers for which room is kept, and how many of each."""
        return self.start.buffers.promised

    def choose_by(self, choose: Choice) -> None:
        """Pick targets by *choose* from now on, unless the scheduler's model does."""
        self._choose = choose if self.placement == "possible" else scheduler_choice
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
        return self.candidates[name].cost + total_cost(guest.pod for guest in arrived)

    def received_ratio(self, name: str, resource: str = "cpu") -> float:
        """Return the amount of *resource* moved onto node *name* in this round, over its allocatable amount."""
        received = 0 if self.going.untried else self._received.get(name, {}).get(resource, 0)
        return received / max(1, self.snapshot.nodes[name].node.allocatable.get(resource, 0)) if received else 0.0

    def pods_of(self, candidate: Candidate) -> list[Pod]:
        """Return the pods to evict if *candidate* goes next, including those moved there meanwhile."""
        return [*candidate.evict, *(guest.pod for guest in self._arrived.get(self.space.index[candidate.name], ()))]

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
        guests = [Guest(pod, space.ask(pod), candidate.name) for pod in candidate.evict] + self._arrived.get(node, [])
        charge, refusals = self.ledger.charge([guest.pod for guest in guests])
        refusals += unjudgeable(guests)
        if refusals:
            return charge, Tried(refusals)
        waiting = self.waiting.get(node, [])
        space.close(node)
        for guest in (*guests, *waiting):
            if not guest.ask.apart:
                space.lift(guest.ask, node)
        if self._planned is not None:
            known = ((guest.ask, self.going.targets.get(guest.pod.key, "")) for guest in guests)
            self._planned.expect([(ask, space.index[target]) for ask, target in known if target])
        slow = [self._waits_for(guest, charge.waits) for guest in guests]
        tried = self._places(candidate, guests, waiting, slow)
        if any(each.reason is not Reason.SCALE_UP_NEEDS_NODE for each in tried.refusals):
            tried = self._places_before_scale_ups(candidate, guests, waiting, slow, tried)
        short = None if tried.refusals else self.start.buffers.refusal(candidate.name)
        if short is not None:
            tried = Tried([short])
        # Most attempts fail, and these pods make no difference to any other node.
        for guest in (*guests, *waiting) if not tried.refusals else ():
            if guest.ask.apart:
                space.lift(guest.ask, node)
        return charge, tried

    def _places(
        self, candidate: Candidate, guests: list[Guest], waiting: Sequence[Guest], slow: Sequence[str]
    ) -> Tried:
        """Find places for all pods of a closed node whose pods are lifted. Without success nothing changes.

        *slow* names for each of *guests* the budget that lets the pod go only after others, or is empty.
        """
        space, everyone = self.space, (*guests, *waiting)
        mark = space.mark()
        asks = [guest.ask for guest in everyone]
        # If pods leave one after another, the first choices change what is left to the others in ways that certain()
        # does not play through.
        unsure = any(wait and not guest.ask.plain for wait, guest in zip(slow, guests, strict=True))
        if self.placement == "certain" and (unsure or not certain(space, asks)):
            refusals = self._refusals(candidate, guests, waiting, fit_all(space, asks, best_fit), strand=True)
            space.rollback(mark)
            return Tried(refusals)
        # A refusal for replicas about to start is another one, so they have to be told from the rest.
        explain = self.explain or any(guest.starting is not None for guest in waiting)
        fit = fit_all(space, asks, self._choose, self._retries, explain=explain)
        if not fit.complete:
            return Tried(self._refusals(candidate, guests, waiting, fit, strand=False))
        leaving = [Leaving(ask, target, bool(wait)) for ask, target, wait in zip(asks, fit.nodes, slow, strict=False)]
        stuck = stuck_in_turn(space, space.index[candidate.name], leaving)
        if stuck:
            space.rollback(mark)
            return Tried(sorted(stuck_together(guests[position].pod, slow[position]) for position in stuck))
        return Tried(placed=list(zip(everyone, fit.nodes, strict=True)))

    def _places_before_scale_ups(
        self,
        candidate: Candidate,
        guests: list[Guest],
        waiting: Sequence[Guest],
        slow: Sequence[str],
        first: Tried,
    ) -> Tried:
        """Find places as if no replica were about to start, and then places for the replicas that were in the way.

        If only such replicas leave pods without a place, they keep the node, unless they can go elsewhere.
        """
        space, node = self.space, self.space.index[candidate.name]
        own = [guest for guest in waiting if guest.starting is not None]
        in_the_way = self._scale_ups.in_the_way([guest.ask for guest in guests], self.waiting)
        if not own and not in_the_way:
            return first
        mark = space.mark()
        for at, guest in in_the_way:
            space.lift(guest.ask, at)
        others = [guest for guest in waiting if guest.starting is None]
        second = self._places(candidate, guests, others, slow)
        if second.refusals:
            space.rollback(mark)
            also = (each for each in first.refusals if each.reason is Reason.SCALE_UP_NEEDS_NODE)
            return Tried(sorted([*second.refusals, *also]))
        shifted: list[tuple[Guest, int, int]] = []
        homeless: dict[int, Guest] = {}
        for at, guest in (*in_the_way, *((node, guest) for guest in own)):
            if id(guest.ask) in homeless:
                continue  # equal replicas have no place either
            target = at if space.accepts(guest.ask, at) else _first(space.feasible(guest.ask))
            if target is None:
                homeless[id(guest.ask)] = guest
            else:
                space.place(guest.ask, target)
                shifted.append((guest, at, target))
        if homeless:
            space.rollback(mark)
            return Tried([needed(candidate.name, homeless.values())])
        if self.placement == "certain":
            space.rollback(mark)
            return Tried([needed(candidate.name, (guest for guest, _, _ in shifted), sure=False)])
        return Tried(placed=second.placed, shifted=shifted)

    def _waits_for(self, guest: Guest, waits: tuple[str, ...]) -> str:
        """Return the budget that lets this pod go only after others, or an empty string."""
        budgets = self.ledger.budgets_of(guest.pod.template) if waits else ()
        return budgets[0].key if budgets and budgets[0].key in waits else ""

    def _settle(self, candidate: Candidate, tried: Tried, waits: tuple[str, ...]) -> None:
        node = self.space.index[candidate.name]
        moves: list[Move] = []
        for guest, target in tried.placed:
            if guest.origin:
                name = self.space.names[target]
                moves.append(Move(guest.pod, guest.origin, name, self._waits_for(guest, waits)))
                self._arrived.setdefault(target, []).append(Guest(guest.pod, guest.ask, name))
                add(self._received.setdefault(name, {}), self.snapshot.requests_anew(guest.pod))
            else:
                self._shift(guest, node, target)
        for guest, at, target in tried.shifted:
            if target != at:
                self.waiting[at].remove(guest)
                self._shift(guest, at, target)
        self._arrived.pop(node, None)
        self.waiting.pop(node, None)
        self.removals.append(Removal(candidate.name, self.round, tuple(moves), candidate.stays))

    def _shift(self, guest: Guest, origin: int, target: int) -> None:
        self.waiting.setdefault(target, []).append(guest)
        self._scale_ups.shift(guest, origin, target)
        self._displaced.shift(guest, origin, target)

    def _refusals(
        self, candidate: Candidate, guests: list[Guest], waiting: Sequence[Guest], fit: Fit, *, strand: bool
    ) -> list[Refusal]:
        everyone, planned = (*guests, *waiting), len(self.removals)

        def rivals(guest: Guest) -> list[Guest]:
            return [each for _, each in self._displaced.in_the_way((guest.ask,), self.waiting)]

        return self._homeless.refusals(
            candidate.name, everyone, fit, planned=planned, strand=strand, explain=self.explain, rivals=rivals
        )


def _first(nodes: NodeMask) -> int | None:
    """Return the first of *nodes*, ``None`` if there is none."""
    first = int(nodes.argmax())
    return first if nodes[first] else None

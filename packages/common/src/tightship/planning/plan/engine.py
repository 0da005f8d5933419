"""From a snapshot to a plan: rounds of a strategy until nothing more goes, and what kube-scheduler would make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.state import sum_up
from tightship.objects import Pod
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan.model import Candidate, Move, Placement, Plan, Removal, SteeringRules, distinct
from tightship.planning.plan.planner import Going, Planner
from tightship.planning.plan.reserving import PlanStart
from tightship.planning.plan.strategies import Gates, Outcome, Strategy
from tightship.rules.disruption import DisruptionLedger, RenewedLedger
from tightship.scheduler.fitting import Leaving, stuck_in_turn
from tightship.scheduler.scoring import Choice


class Judgement(Struct, frozen=True):
    """A controller's view of one snapshot: who may go, why the others stay, and the gates while the plan grows."""

    candidates: tuple[Candidate, ...]
    refusals: Mapping[str, tuple[Refusal, ...]]
    gates: Gates


Judge = Callable[[Snapshot], Judgement]
"""A controller's policy, with its settings and the time bound."""

MAX_ROUNDS = 1000
"""Rounds after which ``until_stable`` gives up; each removes at least one node, so clusters below this size end."""


MOST_EVICTIONS = 1.25
"""Evictions for each pod above which a round is planned once more, knowing which nodes it removes."""

CORRECTIONS = 2
"""How often at most."""


def make_plan(
    snapshot: Snapshot,
    judge: Judge,
    strategy: Strategy,
    placement: Placement,
    *,
    until_stable: bool = False,
    progress: Callable[[int, int], None] | None = None,
    steering: SteeringRules | None = None,
) -> Plan:
    """Return the plan of *strategy* for *snapshot*.

    One round spends each PodDisruptionBudget's allowance once. With *until_stable*, rounds follow each other, as if all
    moved pods had become Ready, until one removes nothing. *progress* is told (round, nodes removed so far). *steering*
    is how kube-scheduler learns which nodes go.
    """
    removals: list[Removal] = []
    refusals: Mapping[str, tuple[Refusal, ...]] = {}
    going, rounds = Going(), 0
    current = snapshot
    while rounds < MAX_ROUNDS:
        rounds += 1
        done, refusals, going = _one_round(current, judge(current), strategy, placement, rounds, steering)
        removals += done
        if progress is not None:
            progress(rounds, len(removals))
        if not until_stable or not done:
            break
        current = after(current, done)
    spent = {Reason.PDB_SPENT_BY_PLAN}
    later = tuple(name for name in going.names if {each.reason for each in refusals.get(name, ())} == spent)
    rounds = max(1, rounds - 1) if until_stable else 1
    return Plan(strategy.name, placement, tuple(removals), refusals, rounds, later=later)


def _one_round(  # noqa: PLR0917
    snapshot: Snapshot,
    judgement: Judgement,
    strategy: Strategy,
    placement: Placement,
    number: int,
    steering: SteeringRules | None,
) -> tuple[list[Removal], dict[str, tuple[Refusal, ...]], Going]:
    outcome, going = planned_round(snapshot, judgement, strategy, placement, number, steering)
    planner = outcome.planner
    removals = planner.removals
    if placement == "possible":
        removals = straightened(planner)
    refusals = dict(judgement.refusals)
    for name, found in outcome.stays.items():
        refusals[name] = tuple(sorted({*refusals.get(name, ()), *found}))
    return removals, refusals, going


def planned_round(  # noqa: PLR0917
    snapshot: Snapshot,
    judgement: Judgement,
    strategy: Strategy,
    placement: Placement,
    number: int,
    steering: SteeringRules | None,
    start: PlanStart | None = None,
    *,
    explain: bool = True,
) -> tuple[Outcome, Going]:
    """Return what round *number* of a plan comes to, and the nodes that were expected to go; *start* is that of
    *snapshot* with the candidates of *judgement*, if there is one already.
    """
    candidates = judgement.candidates
    if start is None:
        start = PlanStart(snapshot, candidates, placement, taint=None if steering is None else steering.taint)
    going = expected(start, judgement, strategy, steering)

    def new_planner(choose: Choice) -> Planner:
        ledger = DisruptionLedger(snapshot)
        return Planner(
            snapshot,
            ledger,
            candidates,
            placement,
            choose=choose,
            round_number=number,
            explain=explain,
            start=start,
            going=going,
        )

    outcome = strategy.run(new_planner, judgement.gates)
    for _ in range(CORRECTIONS if going.steering is not None else 0):
        removals = outcome.planner.removals
        if sum(len(each.moves) for each in removals) <= MOST_EVICTIONS * distinct(removals):
            break
        # Pods landed on nodes that nobody expected to go. Now we know these, too.
        names = dict.fromkeys((*(each.node for each in removals), *going.names))
        going = msgspec.structs.replace(going, names=tuple(names))
        outcome = strategy.run(new_planner, judgement.gates)
    return outcome, going


def expected(start: PlanStart, judgement: Judgement, strategy: Strategy, steering: SteeringRules | None) -> Going:
    """Return which nodes go, by a plan that does not know yet which do.

    Where the plan chooses places, it will keep pods off these nodes, so the pods that this first one moves onto a
    candidate don't count for the gates. Budgets don't end it: what has to wait for the next round goes as well, so pods
    avoid it now.
    """
    placement, snapshot = start.placement, start.snapshot
    chosen = placement == "possible"
    if not chosen and steering is None:
        return Going()
    candidates = judgement.candidates
    first = Going(tuple(each.name for each in candidates), untried=True) if chosen else Going(steering=steering)

    def new_planner(choose: Choice) -> Planner:
        ledger = RenewedLedger(snapshot)
        return Planner(snapshot, ledger, candidates, placement, choose=choose, explain=False, start=start, going=first)

    removals = strategy.plain.run(new_planner, judgement.gates).planner.removals
    return Going(tuple(each.node for each in removals), steering, targets=_ends(removals) if chosen else {})


def straightened(planner: Planner) -> list[Removal]:
    """Return the plan's removals with every pod sent straight to where it ends up.

    A strategy may move a pod onto a node that it removes later. What is reached so can be reached with one eviction
    per pod: the node where it ends up only fills as the plan goes on. Where constraints between pods make the order
    matter all the same, the removals are returned as they were tried. *planner* plans nothing any more.
    """
    removed = {removal.node for removal in planner.removals}
    if not any(move.target in removed for removal in planner.removals for move in removal.moves):
        return planner.removals  # straight already, and valid as tried
    final = _ends(planner.removals)
    straight: list[Removal] = []
    for removal in planner.removals:
        own = [move for move in removal.moves if move.origin == removal.node and move.pod.node == removal.node]
        moves = tuple(Move(move.pod, move.origin, final[move.pod.key], move.waits_for) for move in own)
        straight.append(msgspec.structs.replace(removal, moves=moves))
    return straight if _holds(planner, straight) else planner.removals


def _ends(removals: Sequence[Removal]) -> dict[str, str]:
    """Return the node where each moved pod is in the end, by ``namespace/name``."""
    return {move.pod.key: move.target for removal in removals for move in removal.moves}


def _holds(planner: Planner, removals: list[Removal]) -> bool:
    """Play *removals* from the start of the plan; return whether every move finds its target feasible at its time."""
    space = planner.space
    planner.start.begin()
    everyone, _, _ = planner.start.placed_pods()
    for removal in removals:
        node = space.index[removal.node]
        space.close(node)
        waiting = everyone.pop(node, [])
        for placed_pod in waiting:
            space.remove(placed_pod.demand, node)
        demands = [(space.demand_of(move.pod), space.index[move.target]) for move in removal.moves]
        for demand, _ in demands:
            space.remove(demand, node)
        for demand, target in demands:
            if not space.accepts(demand, target):
                return False
            space.place(demand, target)
        waits = [bool(move.waits_for) for move in removal.moves]
        leaving = [Leaving(demand, target, wait) for (demand, target), wait in zip(demands, waits, strict=True)]
        if stuck_in_turn(space, node, leaving):
            return False
        for placed_pod in waiting:
            options = space.feasible(placed_pod.demand).nonzero()[0]
            if not len(options):
                return False
            space.place(placed_pod.demand, int(options[0]))
            everyone.setdefault(int(options[0]), []).append(placed_pod)
    return True


def after(snapshot: Snapshot, removals: list[Removal]) -> Snapshot:
    """Return *snapshot* as it would be with *removals* done: nodes gone, moved pods running where they were sent."""
    gone = {removal.node for removal in removals}
    arrivals: dict[str, dict[str, Pod]] = {}
    for removal in removals:
        for move in removal.moves:
            arrivals.setdefault(removal.node, {}).pop(move.pod.key, None)
            moved = msgspec.structs.replace(move.pod, node=move.target, requests=snapshot.requests_anew(move.pod))
            arrivals.setdefault(move.target, {})[move.pod.key] = moved
    nodes: dict[str, NodeView] = {}
    for name, view in snapshot.nodes.items():
        if name in gone:
            continue
        new = arrivals.get(name)
        if new:
            pods = tuple(sorted((*view.pods, *new.values()), key=lambda pod: (pod.namespace, pod.name)))
            nodes[name] = NodeView(view.node, pods, sum_up(pods))
        else:
            nodes[name] = view
    return msgspec.structs.replace(snapshot, nodes=nodes)


class Forecast(Struct, frozen=True):
    """What the scheduler's own choices would make of a plan, by our model of its default scoring.

    *targets* maps each moved pod (``namespace/name``) to the node it would first land on, *stuck* each planned node
    that could then not be emptied to why. *removed*, *evictions* and distinct *pods* count what would still be done.
    """

    targets: Mapping[str, str]
    stuck: Mapping[str, tuple[Refusal, ...]]
    removed: int
    evictions: int
    pods: int


def forecast(
    snapshot: Snapshot, plan: Plan, candidates: tuple[Candidate, ...], steering: SteeringRules | None = None
) -> Forecast:
    """Drain the plan's nodes in its order, each pod placed by the model; a node whose pods don't all fit is skipped.

    *candidates* are those of the judgement the plan was made from; *steering* is as for :func:`make_plan`. Only the
    first round is played.
    """
    first = [removal for removal in plan.removals if removal.round == 1]
    going = Going(tuple(removal.node for removal in first), steering) if steering is not None else Going()
    planner = Planner(snapshot, DisruptionLedger(snapshot), candidates, "likely", going=going)
    stuck: dict[str, tuple[Refusal, ...]] = {}
    for removal in first:
        refusals = planner.attempt(planner.candidates[removal.node])
        if refusals:
            stuck[removal.node] = tuple(refusals)
    targets: dict[str, str] = {}
    for done in planner.removals:
        for move in done.moves:
            targets.setdefault(move.pod.key, move.target)
    evictions = sum(len(done.moves) for done in planner.removals)
    return Forecast(targets, stuck, len(planner.removals), evictions, distinct(planner.removals))

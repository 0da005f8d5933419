"""The refiner's judgement: a snapshot, settings and a time in; decisions and refusals out. Pure.

A plan is made twice. The *free* one, which neither threshold nor minimums hold back, tells how many nodes could really
go, pod by pod. The real one is as much of its beginning as they allow: it ends with the first candidate at hand that
one of them refuses, as the older controller's loop would.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from node_refiner.excess import is_counted, remains
from node_refiner.facts import NodeFacts, taint_of_others, with_score
from node_refiner.ordering import Scoring, strategy_of
from node_refiner.outlook import Outlook, below_minimums, outlook, refusals
from node_refiner.settings import RefinerSettings
from tightship.core.objects import Node
from tightship.core.reasons import Reason, Refusal
from tightship.planning.cluster import Snapshot
from tightship.planning.disruption import DisruptionLedger, RenewedLedger
from tightship.planning.facts import FactRules, candidates_of, gather, judgement, plannable
from tightship.planning.nodes import NodeRules, left_without, opt_outs
from tightship.planning.placement.scoring import Choice
from tightship.planning.plan import Candidate, Judgement, Planner

CONTROLLER = "node-refiner"
"""Our name in annotations, taints, claims and metrics."""


def keeps(settings: RefinerSettings, snapshot: Snapshot, node: Node) -> list[Refusal]:
    """Return what keeps *node* of *snapshot* as a whole, and may begin to while it is drained."""
    found = opt_outs(node, NodeRules(settings.disabled_rules))
    tainted = taint_of_others(node)
    if tainted is not None:
        found.append(tainted)
    left = untainted = 0
    for each in left_without(snapshot, node.name):
        left += remains(each)
        untainted += is_counted(each)
        if left >= settings.minimum_nodes and untainted >= settings.minimum_non_tainted_nodes:
            return found  # asked at every look: enough are enough
    below = below_minimums(node.name, left, untainted, settings)
    return found if below is None else [*found, below]


class Policy:
    """Judges snapshots under one set of settings at one time.

    *only* limits what may be removed to these nodes (a selection on the command line); the rest still receives pods,
    and counts.
    """

    def __init__(self, settings: RefinerSettings, now: float, only: Collection[str] | None = None) -> None:
        self.settings = settings
        self.now = now
        self.only = only
        self.strategy = strategy_of(settings)
        self._scoring = Scoring(settings)
        self._rules = FactRules(
            nodes=NodeRules(settings.disabled_rules),
            eviction=settings.eviction_rules,
            pool_labels=settings.pool_labels,
            past_budgets=settings.past_budgets,
        )

    def plannable(self, snapshot: Snapshot) -> Snapshot:
        """Return what a plan is made on; see :func:`tightship.planning.facts.plannable`."""
        return plannable(snapshot, self._rules)

    def judge(self, snapshot: Snapshot) -> Judgement:
        """Return who may go, all refusals of the others, and where the plan ends."""
        facts = self.facts(snapshot)
        return self.judgement(snapshot, facts, self.outlook(snapshot, facts))

    def facts(self, snapshot: Snapshot) -> dict[str, NodeFacts]:
        """Return what can be said of each node by itself, refusals complete but for those of threshold and minimums."""
        known = gather(snapshot, self._rules, self.now, self.only)
        return {name: with_score(fact, self._scoring) for name, fact in known.items()}

    def outlook(self, snapshot: Snapshot, facts: Mapping[str, NodeFacts]) -> Outlook:
        """Make the free plan from *facts*, and say how much of it threshold and minimums allow.

        It goes on with what PodDisruptionBudgets allow when the moved pods are Ready again: the refiner drains one node
        after the other, and a budget over the pods of many nodes makes none of them one that could not go.
        """
        ground, candidates, placement = self.plannable(snapshot), candidates_of(facts), self.settings.placement

        def new_planner(choose: Choice) -> Planner:
            return Planner(ground, DisruptionLedger(ground), candidates, placement, choose=choose, explain=False)

        outcome = self.strategy.run(new_planner, _Free())
        planner, at_once = outcome.planner, len(outcome.planner.removals)
        planner.ledger = RenewedLedger(ground)
        waiting = [
            planner.candidates[name]
            for name, found in outcome.stays.items()
            if any(refusal.reason is Reason.PDB_SPENT_BY_PLAN for refusal in found)
        ]
        self.strategy.extend(planner, _Free(), waiting)
        return outlook(planner.removals, facts, self.settings, at_once, planner.starting_on)

    def judgement(self, snapshot: Snapshot, facts: Mapping[str, NodeFacts], ahead: Outlook) -> Judgement:
        """Return the judgement from what was found out before."""
        return judgement(snapshot, facts, RefinerGates(ahead, self.settings))


class _Free:
    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:  # noqa: ARG002 - nothing is held back
        return []


class RefinerGates:
    """Ends a plan where the outlook says; see :class:`tightship.planning.plan.Gates`."""

    def __init__(self, ahead: Outlook, settings: RefinerSettings) -> None:
        self._ahead = ahead
        self._settings = settings

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        """Return what ends the plan before the turn of *candidate*, and what else keeps it; nothing where none does.

        One that could not go has met a plan that will not be: when the real one has ended, it is asked once more, on
        what that leaves.
        """
        ahead, turn = self._ahead, self._ahead.turns.get(candidate.name)
        if not ahead.ends or (len(planner.removals) if turn is None else turn.number) < ahead.goes:
            return []
        found = refusals(candidate.name, ahead, self._settings)
        if turn is None or turn.later:
            found += planner.attempt(candidate, keep=False)
        return sorted(found)

"""What a standing plan gains by a change: only the nodes that the change can touch are judged and tried again. Pure.

A plan of a large fleet takes a second, and there may be hundreds of changes. Most of them, such as an annotation or a
budget, change what is known of a few nodes. Extending the plan as it stands by those of them that may go now takes
some 30 ms, and shows which changes are promising. Planning again tells exactly what a whole plan would, in less time:
the facts of all other nodes stand, and so does the room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tightship.cluster import NodeView, Snapshot
from tightship.objects.reasons import Refusal
from tightship.planning.changes import Change, Scenario
from tightship.planning.evaluate import Evaluation, Facts, Horizon, Judge, facts_of
from tightship.planning.facts import candidates_of, judgement, plannable
from tightship.planning.plan import Judgement, Plan, Planner, Removal
from tightship.planning.plan.strategies import planned_round
from tightship.rules.disruption import DisruptionLedger


class Extension:
    """The standing plan of *base*, made by *judge* of *settings* as far as *horizon* says."""

    def __init__(self, base: Evaluation, judge: Judge, settings: Any, horizon: Horizon) -> None:
        self._base = base
        self._judge = judge
        self._scenario = Scenario(base.snapshot, settings)
        self._horizon = horizon
        snapshot = plannable(base.snapshot, judge.rules)
        self._strategy = judge.strategy(base.facts)
        gates = judge.gates(snapshot, base.facts, base.now)
        found = judgement(base.snapshot, base.facts, gates)
        outcome, _ = planned_round(snapshot, found, self._strategy, judge.placement, 1, judge.steering)
        self._candidates = {each.name: each for each in found.candidates}
        self._start = outcome.planner.start
        self._planner: Planner | None = outcome.planner
        self._space = self._start.space
        self._mark, self._next_start = self._space.mark(), self._space.next_start
        self._gone = [each.node for each in outcome.planner.removals]
        self.holds = [each.node for each in base.plan.removals] == self._gone
        """Whether the standing plan is that of *base*: it may have more rounds, or straighter ways."""
        self._covered: dict[str, set[str]] = {}
        for name, view in base.snapshot.nodes.items():
            for template in {pod.template for pod in view.pods}:
                for budget in base.snapshot.budgets.of(template):
                    self._covered.setdefault(budget.key, set()).add(name)

    @staticmethod
    def serves(base: Evaluation, judge: Judge, horizon: Horizon) -> bool:
        """Whether plans as far as *horizon* says can be extended."""
        single = not horizon.until_stable and horizon.search is None
        return single and judge.strategy(base.facts).grows

    def extended(self, changes: Iterable[Change]) -> Plan | None:
        """Return the plan extended by what *changes* let go; ``None`` if they touch more than single nodes, or after
        :meth:`planned`.
        """
        known = self._known(changes)
        if known is None or self._planner is None:
            return None
        snapshot, facts, touched = known
        candidates = [each for each in candidates_of(touched) if each.name not in self._gone]
        planner = self._planner.extended(DisruptionLedger(snapshot), candidates)
        try:
            stays = self._strategy.extend(planner, self._judge.gates(snapshot, facts, self._base.now), candidates)
            removals = (*self._base.plan.removals, *planner.removals[len(self._gone) :])
        finally:
            self._space.rollback(self._mark)
            self._space.next_start = self._next_start
        return self._with(removals, touched, stays)

    def planned(self, changes: Iterable[Change]) -> Plan | None:
        """Return the plan with *changes*; ``None`` if they touch more than single nodes. Nothing can be extended
        afterwards.
        """
        known = self._known(changes)
        if known is None:
            return None
        self._planner = None
        snapshot, facts, touched = known
        judge = self._judge
        own = [each for name, each in self._candidates.items() if name not in touched]
        tried = (*own, *candidates_of(touched))
        gates = judge.gates(snapshot, facts, self._base.now)
        start = self._start.of(snapshot, tried)
        outcome, _ = planned_round(
            snapshot,
            Judgement(tried, {}, gates),
            self._strategy,
            judge.placement,
            1,
            judge.steering,
            start,
            explain=False,
        )
        return self._with(outcome.planner.removals, touched, outcome.stays)

    def _known(self, changes: Iterable[Change]) -> tuple[Snapshot, Facts, Facts] | None:
        """Return the cluster with *changes*, all facts about it, and those of the nodes that *changes* touch."""
        scenario = self._scenario.after(changes)
        touched = self._touched(scenario)
        if touched is None:
            return None
        base, judge = self._base, self._judge
        known = facts_of(scenario.snapshot, judge, base.now, self._horizon.only, names=sorted(touched))
        return plannable(scenario.snapshot, judge.rules), {**base.facts, **known}, known

    def _with(self, removals: Iterable[Removal], touched: Facts, stays: Mapping[str, Sequence[Refusal]]) -> Plan:
        plan = self._base.plan
        refusals: dict[str, tuple[Refusal, ...]] = {**plan.refusals, **{name: tuple(stays[name]) for name in stays}}
        for name, fact in touched.items():
            refusals[name] = tuple(sorted({*fact.refusals, *stays.get(name, ())}))
        for removal in (removals := tuple(removals)):
            refusals.pop(removal.node, None)
        return msgspec.structs.replace(plan, removals=removals, refusals=refusals)

    def _touched(self, scenario: Scenario) -> Collection[str] | None:
        """Return the nodes of which something else is known in *scenario*; ``None`` if room or rules are others."""
        old, new = self._base.snapshot, scenario.snapshot
        if scenario.settings is not self._scenario.settings or not _alike(old, new):
            return None
        touched = {name for name, view in new.nodes.items() if view is not old.nodes[name]}
        if any(not _as_roomy(old.nodes[name], new.nodes[name]) for name in touched):
            return None
        if new.budgets is not old.budgets:
            before, after = old.budgets.by_key, new.budgets.by_key
            for key in {*before, *after}:
                if before.get(key) is not after.get(key):
                    touched |= self._covered.get(key, set())
        return touched


_TOUCHING = ("nodes", "budgets", "workloads")
"""What of a snapshot a change may change that touches single nodes only."""


def _alike(old: Snapshot, new: Snapshot) -> bool:
    """Whether nothing differs but what touches single nodes."""
    fields = (each for each in Snapshot.__struct_fields__ if each not in _TOUCHING)
    return all(getattr(old, each) is getattr(new, each) for each in fields)


def _as_roomy(old: NodeView, new: NodeView) -> bool:
    """Whether the node and the demands of its pods are the same."""
    return old.node is new.node and all(
        before.template is after.template for before, after in zip(old.pods, new.pods, strict=True)
    )

"""Advice about a plan, measured while there is time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tightship.advice.adviser import Adviser
from tightship.advice.catalogue import Catalogue
from tightship.advice.entries import advice_entry, advice_summary, gain_entry, node_bundle
from tightship.advice.extension import Extension
from tightship.cluster import Snapshot
from tightship.documents.inputs import Inputs
from tightship.objects.reasons import Reason
from tightship.planning.changes import Scenario, TimeLimit, Tunable
from tightship.planning.evaluate import Evaluation, Evaluator, Horizon, evaluate
from tightship.planning.plan import Plan

LATER = frozenset({Reason.PDB_SPENT_BY_PLAN})
"""Reasons that a later round of the same plan does not have."""


class Advising:
    """What advice about an evaluation needs: its *snapshot* as read, its settings, and how it was planned."""

    def __init__(
        self, tunable: Tunable, snapshot: Snapshot, base: Evaluation, horizon: Horizon, limits: TimeLimit
    ) -> None:
        self._tunable = tunable
        self._scenario = Scenario(snapshot, tunable.settings)
        self._base = base
        self._horizon = msgspec.structs.replace(horizon, forecast=False, search=None)
        self._clock, self._planned = limits.clock, limits.planned
        self._priced = any(fact.price is not None for fact in base.facts.values())

    def plan(self, inputs: Inputs, seconds: float) -> Inputs:
        """Return *inputs* with what each reason costs and what would free nodes.

        A searched plan ends by time, so there is no telling what a change would gain. Its inputs only get the setting
        that costs its strategy most, without a search.
        """
        if self._base.plan.searched is not None:
            found = self._anew(self._horizon)._adviser(seconds).setting()
            entry = None if found is None else advice_entry(found, self._tunable, priced=self._priced)
            return msgspec.structs.replace(inputs, costliest=entry)
        advice = self._adviser(seconds).advise()
        return msgspec.structs.replace(
            inputs,
            advice=advice_summary(advice, self._tunable, seconds, priced=self._priced),
            costs={each.reason: gain_entry(each.gain, priced=self._priced) for each in advice.reasons},
        )

    def nodes(self, inputs: Inputs, names: Sequence[str], seconds: float) -> Inputs:
        """Return *inputs* with what frees each of the nodes *names* that stay."""
        until = self._clock() + seconds
        adviser = self._adviser(seconds)
        gone = {removal.node for removal in self._base.plan.removals}
        found = {name: adviser.free(name) for name in names if name not in gone}
        waits = [name for name, each in found.items() if any(left.reason in LATER for left in each.remains)]
        if waits and not self._horizon.until_stable:
            later = self._anew(msgspec.structs.replace(self._horizon, until_stable=True))
            for name in waits:
                freed = later._adviser(until - self._clock()).free(name)
                found[name] = freed if freed.bundle is not None else found[name]
        bundles = {name: node_bundle(each, self._tunable, priced=self._priced) for name, each in found.items()}
        return msgspec.structs.replace(inputs, bundles=bundles)

    def _anew(self, horizon: Horizon) -> Advising:
        """Return advice about a plan of the same cluster that looks as far as *horizon*."""
        began, snapshot = self._clock(), self._scenario.snapshot
        base = evaluate(snapshot, self._tunable.judge(self._tunable.settings), self._base.now, horizon)
        limits = TimeLimit(0, self._clock, self._clock() - began)
        return Advising(self._tunable, snapshot, base, horizon, limits)

    def _adviser(self, seconds: float) -> Adviser:
        catalogue = Catalogue(self._scenario.snapshot, self._base, self._tunable)
        limits = TimeLimit(seconds, self._clock, self._planned)
        return Adviser(self._base, self._scenario, catalogue, self._measure(), limits, self._extend())

    def _extend(self) -> Callable[[], Extension] | None:
        """Return what makes an extension of the plan, ``None`` if there can be none."""
        settings = self._tunable.settings
        judge = self._tunable.judge(settings)
        serves = Extension.serves(self._base, judge, self._horizon)
        return (lambda: Extension(self._base, judge, settings, self._horizon)) if serves else None

    def _measure(self) -> Any:
        evaluator = Evaluator()
        tunable, now = self._tunable, self._base.now
        judges = {id(tunable.settings): (tunable.settings, tunable.judge(tunable.settings))}

        def measure(scenario: Scenario) -> Plan:
            known = judges.get(id(scenario.settings))
            judge = known[1] if known is not None else tunable.judge(scenario.settings)
            return evaluator(scenario.snapshot, judge, now, self._horizon).plan

        return measure

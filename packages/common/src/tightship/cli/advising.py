"""Advice about a plan, measured while there is time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import msgspec

from tightship.advice import Adviser, Catalogue, Scenario, TimeLimit, Tunable
from tightship.cli.arguments import value_of
from tightship.cluster import Snapshot
from tightship.documents.advice import advice_entry, advice_summary, gain_entry, node_bundle
from tightship.documents.inputs import Inputs
from tightship.kube.host import monotonic
from tightship.objects.durations import parse_duration
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import Evaluation, Evaluator, Horizon, evaluate
from tightship.planning.plan import Plan

DEFAULT_TIME = 10.0

LATER = frozenset({Reason.PDB_SPENT_BY_PLAN})
"""Reasons that a later round of the same plan does not have."""


def add_advice_argument(group: argparse._ArgumentGroup) -> None:
    """Add how long to look for changes that would free nodes."""
    group.add_argument(
        "--advice-time",
        metavar="DURATION",
        type=value_of(lambda text: parse_duration(text, plain_unit="s")),
        default=DEFAULT_TIME,
        help="plan again for at most this long to say what each blocker costs and which changes would free nodes, the "
        f"most promising first; 0 for no advice (default: {DEFAULT_TIME:g}s)",
    )


class Advising:
    """What advice about an evaluation needs: its *snapshot* as read, its settings, and how it was planned."""

    def __init__(
        self, tunable: Tunable, snapshot: Snapshot, base: Evaluation[Any], horizon: Horizon, planned: float
    ) -> None:
        self._tunable = tunable
        self._scenario = Scenario(snapshot, tunable.settings)
        self._base = base
        self._horizon = msgspec.structs.replace(horizon, forecast=False, search=None)
        self._planned = planned
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
        until = monotonic() + seconds
        adviser = self._adviser(seconds)
        gone = {removal.node for removal in self._base.plan.removals}
        found = {name: adviser.free(name) for name in names if name not in gone}
        waits = [name for name, each in found.items() if any(left.reason in LATER for left in each.remains)]
        if waits and not self._horizon.until_stable:
            later = self._anew(msgspec.structs.replace(self._horizon, until_stable=True))
            for name in waits:
                freed = later._adviser(until - monotonic()).free(name)
                found[name] = freed if freed.bundle is not None else found[name]
        bundles = {name: node_bundle(each, self._tunable, priced=self._priced) for name, each in found.items()}
        return msgspec.structs.replace(inputs, bundles=bundles)

    def _anew(self, horizon: Horizon) -> Advising:
        """Return advice about a plan of the same cluster that looks as far as *horizon*."""
        began, snapshot = monotonic(), self._scenario.snapshot
        base = evaluate(snapshot, self._tunable.judge(self._tunable.settings), self._base.now, horizon)
        return Advising(self._tunable, snapshot, base, horizon, monotonic() - began)

    def _adviser(self, seconds: float) -> Adviser:
        catalogue = Catalogue(self._scenario.snapshot, self._base, self._tunable)
        limits = TimeLimit(seconds, monotonic, self._planned)
        return Adviser(self._base, self._scenario, catalogue, self._measure(), limits)

    def _measure(self) -> Any:
        evaluator: Evaluator[Any] = Evaluator()
        tunable, now = self._tunable, self._base.now
        judges = {id(tunable.settings): (tunable.settings, tunable.judge(tunable.settings))}

        def measure(scenario: Scenario) -> Plan:
            known = judges.get(id(scenario.settings))
            judge = known[1] if known is not None else tunable.judge(scenario.settings)
            return evaluator(scenario.snapshot, judge, now, self._horizon).plan

        return measure

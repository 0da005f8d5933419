"""Advice about a plan, measured while there is time, and as a document has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tightship.advice.adviser import Advice, Adviser, Bundle, Freed, Gain
from tightship.advice.catalogue import Catalogue
from tightship.advice.extension import Extension
from tightship.cluster import Snapshot
from tightship.documents.advice import AdviceEntry, AdviceSummary, BundleMove, ChangeEntry, GainEntry, NodeBundle
from tightship.documents.build import Inputs
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.changes import AdviceAsked, Change, Scenario, TimeLimit, Tunable
from tightship.planning.evaluate import Evaluation, Evaluator, Horizon, evaluate
from tightship.planning.plan import Plan


def advice_summary(advice: Advice, tunable: Tunable, seconds: float, *, priced: bool) -> AdviceSummary:
    """Return *advice*, for which there were *seconds*, for a document; *priced* says whether nodes have prices."""
    return AdviceSummary(
        seconds=seconds,
        tried=advice.tried,
        untried=advice.untried,
        changes=tuple(advice_entry(each, tunable, priced=priced) for each in advice.bundles),
        together=None if advice.together is None else advice_entry(advice.together, tunable, priced=priced),
        together_of=advice.numbers,
        others=advice.others,
    )


def node_bundle(freed: Freed, tunable: Tunable, *, priced: bool) -> NodeBundle:
    """Return what frees one node for a document."""
    bundle = freed.bundle
    return NodeBundle(
        advice=advice_entry(bundle, tunable, priced=priced) if bundle is not None and bundle.changes else None,
        round=freed.round,
        moves=tuple(sorted((BundleMove(each.pod.key, each.target) for each in freed.moves), key=lambda each: each.pod)),
        remains=tuple(_remains(freed.remains)),
        late=freed.late,
    )


def _remains(left: Iterable[Refusal]) -> Iterator[str]:
    alike: dict[tuple[str, str], list[str]] = {}
    for each in left:
        alike.setdefault((each.reason, each.fix or each.detail), []).append(each.subject)
    for (reason, what), subjects in alike.items():
        more = f" and {len(subjects) - 1:,} more" if len(subjects) > 1 else ""
        yield f"{reason} {subjects[0]}{more}: {what}"


def gain_entry(gain: Gain, *, priced: bool) -> GainEntry:
    """Return *gain* for a document."""
    return GainEntry(gain.nodes, gain.micros if priced else None)


def advice_entry(bundle: Bundle, tunable: Tunable, *, priced: bool) -> AdviceEntry:
    """Return *bundle* for a document; *priced* says whether nodes have prices."""
    changed = difference(tunable.values(tunable.settings), tunable.values(bundle.settings))
    winning = tunable.winning(changed)
    flags = "the flag wins" if len(winning) == 1 else "flags win"
    but = f"  # only without {' and '.join(winning)}: {flags}" if winning else ""
    tuned = [each for each in bundle.changes if each.tune is not None]
    return AdviceEntry(
        gain=gain_entry(bundle.gain, priced=priced),
        changes=tuple(ChangeEntry(each.reason.value, each.thing, each.note or None) for each in bundle.changes),
        commands=tuple(command for each in bundle.changes for command in each.commands),
        values=f"config: {msgspec.json.encode(changed).decode()}{but}" if changed else None,
        flags=_flags(tuned),
        freed=bundle.freed,
        measured_by=bundle.measured,
        instead_of=bundle.instead_of or None,
    )


def _flags(tuned: Iterable[Change]) -> tuple[str, ...]:
    every = [each.flags for each in tuned]
    return tuple(dict.fromkeys(flag for flags in every for flag in flags)) if all(every) else ()


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of *after* differs from *before*, as far down as both are mappings; a new mapping has no nulls."""
    found: dict[str, Any] = {}
    for key, value in after.items():
        old = before.get(key)
        if value == old:
            continue
        if not isinstance(value, Mapping):
            found[key] = value
        elif isinstance(old, Mapping):
            found[key] = difference(old, value)
        else:
            found[key] = {name: each for name, each in value.items() if each is not None}
    return found


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


def advise(asked: AdviceAsked, inputs: Inputs, names: Sequence[str]) -> Inputs:
    """Return *inputs* with what each reason costs and what would free nodes; with *names*, what frees each of these."""
    advising = Advising(asked.tunable, asked.snapshot, asked.base, asked.horizon, asked.limits)
    seconds = asked.limits.seconds
    return advising.nodes(inputs, names, seconds) if names else advising.plan(inputs, seconds)

"""Measures changes by planning again with them, the most promising first, until the time is over; and says so. Pure.

A set of changes can free a node only if it has a change against each of the node's refusals. So the nodes whose known
refusals it covers bound what it may gain, and sets with a low bound come last. What still keeps such a node afterwards
(a minimum, room that another strategy would find) may have a change of its own, and makes a larger set.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tightship.advice.catalogue import ROOM, Catalogue
from tightship.cluster import NodeView, Snapshot
from tightship.documents.advice import AdviceEntry, AdviceSummary, BundleMove, ChangeEntry, GainEntry, NodeBundle
from tightship.documents.build import Inputs
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.changes import AdviceAsked, Change, Scenario, TimeLimit, Tunable
from tightship.planning.evaluate import Evaluation, Evaluator, Horizon, Judge, evaluate, facts_of
from tightship.planning.facts import candidates_of, plannable
from tightship.planning.plan import Judgement, Move, Plan
from tightship.planning.plan.model import subjects
from tightship.planning.plan.reserving import PlanStart
from tightship.planning.plan.strategies import planned_round
from tightship.rules.evictability import SWITCHABLE as POD_RULES
from tightship.rules.nodes import SWITCHABLE as NODE_RULES


class Standing:
    """The plan of *base*, made by *judge*, as it stands: plans with a change begin with it.

    Most changes, such as an annotation or a budget, change what is known of a few nodes. The facts of all others stand,
    and so does the room with which a plan begins. So planning again takes less time, and comes to the same.
    """

    def __init__(self, base: Evaluation, judge: Judge, only: Collection[str] | None) -> None:
        self._base = base
        self._judge = judge
        self._only = only
        self._candidates = candidates_of(base.facts)
        taint = None if judge.steering is None else judge.steering.taint
        self._start = PlanStart(plannable(base.snapshot, judge.rules), self._candidates, judge.placement, taint=taint)
        self._covered: dict[str, set[str]] = {}
        for name, view in base.snapshot.nodes.items():
            for template in {pod.template for pod in view.pods}:
                for budget in base.snapshot.budgets.of(template):
                    self._covered.setdefault(budget.key, set()).add(name)

    def planned(self, changes: Collection[Change]) -> Plan | None:
        """Return the plan with *changes*; ``None`` if they touch more than single nodes."""
        if any(each.tune is not None or each.reason is Reason.GANG_WOULD_BREAK for each in changes):
            return None
        judge, base = self._judge, self._base
        scenario = Scenario(base.snapshot, None).after(changes)
        names = self._touched(scenario.snapshot)
        if names is None:
            return None
        snapshot = plannable(scenario.snapshot, judge.rules)
        touched = facts_of(scenario.snapshot, judge, base.now, self._only, names=sorted(names))
        facts = {**base.facts, **touched}
        tried, strategy = candidates_of(facts), judge.strategy(facts)
        found = Judgement(tried, {}, judge.gates(snapshot, facts, base.now))
        outcome, _ = planned_round(
            snapshot,
            found,
            strategy,
            judge.placement,
            1,
            judge.steering,
            self._start.of(snapshot, tried),
            explain=not strategy.grows,  # one that ends by a rule of its own goes on while it explains
        )
        refusals: dict[str, tuple[Refusal, ...]] = {name: fact.refusals for name, fact in facts.items()}
        refusals |= {name: tuple(sorted({*refusals[name], *stays})) for name, stays in outcome.stays.items()}
        gone = {each.node for each in outcome.planner.removals}
        kept = {name: each for name, each in refusals.items() if name not in gone}
        return msgspec.structs.replace(base.plan, removals=tuple(outcome.planner.removals), refusals=kept)

    def _touched(self, new: Snapshot) -> Collection[str] | None:
        """Return the nodes of which something else is known in *new*; ``None`` if more differs than that."""
        old = self._base.snapshot
        if new.starting or not _alike(old, new):
            return None
        touched = {name for name, view in new.nodes.items() if view is not old.nodes[name]}
        if any(not _as_roomy(old.nodes[name], new.nodes[name]) for name in touched):
            return None
        if new.budgets is not old.budgets:
            before, after = old.budgets.by_key, new.budgets.by_key
            for key in {*before, *after}:
                if before.get(key) is not after.get(key):
                    touched |= self._covered.get(key, set())
        return None if any(new.nodes[name].usage.terminating for name in touched) else touched


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


class Gain(Struct, frozen=True, order=True):
    """What a plan removes beyond another one: *micros* of the currency a month, and *nodes*."""

    micros: int
    nodes: int

    @property
    def frees(self) -> bool:
        """Whether a plan is better: it removes more, and loses nothing."""
        return self.nodes >= 0 and self.micros >= 0 and (self.nodes > 0 or self.micros > 0)


class ReasonCost(Struct, frozen=True):
    """What a plan would remove besides if nothing were kept for *reason*."""

    reason: Reason
    gain: Gain


class Bundle(Struct, frozen=True):
    """*changes* that gain something together, in the order in which to make them; *freed* are the nodes that then go.

    *settings* are those in force with the changes. *instead_of* is the number (from 1) of the bundle, among those of
    one advice, to which this one is an alternative: it gains as much, and nothing besides; 0 for none.
    """

    changes: tuple[Change, ...]
    gain: Gain
    freed: tuple[str, ...]
    settings: Any
    instead_of: int = 0


class Freed(Struct, frozen=True):
    """What frees one node: a *bundle* and the *moves* of its pods then; or what *remains* though all else is changed.

    The node goes in *round* of the plan, from 1. If it goes anyhow, the bundle has no changes. *late* says that the
    time ran out before.
    """

    bundle: Bundle | None = None
    moves: tuple[Move, ...] = ()
    round: int = 0
    remains: tuple[Refusal, ...] = ()
    late: bool = False


class Advice(Struct, frozen=True):
    """The costs of *reasons*, and *bundles*, both the dearest first. *together* is what those with these
    *numbers* (from 1) gain at once; the others add nothing to them.

    *tried* sets of changes were planned with; *untried* is how many of those known were left when the time ran out.
    *others* are sentences about what is for operators and for Karpenter to change.
    """

    reasons: tuple[ReasonCost, ...]
    bundles: tuple[Bundle, ...]
    together: Bundle | None
    numbers: tuple[int, ...]
    tried: int
    untried: int
    others: tuple[str, ...] = ()


Changes = frozenset[Change]

MOST_CHANGES = 12
"""Most changes in a set. Nobody makes more of them to free a node."""


class Promising:
    """A queue of sets: single changes first, then pairs, then larger ones; of each, what could gain most first.

    *blockers* are the changes against all that is known to keep each node, by name. *worth* is what nodes are worth.
    """

    def __init__(self, blockers: Mapping[str, Changes], worth: Callable[[Iterable[str]], Gain]) -> None:
        self._worth = worth
        self._nodes: dict[Changes, list[str]] = {}
        for name, each in blockers.items():
            self._nodes.setdefault(each, []).append(name)
        self._known: set[Changes] = set()
        self._heap: list[tuple[int, Gain, int, str, Changes]] = []
        for each in self._nodes:
            self.add(each)

    def add(self, changes: Changes) -> None:
        """Queue *changes*, unless they have been queued before or are too many."""
        if not changes or len(changes) > MOST_CHANGES or changes in self._known:
            return
        self._known.add(changes)
        bound = self._worth(self.frees(changes))
        order = min(len(changes), 3), Gain(-bound.micros, -bound.nodes), len(changes)
        heapq.heappush(
            self._heap, (*order, ", ".join(sorted(f"{each.reason} {each.thing}" for each in changes)), changes)
        )

    def frees(self, changes: Changes) -> list[str]:
        """Return the nodes against whose known blockers *changes* have everything."""
        return [name for each, names in self._nodes.items() if each <= changes for name in names]

    def take(self) -> tuple[Changes, Gain] | None:
        """Return the next set and a bound of its gain, ``None`` after the last one."""
        if not self._heap:
            return None
        _, worst, _, _, changes = heapq.heappop(self._heap)
        return changes, Gain(-worst.micros, -worst.nodes)


Measure = Callable[[Scenario], Plan]
"""Plans a scenario as the base was planned."""

RULES = POD_RULES | NODE_RULES
"""Reasons whose cost is measured by switching their rule off, where not every refusal has a change."""

_IMPORTANCE = {reason: number for number, reason in enumerate(Reason)}


class _Result(Struct, frozen=True):
    plan: Plan
    gain: Gain
    freed: tuple[str, ...]
    settings: Any


class Adviser:
    """Advice about one evaluation. *scenario* is what it was made of, *measure* plans another one on the same terms.

    *standing* makes what plans again only what a change can touch, ``None`` if nothing can. It is used where there are
    more changes than time for whole plans.
    """

    def __init__(  # noqa: PLR0917
        self,
        base: Evaluation,
        scenario: Scenario,
        catalogue: Catalogue,
        measure: Measure,
        limits: TimeLimit,
        standing: Callable[[], Standing] | None = None,
    ) -> None:
        self._base = base
        self._scenario = scenario
        self._catalogue = catalogue
        self._measure = measure
        self._clock = limits.clock
        self._seconds, self._until = limits.seconds, limits.clock() + limits.seconds
        self._stand, self._planned = standing, limits.planned
        self._standing: Standing | None = None
        self._longest: dict[bool, float] = {}
        """How long it took at most to plan what a change can touch, and to plan all."""
        self._gone = {removal.node for removal in base.plan.removals}
        self._results: dict[Changes, _Result] = {frozenset(): _Result(base.plan, Gain(0, 0), (), scenario.settings)}

    def advise(self) -> Advice:
        """Return what each reason costs, and the changes that gain something."""
        refusals = self._base.plan.refusals
        known = {name: self._catalogue.all_of(name, found) for name, found in refusals.items()}
        blockers = {name: each for name, each in known.items() if each is not None}
        others = self._catalogue.left_to_others(refusals)
        sets = len(set(blockers.values()))
        if self._stand is not None and self._planned * (sets + 2) > self._seconds:
            self._standing = self._stand()
            found, left = self._bundles(blockers, frozenset())
            reasons, untried, _ = self._reasons(refusals)
        else:
            reasons, untried, idle = self._reasons(refusals)
            found, left = self._bundles(blockers, idle)
        together, numbers, seen = self._together(found)
        tried = len(self._results) - 1
        return Advice(reasons, alternatives(found, numbers, seen), together, numbers, tried, untried + left, others)

    def setting(self) -> Bundle | None:
        """Return the change of settings that frees most nodes, of those against one reason; ``None`` if none does."""
        best: tuple[Changes, _Result] | None = None
        for _, own in self._by_reason(self._base.plan.refusals):
            changes = frozenset(each for each in own if each is not None and each.tune is not None)
            result = self._try(changes) if changes == own else None
            if result is not None and result.gain.nodes > (0 if best is None else best[1].gain.nodes):
                best = changes, result
        if best is None:
            return None
        tight, result = self._tightened(*best)
        return Bundle(tight, result.gain, result.freed, result.settings)

    def free(self, name: str) -> Freed:
        """Return the smallest known bundle that frees node *name*, or what keeps the node whatever is changed.

        A node that goes anyhow needs no change.
        """
        if name in self._gone:
            return self._freed(name, frozenset())
        left: tuple[Refusal, ...] = ()
        for small in (True, False):
            own: dict[tuple[Reason, str], Change] = {}
            left = tuple(self._base.plan.refusals.get(name, ()))
            while len(own) <= MOST_CHANGES:
                without = tuple(each for each in left if self._catalogue.of(name, each) is None)
                if without:
                    return Freed(remains=without)
                more = {(each.reason, each.thing): each for each in self._against(name, left, small=small)}
                if more.keys() <= own.keys():
                    break
                own = {**more, **own}
                result = self._try(frozenset(own.values()))
                if result is None:
                    return Freed(late=True)
                if name in result.freed:
                    return self._smallest(name, frozenset(own.values()))
                left = tuple(result.plan.refusals.get(name, ()))
        return Freed(remains=left)

    # -- reasons

    def _reasons(
        self, refusals: Mapping[str, Sequence[Refusal]]
    ) -> tuple[tuple[ReasonCost, ...], int, frozenset[Reason]]:
        """Return the costs of the reasons, how many there was no time for, and the reasons that cost nothing."""
        costs: list[ReasonCost] = []
        untried = 0
        for reason, found in self._by_reason(refusals):
            if reason in ROOM:
                continue
            own = frozenset(each for each in found if each is not None)
            if None in found:
                if reason not in RULES:
                    continue
                own = frozenset([self._catalogue.without(reason)])
            result = self._try(own)
            if result is None:
                untried += 1
            else:
                costs.append(ReasonCost(reason, result.gain if result.gain.frees else Gain(0, 0)))
        idle = frozenset(each.reason for each in costs if not each.gain.frees)
        return tuple(sorted(costs, key=lambda each: each.gain, reverse=True)), untried, idle

    def _by_reason(
        self, refusals: Mapping[str, Sequence[Refusal]]
    ) -> Iterator[tuple[Reason, frozenset[Change | None]]]:
        """Yield each reason with the changes against it, the reason that keeps most first."""
        kept = {reason: {name for name, _ in subjects(refusals, reason)} for reason in Reason}
        for reason in sorted(filter(kept.get, Reason), key=lambda each: self._worth(kept[each]), reverse=True):
            yield reason, frozenset(self._catalogue.of(*each) for each in subjects(refusals, reason))

    # -- things, pairs, larger sets

    def _bundles(self, blockers: Mapping[str, Changes], idle: frozenset[Reason]) -> tuple[tuple[Bundle, ...], int]:
        """Return the sets of changes that gain something, and how many there was no time for."""
        queue = Promising(blockers, self._worth)
        found: dict[Changes, Bundle] = {}
        left = 0
        while (taken := queue.take()) is not None:
            changes, bound = taken
            # What all things behind a reason don't gain together, one of them does not gain alone.
            part = len(changes) == 1 and next(iter(changes)).reason in idle and changes not in self._results
            if part or bound <= _sum(found, changes):
                continue
            result = self._try(changes)
            if result is None:
                left += 1
                continue
            meant = queue.frees(changes)
            better = result.gain.frees and result.gain > _sum(found, changes)
            if better and not set(meant).isdisjoint(result.freed):
                tight, best = self._tightened(changes, result)
                found[changes] = Bundle(tight, best.gain, best.freed, best.settings)
            for name in meant:
                # What still keeps a node that was to be freed makes a larger set.
                more = self._catalogue.all_of(name, result.plan.refusals.get(name, ()))
                if more:
                    queue.add(changes | more)
        return tuple(sorted(found.values(), key=_rank, reverse=True)), left

    def _tightened(self, changes: Changes, result: _Result) -> tuple[tuple[Change, ...], _Result]:
        """Return *changes* with settings no looser than needed, while they gain as much, and the result of that."""
        for each in [each for each in _ordered(changes) if each.tighter is not None]:
            for smaller in each.tighter(result.plan) if each.tighter is not None else ():
                tight = changes - {each} | {smaller}
                again = self._try(tight)
                if again is not None and again.gain >= result.gain:
                    changes, result = tight, again
                    break
        return _ordered(changes), result

    def _together(self, found: Sequence[Bundle]) -> tuple[Bundle | None, tuple[int, ...], int]:
        """Return what those of *found* gain together that add something to those before them, their numbers, and how
        many of *found* were tried.

        Several may use the same room, so gains don't add up.
        """
        seen = 0
        chosen: dict[tuple[Reason, str], Change] = {}
        best, numbers = self._results[frozenset()], list[int]()
        for number, bundle in enumerate(found, 1):
            more = {**{(each.reason, each.thing): each for each in bundle.changes}, **chosen}
            result = self._try(frozenset(more.values()))
            if result is None:
                break
            seen = number
            if result.gain.frees and result.gain > best.gain:
                chosen, best = more, result
                numbers.append(number)
        if len(numbers) < 2:
            return None, (), seen
        return (
            Bundle(_ordered(chosen.values()), best.gain, best.freed, best.settings),
            tuple(numbers),
            seen,
        )

    # -- one node

    def _against(self, name: str, refusals: Iterable[Refusal], *, small: bool) -> Iterator[Change]:
        """Yield the changes against *refusals* of node *name*; if *small*, settings change only as far as it needs."""
        for each in self._catalogue.all_of(name, refusals) or ():
            yield each.only(self._base.facts[name]) if small and each.only is not None else each

    def _smallest(self, name: str, changes: Changes) -> Freed:
        for each in _ordered(changes):
            fewer = changes - {each}
            result = self._try(fewer) if fewer else None
            if result is not None and name in result.freed:
                changes = fewer
        return self._freed(name, changes)

    def _freed(self, name: str, changes: Changes) -> Freed:
        result = self._results[changes]
        removal = next(each for each in result.plan.removals if each.node == name)
        bundle = Bundle(_ordered(changes), result.gain, result.freed, result.settings)
        return Freed(bundle, removal.moves, removal.round)

    # -- measuring

    def _try(self, changes: Changes) -> _Result | None:
        """Return the result of *changes*, ``None`` if there is no time to plan with them."""
        known = self._results.get(changes)
        if known is not None:
            return known
        ordered, began, plan = _ordered(changes), self._clock(), None
        if self._standing is not None:
            if began + self._longest.get(True, self._planned) > self._until:
                return None
            plan = self._standing.planned(ordered)
        part, scenario = plan is not None, self._scenario.after(ordered)
        if plan is None:
            if began + max(self._planned, self._longest.get(False, 0.0)) > self._until:
                return None
            plan = self._measure(scenario)
        self._longest[part] = max(self._longest.get(part, 0.0), self._clock() - began)
        gone = {removal.node for removal in plan.removals}
        more, fewer = self._worth(gone - self._gone), self._worth(self._gone - gone)
        gain = Gain(more.micros - fewer.micros, more.nodes - fewer.nodes)
        result = _Result(plan, gain, tuple(sorted(gone - self._gone)), scenario.settings)
        self._results[changes] = result
        return result

    def _worth(self, names: Iterable[str]) -> Gain:
        facts, micros, nodes = self._base.facts, 0, 0
        for name in names:
            fact = facts.get(name)
            nodes += 1
            micros += fact.price.monthly if fact is not None and fact.price is not None else 0
        return Gain(micros, nodes)


def _ordered(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return *changes* in the order in which to make them: removing an opt-out comes before vouching for a pod."""
    return tuple(sorted(changes, key=lambda each: (_IMPORTANCE[each.reason], each.thing)))


def alternatives(found: Sequence[Bundle], numbers: Sequence[int], seen: int) -> tuple[Bundle, ...]:
    """Return *found*, of which the first *seen* were tried together and those with *numbers* (from 1) add something.

    What adds nothing to the others and gains as much as a bundle before it is the alternative to that one: to the one
    that frees the same node, if there is one.
    """
    made: list[Bundle] = []
    for number, each in enumerate(found, 1):
        heads = [
            at
            for at, head in enumerate(made, 1)
            if not head.instead_of
            and head.gain == each.gain
            and number not in numbers
            and number <= seen
            and (at not in numbers or not set(head.freed).isdisjoint(each.freed))
        ]
        same = [at for at in heads if not set(made[at - 1].freed).isdisjoint(each.freed)]
        made.append(msgspec.structs.replace(each, instead_of=next(iter((*same, *heads)), 0)))
    return tuple(made)


def _rank(bundle: Bundle) -> tuple[Gain, int, int]:
    """Return the key of the best advice: what gains most, then what has fewest changes, then what needs no caution."""
    return bundle.gain, -len(bundle.changes), -sum(bool(each.note) for each in bundle.changes)


def _sum(found: Mapping[Changes, Bundle], changes: Changes) -> Gain:
    """Return what the parts of *changes* gain that are known already: whoever makes them needs no larger set."""
    parts = [bundle.gain for each, bundle in found.items() if each < changes]
    return Gain(sum(each.micros for each in parts), sum(each.nodes for each in parts))


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
    for (reason, what), kept in alike.items():
        more = f" and {len(kept) - 1:,} more" if len(kept) > 1 else ""
        yield f"{reason} {kept[0]}{more}: {what}"


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
        return Adviser(self._base, self._scenario, catalogue, self._measure(), limits, self._stand())

    def _stand(self) -> Callable[[], Standing] | None:
        """Return what makes the plan as it stands, ``None`` if it has more than one round."""
        judge, only = self._tunable.judge(self._tunable.settings), self._horizon.only
        return None if self._horizon.until_stable else lambda: Standing(self._base, judge, only)

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

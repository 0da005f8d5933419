"""Measures changes by planning again with them, the most promising first, until the time is over. Pure.

A set of changes can free a node only if it has a change against each of the node's refusals. So the nodes whose known
refusals it covers bound what it may gain, and sets with a low bound come last. What still keeps such a node afterwards
(a minimum, room that another strategy would find) may have a change of its own, and makes a larger set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tightship.advice.catalogue import ROOM, Catalogue
from tightship.advice.model import Advice, Bundle, Freed, Gain, ReasonCost
from tightship.advice.promising import MOST_CHANGES, Changes, Promising
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.changes import Change, Scenario, TimeLimit, subjects
from tightship.planning.evaluate import Evaluation
from tightship.planning.plan import Plan
from tightship.rules.eviction_rules import SWITCHABLE as POD_RULES
from tightship.rules.nodes import SWITCHABLE as NODE_RULES

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
    """Advice about one evaluation. *scenario* is what it was made of, *measure* plans another one on the same terms."""

    def __init__(
        self, base: Evaluation[Any], scenario: Scenario, catalogue: Catalogue, measure: Measure, limits: TimeLimit
    ) -> None:
        self._base = base
        self._scenario = scenario
        self._catalogue = catalogue
        self._measure = measure
        self._clock = limits.clock
        self._until = limits.clock() + limits.seconds
        self._longest = limits.planned
        self._gone = {removal.node for removal in base.plan.removals}
        self._results: dict[Changes, _Result] = {frozenset(): _Result(base.plan, Gain(0, 0), (), scenario.settings)}

    def advise(self) -> Advice:
        """Return what each reason costs, and the changes that gain something."""
        refusals = self._base.plan.refusals
        blockers = {name: self._catalogue.all_of(name, found) for name, found in refusals.items()}
        reasons, untried, idle = self._reasons(refusals)
        found, left = self._bundles({name: each for name, each in blockers.items() if each is not None}, idle)
        together, numbers = self._together(found)
        others = self._catalogue.left_to_others(refusals)
        return Advice(reasons, found, together, numbers, len(self._results) - 1, untried + left, others)

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

    def _together(self, found: Sequence[Bundle]) -> tuple[Bundle | None, tuple[int, ...]]:
        """Return what those of *found* gain together that add something to those before them, and their numbers.

        Several may use the same room, so gains don't add up.
        """
        chosen: dict[tuple[Reason, str], Change] = {}
        best, numbers = self._results[frozenset()], list[int]()
        for number, bundle in enumerate(found, 1):
            more = {**{(each.reason, each.thing): each for each in bundle.changes}, **chosen}
            result = self._try(frozenset(more.values()))
            if result is None:
                break
            if result.gain.frees and result.gain > best.gain:
                chosen, best = more, result
                numbers.append(number)
        if len(numbers) < 2:
            return None, ()
        return Bundle(_ordered(chosen.values()), best.gain, best.freed, best.settings), tuple(numbers)

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
        began = self._clock()
        if began + self._longest > self._until:
            return None
        scenario = self._scenario.after(_ordered(changes))
        plan = self._measure(scenario)
        self._longest = max(self._longest, self._clock() - began)
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


def _rank(bundle: Bundle) -> tuple[Gain, int, int]:
    """Return the key of the best advice: what gains most, then what has fewest changes, then what needs no caution."""
    return bundle.gain, -len(bundle.changes), -sum(bool(each.note) for each in bundle.changes)


def _sum(found: Mapping[Changes, Bundle], changes: Changes) -> Gain:
    """Return what the parts of *changes* gain that are known already: whoever makes them needs no larger set."""
    parts = [bundle.gain for each, bundle in found.items() if each < changes]
    return Gain(sum(each.micros for each in parts), sum(each.nodes for each in parts))

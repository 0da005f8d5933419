"""Which seeds ``make test`` runs: few, in which everything that is drawn occurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from functools import cache

from tightship_testkit.disasters.making import make
from tightship_testkit.disasters.scenario import Scenario

OF = 300
"""The seeds to choose from."""
TIMES = 3
"""In how many of the chosen each kind of step and fault occurs: one may come when nothing is going on."""


def traits(scenario: Scenario) -> dict[Hashable, int]:
    """Return what occurs in *scenario*, each with how many of the chosen must have it."""
    kinds: dict[Hashable, int] = {each.kind: TIMES for each in scenario.steps}
    kinds |= {each.kind: TIMES for each in scenario.faults}
    others: set[Hashable] = {tuple(each.program for each in scenario.controllers)}
    for work in scenario.workloads:
        others |= {("workload", each) for each in (work.kind, *work.annotations, *work.finalizers, *work.spec)}
    for each in scenario.controllers:
        words = [choice for choice in each.settings.items() if isinstance(choice[1], bool | str)]
        others |= {(each.program, what) for what in (len(each.skews), each.namespace, each.landings, *each.settings)}
        others |= {(each.program, *choice) for choice in (*words, *each.variables.items())}
    return kinds | dict.fromkeys(others, 1)


def _work(scenario: Scenario) -> float:
    """Return about how many seconds of a processor a run takes: nearly all of it is that of the replicas."""
    return 0.6 + 0.85 * sum(len(each.skews) for each in scenario.controllers)


@cache
def chosen() -> tuple[int, ...]:
    """Return few seeds that have every trait of all :data:`OF` as often as is wanted.

    A greedy choice by what a seed adds for the work of its run, without those whose traits the others have often
    enough, too.
    """
    scenarios = {seed: make(seed) for seed in range(OF)}
    found = {seed: traits(each) for seed, each in scenarios.items()}
    work = {seed: _work(each) for seed, each in scenarios.items()}
    there = Counter(trait for each in found.values() for trait in each)
    wanted = {trait: min(times, there[trait]) for each in found.values() for trait, times in each.items()}
    missing, taken = dict(wanted), list[int]()
    while any(missing.values()):
        left = (seed for seed in found if seed not in taken)
        best = max(left, key=lambda seed: sum(missing[trait] > 0 for trait in found[seed]) / work[seed])
        taken.append(best)
        for trait in found[best]:
            missing[trait] = max(0, missing[trait] - 1)
    for seed in sorted(taken, key=lambda seed: work[seed], reverse=True):
        others = Counter(trait for each in taken if each != seed for trait in found[each])
        if all(others[trait] >= wanted[trait] for trait in found[seed]):
            taken.remove(seed)
    return tuple(sorted(taken))


__all__ = ["chosen", "traits"]

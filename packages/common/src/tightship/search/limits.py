"""What a controller's gates would let go, asked before a search: they judge one node after another, a search many."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from msgspec import Struct

from tightship.planning.plan.model import Candidate, Removal
from tightship.planning.plan.planner import Planner
from tightship.planning.plan.strategies import Gates


class GateLimits(Struct, frozen=True):
    """The *candidates* that may go at all, at most how many of each pool (*pools*), and how many in *total*."""

    candidates: frozenset[str]
    pools: dict[str, int]
    total: int


def limits_of(gates: Gates, planner: Planner) -> GateLimits:
    """Return what *gates* allow on *planner*, which has planned nothing yet, if no pod that moves closes one."""
    everyone = list(planner.candidates.values())
    first = _without_removals(planner)
    free = [candidate for candidate in everyone if not gates.refuses(candidate, first)]
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in free:
        by_pool.setdefault(candidate.pool, []).append(candidate)
    pools = {pool: _how_many(gates, planner, mates) for pool, mates in by_pool.items()}
    return GateLimits(frozenset(each.name for each in free), pools, _how_many(gates, planner, free))


def _how_many(gates: Gates, planner: Planner, candidates: Iterable[Candidate]) -> int:
    """Return how many of *candidates* the gates let go one after another."""
    trial = _without_removals(planner)
    for candidate in candidates:
        if not gates.refuses(candidate, trial):
            trial.removals.append(Removal(candidate.name, trial.round, ()))
    return len(trial.removals)


def _without_removals(planner: Planner) -> Planner:
    # Gates tell planners apart by identity, and read what a planner has removed.
    trial = copy.copy(planner)
    trial.removals = []
    return trial

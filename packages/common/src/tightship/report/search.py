"""What the document of a plan says of a search: how long it took, and the plans with and without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from tightship.core.counting import counted

if TYPE_CHECKING:
    # hpa-scaler uses documents too, and has no numpy, which plans need.
    from tightship.planning.plan.model import Searched


class SearchedPlan(Struct, frozen=True, rename="camel"):
    """The nodes that a plan leaves (*nodes_after*), and its *evictions*."""

    nodes_after: int
    evictions: int


class SearchSummary(Struct, frozen=True, rename="camel"):
    """What a search for a better plan came to, in its first round.

    The search was allowed to take *seconds* and made *iterations*. *greedy* is what the strategy alone would plan,
    *searched* the better of both plans. No plan of one round leaves fewer than *bound* nodes.
    """

    seconds: float | None
    iterations: int
    greedy: SearchedPlan
    searched: SearchedPlan
    bound: int


def search_summary(told: Searched | None, nodes: int, virtual: int = 0) -> SearchSummary | None:
    """Return what a search of a cluster of *nodes* nodes came to, ``None`` without a search.

    The search knows *virtual* nodes more, which stay.
    """
    if told is None or (told.seconds is None and not told.iterations):
        return None
    return SearchSummary(
        seconds=told.seconds,
        iterations=told.iterations,
        greedy=SearchedPlan(nodes - told.greedy_removed, told.greedy_evictions),
        searched=SearchedPlan(nodes - told.removed, told.evictions),
        bound=told.bound - virtual,
    )


def searched(search: SearchSummary) -> str:
    """Return *search* in one line for people."""
    took = counted(search.iterations, "iteration")
    if search.seconds is not None:
        took = f"{search.seconds:g} s, {took}"
    greedy, found = search.greedy, search.searched
    nodes = f"{greedy.nodes_after:,} → {found.nodes_after:,} nodes stay"
    evictions = f"{greedy.evictions:,} → {found.evictions:,} evictions"
    return f"for {took}: {nodes}, {evictions}; no plan of one round keeps fewer than {search.bound:,}"

"""What the document of a plan says of a search: the plans with and without it, the bound, and the dearest setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tightship.documents.advice import AdviceEntry
from tightship.objects.counting import counted

if TYPE_CHECKING:
    # hpa-scaler uses documents too, and has no numpy, which plans need.
    from tightship.planning.plan.model import Searched

HOW_TO_SOLVE = (
    "the bound may be lower than need be, unless its solver (pip install 'tightship[solver]') ends in a minute"
)
"""What the line says where HiGHS is not installed, or found no optimum in time."""


class SearchedPlan(Struct, frozen=True, rename="camel"):
    """The nodes that a plan leaves (*nodes_after*), and its *evictions*."""

    nodes_after: int
    evictions: int


class SearchSummary(Struct, frozen=True, rename="camel"):
    """What a search for a better plan came to, in its first round.

    The search was allowed to take *seconds* and made *iterations*. *greedy* is what the strategy alone would plan,
    *searched* the better of both plans. No plan of one round leaves fewer than *bound* nodes; *solver* found that:
    ``highs`` the best that its linear program has, ``ascent`` one that may be lower. *costliest* is the change of
    settings that frees most nodes, measured by the strategy's own plans; ``null`` if none does, or none was measured.
    """

    seconds: float | None
    iterations: int
    greedy: SearchedPlan
    searched: SearchedPlan
    bound: int
    solver: Literal["highs", "ascent"] = "ascent"
    costliest: AdviceEntry | None = None


def search_summary(
    told: Searched | None, nodes: int, known: int, costliest: AdviceEntry | None = None
) -> SearchSummary | None:
    """Return what a search of a cluster of *nodes* nodes came to, ``None`` without a search.

    The search knows *known* nodes: virtual ones besides, which stay, and none that could not be read, which stay too.
    """
    if told is None or (told.seconds is None and not told.iterations):
        return None
    return SearchSummary(
        seconds=told.seconds,
        iterations=told.iterations,
        greedy=SearchedPlan(nodes - told.greedy_removed, told.greedy_evictions),
        searched=SearchedPlan(nodes - told.removed, told.evictions),
        bound=told.bound + nodes - known,
        solver="highs" if told.solved else "ascent",
        costliest=costliest,
    )


def search_lines(search: SearchSummary) -> Iterator[str]:
    """Return *search* in lines for people."""
    took = counted(search.iterations, "iteration")
    if search.seconds is not None:
        took = f"{search.seconds:g} s, {took}"
    greedy, found, costliest = search.greedy, search.searched, search.costliest
    nodes = f"{greedy.nodes_after:,} → {found.nodes_after:,} nodes stay"
    evictions = f"{greedy.evictions:,} → {found.evictions:,} evictions"
    yield f"for {took}: {nodes}, {evictions}; no plan of one round keeps fewer than {search.bound:,}"
    if costliest is not None:
        reason, how = costliest.changes[0].reason, " ".join(costliest.flags) or costliest.values
        more = f"by the strategy alone, {counted(costliest.gain.nodes, 'more node')} would go with {how}"
        yield f"the setting behind {reason} costs most: {more}"
    if search.solver == "ascent" and search.bound < found.nodes_after:
        yield HOW_TO_SOLVE

"""What evictions buy: a plan that removes ever more nodes with few evictions each, and the fewest that are proven."""

from __future__ import annotations

from collections.abc import Callable

from tightship.frontier.buying import Buying
from tightship.planning.plan import Improve, Plan, Proven


def frontier(most: int | None = None) -> tuple[Improve, Callable[[Plan], Proven]]:
    """Return what makes the strategy of a frontier, and what proves the plan that the strategy has made.

    With *most*, the strategy plans what saves most with at most so many evictions.
    """
    buying = Buying(most)
    return buying.over, buying.proven

"""Searches for a plan that removes more nodes than a strategy finds."""

from tightship.planning.plan import SearchRules, Strategy
from tightship.search.strategy import Searching


def search(strategy: Strategy, rules: SearchRules) -> Strategy:
    """Return a strategy that plans as *strategy* does, then searches by *rules* for a plan that removes more.

    A search counts nodes, not money, so a strategy by price is returned as it is.
    """
    return strategy if strategy.by_price else Searching(strategy, rules)

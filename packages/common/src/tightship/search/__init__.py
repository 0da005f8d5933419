"""Searches for a plan that removes more nodes than a strategy finds."""

from tightship.planning.plan import SearchRules, Strategy
from tightship.search.strategy import Searching


def search(strategy: Strategy, rules: SearchRules) -> Strategy:
    """Return a strategy that plans as *strategy* does, then searches by *rules* for a better plan.

    Where *strategy* goes by price, a plan that saves more money is the better one.
    """
    return Searching(strategy, rules)

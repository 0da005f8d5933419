"""Plans: what would be removed, in what order, and why the rest stays."""

from tightship.planning.plan.engine import Forecast, Judge, Judgement, after, forecast, make_plan
from tightship.planning.plan.model import Move, Placement, Plan, Removal
from tightship.planning.plan.planner import Candidate, Planner
from tightship.planning.plan.strategies import STRATEGIES, Gates, Key, Ordered, PerPool, Strategy

__all__ = [
    "STRATEGIES",
    "Candidate",
    "Forecast",
    "Gates",
    "Judge",
    "Judgement",
    "Key",
    "Move",
    "Ordered",
    "PerPool",
    "Placement",
    "Plan",
    "Planner",
    "Removal",
    "Strategy",
    "after",
    "forecast",
    "make_plan",
]

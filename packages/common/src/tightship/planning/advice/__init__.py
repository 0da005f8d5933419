"""What each blocker costs: changes that would free nodes, each measured by planning again with the change made. Pure.

:mod:`~tightship.planning.advice.catalogue` finds the changes behind the refusals of a plan,
:mod:`~tightship.planning.advice.edits` makes them in a snapshot, and :mod:`~tightship.planning.advice.adviser` plans.
"""

from tightship.planning.advice.adviser import Adviser, TimeLimit
from tightship.planning.advice.catalogue import Catalogue
from tightship.planning.advice.model import Advice, Bundle, Change, Freed, Gain, ReasonCost, Scenario, Tunable

__all__ = [
    "Advice",
    "Adviser",
    "Bundle",
    "Catalogue",
    "Change",
    "Freed",
    "Gain",
    "ReasonCost",
    "Scenario",
    "TimeLimit",
    "Tunable",
]

"""What each blocker costs: changes that would free nodes, each measured by planning again with the change made. Pure.

:mod:`~tightship.advice.catalogue` finds the changes behind the refusals of a plan,
:mod:`~tightship.advice.edits` makes them in a snapshot, and :mod:`~tightship.advice.adviser` plans.
"""

from tightship.advice.adviser import Adviser, TimeLimit
from tightship.advice.catalogue import Catalogue
from tightship.advice.model import Advice, Bundle, Change, Freed, Gain, ReasonCost, Scenario, Tunable

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

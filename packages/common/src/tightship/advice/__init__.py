"""What each blocker costs: changes that would free nodes, each measured by planning again with the change made. Pure.

:mod:`~tightship.advice.catalogue` finds the changes behind the refusals of a plan and makes them in a snapshot, and
:mod:`~tightship.advice.adviser` plans.
"""

from tightship.advice.adviser import advise

__all__ = ["advise"]

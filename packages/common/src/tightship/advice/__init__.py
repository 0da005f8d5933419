"""What each blocker costs: changes that would free nodes, each measured by planning again with the change made. Pure.

:mod:`~tightship.advice.catalogue` finds the changes behind the refusals of a plan, :mod:`~tightship.advice.edits` makes
them in a snapshot, and :mod:`~tightship.advice.adviser` plans.
"""

from collections.abc import Sequence

from tightship.advice.advising import Advising
from tightship.documents.inputs import Inputs
from tightship.planning.changes import AdviceAsked


def advise(asked: AdviceAsked, inputs: Inputs, names: Sequence[str]) -> Inputs:
    """Return *inputs* with what each reason costs and what would free nodes; with *names*, what frees each of these."""
    advising = Advising(asked.tunable, asked.snapshot, asked.base, asked.horizon, asked.limits)
    seconds = asked.limits.seconds
    return advising.nodes(inputs, names, seconds) if names else advising.plan(inputs, seconds)

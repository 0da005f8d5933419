"""What a running controller would plan if Karpenter consolidated nothing itself, for its page and ``/status``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tightship.objects.reasons import Reason
from tightship.planning.evaluate import Evaluation, Judge, evaluate
from tightship.planning.plan import Plan
from tightship.process.loop import in_thread
from tightship.process.settings.sections import NodeSettings

EVERY = 600.0
"""Seconds for which such a plan is new enough: it costs as much as a first pass."""

S = TypeVar("S", bound=NodeSettings)


class Unmanaged(Generic[S]):
    """The plan as if Karpenter did not consolidate, by the *judge* of settings."""

    def __init__(self, judge: Callable[[S], Judge[Any]]) -> None:
        self._judge = judge
        self._plan: Plan | None = None
        self._settings: S | None = None
        self._next = 0.0

    async def plan(self, evaluation: Evaluation[Any], settings: S) -> Plan | None:
        """Return the plan beside *evaluation* under *settings*, ``None`` if nothing is left to Karpenter."""
        if not evaluation.plan.refuses(Reason.KARPENTER_MANAGED):
            self._settings = None
            return None
        if self._settings is not settings or evaluation.now >= self._next:
            judge = self._judge(settings.without_rule(Reason.KARPENTER_MANAGED))
            found = await in_thread(evaluate, evaluation.snapshot, judge, evaluation.now)
            self._plan, self._settings, self._next = found.plan, settings, evaluation.now + EVERY
        return self._plan

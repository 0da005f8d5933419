"""Advice for the page of a running controller, measured while somebody reads it: planning again takes a core."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from tightship.documents.advice import AdviceSummary, GainEntry
from tightship.documents.document import Generator, SettingsView, Source
from tightship.documents.inputs import Inputs
from tightship.kube.host import monotonic
from tightship.nodes.annexes import ADVISE
from tightship.objects.api_errors import one_line
from tightship.objects.times import rfc3339
from tightship.planning.changes import AdviceAsked, TimeLimit, Tunable
from tightship.planning.evaluate import AT_ONCE, Evaluation, evaluate
from tightship.process.logging import log
from tightship.process.loop import in_thread

SECONDS = 10.0
"""Seconds to plan again for advice."""

FRESH = 600.0
"""Seconds for which advice is good enough for the page."""


class MeasuredAdvice(Struct, frozen=True):
    """Advice as of *at*, and what each reason costs."""

    at: str
    advice: AdviceSummary
    costs: Mapping[str, GainEntry]


class PageAdvice:
    """Measures advice about the last evaluation. The event loop calls all methods; *clock* is seconds since 1970."""

    def __init__(self, clock: Callable[[], float], logger: logging.Logger) -> None:
        self._clock = clock
        self._log = logger
        self._last: tuple[Evaluation, Tunable] | None = None
        self._measured: MeasuredAdvice | None = None
        self._begun = -math.inf
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def judged(self, evaluation: Evaluation, tunable: Tunable) -> None:
        """Take over the evaluation of a pass, made with the settings of *tunable*."""
        self._last = evaluation, tunable

    def asked(self) -> MeasuredAdvice | None:
        """Return what was measured last, for somebody who reads the page; measure anew if that is old."""
        old = self._clock() >= self._begun + FRESH
        idle = self._task is None and not self._stopped
        if ADVISE is not None and self._last is not None and idle and old:
            self._begun = self._clock()
            self._task = asyncio.create_task(self._measure(*self._last), name="advice")
        return self._measured

    def stop(self) -> None:
        """End what is being measured, and begin nothing more."""
        self._stopped = True

    async def _measure(self, evaluation: Evaluation, tunable: Tunable) -> None:
        try:
            self._measured = await in_thread(partial(self._work, evaluation, tunable))
        except Exception as error:  # the page has the plan all the same
            log(self._log, logging.ERROR, "advice failed", error=one_line(error), exc_info=error)
        finally:
            self._task = None

    def _work(self, evaluation: Evaluation, tunable: Tunable) -> MeasuredAdvice | None:
        # Landings and pauses of the pass belong to the moment; what a change gains is measured without them.
        began, snapshot, now = monotonic(), evaluation.snapshot, evaluation.now
        base = evaluate(snapshot, tunable.judge(tunable.settings), now, AT_ONCE)
        limits = TimeLimit(SECONDS, self._time, monotonic() - began)
        inputs = Inputs(
            generator=Generator("", ""),
            source=Source("cluster", ""),
            settings=SettingsView("", {}),
            snapshot=snapshot,
            facts=base.facts,
            plan=base.plan,
            now=now,
        )
        assert ADVISE is not None
        told = ADVISE(AdviceAsked(tunable, snapshot, base, AT_ONCE, limits), inputs, ())
        if told.advice is None:
            return None
        return MeasuredAdvice(rfc3339(now), told.advice, {reason.value: cost for reason, cost in told.costs.items()})

    def _time(self) -> float:
        return math.inf if self._stopped else monotonic()

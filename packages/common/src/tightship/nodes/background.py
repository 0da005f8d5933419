"""What a running controller computes beside its passes, in a thread: a better plan, and advice for who reads its page.

Advice is measured while somebody reads the page, since planning again takes a core. A search runs between two passes. A
pass plans what it knows from before: the plan of the last pass, and the plan that a search has found since. What
still holds of them is kept, so a cluster that moves costs a plan only the parts that broke. The next search then starts
from there. Memory holds two plans, and the snapshot that is being searched.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from msgspec import Struct

from tightship.documents.advice import AdviceSummary, GainEntry
from tightship.documents.build import Inputs
from tightship.documents.document import Generator, SettingsView, Source
from tightship.kube.host import HOST, monotonic
from tightship.nodes.annexes import ADVISE, SEARCH
from tightship.objects.api_errors import one_line
from tightship.objects.times import rfc3339
from tightship.planning.changes import AdviceAsked, TimeLimit, Tunable
from tightship.planning.evaluate import AT_ONCE, Evaluation, Facts, Horizon, Judge, evaluate, score
from tightship.planning.plan import Plan, SearchRules
from tightship.process.logging import log
from tightship.process.loop import in_thread

ITERATIONS = 20
"""Iterations for each second of searching where time is virtual: a few, because such clusters are small."""

REST = 20
"""The pause after a search that brought nothing, in lengths of the search: that spends a twentieth of a core."""

PATIENCE = 60.0
"""Seconds, besides three lengths of the search, for which the first claims wait for the first search."""

_WAIT = 0.1


class SearchState(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What ``/status`` tells of searches: whether one is *running*, how many ended, how many of those found better.

    While *claims_wait*, no node is claimed, because the first search has not ended.
    """

    running: bool = False
    claims_wait: bool = False
    searches: int = 0
    improved: int = 0
    last_ended: str = ""


class _Ended(Struct, frozen=True):
    """The last search: what it saw, the nodes its plan would *keep*, whether it was *better* than before, and when."""

    facts: Facts
    judge: Judge
    keep: int
    better: bool
    at: float


class BackgroundSearch:
    """One search at a time. The event loop calls all methods.

    A search ends at once when it *may* no longer run, which the thread asks at every step. A search that found
    something sets *wake*. *clock* returns seconds since 1970.
    """

    def __init__(
        self, wake: asyncio.Event, *, may: Callable[[], bool], clock: Callable[[], float], logger: logging.Logger
    ) -> None:
        self._wake = wake
        self._may = may
        self._clock = clock
        self._log = logger
        self._known: tuple[Plan, ...] = ()
        self._last: _Ended | None = None
        self._hurt = False
        self._task: asyncio.Task[None] | None = None
        self._judge: Judge | None = None
        self._end = threading.Event()
        self._go = threading.Event()
        self._go.set()
        self._patient_until = 0.0
        self._searches = self._improved = 0

    def horizon(self, seconds: float) -> Horizon:
        """Return how a pass evaluates, if searches take *seconds*; 0 for no searches."""
        if not seconds:
            self._forget()
            return AT_ONCE
        return Horizon(search=SearchRules(iterations=0, warm=self._known))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the running search wait meanwhile, so that it takes no time from a pass."""
        self._go.clear()
        try:
            yield
        finally:
            self._go.set()

    def judged(self, evaluation: Evaluation, judge: Judge, seconds: float) -> None:
        """Take over the plan of a pass, and begin a search if that may bring something."""
        plan = evaluation.plan
        if not seconds or plan.placement != "possible":
            self._forget()
            return
        self._known = (plan,)
        broken = 0 if plan.searched is None else plan.searched.broken
        self._hurt = self._hurt or broken > 0
        if broken:
            log(self._log, logging.DEBUG, "the known plan holds in part", broken=broken, planned=len(plan.removals))
        if self._judge is not judge:
            self._end.set()
        if not self._may():
            self._forget()
        elif self._task is None and self._wanted(evaluation, judge, seconds):
            self._begin(evaluation, judge, seconds)

    def claims_wait(self) -> bool:
        """Whether claims have to wait for the first search: what goes first decides what is left for the last."""
        return self._last is None and self._clock() < self._patient_until

    def state(self, seconds: float) -> SearchState | None:
        """Return what to show; ``None`` without searches."""
        if not seconds:
            return None
        return SearchState(
            running=self._task is not None,
            claims_wait=self.claims_wait(),
            searches=self._searches,
            improved=self._improved,
            last_ended="" if self._last is None else rfc3339(self._last.at),
        )

    def stop(self) -> None:
        """End the running search, and begin no other."""
        self._may = lambda: False
        self._forget()

    def _forget(self) -> None:
        self._end.set()
        self._known = ()
        self._last = None
        self._patient_until = 0.0

    def _wanted(self, evaluation: Evaluation, judge: Judge, seconds: float) -> bool:
        last, plan = self._last, evaluation.plan
        if SEARCH is None or not plan.removals:
            return False  # if no node can go alone, none can go with others
        if last is None or last.judge is not judge:
            return True
        keep = _kept(evaluation, plan)
        bound = 0 if plan.searched is None else plan.searched.bound
        if last.facts == evaluation.facts:
            return last.better and keep > bound
        promising = self._hurt or keep > last.keep or (last.better and keep > bound)
        return self._clock() >= last.at + seconds * (1 if promising else REST)

    def _begin(self, evaluation: Evaluation, judge: Judge, seconds: float) -> None:
        self._end = threading.Event()
        self._judge = judge
        self._hurt = False
        if self._last is None and not self._patient_until:
            self._patient_until = self._clock() + 3 * seconds + PATIENCE
        self._task = asyncio.create_task(self._search(evaluation, judge, seconds, self._end), name="search")

    async def _search(self, evaluation: Evaluation, judge: Judge, seconds: float, end: threading.Event) -> None:
        before = evaluation.plan
        try:
            plan = await in_thread(self._work, evaluation, judge, seconds, end)
        except Exception as error:  # the plan of each pass stands without a search
            log(self._log, logging.ERROR, "search failed", error=one_line(error), exc_info=error)
            plan = before
        finally:
            self._task = None
        if end.is_set() or not self._may():
            return
        priced = evaluation.facts if judge.strategy(evaluation.facts).by_price else {}
        first, better = self._last is None, score(plan, priced) > score(before, priced)
        keep = _kept(evaluation, plan)
        self._last = _Ended(evaluation.facts, judge, keep, better, self._clock())
        self._searches += 1
        self._improved += better
        log(
            self._log,
            logging.INFO,
            "searched",
            better=better,
            planned=len(plan.removals),
            evictions=plan.evictions,
            before=len(before.removals),
            evictions_before=before.evictions,
            iterations=0 if plan.searched is None else plan.searched.iterations,
        )
        self._known = (plan, *self._known[:1])
        # Claims may have waited for the first search, whatever came of it.
        if better or first:
            self._wake.set()

    def _work(self, evaluation: Evaluation, judge: Judge, seconds: float, end: threading.Event) -> Plan:
        stopwatch = HOST.get().stopwatch

        def stop() -> bool:
            # On virtual time this is no thread: nobody would end the wait.
            while stopwatch is not None and not self._go.wait(_WAIT) and not end.is_set():
                pass
            return end.is_set() or not self._may()

        rules = SearchRules(
            iterations=max(1, round(ITERATIONS * seconds)) if stopwatch is None else None,
            seconds=None if stopwatch is None else seconds,
            clock=stopwatch,
            seed=self._searches,
            warm=(evaluation.plan,),
            stop=stop,
        )
        return evaluate(evaluation.snapshot, judge, evaluation.now, Horizon(search=rules), improve=SEARCH).plan


def _kept(evaluation: Evaluation, plan: Plan) -> int:
    return len(evaluation.facts) - len(plan.removals)


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
        self._last: tuple[Evaluation, Callable[[], Tunable | None]] | None = None
        self._measured: MeasuredAdvice | None = None
        self._begun = -math.inf
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def judged(self, evaluation: Evaluation, changes: Callable[[], Tunable | None]) -> None:
        """Take over the evaluation of a pass; *changes* returns what advice may change of its settings, if anything."""
        self._last = evaluation, changes

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

    async def _measure(self, evaluation: Evaluation, changes: Callable[[], Tunable | None]) -> None:
        try:
            tunable = changes()
            if tunable is not None:
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
        answer = ADVISE(AdviceAsked(tunable, snapshot, base, AT_ONCE, limits), inputs, ())
        if answer.advice is None:
            return None
        return MeasuredAdvice(
            rfc3339(now), answer.advice, {reason.value: cost for reason, cost in answer.costs.items()}
        )

    def _time(self) -> float:
        return math.inf if self._stopped else monotonic()

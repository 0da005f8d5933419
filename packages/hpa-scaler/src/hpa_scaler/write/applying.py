"""Carries out the decisions of a cycle: raises first, then bounds that are given back, then lowerings and notes.

Each write is preceded by a check that this replica may still write. The next cycle judges again what was not written,
from the API server's state at that time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec import Struct

from hpa_scaler.decide.correlated import settle
from hpa_scaler.decide.cycle import Cycle, Judged, asked_of, subject_of
from hpa_scaler.decide.history import History
from hpa_scaler.decide.policy import Decision, decide
from hpa_scaler.decide.writing import Patch, Restoration, change, remember, restoration, state_of
from hpa_scaler.spec.rules import Rules
from hpa_scaler.spec.spec import Spec
from hpa_scaler.write.events import Herald
from hpa_scaler.write.memory import Memory
from hpa_scaler.write.metrics import ScalerMetrics
from hpa_scaler.write.noting import Noted, is_due
from hpa_scaler.write.sending import Ending, Sent, send
from tightship.app.runtime.loop import a_few_at_a_time
from tightship.core.objects import HorizontalPodAutoscaler
from tightship.core.reasons import Reason, Refusal
from tightship.kube.connection import Connection
from tightship.kube.rate_limit import TokenBucket

AT_ONCE = 8
"""Concurrent writes."""

IN_A_ROW = 5
"""Writes in a row without an answer after which the API server counts as away."""


class Return(Struct, frozen=True):
    """An HPA that has opted out, what is known of it, and what gives it back."""

    hpa: HorizontalPodAutoscaler
    history: History
    given: Restoration


class Todo(Struct, frozen=True):
    """The writes that a cycle has left to do. *noted* is what earlier cycles wrote down for HPAs that wait."""

    cycle: Cycle
    returns: tuple[Return, ...]
    noted: Noted
    defaults: Mapping[str, str]
    rules: Rules
    now: float


class Applied(Struct, frozen=True):
    """The results by uid: how each write ended, which HPAs were judged again, and why a change was refused."""

    endings: Mapping[str, Ending]
    again: Mapping[str, Judged]
    refused: Mapping[str, Refusal]

    def final(self, judged: Judged) -> Judged:
        """Return the final decision for an HPA."""
        uid = judged.decision.uid
        last, cause = self.again.get(uid, judged), self.refused.get(uid)
        if cause is None:
            return last
        return msgspec.structs.replace(last, decision=_with(last.decision, cause))


def judge_again(judged: Judged, hpa: HorizontalPodAutoscaler, todo: Todo, memory: Memory) -> Judged | None:
    """Return the decision for an HPA in its present state, by the answers of the cycle; ``None`` if it
    is not opted in.
    """
    asked = asked_of(hpa, todo.rules.prefix, todo.defaults)
    if asked is None:
        return None
    subject = subject_of(
        hpa,
        asked,
        outcomes=judged.subject.outcomes,
        rollout=judged.subject.rollout,
        rules=todo.rules,
        now=todo.now,
        remembered=memory.recall(hpa),
    )
    first = decide(subject)
    return Judged(subject, first, settle(first, todo.cycle.verdict, todo.now))


class Applier:
    """Writes to HPAs of one API server. *may* says whether this replica may write at this moment."""

    def __init__(
        self,
        connection: Connection,
        memory: Memory,
        *,
        bucket: TokenBucket,
        herald: Herald,
        metrics: ScalerMetrics,
    ) -> None:
        self._connection = connection
        self._memory = memory
        self._bucket = bucket
        self._herald = herald
        self._metrics = metrics
        self._unanswered = 0

    async def apply(self, todo: Todo, may: Callable[[], bool]) -> Applied:
        """Carry out everything in *todo*. Never raises errors of the API server."""
        work = _Work(todo, self._memory, self._herald)
        jobs: list[tuple[int, Callable[[], Awaitable[None]]]] = []
        for judged in todo.cycle.judged:
            decision = judged.decision
            if decision.changes:
                rank = 0 if decision.action == "raise" else 2
                jobs.append((rank, self._job(work.changing(judged), may)))
            else:
                self._memory.keep(judged.subject.hpa, decision.history)
                if is_due(decision, todo.noted):
                    jobs.append((3, self._job(work.remembering(judged), may)))
        jobs += [(1, self._job(work.returning(each), may)) for each in todo.returns]
        jobs.sort(key=lambda job: job[0])
        self._unanswered = 0
        await a_few_at_a_time(lambda job: job[1](), jobs, AT_ONCE)
        return Applied(work.endings, work.again, work.refused)

    async def remember(self, todo: Todo, may: Callable[[], bool]) -> None:
        """Write down what the HPAs of *todo* that wait to be lowered wait for, because a restart would forget it."""
        work = _Work(todo, self._memory, self._herald)
        pending = [each for each in todo.cycle.judged if each.decision.pending and not each.decision.dry_run]
        self._unanswered = 0
        await a_few_at_a_time(lambda each: self._job(work.remembering(each), may)(), pending, AT_ONCE)

    def _job(self, step: _Step, may: Callable[[], bool]) -> Callable[[], Awaitable[None]]:
        async def permitted() -> bool:
            if not may() or self._unanswered >= IN_A_ROW:
                return False
            await self._bucket.take()
            return may()

        async def job() -> None:
            sent = await send(self._connection, step.hpa, step.make, permitted)
            if sent.ending != "left":  # what was not sent tells nothing of the API server
                self._unanswered = self._unanswered + 1 if sent.ending in ("failed", "unheard") else 0
            self._metrics.wrote(sent.ending, again=sent.again)
            step.ended(sent)

        return job


class _Step:
    """One HPA to write: what to send, and what is known afterwards."""

    def __init__(self, work: _Work, hpa: HorizontalPodAutoscaler) -> None:
        self.hpa = hpa
        self.work = work

    def make(self, hpa: HorizontalPodAutoscaler) -> Patch | None:
        raise NotImplementedError

    def ended(self, sent: Sent) -> None:
        raise NotImplementedError


class _Work:
    """All steps of one cycle, and their results."""

    def __init__(self, todo: Todo, memory: Memory, herald: Herald) -> None:
        self.todo = todo
        self.memory = memory
        self.herald = herald
        self.endings: dict[str, Ending] = {}
        self.again: dict[str, Judged] = {}
        self.refused: dict[str, Refusal] = {}

    def changing(self, judged: Judged) -> _Step:
        return _Change(self, judged)

    def remembering(self, judged: Judged) -> _Step:
        return _Remember(self, judged)

    def returning(self, each: Return) -> _Step:
        return _GiveBack(self, each)


class _Change(_Step):
    """Sets the bounds of a decision."""

    def __init__(self, work: _Work, judged: Judged) -> None:
        super().__init__(work, judged.subject.hpa)
        self._judged: Judged | None = judged
        self._patch: Patch | None = None

    def make(self, hpa: HorizontalPodAutoscaler) -> Patch | None:
        todo, judged = self.work.todo, self._judged
        if judged is not None and hpa is not judged.subject.hpa:
            judged = self._judged = judge_again(judged, hpa, todo, self.work.memory)
        if judged is None or not isinstance(judged.subject.asked, Spec) or not judged.decision.changes:
            self._patch = None
        else:
            self._patch = change(judged.decision, judged.subject.asked, todo.rules, todo.now)
        return self._patch

    def ended(self, sent: Sent) -> None:
        judged, memory, herald = self._judged, self.work.memory, self.work.herald
        uid = self.hpa.uid
        self.work.endings[uid] = sent.ending
        if sent.ending == "gone":
            memory.forget(uid)
            return
        if judged is None:
            return  # opted out meanwhile: the next cycle gives it back
        hpa, decision = judged.subject.hpa, judged.decision
        if sent.again:
            self.work.again[uid] = judged
        if sent.ending == "written" and not decision.dry_run and self._patch is not None:
            memory.keep(hpa, decision.written, self._patch.state)
        else:
            # Where the answer was lost, the annotation will tell.
            memory.keep(hpa, decision.history)
        if sent.ending == "refused":
            cause = Refusal(
                Reason.WRITE_REFUSED, detail=sent.detail, fix="see what the text names, such as an admission policy"
            )
            self.work.refused[uid] = cause
            decision = _with(decision, cause)
        if sent.ending == "written":
            herald.changed(decision, dry=decision.dry_run)
        elif sent.ending in ("refused", "unneeded"):
            herald.kept(decision)
        if sent.ending in ("written", "refused", "unneeded"):
            herald.noted(decision)


class _Remember(_Step):
    """Writes the history, and nothing else."""

    def __init__(self, work: _Work, judged: Judged) -> None:
        super().__init__(work, judged.subject.hpa)
        self._judged = judged
        self._patch: Patch | None = None

    def make(self, hpa: HorizontalPodAutoscaler) -> Patch | None:
        asked, todo = self._judged.subject.asked, self.work.todo
        if hpa is not self.hpa or not isinstance(asked, Spec):
            return None  # it has changed, and the next cycle looks at it
        before = state_of(hpa, todo.rules.prefix)[0]
        self._patch = remember(self._judged.decision, asked, before, todo.rules, todo.now)
        return self._patch

    def ended(self, sent: Sent) -> None:
        self.work.endings[self.hpa.uid] = sent.ending
        if sent.ending == "written" and self._patch is not None:
            self.work.memory.keep(self.hpa, self._judged.decision.history, self._patch.state)


class _GiveBack(_Step):
    """Restores the user's own bounds, and removes our annotation."""

    def __init__(self, work: _Work, back: Return) -> None:
        super().__init__(work, back.hpa)
        self._back = back
        self._given: Restoration | None = back.given

    def make(self, hpa: HorizontalPodAutoscaler) -> Patch | None:
        todo, memory = self.work.todo, self.work.memory
        if hpa is not self.hpa:
            history = memory.recall(hpa) or state_of(hpa, todo.rules.prefix)[0].history
            opted_in = asked_of(hpa, todo.rules.prefix, todo.defaults) is not None
            self._given = None if opted_in else restoration(hpa, history, todo.rules, todo.now)
            self._back = Return(hpa, history, self._given or self._back.given)
        return None if self._given is None else self._given.patch

    def ended(self, sent: Sent) -> None:
        memory, back, uid = self.work.memory, self._back, self.hpa.uid
        self.work.endings[uid] = sent.ending
        if sent.ending in ("written", "gone"):
            memory.forget(uid)
        elif sent.ending == "unheard":
            memory.doubt_return(back.hpa, back.history, back.given)
        if sent.ending == "written":
            self.work.herald.given_back(back.hpa, back.given)
        elif sent.ending == "refused":
            self.work.herald.not_given_back(back.hpa, Refusal(Reason.WRITE_REFUSED, detail=sent.detail))


def _with(decision: Decision, cause: Refusal) -> Decision:
    return msgspec.structs.replace(decision, causes=(cause, *decision.causes))


__all__ = ["Applied", "Applier", "Return", "Todo", "judge_again"]

"""Carries out the decisions of a cycle: raises first, then restorations, then lowerings and notes.

Before each write, the controller checks that this replica may still write. If an HPA has changed since its judgement,
the controller reads, judges and patches the HPA once more. The next cycle judges unwritten HPAs again, by their state
at that time.

Events and log lines tell each change, and the first reason of an HPA whenever it changes. Ten thousand floors may move
up and down every minute: so each HPA reports a reason without a change only once in a while, and all HPAs together
report a correlated drop once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.parsing import state_text, states_of
from hpa_scaler.annotations.spec import FloorSpec, Rules
from hpa_scaler.documents.timeline import TimelineLog
from hpa_scaler.judge.decision import FloorDecision
from hpa_scaler.judge.history import FloorHistory
from hpa_scaler.judge.judge import Cycle, asked_of, judge_one, subject_of
from hpa_scaler.judge.ownership import (
    CONTENT_TYPE,
    Ending,
    Patch,
    Remembered,
    Restoration,
    change,
    path_of,
    remember,
    restoration,
    state_of,
    unchanged,
    valid_history,
)
from hpa_scaler.write.metrics import ScalerMetrics
from tightship.kube.connection import Connection
from tightship.kube.pacing import TokenBucket
from tightship.objects import AUTOSCALER, HorizontalPodAutoscaler, ObjectError, decode
from tightship.objects.api_errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    NotSent,
    one_line,
)
from tightship.objects.reasons import HPA_TROUBLE, Reason, Refusal
from tightship.process.events import EventRecorder, ObjectRef
from tightship.process.logging import log
from tightship.process.loop import a_few_at_a_time

UNSAFE = frozenset(
    {
        Reason.INCIDENT_HOLD,
        Reason.COLD_SOURCE,
        Reason.CORRELATED_DROP,
        Reason.SERIES_SPLIT,
        Reason.CHANGED_BY_OTHERS,
        Reason.CONTESTED,
    }
)
"""Reasons that a new process can't see for itself; for a cold source, the gap before it."""


class Reported(Struct):
    """The first reason and the target of the last cycle, and the time of the last Event for each reason."""

    reason: Reason
    target: int
    times: dict[Reason, float] = {}


class HpaRecord(Struct):
    """Everything that the controller knows of one HPA.

    *remembered* is the history that its judgements continue, with the annotation that goes with it. *noted* is the part
    of :data:`UNSAFE` that is written down. *reported* is what Events have said, *timeline* what the page shows.
    """

    remembered: Remembered | None = None
    noted: frozenset[Reason] = frozenset()
    reported: Reported | None = None
    timeline: TimelineLog | None = None


class Records:
    """The record of each HPA with annotations of *prefix*, by uid, in a process that *writes* or makes a dry run.

    After a change of leadership the histories are unknown: another replica may have written meanwhile, and its
    knowledge is in the HPA's state annotation. :func:`~hpa_scaler.judge.ownership.valid_history` says when an
    annotation counts instead of a record.

    The state annotation gets the waiting conditions of a lowering with the next change of the bounds, and on a clean
    shutdown. After a kill the next process waits from the start: that costs some pods for a while, but avoids a write
    for each wobble of each query. Only facts without which a restart would be unsafe are written at once: an incident,
    a gap in the answers, a correlated drop, a series that became several, a contest, or a bound that is the user's own
    again. If the user later set such a bound to the value that the annotation says we set, it would count as ours.
    """

    def __init__(self, prefix: str, *, writes: bool) -> None:
        self._prefix = prefix
        self._writes = writes
        self._records: dict[str, HpaRecord] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether the history of an HPA is known."""
        return uid in self._records and self._records[uid].remembered is not None

    def of(self, uid: str) -> HpaRecord:
        """Return the record of an HPA, which is empty at first."""
        return self._records.setdefault(uid, HpaRecord())

    def timelines(self) -> dict[str, TimelineLog]:
        """Return the timelines of all HPAs by ``namespace/name``."""
        return {each.timeline.key: each.timeline for each in list(self._records.values()) if each.timeline is not None}

    def recall(self, hpa: HorizontalPodAutoscaler) -> FloorHistory | None:
        """Return the history of *hpa*, ``None`` if the caller must read the annotation."""
        record = self._records.get(hpa.uid)
        if record is None or record.remembered is None:
            return None
        return valid_history(hpa, record.remembered, state_text(hpa.annotations, self._prefix), writes=self._writes)

    def recorded(self, hpa: HorizontalPodAutoscaler) -> FloorHistory | None:
        """Return the history as :meth:`recall` does, without a maximum that no state annotation records.

        The charts' admission policy lets nobody go below the present maximum then, which counts as the user's.
        """
        history = self.recall(hpa)
        if history is None or states_of(hpa.annotations, self._prefix):
            return history
        return msgspec.structs.replace(history, original_max=None, applied_max=None)

    def ours(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Whether *hpa* has the bounds that we last set, as far as we set any."""
        record = self._records.get(hpa.uid)
        return record is None or record.remembered is None or all(unchanged(hpa, record.remembered.history))

    def keep(
        self,
        hpa: HorizontalPodAutoscaler,
        history: FloorHistory,
        written: str | None = None,
        returned: Restoration | None = None,
    ) -> None:
        """Remember *history* of *hpa*.

        *written* is the new value of the annotation, if we wrote one; *returned* is a return that may have succeeded.
        """
        seen = state_text(hpa.annotations, self._prefix) if written is None else written
        bounds = None if returned is None else (returned.minimum, returned.maximum)
        self.of(hpa.uid).remembered = Remembered(history, seen, bounds)

    def is_due(self, decision: FloorDecision) -> bool:
        """Whether to write a note about *decision* now, because a restart would forget its reasons."""
        return decision.pending and not decision.dry_run and bool(_unsafe(decision) - self.of(decision.uid).noted)

    def settle(self, decisions: Iterable[FloorDecision], endings: Mapping[str, Ending]) -> None:
        """Record what is noted after a cycle of *decisions*; *endings* says by uid how its writes ended.

        A note that was not written is due again. A note about something that is over is dropped.
        """
        for decision in decisions:
            record, ending, unsafe = self.of(decision.uid), endings.get(decision.uid), _unsafe(decision)
            if ending is None:
                record.noted &= unsafe
            else:
                done = ending == "written" or (ending == "unneeded" and decision.pending)
                record.noted = unsafe if done else frozenset()

    def forget(self, uid: str) -> None:
        """Forget one HPA."""
        self._records.pop(uid, None)

    def retain(self, judged: Collection[str], others: Collection[str] = ()) -> None:
        """Forget all HPAs except those of the uids *judged*, and all but the history of *others*."""
        kept = {uid: record for uid, record in self._records.items() if uid in judged}
        kept |= {uid: HpaRecord(self._records[uid].remembered) for uid in others if uid in self._records}
        self._records = kept

    def begin_term(self) -> None:
        """Forget everything but what Events have said: another replica may have led meanwhile."""
        self._records = {uid: HpaRecord(reported=each.reported) for uid, each in self._records.items() if each.reported}


def _unsafe(decision: FloorDecision) -> frozenset[Reason]:
    found = UNSAFE & {cause.reason for cause in decision.causes} - {Reason.COLD_SOURCE}
    # Unless we saw a gap, a new process learns the data's age from the server, or could not have learnt it before.
    return found | {Reason.COLD_SOURCE} if decision.history.recovering else found


AGAIN = 600.0
"""Seconds before the same reason of one HPA is reported again, unless the floor moves."""

_NOTES = frozenset(
    {
        Reason.SUDDEN_RISE,
        Reason.MAX_RAISED,
        Reason.MAX_TAKEN_BACK,
        Reason.CHANGED_BY_OTHERS,
        Reason.ROLLOUT_EXPIRED,
        Reason.STATE_UNREADABLE,
    }
)
"""Reasons that are reported even if they are not the first."""

_REMARKS = frozenset({Reason.LARGEST_OF_SERIES, Reason.HPA_INACTIVE})
"""Reasons that may last for ever, and are reported once a day."""
_DAY = 86_400.0
_ONCE_FOR_ALL = frozenset({Reason.CORRELATED_DROP})
_ACTIONS = {"raise": "Raise", "lower": "Lower", "hold": "Hold", "skip": "Hold"}
_DONE = {"raise": "raised", "lower": "lowered", "hold": "bounds changed", "skip": "skipped"}


class FloorEvents:
    """Reports the changes and holds of HPAs; *own* is the object of Events about all HPAs."""

    def __init__(
        self,
        events: EventRecorder,
        logger: logging.Logger,
        own: ObjectRef,
        records: Records,
        clock: Callable[[], float],
    ) -> None:
        self._events = events
        self._log = logger
        self._own = own
        self._clock = clock
        self._records = records
        self._drop = False

    def changed(self, decision: FloorDecision, *, dry: bool) -> None:
        """Report that a change was written, or with *dry* that it would be."""
        known = self._note(decision)
        if dry and known is not None and known.target == decision.target:
            return
        log(
            self._log,
            logging.INFO,
            f"would be {_DONE[decision.action]}" if dry else _DONE[decision.action],
            hpa=decision.key,
            minimum=decision.minimum,
            target=decision.target,
            maximum=decision.target_maximum,
            reason=decision.reason,
            detail=decision.causes[0].detail if decision.causes else "",
        )
        move = f"minReplicas {decision.minimum} -> {decision.target}"
        if decision.target_maximum != decision.maximum:
            move += f", maxReplicas {decision.maximum} -> {decision.target_maximum}"
        because = "; ".join(map(str, decision.causes[:3]))
        if dry:
            self._record(_ref(decision), Refusal(Reason.DRY_RUN, detail=f"would set {move}: {because}"), "DryRun")
        else:
            self._record(
                _ref(decision), Refusal(decision.reason, detail=f"{move}: {because}"), _ACTIONS[decision.action]
            )

    def kept(self, decision: FloorDecision) -> None:
        """Report why an HPA was not changed, if the reason differs from the last. At first, report only trouble."""
        known, first = self._note(decision), decision.reason
        if (known is None and first not in HPA_TROUBLE) or (known is not None and known.reason is first):
            return
        cause = decision.causes[0] if decision.causes else Refusal(first)
        log(
            self._log,
            logging.WARNING if first in HPA_TROUBLE else logging.INFO,
            "skipped" if decision.action == "skip" else "held",
            hpa=decision.key,
            minimum=decision.minimum,
            reason=first,
            detail=cause.detail,
            fix=cause.fix,
        )
        self._report(decision, cause)

    def noted(self, decision: FloorDecision) -> None:
        """Report the other notable reasons: a bound that somebody changed, or a maximum that moved."""
        for cause in decision.causes[1:]:
            if cause.reason in _NOTES | _REMARKS:
                self._report(decision, cause)
            if cause.reason is Reason.CHANGED_BY_OTHERS:
                log(self._log, logging.WARNING, "changed by others", hpa=decision.key, detail=cause.detail)

    def given_back(self, hpa: HorizontalPodAutoscaler, given: Restoration) -> None:
        """Report that an HPA has its user's own bounds again."""
        log(self._log, logging.INFO, "restored", hpa=hpa.key, detail=given.cause.detail)
        self._record(_ref(hpa), given.cause, "Restore")

    def not_given_back(self, hpa: HorizontalPodAutoscaler, cause: Refusal) -> None:
        """Report that the API server refused to restore the user's own bounds."""
        log(self._log, logging.ERROR, "not restored", hpa=hpa.key, reason=cause.reason, detail=cause.detail)
        self._record(_ref(hpa), cause, "Restore")

    def drops(self, cause: Refusal | None) -> None:
        """Report when a correlated drop begins to hold all lowering, and when it ends."""
        if cause is not None and not self._drop:
            log(self._log, logging.WARNING, "nothing is lowered", reason=cause.reason, detail=cause.detail)
            self._record(self._own, cause, "Hold")
        elif cause is None and self._drop:
            self._log.info("lowering resumes: the queries have come back, or the hold has ended")
        self._drop = cause is not None

    def _note(self, decision: FloorDecision) -> Reported | None:
        """Record *decision*, and return the previous record."""
        record = self._records.of(decision.uid)
        before = record.reported
        record.reported = Reported(decision.reason, decision.target, {} if before is None else before.times)
        return before

    def _report(self, decision: FloorDecision, cause: Refusal) -> None:
        reported = self._records.of(decision.uid).reported
        now, times = self._clock(), {} if reported is None else reported.times
        again = _DAY if cause.reason in _REMARKS else AGAIN
        if cause.reason in _ONCE_FOR_ALL or now - times.get(cause.reason, -math.inf) < again:
            return
        times[cause.reason] = now
        self._record(_ref(decision), cause, "Hold")

    def _record(self, regarding: ObjectRef, cause: Refusal, action: str) -> None:
        note = f"{cause.detail}; {cause.fix}" if cause.fix else cause.detail
        kind = "Warning" if cause.reason in HPA_TROUBLE else "Normal"
        self._events.record(regarding, kind, cause.reason.value, note or cause.reason.value, action)  # type: ignore[arg-type]


def _ref(about: FloorDecision | HorizontalPodAutoscaler) -> ObjectRef:
    return ObjectRef(AUTOSCALER, about.name, about.uid, about.namespace, "autoscaling/v2")


AT_ONCE = 8
"""Concurrent writes."""

IN_A_ROW = 5
"""Consecutive writes without an answer after which the API server counts as away."""

T = TypeVar("T")
_Job = Callable[[], Awaitable[None]]


class PlannedPatch(Struct, Generic[T], frozen=True):
    """The *patch* to send, ``None`` if nothing is left to do, and its source *of*."""

    patch: Patch | None
    of: T


class Sent(Struct, Generic[T], frozen=True):
    """How the last *write* ended, and why; *again* says that the HPA had changed since its judgement."""

    write: PlannedPatch[T]
    ending: Ending
    detail: str = ""
    again: bool = False


async def send(
    connection: Connection,
    hpa: HorizontalPodAutoscaler,
    make: Callable[[HorizontalPodAutoscaler], PlannedPatch[T]],
    may: Callable[[], Awaitable[bool]],
    only_if: Callable[[], bool],
) -> Sent[T]:
    """Send the patch that *make* returns for *hpa*; if the HPA has changed, read it and send a new patch from *make*.

    Each write awaits *may* first, and asks *only_if* when it is about to leave. Never raises errors of the API server.
    """
    write = make(hpa)
    if write.patch is None:
        return Sent(write, "unneeded")
    ending, detail = await _patched(connection, write.patch, may, only_if)
    if ending != "changed":
        return Sent(write, ending, detail)
    try:
        present = await read_again(connection, hpa)
    except NotFound:
        return Sent(write, "gone", again=True)
    except (KubeError, ObjectError) as error:
        return Sent(write, "failed", one_line(error), again=True)
    if present.uid != hpa.uid:
        # A new HPA of the same name has its own uid and judgement.
        return Sent(write, "gone", again=True)
    write = make(present)
    if write.patch is None:
        return Sent(write, "unneeded", again=True)
    # A failed test and an admission plugin's refusal look the same, but a test does not fail twice in a row.
    ending, detail = await _patched(connection, write.patch, may, only_if)
    return Sent(write, "refused" if ending == "changed" else ending, detail, again=True)


async def _patched(
    connection: Connection, patch: Patch, may: Callable[[], Awaitable[bool]], only_if: Callable[[], bool]
) -> tuple[Ending | Literal["changed"], str]:
    """Return how *patch* ended, and why; ``changed`` means that the HPA seems to have changed."""
    if not await may():
        return "left", ""
    try:
        await connection.request(
            "PATCH", patch.path, params=patch.params, body=patch.body, content_type=CONTENT_TYPE, only_if=only_if
        )
    except NotSent:
        return "left", ""
    except (Invalid, Conflict) as error:
        return "changed", error.message or one_line(error)
    except (Forbidden, BadRequest) as error:
        return "refused", error.message or one_line(error)
    except NotFound:
        return "gone", ""
    except ApiError as error:
        # With 5xx, a proxy may have given up on a write that the API server then made; with 429, nothing was written.
        return "unheard" if error.status >= 500 else "failed", one_line(error)
    except KubeError as error:
        return "unheard", one_line(error)
    return "written", ""


async def read_again(connection: Connection, hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Read the HPA of this name again; the result is never older than an earlier write.

    Raises :class:`~tightship.objects.api_errors.KubeError` and :class:`~tightship.objects.ObjectError`.
    """
    raw = await connection.request("GET", path_of(hpa.namespace, hpa.name))
    thing = decode(AUTOSCALER, raw)
    assert isinstance(thing, HorizontalPodAutoscaler)
    return thing


class OptedOut(Struct, frozen=True):
    """An HPA that has opted out, its history, and the restoration *given*."""

    hpa: HorizontalPodAutoscaler
    history: FloorHistory
    given: Restoration


class CycleWrites(Struct, frozen=True):
    """The writes of a cycle."""

    cycle: Cycle
    returns: tuple[OptedOut, ...]
    defaults: Mapping[str, str]
    rules: Rules
    now: float


class WritesDone(Struct, frozen=True):
    """The results by uid: how each write ended, which HPAs were judged again, and why a change was refused."""

    endings: dict[str, Ending] = {}
    again: dict[str, FloorDecision] = {}
    refused: dict[str, Refusal] = {}

    def final(self, cycle: Cycle) -> Cycle:
        """Return *cycle* with its final decisions; *cycle* itself if no decision changed."""
        if not self.again and not self.refused:
            return cycle
        return msgspec.structs.replace(cycle, decisions=tuple(map(self._final, cycle.decisions)))

    def _final(self, decision: FloorDecision) -> FloorDecision:
        last, cause = self.again.get(decision.uid, decision), self.refused.get(decision.uid)
        return last if cause is None else _with(last, cause)


def judge_again(
    decision: FloorDecision, hpa: HorizontalPodAutoscaler, todo: CycleWrites, records: Records
) -> FloorDecision | None:
    """Judge an HPA in its present state, by the cycle's answers; ``None`` if the HPA is not opted in."""
    asked = asked_of(hpa, todo.rules.prefix, todo.defaults)
    if asked is None:
        return None
    subject = subject_of(
        hpa,
        asked,
        outcomes=decision.subject.outcomes,
        forecasts=decision.subject.forecasts,
        rollout=decision.subject.rollout,
        rules=todo.rules,
        now=todo.now,
        remembered=records.recorded(hpa),
    )
    return judge_one(subject, todo.cycle.verdict)


class Applier:
    """Writes to HPAs of one API server. A callable *may* says whether this replica may write now."""

    def __init__(
        self,
        connection: Connection,
        records: Records,
        *,
        bucket: TokenBucket,
        events: FloorEvents,
        metrics: ScalerMetrics,
    ) -> None:
        self._connection = connection
        self._records = records
        self._bucket = bucket
        self._events = events
        self._metrics = metrics
        self._unanswered = 0

    async def apply(self, todo: CycleWrites, may: Callable[[], bool]) -> WritesDone:
        """Carry out everything in *todo*. Never raises errors of the API server."""
        done = WritesDone()
        raises: list[_Job] = []
        others: list[_Job] = []
        notes: list[_Job] = []
        for decision in todo.cycle.decisions:
            if decision.changes:
                jobs = raises if decision.action == "raise" else others
                jobs.append(partial(self._change, decision, todo, done, may))
                continue
            self._records.keep(decision.subject.hpa, decision.history)
            if self._records.is_due(decision):
                notes.append(partial(self._note, decision, todo, done, may))
        returns = [partial(self._give_back, each, todo, done, may) for each in todo.returns]
        await self._run((*raises, *returns, *others, *notes))
        return done

    async def remember(self, todo: CycleWrites, may: Callable[[], bool]) -> None:
        """Write the histories of the pending HPAs of *todo*, because a restart would forget them."""
        pending = [each for each in todo.cycle.decisions if each.pending and not each.dry_run]
        await self._run(partial(self._note, each, todo, WritesDone(), may) for each in pending)

    async def _run(self, jobs: Iterable[_Job]) -> None:
        self._unanswered = 0
        await a_few_at_a_time(lambda job: job(), jobs, AT_ONCE)

    async def _change(
        self, judged: FloorDecision, todo: CycleWrites, done: WritesDone, may: Callable[[], bool]
    ) -> None:
        records, events = self._records, self._events

        def make(hpa: HorizontalPodAutoscaler) -> PlannedPatch[FloorDecision | None]:
            now = judged if hpa is judged.subject.hpa else judge_again(judged, hpa, todo, records)
            if now is None or not isinstance(now.subject.asked, FloorSpec) or not now.changes:
                return PlannedPatch(None, now)
            return PlannedPatch(change(now, now.subject.asked, todo.rules, todo.now), now)

        sent = await self._sent(judged.subject.hpa, make, may)
        decision, uid = sent.write.of, judged.uid
        done.endings[uid] = sent.ending
        if sent.ending == "gone":
            records.forget(uid)
            return
        if decision is None:
            return  # opted out meanwhile: the next cycle gives the HPA back
        hpa = decision.subject.hpa
        if sent.again:
            done.again[uid] = decision
        if sent.ending == "written" and not decision.dry_run and sent.write.patch is not None:
            records.keep(hpa, decision.written, sent.write.patch.state)
        else:
            # If the answer was lost, the annotation will tell.
            records.keep(hpa, decision.history)
        if sent.ending == "refused":
            fix = "see what the text names, such as an admission policy"
            done.refused[uid] = Refusal(Reason.WRITE_REFUSED, detail=sent.detail, fix=fix)
            decision = _with(decision, done.refused[uid])
        if sent.ending == "written":
            events.changed(decision, dry=decision.dry_run)
        elif sent.ending in ("refused", "unneeded"):
            events.kept(decision)
        if sent.ending in ("written", "refused", "unneeded"):
            events.noted(decision)

    async def _note(
        self, decision: FloorDecision, todo: CycleWrites, done: WritesDone, may: Callable[[], bool]
    ) -> None:
        """Write the history of an HPA, and nothing else."""
        judged_hpa, asked = decision.subject.hpa, decision.subject.asked

        def make(hpa: HorizontalPodAutoscaler) -> PlannedPatch[None]:
            if hpa is not judged_hpa or not isinstance(asked, FloorSpec):
                return PlannedPatch(None, None)  # the HPA has changed, and the next cycle judges it
            before = state_of(hpa, todo.rules.prefix)[0]
            return PlannedPatch(remember(decision, asked, before, todo.rules, todo.now), None)

        sent = await self._sent(judged_hpa, make, may)
        done.endings[decision.uid] = sent.ending
        if sent.ending == "written" and sent.write.patch is not None:
            self._records.keep(judged_hpa, decision.history, sent.write.patch.state)

    async def _give_back(self, back: OptedOut, todo: CycleWrites, done: WritesDone, may: Callable[[], bool]) -> None:
        """Restore the user's own bounds, and remove our annotation."""
        records = self._records

        def make(hpa: HorizontalPodAutoscaler) -> PlannedPatch[OptedOut]:
            if hpa is back.hpa:
                return PlannedPatch(back.given.patch, back)
            history = records.recorded(hpa) or state_of(hpa, todo.rules.prefix)[0].history
            opted_in = asked_of(hpa, todo.rules.prefix, todo.defaults) is not None
            given = None if opted_in else restoration(hpa, history, todo.rules, todo.now)
            return PlannedPatch(None if given is None else given.patch, OptedOut(hpa, history, given or back.given))

        sent = await self._sent(back.hpa, make, may)
        last, uid = sent.write.of, back.hpa.uid
        done.endings[uid] = sent.ending
        if sent.ending in ("written", "gone"):
            records.forget(uid)
        elif sent.ending == "unheard":
            records.keep(last.hpa, last.history, returned=last.given)
        if sent.ending == "written":
            self._events.given_back(last.hpa, last.given)
        elif sent.ending == "refused":
            self._events.not_given_back(last.hpa, Refusal(Reason.WRITE_REFUSED, detail=sent.detail))

    async def _sent(
        self,
        hpa: HorizontalPodAutoscaler,
        make: Callable[[HorizontalPodAutoscaler], PlannedPatch[T]],
        may: Callable[[], bool],
    ) -> Sent[T]:
        async def permitted() -> bool:
            if not may() or self._unanswered >= IN_A_ROW:
                return False
            await self._bucket.take()
            return may()

        sent = await send(self._connection, hpa, make, permitted, may)
        if sent.ending != "left":  # an unsent write tells nothing about the API server
            self._unanswered = self._unanswered + 1 if sent.ending in ("failed", "unheard") else 0
        self._metrics.wrote(sent.ending, again=sent.again)
        return sent


def _with(decision: FloorDecision, cause: Refusal) -> FloorDecision:
    return msgspec.structs.replace(decision, causes=(cause, *decision.causes))

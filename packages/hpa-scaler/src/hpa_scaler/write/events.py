"""Events and log lines: one for each change, and one whenever the first reason of an HPA changes.

Ten thousand floors may move up and down every minute. So each HPA reports a reason without a change only once in a
while, and all HPAs together report a correlated drop once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from hpa_scaler.judge.decision import FloorDecision
from hpa_scaler.judge.ownership import Restoration
from hpa_scaler.write.records import Records, Reported
from tightship.objects import AUTOSCALER, HorizontalPodAutoscaler
from tightship.objects.reasons import HPA_TROUBLE, Reason, Refusal
from tightship.process.events import EventRecorder, ObjectRef
from tightship.process.logging import log

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

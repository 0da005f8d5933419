"""Every reason that the hpa-scaler gives, each with one name; a sibling of :mod:`tightship.core.reasons`.

A member's value is, verbatim, the metric label, the Event reason, the word that the CLI prints, and the anchor in
``docs/hpa-reasons.md`` (a test compares the page with this enum).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Reason(StrEnum):
    """Why a floor is where it is. Closed: a new rule adds its own member."""

    # The HPA is not ours to move.
    NOT_ENABLED = "NotEnabled"
    INVALID_ANNOTATION = "InvalidAnnotation"
    UNREADABLE = "Unreadable"
    HPA_TERMINATING = "HpaTerminating"
    CONTROLLED_BY_OTHER = "ControlledByOther"
    TARGET_AT_ZERO = "TargetAtZero"
    SCALE_TO_ZERO = "ScaleToZero"
    PAUSED = "Paused"
    CONTESTED = "Contested"

    # A query has no usable answer.
    SERVER_UNKNOWN = "ServerUnknown"
    SERVER_NOT_ALLOWED = "ServerNotAllowed"
    CREDENTIALS_UNREADABLE = "CredentialsUnreadable"
    CONNECTION_FAILED = "ConnectionFailed"
    TIMED_OUT = "TimedOut"
    CIRCUIT_OPEN = "CircuitOpen"
    HTTP_ERROR = "HttpError"
    QUERY_REJECTED = "QueryRejected"
    BAD_ANSWER = "BadAnswer"
    ANSWER_TOO_LARGE = "AnswerTooLarge"
    WRONG_RESULT_TYPE = "WrongResultType"
    EMPTY_RESULT = "EmptyResult"
    FALLBACK_ANSWER = "FallbackAnswer"
    SEVERAL_SERIES = "SeveralSeries"
    NOT_A_NUMBER = "NotANumber"
    INFINITE = "Infinite"
    OUT_OF_RANGE = "OutOfRange"
    NEGATIVE = "Negative"
    NOT_ASKED = "NotAsked"

    # Lowering waits.
    ANSWER_WITH_WARNINGS = "AnswerWithWarnings"
    SERIES_SPLIT = "SeriesSplit"
    LATE_SAMPLES = "LateSamples"
    FAILED_SCRAPES = "FailedScrapes"
    COLD_SOURCE = "ColdSource"
    CORRELATED_DROP = "CorrelatedDrop"
    INCIDENT_HOLD = "IncidentHold"
    HOLD_QUERY_FAILED = "HoldQueryFailed"
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"
    ROLLOUT_UNKNOWN = "RolloutUnknown"
    REPLICAS_UNKNOWN = "ReplicasUnknown"
    LOWERING_WINDOW = "LoweringWindow"
    DEADBAND = "Deadband"
    PAUSED_SCALE_DOWN = "PausedScaleDown"

    # Raising is limited.
    PAUSED_SCALE_UP = "PausedScaleUp"
    SUDDEN_RISE = "SuddenRise"
    STEP_LIMIT = "StepLimit"
    BEHAVIOR_LIMIT = "BehaviorLimit"
    AT_MAX_REPLICAS = "AtMaxReplicas"
    AT_UPPER_BOUND = "AtUpperBound"

    # What the floor follows.
    FOLLOWS_QUERY = "FollowsQuery"
    FOLLOWS_RATIO = "FollowsRatio"
    FOLLOWS_LOWER_BOUND = "FollowsLowerBound"
    MISSING_DATA_POLICY = "MissingDataPolicy"

    # What happened besides.
    MAX_RAISED = "MaxRaised"
    MAX_TAKEN_BACK = "MaxTakenBack"
    CHANGED_BY_OTHERS = "ChangedByOthers"
    ROLLOUT_EXPIRED = "RolloutExpired"
    STATE_UNREADABLE = "StateUnreadable"
    RESTORED = "Restored"
    DRY_RUN = "DryRun"
    WRITE_REFUSED = "WriteRefused"


FAILURES = frozenset(
    {
        Reason.SERVER_UNKNOWN,
        Reason.SERVER_NOT_ALLOWED,
        Reason.CREDENTIALS_UNREADABLE,
        Reason.CONNECTION_FAILED,
        Reason.TIMED_OUT,
        Reason.CIRCUIT_OPEN,
        Reason.HTTP_ERROR,
        Reason.QUERY_REJECTED,
        Reason.BAD_ANSWER,
        Reason.ANSWER_TOO_LARGE,
        Reason.WRONG_RESULT_TYPE,
        Reason.EMPTY_RESULT,
        Reason.FALLBACK_ANSWER,
        Reason.SEVERAL_SERIES,
        Reason.NOT_A_NUMBER,
        Reason.INFINITE,
        Reason.OUT_OF_RANGE,
        Reason.NEGATIVE,
        Reason.NOT_ASKED,
    }
)
"""Reasons why a query has no usable answer. None of them ever lowers a floor."""

TROUBLE = FAILURES | frozenset(
    {
        Reason.INVALID_ANNOTATION,
        Reason.UNREADABLE,
        Reason.CONTROLLED_BY_OTHER,
        Reason.CONTESTED,
        Reason.ANSWER_WITH_WARNINGS,
        Reason.LATE_SAMPLES,
        Reason.FAILED_SCRAPES,
        Reason.SERIES_SPLIT,
        Reason.CORRELATED_DROP,
        Reason.HOLD_QUERY_FAILED,
        Reason.ROLLOUT_UNKNOWN,
        Reason.ROLLOUT_EXPIRED,
        Reason.STATE_UNREADABLE,
        Reason.SUDDEN_RISE,
        Reason.MAX_RAISED,
        Reason.AT_MAX_REPLICAS,
        Reason.WRITE_REFUSED,
    }
)
"""Reasons that somebody should look at: their Events are warnings."""


class Cause(Struct, frozen=True, order=True, gc=False):
    """One reason, with a sentence that has the numbers.

    *fix* is the smallest change that would remove the reason, in words that a platform engineer can act on; empty if
    there is none to suggest.
    """

    reason: Reason
    detail: str = ""
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


__all__ = ["FAILURES", "TROUBLE", "Cause", "Reason"]

"""Every reason that Tightship gives, each with one name; and the checks and refusals that give them.

A member's value is, verbatim, the metric label, the Event reason, the word that the CLI prints and the anchor in
``docs/reasons.md`` (a test compares the page with this enum).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class Reason(StrEnum):
    """Why a node stays, a pod can't leave it, or a floor is where it is. Closed: a new rule adds its own member."""

    # The node is not ours to take, or not in a state to be taken.
    CONTROL_PLANE = "ControlPlane"
    VIRTUAL_NODE = "VirtualNode"
    POOL_NOT_CONFIGURED = "PoolNotConfigured"
    POOL_DISABLED = "PoolDisabled"
    OTHER_INSTALLATION = "OtherInstallation"
    NODE_DO_NOT_DRAIN = "NodeDoNotDrain"
    SCALE_DOWN_DISABLED = "ScaleDownDisabled"
    NODE_DO_NOT_DISRUPT = "NodeDoNotDisrupt"
    KARPENTER_MANAGED = "KarpenterManaged"
    KARPENTER_CONSOLIDATION_OFF = "KarpenterConsolidationOff"
    NOT_AUTOSCALED = "NotAutoscaled"
    KARPENTER_DISRUPTED = "KarpenterDisrupted"
    TO_BE_DELETED = "ToBeDeleted"
    NODE_TERMINATING = "NodeTerminating"
    NODE_LIFECYCLE = "NodeLifecycle"
    CORDONED = "Cordoned"
    TAINTED = "Tainted"
    DRAIN_IN_PROGRESS = "DrainInProgress"
    BACKOFF = "Backoff"
    NOT_READY = "NotReady"
    NO_ALLOCATABLE = "NoAllocatable"
    UNREADABLE = "Unreadable"

    # The gates of the controller.
    NOT_SELECTED = "NotSelected"
    NOT_UNDERUTILIZED = "NotUnderutilized"
    FILLED_BY_PLAN = "FilledByPlan"
    TOO_YOUNG = "TooYoung"
    NOT_MARKED_LONG_ENOUGH = "NotMarkedLongEnough"
    REQUIRED_COUNT_NOT_REACHED = "RequiredCountNotReached"
    POOL_MIN_SIZE = "PoolMinSize"
    NODE_GROUP_MIN_SIZE = "NodeGroupMinSize"
    EXCESS_BELOW_THRESHOLD = "ExcessBelowThreshold"
    MIN_NODES = "MinNodes"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    RATE_LIMITED = "RateLimited"
    MAX_NODES_REACHED = "MaxNodesReached"
    MAX_EVICTIONS_REACHED = "MaxEvictionsReached"
    SAVING_TOO_SMALL = "SavingTooSmall"
    COOL_DOWN = "CoolDown"
    OUTSIDE_WINDOW = "OutsideWindow"
    SCALE_IN_EXPECTED = "ScaleInExpected"
    LANDING_MISSED = "LandingMissed"
    CLUSTER_UNHEALTHY = "ClusterUnhealthy"

    # A pod on the node must not be evicted.
    POD_DO_NOT_DRAIN = "PodDoNotDrain"
    NOT_SAFE_TO_EVICT = "NotSafeToEvict"
    SAFE_TO_EVICT_ON_COMPLETION = "SafeToEvictOnCompletion"
    POD_DO_NOT_DISRUPT = "PodDoNotDisrupt"
    PREFER_NO_EVICTION = "PreferNoEviction"
    NOT_REPLICATED = "NotReplicated"
    CUSTOM_CONTROLLER = "CustomController"
    CONTROLLER_NOT_FOUND = "ControllerNotFound"
    LOCAL_STORAGE = "LocalStorage"
    KUBE_SYSTEM_POD = "KubeSystemPod"
    JOB_RUNNING = "JobRunning"
    TOLERATES_CORDON = "ToleratesCordon"
    OTHER_SCHEDULER = "OtherScheduler"
    GANG_WOULD_BREAK = "GangWouldBreak"
    MAKE_BEFORE_BREAK = "MakeBeforeBreak"
    NOT_RESTARTABLE = "NotRestartable"
    ROLLOUT_UNFINISHED = "RolloutUnfinished"
    GRACE_PERIOD_TOO_LONG = "GracePeriodTooLong"
    POD_UNREADABLE = "PodUnreadable"

    # A PodDisruptionBudget stands against it.
    PDB_NEVER_ALLOWS = "PdbNeverAllows"
    OPENS_AFTER_CORDON = "OpensAfterCordon"
    PDB_EXHAUSTED = "PdbExhausted"
    PDB_SPENT_BY_PLAN = "PdbSpentByPlan"
    PDB_NOT_CURRENT = "PdbNotCurrent"
    PDB_SYNC_FAILED = "PdbSyncFailed"
    MULTIPLE_PDBS = "MultiplePdbs"
    PDB_UNREADABLE = "PdbUnreadable"

    # There is no place for it elsewhere, or it cannot be known.
    NO_PLACE = "NoPlace"
    NO_PLACE_AFTER_PLAN = "NoPlaceAfterPlan"
    NO_PLACE_TOGETHER = "NoPlaceTogether"
    SCHEDULER_MAY_STRAND = "SchedulerMayStrand"
    PENDING_POD_NEEDS_NODE = "PendingPodNeedsNode"
    SCALE_UP_NEEDS_NODE = "ScaleUpNeedsNode"
    BUFFER_NEEDS_NODE = "BufferNeedsNode"
    OTHER_DRAIN_NEEDS_NODE = "OtherDrainNeedsNode"
    REQUESTS_UNKNOWN = "RequestsUnknown"
    RESOURCE_CLAIMS = "ResourceClaims"
    UNKNOWN_VOLUME = "UnknownVolume"
    UNKNOWN_NAMESPACE_LABELS = "UnknownNamespaceLabels"

    # A drain under way was given up, or handed to someone else.
    DRAIN_DEADLINE = "DrainDeadline"
    POD_STUCK = "PodStuck"
    STUCK_FINALIZER = "StuckFinalizer"
    EVICTION_FORBIDDEN = "EvictionForbidden"
    EVICTION_FAILED = "EvictionFailed"
    REPLACEMENTS_PENDING = "ReplacementsPending"
    NOT_OPENED = "NotOpened"
    NOT_HANDED_OVER = "NotHandedOver"
    RETURNS_TO_NODE = "ReturnsToNode"
    UNCORDONED = "Uncordoned"
    ORPHANED = "Orphaned"
    RELEASED = "Released"

    # The HPA is not ours to move.
    NOT_ENABLED = "NotEnabled"
    INVALID_ANNOTATION = "InvalidAnnotation"
    HPA_TERMINATING = "HpaTerminating"
    CONTROLLED_BY_OTHER = "ControlledByOther"
    TARGET_AT_ZERO = "TargetAtZero"
    SCALE_TO_ZERO = "ScaleToZero"
    PAUSED = "Paused"
    CONTESTED = "Contested"
    EVICTION_SURGE = "EvictionSurge"

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
    FOLLOWS_FORECAST = "FollowsForecast"
    MISSING_DATA_POLICY = "MissingDataPolicy"

    # What happened besides.
    LARGEST_OF_SERIES = "LargestOfSeries"
    HPA_INACTIVE = "HpaInactive"
    FORECAST_UNUSED = "ForecastUnused"
    MAX_RAISED = "MaxRaised"
    MAX_TAKEN_BACK = "MaxTakenBack"
    CHANGED_BY_OTHERS = "ChangedByOthers"
    ROLLOUT_EXPIRED = "RolloutExpired"
    STATE_UNREADABLE = "StateUnreadable"
    RESTORED = "Restored"
    DRY_RUN = "DryRun"
    WRITE_REFUSED = "WriteRefused"


_ALL = tuple(Reason)

NODE_REASONS = frozenset(_ALL[: _ALL.index(Reason.NOT_ENABLED)])
"""What the controllers of nodes give."""

QUERY_FAILURES = frozenset(
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

HPA_TROUBLE = QUERY_FAILURES | frozenset(
    {
        Reason.INVALID_ANNOTATION,
        Reason.UNREADABLE,
        Reason.CONTROLLED_BY_OTHER,
        Reason.CONTESTED,
        Reason.HPA_INACTIVE,
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


class Refusal(Struct, frozen=True, order=True, gc=False, omit_defaults=True):
    """One reason: what it is about, and a sentence with the numbers.

    *subject* is a node name, ``namespace/pod`` or a pool name; a reason of an HPA has none. *fix* is the smallest
    change that would remove this one reason, in words a platform engineer can act on; empty where there is none to
    suggest.
    """

    reason: Reason
    subject: str = ""
    detail: str = ""
    fix: str = ""

    def __str__(self) -> str:
        about = f"{self.reason} {self.subject}" if self.subject else str(self.reason)
        return f"{about}: {self.detail}" if self.detail else about


class Check(Struct, frozen=True, gc=False):
    """One gate of a controller, asked about removing one node. A refusal is a closed check.

    *gate* names the gate for people. *reason* is the reason it refuses with, ``None`` for a remark that keeps no node.
    *detail* has the numbers, *fix* the smallest change that opens the gate, or nothing.
    """

    gate: str
    reason: Reason | None
    open: bool
    detail: str
    fix: str = ""

    def refusal(self, subject: str) -> Refusal | None:
        """Return why *subject* (a node) may not go, ``None`` while the gate is open."""
        if self.open or self.reason is None:
            return None
        return Refusal(self.reason, subject, self.detail, self.fix)


def remark(name: str, detail: str) -> Check:
    """Return something worth knowing that keeps no node."""
    return Check(name, None, True, detail)


def refusals(checks: Iterable[Check | None], subject: str) -> list[Refusal]:
    """Return the refusals of the closed ones of *checks* for *subject*, in order; ``None`` stands for no gate."""
    found = (None if each is None else each.refusal(subject) for each in checks)
    return sorted(each for each in found if each is not None)

"""Every reason Tightship can give, by one name each.

A member's value is, verbatim, the metric label, the Event reason, the word the CLI prints and the anchor in
``docs/reasons.md`` (a test holds the page against this enum).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Reason(StrEnum):
    """Why a node stays, or a pod cannot leave it. Closed: a new rule adds its own member."""

    # The node is not ours to take, or not in a state to be taken.
    CONTROL_PLANE = "ControlPlane"
    POOL_NOT_CONFIGURED = "PoolNotConfigured"
    POOL_DISABLED = "PoolDisabled"
    NODE_DO_NOT_DRAIN = "NodeDoNotDrain"
    SCALE_DOWN_DISABLED = "ScaleDownDisabled"
    NODE_DO_NOT_DISRUPT = "NodeDoNotDisrupt"
    KARPENTER_MANAGED = "KarpenterManaged"
    KARPENTER_DISRUPTED = "KarpenterDisrupted"
    TO_BE_DELETED = "ToBeDeleted"
    NODE_TERMINATING = "NodeTerminating"
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
    TOO_YOUNG = "TooYoung"
    NOT_MARKED_LONG_ENOUGH = "NotMarkedLongEnough"
    REQUIRED_COUNT_NOT_REACHED = "RequiredCountNotReached"
    POOL_MIN_SIZE = "PoolMinSize"
    EXCESS_BELOW_THRESHOLD = "ExcessBelowThreshold"
    MIN_NODES = "MinNodes"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    MAX_NODES_REACHED = "MaxNodesReached"
    COOL_DOWN = "CoolDown"
    RECENT_REGRET = "RecentRegret"
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
    GRACE_PERIOD_TOO_LONG = "GracePeriodTooLong"
    POD_UNREADABLE = "PodUnreadable"

    # A PodDisruptionBudget stands against it.
    PDB_NEVER_ALLOWS = "PdbNeverAllows"
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
    NOT_HANDED_OVER = "NotHandedOver"
    RETURNS_TO_NODE = "ReturnsToNode"
    UNCORDONED = "Uncordoned"
    ORPHANED = "Orphaned"
    RELEASED = "Released"


RUNNING_ONLY = frozenset(
    {
        Reason.BUDGET_EXHAUSTED,
        Reason.COOL_DOWN,
        Reason.RECENT_REGRET,
        Reason.CLUSTER_UNHEALTHY,
        Reason.DRAIN_DEADLINE,
        Reason.POD_STUCK,
        Reason.STUCK_FINALIZER,
        Reason.EVICTION_FORBIDDEN,
        Reason.EVICTION_FAILED,
        Reason.REPLACEMENTS_PENDING,
        Reason.NOT_HANDED_OVER,
        Reason.RETURNS_TO_NODE,
        Reason.UNCORDONED,
        Reason.ORPHANED,
        Reason.RELEASED,
    }
)
"""Reasons that only a running controller gives: a plan made from a file or by the CLI never has them."""


class Refusal(Struct, frozen=True, order=True, gc=False):
    """One thing that keeps a node: the *reason*, what it is about, and a sentence with the numbers.

    *subject* is a node name, ``namespace/pod`` or a pool name. *fix* is the smallest change that would remove this
    one blocker, in words a platform engineer can act on; empty where there is none to suggest.
    """

    reason: Reason
    subject: str
    detail: str = ""
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.reason} {self.subject}: {self.detail}" if self.detail else f"{self.reason} {self.subject}"

"""Pods that terminate and would outlast a drain. Plan, claim and drain ask alike."""

from __future__ import annotations

import math

from tightship.objects import Pod
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration

STUCK_AFTER = 60
"""Seconds past the end of its grace period after which a terminating pod counts as stuck, as for Karpenter
(``IsStuckTerminating`` in pkg/utils/pod/scheduling.go); Cluster Autoscaler waits 30 s (utils/drain/drain.go)."""

OVERDUE = 10
"""Seconds past the end of its grace period after which a terminating pod keeps a drain from beginning: the pod may be
stuck soon, and others would be evicted for nothing."""

_REMOVES = {
    "batch.kubernetes.io/job-tracking": "the Job controller",
    "foregroundDeletion": "the garbage collector, once all that the pod owns is gone,",
    "orphan": "the garbage collector",
}
"""Who removes the finalizers of Kubernetes itself."""


def outlasting(pod: Pod, now: float, has: float = math.inf, patience: float = STUCK_AFTER) -> Refusal | None:
    """Return why *pod*, if it terminates, is still here when a drain gives up that has *has* seconds from *now*.

    A pod that should be gone *patience* seconds ago is stuck: a finalizer holds it, or its kubelet or its volumes don't
    let go.
    """
    if pod.deletion is None:
        return None
    if now <= pod.deletion + patience:
        left = pod.deletion - now
        if left <= has:
            return None
        detail = f"terminates, and may take {format_duration(left)} more; a drain has only {format_duration(has)}"
        return Refusal(Reason.GRACE_PERIOD_TOO_LONG, pod.key, detail, f"wait until {pod.key} has gone")
    past = format_duration(now - pod.deletion)
    if not pod.finalizers:
        return Refusal(Reason.POD_STUCK, pod.key, f"should have been gone {past} ago")
    held = f"finalizer{'s' if len(pod.finalizers) > 1 else ''} {', '.join(pod.finalizers)}"
    holds = "hold" if len(pod.finalizers) > 1 else "holds"
    who = ", ".join(dict.fromkeys(_removes(each) for each in pod.finalizers))
    detail = f"should have been gone {past} ago, but {held} {holds} it"
    return Refusal(Reason.STUCK_FINALIZER, pod.key, detail, f"see why {who} does not remove {held}")


def _removes(finalizer: str) -> str:
    domain = finalizer.partition("/")[0] if "/" in finalizer else finalizer
    return _REMOVES.get(finalizer) or f"the controller of {domain}"

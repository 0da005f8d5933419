"""The meaning of the answers to an eviction, as measured on a real API server. Pure.

The answers are those of ``pkg/registry/core/pod/storage/eviction.go``; their treatment follows the best of kubectl
(``pkg/drain``), Cluster Autoscaler (``core/scaledown/actuation``) and Karpenter (``terminator/eviction.go``).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from tightship.objects.api_errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    one_line,
)
from tightship.objects.reasons import Reason

MULTIPLE_PDBS = "more than one PodDisruptionBudget"
"""Part of the message of the 500 for a pod with two PDBs; its ``reason`` is empty."""

EVACUATING = "Eviction triggered evacuation"
"""KubeVirt's webhook refuses the eviction and moves the virtual machine away all the same."""


class EvictionAnswer(StrEnum):
    """The answer to an eviction; the value is the metric label."""

    ACCEPTED = "accepted"
    GONE = "gone"
    CONFLICT = "conflict"
    """409: another pod has this name, or something changed at the same moment; the pod's UID decides."""
    BUDGET = "budget"
    """The PDB allows no eviction now."""
    BUDGET_NOT_CURRENT = "budget_not_current"
    """The PDB's status is older than its spec."""
    BUDGET_SYNC_FAILED = "budget_sync_failed"
    """The disruption controller can't compute the PDB until somebody fixes it."""
    MULTIPLE_BUDGETS = "multiple_budgets"
    BUSY = "busy"
    """429 without a PDB: API priority and fairness, or a webhook."""
    EVACUATING = "evacuating"
    """A webhook moves the pod in the background."""
    NAMESPACE_TERMINATING = "namespace_terminating"
    FORBIDDEN = "forbidden"
    """RBAC, or a webhook."""
    INVALID = "invalid"
    SERVER_ERROR = "server_error"
    NO_ANSWER = "no_answer"
    """The network failed, so the eviction may or may not have happened. The UID makes a retry harmless."""


FATAL = {
    EvictionAnswer.BUDGET_SYNC_FAILED: Reason.PDB_SYNC_FAILED,
    EvictionAnswer.MULTIPLE_BUDGETS: Reason.MULTIPLE_PDBS,
    EvictionAnswer.FORBIDDEN: Reason.EVICTION_FORBIDDEN,
    EvictionAnswer.INVALID: Reason.EVICTION_FAILED,
}
"""Answers that waiting does not change, each with the reason for giving the drain up."""

GOING = frozenset(
    {
        EvictionAnswer.ACCEPTED,
        EvictionAnswer.EVACUATING,
        EvictionAnswer.NAMESPACE_TERMINATING,
    }
)
"""Answers after which the pod goes without another eviction."""


class EvictionResult(Struct, frozen=True):
    """An answer, its text for people, and the seconds that the server asked us to wait, if it did."""

    answer: EvictionAnswer
    text: str = ""
    retry_after: float | None = None


def classify(error: KubeError | None) -> EvictionResult:
    """Return what *error* (``None``: a 2xx) means for an eviction."""
    if error is None:
        return EvictionResult(EvictionAnswer.ACCEPTED)
    text = error.message if isinstance(error, ApiError) and error.message else one_line(error)
    wait = error.retry_after if isinstance(error, ApiError) else None
    return EvictionResult(_answer(error), text, wait)


def _answer(error: KubeError) -> EvictionAnswer:
    match error:
        case NotFound():
            return EvictionAnswer.GONE
        case Conflict():
            return EvictionAnswer.CONFLICT
        case TooManyRequests():
            return _too_many(error)
        case Forbidden():
            ending = any(cause.reason == "NamespaceTerminating" for cause in error.causes)
            return EvictionAnswer.NAMESPACE_TERMINATING if ending else EvictionAnswer.FORBIDDEN
        case BadRequest() | Invalid():
            return EvictionAnswer.INVALID
        case Unavailable():
            return EvictionAnswer.MULTIPLE_BUDGETS if MULTIPLE_PDBS in error.message else EvictionAnswer.SERVER_ERROR
        case Unauthorized() | ApiError():
            return EvictionAnswer.SERVER_ERROR
        case _:
            return EvictionAnswer.NO_ANSWER


def _too_many(error: ApiError) -> EvictionAnswer:
    if EVACUATING in error.message:
        return EvictionAnswer.EVACUATING
    messages = [cause.message for cause in error.causes if cause.reason == "DisruptionBudget"]
    if not messages:
        return EvictionAnswer.BUSY
    if any("failed sync" in message for message in messages):
        return EvictionAnswer.BUDGET_SYNC_FAILED
    if any("still being processed" in message for message in messages):
        return EvictionAnswer.BUDGET_NOT_CURRENT
    return EvictionAnswer.BUDGET

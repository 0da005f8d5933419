"""PodDisruptionBudgets: what the disruption controller computes of them, and what it makes of an eviction. Pure.

Sources: ``pkg/controller/disruption/disruption.go`` and ``pkg/registry/core/pod/storage/eviction.go`` (1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from tightship_simulator import labels
from tightship_simulator.api.errors import Forbidden, TooManyRequests, WithoutReason
from tightship_simulator.api.objects import timestamp

Json = dict[str, Any]
Scale = Callable[[Json], tuple[str, int] | None]
"""The uid and the replicas wanted of the controller of a pod; ``None`` for one that has no scale."""

DISRUPTION_TIMEOUT = timedelta(minutes=2)
"""How long an eviction counts before the pod's deletion is seen."""

_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
_MOST_DISRUPTED = 2000


class SyncFailed(Exception):  # noqa: N818 - the condition's reason
    """A budget that can't be computed; the text says why."""


def matches(budget: Json, pod: Json) -> bool:
    """Whether a budget is about a pod of its namespace."""
    return labels.selects((budget.get("spec") or {}).get("selector"), pod["metadata"].get("labels") or {})


def status_of(budget: Json, pods: Sequence[Json], scale: Scale, now: datetime) -> Json:
    """Return the status of a budget; *pods* are those of its namespace."""
    mine = [each for each in pods if matches(budget, each)]
    meta, before = budget["metadata"], budget.get("status") or {}
    try:
        expected, desired = _wanted(budget.get("spec") or {}, mine, scale)
    except SyncFailed as error:
        # As from the real controller the generation stays unobserved, and the counts are the old ones.
        condition = _condition(budget, "False", "SyncFailed", str(error), now)
        return {**before, "disruptionsAllowed": 0, "conditions": [condition]}
    disrupted = _disrupted(before, mine, now)
    healthy = sum(is_ready(each) for each in mine if _present(each, disrupted))
    allowed = max(0, healthy - desired) if expected > 0 else 0
    reason = "SufficientPods" if allowed else "InsufficientPods"
    status: Json = {
        "observedGeneration": meta.get("generation", 1),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "conditions": [_condition(budget, str(bool(allowed)), reason, "", now)],
    }
    return {**status, "disruptedPods": disrupted} if disrupted else status


def _wanted(spec: Json, pods: Sequence[Json], scale: Scale) -> tuple[int, int]:
    """Return how many pods are expected and how many must be healthy. Raises :class:`SyncFailed`."""
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if most is not None:
        expected = _expected(pods, scale)
        return expected, max(0, expected - _scaled(most, expected))
    if isinstance(least, str):
        expected = _expected(pods, scale)
        return expected, _scaled(least, expected)
    return len(pods), int(least or 0)


def _expected(pods: Sequence[Json], scale: Scale) -> int:
    scales: dict[str, int] = {}
    for pod in pods:
        if controller_of(pod) is None:
            continue
        found = scale(pod)
        if found is None:
            raise SyncFailed(f'found no controllers for pod "{pod["metadata"]["name"]}"')
        scales[found[0]] = found[1]
    return sum(scales.values())


def _scaled(value: int | str, total: int) -> int:
    """Return a number or a percentage of *total*, rounded up."""
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-percent * total // 100)


def _present(pod: Json, disrupted: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod["metadata"]["name"] not in disrupted


def _disrupted(before: Json, pods: Sequence[Json], now: datetime) -> Json:
    there = {each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]}
    return {
        name: since
        for name, since in (before.get("disruptedPods") or {}).items()
        if name in there and datetime.fromisoformat(since) + DISRUPTION_TIMEOUT > now
    }


def _condition(budget: Json, status: str, reason: str, message: str, now: datetime) -> Json:
    before: Json = next(iter((budget.get("status") or {}).get("conditions") or []), {})
    same = before.get("status") == status
    return {
        "type": "DisruptionAllowed",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": budget["metadata"].get("generation", 1),
        "lastTransitionTime": before["lastTransitionTime"] if same else timestamp(now),
    }


def controller_of(thing: Json) -> Json | None:
    """Return the owner reference of the controller of an object, if it has one."""
    owners = thing["metadata"].get("ownerReferences") or []
    return next((each for each in owners if each.get("controller")), None)


def is_ready(pod: Json) -> bool:
    """Whether a pod has the condition Ready."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def spent_by(pod: Json, budgets: Sequence[Json], now: datetime) -> Json | None:
    """Return what the eviction of a pod makes of the budget that it falls under, ``None`` where it costs nothing.

    *budgets* are those of its namespace. Raises the refusals of the eviction subresource:
    :class:`~tightship_simulator.api.errors.TooManyRequests`, ``WithoutReason`` and ``Forbidden``.
    """
    if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed", "Pending"}:
        return None
    if "deletionTimestamp" in pod["metadata"]:
        return None
    mine = [each for each in budgets if matches(each, pod)]
    if len(mine) > 1:
        detail = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise WithoutReason(detail)
    if not mine or _let_go(pod, mine[0]):
        return None
    return _decremented(mine[0], pod["metadata"]["name"], now)


def _let_go(pod: Json, budget: Json) -> bool:
    """Whether a pod that is not Ready goes past its budget (``unhealthyPodEvictionPolicy``)."""
    if is_ready(pod):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return bool(healthy >= desired > 0)


def _decremented(budget: Json, pod: str, now: datetime) -> Json:
    meta, status = budget["metadata"], budget.get("status") or {}
    name = meta["name"]
    if status.get("observedGeneration", 0) < meta.get("generation", 1):
        raise _refused(f"The disruption budget {name} is still being processed by the server.", retry_after=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise Forbidden(f'poddisruptionbudgets.policy "{name}" is forbidden: pdb disruptions allowed is negative')
    if len(status.get("disruptedPods") or {}) > _MOST_DISRUPTED:
        detail = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise Forbidden(f'poddisruptionbudgets.policy "{name}" is forbidden: {detail}')
    if not allowed:
        failed = [each for each in status.get("conditions") or [] if each.get("reason") == "SyncFailed"]
        if failed:
            raise _refused(
                f"The disruption budget {name} does not allow evicting pods currently because it failed "
                f"sync: {failed[0].get('message', '')}"
            )
        counts = f"needs {status.get('desiredHealthy', 0)} healthy pods and has {status.get('currentHealthy', 0)}"
        raise _refused(f"The disruption budget {name} {counts} currently")
    disrupted = {**(status.get("disruptedPods") or {}), pod: timestamp(now)}
    return {**budget, "status": {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}}


def _refused(cause: str, *, retry_after: int = 0) -> TooManyRequests:
    causes = [{"reason": "DisruptionBudget", "message": cause}]
    return TooManyRequests(_VIOLATES, details={"causes": causes}, retry_after=retry_after)

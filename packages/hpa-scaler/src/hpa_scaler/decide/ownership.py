"""Who owns the bounds of an HPA now, and what to do if somebody else sets them again and again.

Three values are compared: what the HPA has, what we last set, and what its user had before. Where the first two differ,
somebody else has changed the bound, and its present value is the user's own.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from hpa_scaler.decide.history import History, with_floor
from hpa_scaler.spec.rules import Rules
from tightship.core.counting import counted
from tightship.core.durations import format_duration
from tightship.core.objects import HorizontalPodAutoscaler
from tightship.core.objects.autoscaling import FieldManager
from tightship.core.reasons import Reason, Refusal

MANAGER = "hpa-scaler"
"""Our name as a field manager."""


class Ownership(Struct, frozen=True):
    """The user's own bounds, and the *history* that records them; *changed* says who changed what, if anybody did."""

    minimum: int
    maximum: int
    history: History
    changed: Refusal | None = None


def ownership(
    hpa: HorizontalPodAutoscaler, history: History, rules: Rules, now: float, *, window: float = 0.0
) -> Ownership:
    """Return who owns the bounds of *hpa*. A bound that somebody else has changed is theirs from now on.

    A floor that somebody else has raised counts as wanted now, and stays for the lowering *window*.
    """
    min_changed = history.applied_min is not None and history.applied_min != hpa.min_replicas
    max_changed = history.applied_max is not None and history.applied_max != hpa.max_replicas
    held_min = history.applied_min is not None and not min_changed
    held_max = history.applied_max is not None and not max_changed
    cause = None
    if min_changed or max_changed:
        found = []
        if min_changed:
            found.append(f"minReplicas from {history.applied_min} to {hpa.min_replicas}")
        if max_changed:
            found.append(f"maxReplicas from {history.applied_max} to {hpa.max_replicas}")
        who = _who(hpa, of_min=min_changed)
        cause = Refusal(
            Reason.CHANGED_BY_OTHERS,
            detail=f"{who} changed {' and '.join(found)}; the controller now treats this as the user's own bound",
        )
        again = now - history.reset_at <= max(rules.contest_window, 2 * _pause(history.resets, rules))
        history = msgspec.structs.replace(history, resets=history.resets + 1 if again else 1, reset_at=now)
    before = [each for each in (history.applied_min, history.seen) if each is not None]
    if before and hpa.min_replicas > max(before):
        history = msgspec.structs.replace(history, floors=with_floor(history.floors, hpa.min_replicas, now, window))
    history = msgspec.structs.replace(
        history,
        original_min=history.original_min if held_min else None,
        applied_min=history.applied_min if held_min else None,
        original_max=history.original_max if held_max else None,
        applied_max=history.applied_max if held_max else None,
    )
    return Ownership(
        minimum=hpa.min_replicas if history.original_min is None else history.original_min,
        # We never lower a maximum below the user's own: an annotation that says so was tampered with.
        maximum=min(hpa.max_replicas, hpa.max_replicas if history.original_max is None else history.original_max),
        history=history,
        changed=cause,
    )


def contested(hpa: HorizontalPodAutoscaler, history: History, rules: Rules, now: float) -> Refusal | None:
    """Return why *hpa* is left alone for the time being, ``None`` if nobody contests its bounds."""
    if history.resets < rules.contest_resets:
        return None
    left = history.reset_at + _pause(history.resets, rules) - now
    if left <= 0:
        return None
    detail = (
        f"{_who(hpa, of_min=True)} has set the bounds back {counted(history.resets, 'time')}, most recently "
        f"{format_duration(now - history.reset_at)} ago; next try in {format_duration(left)}"
    )
    return Refusal(Reason.CONTESTED, detail=detail, fix=_advice(_manager(hpa, of_min=True)))


def _pause(resets: int, rules: Rules) -> float:
    more = resets - rules.contest_resets
    return 0.0 if more < 0 else min(rules.contest_longest_pause, rules.contest_pause * 2 ** min(more, 32))


def _manager(hpa: HorizontalPodAutoscaler, *, of_min: bool) -> FieldManager | None:
    """Return who else set the bound last, as the API server has it on record."""
    others = [each for each in hpa.managers if each.manager != MANAGER and (each.sets_min if of_min else each.sets_max)]
    return max(others, key=lambda each: each.time, default=None)


def _who(hpa: HorizontalPodAutoscaler, *, of_min: bool) -> str:
    manager = _manager(hpa, of_min=of_min)
    return "somebody" if manager is None else f"{manager.manager} ({manager.operation})"


def _advice(manager: FieldManager | None) -> str:
    """Return what ends a contest with *manager*."""
    name = "" if manager is None else manager.manager.lower()
    if "argocd" in name:
        return (
            "in the Application: ignoreDifferences: [{group: autoscaling, kind: HorizontalPodAutoscaler, "
            "managedFieldsManagers: [hpa-scaler]}], and the sync option RespectIgnoreDifferences=true"
        )
    if "kustomize-controller" in name or "flux" in name:
        return "in the Kustomization: driftIgnoreRules with the path /spec/minReplicas for HorizontalPodAutoscalers"
    if "helm" in name:
        return "leave minReplicas out of the chart's HorizontalPodAutoscaler"
    return "remove the line minReplicas from the manifest, and keep the lowest floor in the annotation minimum-replicas"


__all__ = ["MANAGER", "Ownership", "contested", "ownership"]

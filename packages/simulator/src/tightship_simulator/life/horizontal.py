"""The HorizontalPodAutoscaler's loop: desired replicas from a metric, within bounds, down only after a while. Pure.

By ``pkg/controller/podautoscaler``: ``ceil(current * metric / target)``, a tolerance of a tenth, the largest of several
metrics, the highest recommendation of the stabilization window when going down. Replicas below ``minReplicas`` are
raised whether or not there is a metric; otherwise no metric means no change. Policies of ``behavior`` are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tightship_simulator.life.changes import Change, Json, Look, Patch, key_of, with_condition

TOLERANCE = 0.1

Measure = Callable[[Json, Json, int], float | None]
"""Gives the ratio of a metric to its target, for an HPA, one of its ``spec.metrics`` and its current replicas."""


class HorizontalAutoscaler:
    """Remembers recommendations, with the seconds of the clock it is given.

    *window* is the downward stabilization in seconds where an HPA names none; *pace* divides the windows they name.
    """

    def __init__(self, measure: Measure, window: float = 300.0, pace: float = 1.0) -> None:
        self._measure = measure
        self._window = window
        self._pace = pace
        self._recommended: dict[tuple[str, str], list[tuple[float, int]]] = {}

    def step(self, look: Look, now: float, at: str) -> list[Change]:
        """Return new replicas of targets, and the status of every HPA; *at* is the time in RFC 3339."""
        targets = {key_of(each): each for each in look("Deployment")}
        changes: list[Change] = []
        seen = set()
        for hpa in look("HorizontalPodAutoscaler"):
            namespace, name = key_of(hpa)
            seen.add((namespace, name))
            target = targets.get((namespace, hpa["spec"]["scaleTargetRef"]["name"]))
            if target is not None:
                changes += self._scale(hpa, target, now, at)
        self._recommended = {key: kept for key, kept in self._recommended.items() if key in seen}
        return changes

    def _scale(self, hpa: Json, target: Json, now: float, at: str) -> list[Change]:
        spec = hpa["spec"]
        least, most = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
        current = int(target["spec"].get("replicas", 1))
        ratios = [self._measure(hpa, metric, current) for metric in spec.get("metrics") or ()]
        known = [ratio for ratio in ratios if ratio is not None]
        if current == 0:
            wanted = 0
        elif known and (len(known) == len(ratios) or max(known) > 1):
            wanted = self._stable(hpa, max(recommend(current, ratio) for ratio in known), current, now)
        else:
            wanted = current
        desired = max(least, min(most, wanted)) if current else 0
        changes: list[Change] = []
        if desired != current:
            changes.append(Patch(target, {"spec": {"replicas": desired}}))
        conditions = _conditions(hpa, at, bool(known), wanted, desired)
        status: Json = {
            "currentReplicas": current,
            "desiredReplicas": desired,
            "observedGeneration": hpa["metadata"].get("generation", 1),
            "conditions": conditions,
        }
        if desired != current:
            status["lastScaleTime"] = at
        shown = hpa.get("status") or {}
        if any(shown.get(key) != value for key, value in status.items()):
            changes.append(Patch(hpa, {"status": status}, status=True))
        return changes

    def _stable(self, hpa: Json, wanted: int, current: int, now: float) -> int:
        """Return the highest recommendation of the window if that is a way down, *wanted* else."""
        behaviour = ((hpa["spec"].get("behavior") or {}).get("scaleDown") or {}).get("stabilizationWindowSeconds")
        window = (self._window if behaviour is None else float(behaviour)) / self._pace
        kept = [entry for entry in self._recommended.get(key_of(hpa), [(now, current)]) if now - entry[0] <= window]
        kept.append((now, wanted))
        self._recommended[key_of(hpa)] = kept
        return wanted if wanted >= current else min(current, max(count for _, count in kept))


def recommend(current: int, ratio: float) -> int:
    """Return how many replicas bring the metric to its target; *current* within the tolerance."""
    return current if abs(ratio - 1) <= TOLERANCE else math.ceil(current * ratio - 1e-9)


def _conditions(hpa: Json, at: str, active: bool, wanted: int, desired: int) -> list[Json]:
    reason = "TooFewReplicas" if wanted < desired else "TooManyReplicas" if wanted > desired else "DesiredWithinRange"
    limited = "False" if wanted == desired else "True"
    message = {
        "TooFewReplicas": "the desired replica count is less than the minimum replica count",
        "TooManyReplicas": "the desired replica count is more than the maximum replica count",
        "DesiredWithinRange": "the desired count is within the acceptable range",
    }[reason]
    able = with_condition(hpa, "AbleToScale", "True", at, reason="ReadyForNewScale", message="ready")
    read = ("True", "ValidMetricFound", "metrics were read") if active else ("False", "FailedGetMetric", "no metric")
    known = with_condition(_having(able), "ScalingActive", read[0], at, reason=read[1], message=read[2])
    return with_condition(_having(known), "ScalingLimited", limited, at, reason=reason, message=message)


def _having(conditions: list[Json]) -> Json:
    return {"status": {"conditions": conditions}}


__all__ = ["HorizontalAutoscaler", "Measure", "recommend"]

"""The HorizontalPodAutoscaler's loop: what the HPA controller reads and writes. Pure.

:mod:`tightship.objects.horizontal` has the arithmetic. Of several metrics the largest counts. Replicas below
``minReplicas`` are raised, and those above ``maxReplicas`` lowered, without a look at any metric; otherwise no metric
means no change, also of ``status.desiredReplicas``.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tightship.objects.autoscaling import ScalingRules
from tightship.objects.horizontal import STABILIZATION, ReplicaLoop, recommend
from tightship_simulator.life.changes import Change, Json, Look, Patch, key_of, with_condition

_MESSAGES = {
    "SucceededGetScale": "the HPA controller was able to get the target's current scale",
    "SucceededRescale": "the HPA controller was able to update the target scale",
    "ReadyForNewScale": "recommended size matches current size",
    "ScaleDownStabilized": "recent recommendations were higher than current one, applying the highest recent one",
    "ScalingDisabled": "scaling is disabled since the replica count of the target is zero",
    "ValidMetricFound": "the HPA was able to successfully calculate a replica count",
    "ScaleUpLimit": "the desired replica count is increasing faster than the maximum scale rate",
    "ScaleDownLimit": "the desired replica count is decreasing faster than the maximum scale rate",
    "TooFewReplicas": "the desired replica count is less than the minimum replica count",
    "TooManyReplicas": "the desired replica count is more than the maximum replica count",
    "ScaledToZero": "the HPA controller scaled the workload to zero",
    "NotScaledToZero": "the HPA controller did not scale the workload to zero",
    "DesiredWithinRange": "the desired count is within the acceptable range",
}

Measure = Callable[[Json, Json, int], float | None]
"""Gives the ratio of a metric to its target, for an HPA, one of its ``spec.metrics`` and its current replicas."""


class HorizontalAutoscaler:
    """Remembers what each HPA recommended and did, with the seconds of the clock it is given.

    *window* is the downward stabilization in seconds where an HPA names none; *pace* divides the windows they name.
    """

    def __init__(self, measure: Measure, window: float = STABILIZATION, pace: float = 1.0) -> None:
        self._measure = measure
        self._window = window
        self._pace = pace
        self._loops: dict[tuple[str, str], tuple[Json | None, ReplicaLoop]] = {}

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
        self._loops = {key: kept for key, kept in self._loops.items() if key in seen}
        return changes

    def _scale(self, hpa: Json, target: Json, now: float, at: str) -> list[Change]:
        spec = hpa["spec"]
        least, most = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
        current = int(target["spec"].get("replicas", 1))
        self._loop(hpa).begin(current, now)
        reported = _Conditions(hpa, at)
        reported.set("AbleToScale", "True", "SucceededGetScale")
        desired: int | None = current
        if current == 0 and least != 0:
            reported.set("ScalingActive", "False", "ScalingDisabled")
        elif current > most:
            desired = most
        elif current < least:
            desired = least
        else:
            desired = self._by_metrics(hpa, current, now, reported)
        changes: list[Change] = []
        shown = hpa.get("status") or {}
        # Where metrics fail what was desired last stands. Go leaves out a field that is 0, but for those required.
        wanted = shown.get("desiredReplicas", 0) if desired is None else desired
        generation = hpa["metadata"].get("generation", 1)
        status: Json = {
            "observedGeneration": generation, "currentReplicas": current or None, "desiredReplicas": wanted
        }  # fmt: skip
        if desired not in (None, current):
            self._loop(hpa).scaled(current, desired, now)
            changes.append(Patch(target, {"spec": {"replicas": desired}}))
            reported.set("AbleToScale", "True", "SucceededRescale")
            reported.set("ScaledToZero", *(("False", "NotScaledToZero") if desired else ("True", "ScaledToZero")))
            status["lastScaleTime"] = at
        status["conditions"] = reported.conditions
        if any(shown.get(key) != value for key, value in status.items()):
            changes.append(Patch(hpa, {"status": status}, status=True))
        return changes

    def _by_metrics(self, hpa: Json, current: int, now: float, reported: _Conditions) -> int | None:
        """Return how many replicas the metrics ask for, within bounds; ``None`` where they can't be had."""
        spec = hpa["spec"]
        least, most = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
        metrics = spec.get("metrics") or ()
        found = [(metric, self._measure(hpa, metric, current)) for metric in metrics]
        failed = [metric for metric, ratio in found if ratio is None]
        asked = max((recommend(current, ratio) for _, ratio in found if ratio is not None), default=None)
        if asked is None or (failed and asked < current):
            kind = failed[0]["type"] if failed else "Resource"
            reported.set("ScalingActive", "False", f"FailedGet{kind}Metric")
            return None
        reported.set("ScalingActive", "True", "ValidMetricFound")
        loop = self._loop(hpa)
        wanted = loop.stabilized(asked, current, now)
        reported.set("AbleToScale", "True", "ReadyForNewScale" if wanted == asked else "ScaleDownStabilized")
        desired = loop.limited(wanted, current, least, most, now)
        if wanted == desired:
            reported.set("ScalingLimited", "False", "DesiredWithinRange")
        elif wanted < desired:
            reported.set("ScalingLimited", "True", "TooFewReplicas" if desired == least else "ScaleDownLimit")
        else:
            reported.set("ScalingLimited", "True", "TooManyReplicas" if desired == most else "ScaleUpLimit")
        return desired

    def _loop(self, hpa: Json) -> ReplicaLoop:
        """Return the memory of *hpa*, a new one once its ``behavior`` is another."""
        written = hpa["spec"].get("behavior")
        known = self._loops.get(key_of(hpa))
        if known is None or known[0] != written:
            rules = msgspec.convert(written or {}, dict[str, ScalingRules])
            loop = ReplicaLoop(
                rules.get("scaleUp"), rules.get("scaleDown"), stabilization=self._window, pace=self._pace
            )
            known = self._loops[key_of(hpa)] = (written, loop)
        return known[1]


class _Conditions:
    """The conditions of an HPA's status, those that are not set kept as they are."""

    def __init__(self, hpa: Json, at: str) -> None:
        self.conditions: list[Json] = list((hpa.get("status") or {}).get("conditions") or ())
        self._before = hpa
        self._at = at

    def set(self, kind: str, status: str, reason: str) -> None:
        """Set one, in its place where it is there already."""
        message = _MESSAGES.get(reason, "the HPA was unable to compute the replica count")
        made = with_condition(self._before, kind, status, self._at, reason=reason, message=message)[-1]
        places = [place for place, each in enumerate(self.conditions) if each["type"] == kind]
        at = places[0] if places else len(self.conditions)
        self.conditions[at : at + 1] = [made]


__all__ = ["HorizontalAutoscaler", "Measure", "recommend"]

"""The arithmetic of the HPA controller: from the ratio of a metric to its target to a number of replicas. Pure.

The rules are those of ``pkg/controller/podautoscaler`` in Kubernetes 1.36 (``horizontal.go``,
``replica_calculator.go``): a tolerance, the stabilization windows, and the policies of ``behavior``. The simulated
HPA controller and the backtest of floors both use them. Pods that are not ready yet are left out: the controller
counts those of a CPU metric as idle. Times are in seconds of any clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence

from tightship.objects.autoscaling import ScalingPolicy, ScalingRules

TOLERANCE = 0.1
"""How far a ratio may be from 1 without a change: ``--horizontal-pod-autoscaler-tolerance``."""

STABILIZATION = 300.0
"""Seconds for which a higher recommendation counts: ``--horizontal-pod-autoscaler-downscale-stabilization``."""

SYNC = 15.0
"""Seconds between two looks: ``--horizontal-pod-autoscaler-sync-period``."""

DEFAULT_UP = (ScalingPolicy("Percent", 100, 15), ScalingPolicy("Pods", 4, 15))
"""The API server's policies for a ``behavior.scaleUp`` without any, or beside a ``scaleDown``."""

DEFAULT_DOWN = (ScalingPolicy("Percent", 100, 15),)
"""The same for ``behavior.scaleDown``."""

_ROUNDING = 1e-9


def recommend(current: int, ratio: float, up: float = TOLERANCE, down: float = TOLERANCE) -> int:
    """Return how many replicas bring the metric to its target; *current* within the tolerances *up* and *down*."""
    if 1 - down <= ratio <= 1 + up:
        return current
    return math.ceil(current * ratio - _ROUNDING)


class ReplicaLoop:
    """One HPA from look to look: the recommendations and scalings that it remembers.

    *up* and *down* are its ``behavior``, both ``None`` without one. *stabilization* is the downward window of an HPA
    that names none, in seconds; *pace* divides only the windows and periods that the HPA names.
    """

    def __init__(
        self,
        up: ScalingRules | None = None,
        down: ScalingRules | None = None,
        *,
        stabilization: float = STABILIZATION,
        pace: float = 1.0,
    ) -> None:
        self._behaves = up is not None or down is not None
        self._up, self._down = up or ScalingRules(), down or ScalingRules()
        named = self._down.stabilization_window_seconds
        self._down_window = stabilization if named is None else named / pace
        self._up_window = (self._up.stabilization_window_seconds or 0) / pace
        self._pace = pace
        self._tolerances = _tolerance(self._up), _tolerance(self._down)
        # Recommendations that may still count: only those that no later one is above, or below for the way up.
        self._highest: deque[tuple[float, int]] = deque()
        self._lowest: deque[tuple[float, int]] = deque()
        self._begun = False
        self._content = False
        self._added: list[tuple[float, int]] = []
        self._removed: list[tuple[float, int]] = []

    def look(self, now: float, current: int, ratio: float | None, minimum: int, maximum: int) -> int:
        """Return the replicas that the HPA controller sets at *now*; *ratio* is ``None`` where its metrics fail."""
        self.begin(current, now)
        if current == 0 and minimum != 0:
            return 0
        if current > maximum:
            desired = maximum
        elif current < minimum:
            desired = minimum
        elif ratio is None:
            return current
        else:
            wanted = self.stabilized(recommend(current, ratio, *self._tolerances), current, now)
            desired = self.limited(wanted, current, minimum, maximum, now)
        if desired != current:
            self.scaled(current, desired, now)
        return desired

    def begin(self, current: int, now: float) -> None:
        """Take the replicas of the first look for a recommendation, as the controller does."""
        if not self._begun:
            self._begun = True
            self._highest.append((now, current))
            self._lowest.append((now, current))

    def stabilized(self, wanted: int, current: int, now: float) -> int:
        """Return the recommendation of *now*, *wanted*, within the windows; and remember it."""
        self.begin(current, now)
        self._highest.append((now, wanted))
        most = _extreme(self._highest, now - self._down_window, strict=self._behaves, high=True)
        if not self._behaves:
            return most
        least = wanted
        if self._up_window:
            self._lowest.append((now, wanted))
            least = _extreme(self._lowest, now - self._up_window, strict=True, high=False)
        wanted = min(max(current, least), most)
        self._content = wanted == current
        return wanted

    def stays(self, until: float) -> bool:
        """Whether all looks up to *until* have the same end as the last one, which changed nothing by the same numbers.

        If so, the look at *until* counts as made.
        """
        if self._behaves and not self._content:
            return False  # a policy may allow more when its period is over
        kept = [(self._highest, self._down_window), *([(self._lowest, self._up_window)] if self._up_window else [])]
        if any(len(each) > 1 and each[0][0] <= until - window for each, window in kept):
            return False
        for each, _ in kept:
            each[-1] = until, each[-1][1]
        return True

    def limited(self, wanted: int, current: int, minimum: int, maximum: int, now: float) -> int:
        """Return *wanted* within the bounds, and within what one look may change."""
        if not self._behaves:
            return max(minimum, min(wanted, maximum, max(2 * current, 4)))
        if wanted > current:
            return min(wanted, maximum, max(current, self._limit(self._up, DEFAULT_UP, current, now, way=1)))
        if wanted < current:
            return max(wanted, minimum, min(current, self._limit(self._down, DEFAULT_DOWN, current, now, way=-1)))
        return wanted

    def scaled(self, before: int, after: int, now: float) -> None:
        """Remember that the HPA scaled; what no policy of an HPA looks back to is forgotten."""
        if not self._behaves:
            return
        events, rules = (self._added, self._up) if after > before else (self._removed, self._down)
        longest = max((each.period_seconds for each in rules.policies or DEFAULT_UP), default=0) / self._pace
        events[:] = [each for each in events if each[0] > now - longest]
        events.append((now, abs(after - before)))

    def _limit(self, rules: ScalingRules, absent: Sequence[ScalingPolicy], current: int, now: float, way: int) -> int:
        if rules.select_policy == "Disabled":
            return current
        allowed = [self._allowed(each, current, now, way) for each in rules.policies or absent]
        least_change = rules.select_policy == "Min"
        return min(allowed) if least_change is (way > 0) else max(allowed)

    def _allowed(self, policy: ScalingPolicy, current: int, now: float, way: int) -> int:
        since = now - policy.period_seconds / self._pace
        start = current - _within(self._added, since) + _within(self._removed, since)
        if policy.type == "Pods":
            return start + way * policy.value
        exact = start * (1 + way * policy.value / 100)
        return math.ceil(exact) if way > 0 else int(exact)


def _extreme(kept: deque[tuple[float, int]], cutoff: float, *, strict: bool, high: bool) -> int:
    """Return the highest (or lowest) recommendation since *cutoff*; the last of *kept* is the newest."""
    newest = kept.pop()
    while kept and (kept[-1][1] <= newest[1] if high else kept[-1][1] >= newest[1]):
        kept.pop()
    kept.append(newest)
    while len(kept) > 1 and (kept[0][0] <= cutoff if strict else kept[0][0] < cutoff):
        kept.popleft()
    return kept[0][1]


def _within(events: Iterable[tuple[float, int]], since: float) -> int:
    return sum(count for at, count in events if at > since)


def _tolerance(rules: ScalingRules) -> float:
    """Return the tolerance of one direction, which Kubernetes 1.35 and later take: ``0.05``, or ``50m``."""
    text = "" if rules.tolerance is None else str(rules.tolerance)
    thousandths = text.endswith("m")
    try:
        value = float(text.removesuffix("m")) / (1000 if thousandths else 1)
    except ValueError:
        return TOLERANCE
    return value if 0 <= value < math.inf else TOLERANCE

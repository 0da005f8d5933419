"""The timeline of each HPA, decision by decision: from a process's memory."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from hpa_scaler.judge.decision import FloorDecision
from tightship.objects.reasons import Reason

Effect: TypeAlias = Literal["set", "would", "left"]
"""The fate of a decision's bounds: ``set``; ``would`` in a dry run; ``left`` if the HPA kept its own, because a write
failed, or as far as anybody knows."""

_Columns: TypeAlias = "tuple[array[float], array[float], array[int], array[int], array[int]]"
"""Times, traffic, floors, maxima and replicas, all of the same length."""

_UNKNOWN = -1
"""The stored value of unknown replicas."""


class TimelineLimits(Struct, frozen=True):
    """How much of an HPA to keep: at most *points* points of the last *seconds*, and at most *changes* changes."""

    points: int
    seconds: float
    changes: int


class BoundChange(Struct, frozen=True, gc=False):
    """A bound that moved: when, minReplicas *before* and *after*, maxReplicas after, and the decision's reasons."""

    at: float
    before: int
    after: int
    maximum: int
    reasons: tuple[str, ...]


class Timeline(Struct, frozen=True):
    """The timeline of one HPA, ready to show.

    *times* are seconds since 1970, ascending. *traffic* is the replicas that the queries ask for, not rounded, ``None``
    if one of them has no usable answer. *replicas* are ``None`` if unknown. *dry* marks the bounds of a dry run.
    """

    key: str
    target: str
    times: tuple[float, ...]
    traffic: tuple[float | None, ...]
    floors: tuple[int, ...]
    maxima: tuple[int, ...]
    replicas: tuple[int | None, ...]
    changes: tuple[BoundChange, ...]
    dry: bool


class TimelineLog:
    """The timeline of one HPA; beyond the limits in *keep*, older points lie farther apart.

    A point takes 24 bytes. A point that equals its neighbours is dropped: the drawing is the same without it.
    """

    __slots__ = ("_changes", "_columns", "_dry", "_keep", "key", "target")

    def __init__(self, key: str, target: str, keep: TimelineLimits | None = None) -> None:
        self.key = key
        self.target = target
        self._keep = keep
        self._dry = False
        self._changes: list[BoundChange] = []
        self._columns: _Columns = (array("d"), array("f"), array("i"), array("i"), array("i"))

    def timeline(self, until: float = math.inf) -> Timeline:
        """Return the timeline up to *until*."""
        times, traffic, floors, maxima, replicas = self._columns
        end = bisect_right(times, until)
        return Timeline(
            key=self.key,
            target=self.target,
            times=tuple(times[:end]),
            traffic=tuple(None if math.isnan(value) else value for value in traffic[:end]),
            floors=tuple(floors[:end]),
            maxima=tuple(maxima[:end]),
            replicas=tuple(None if count == _UNKNOWN else count for count in replicas[:end]),
            changes=tuple(change for change in self._changes if change.at <= until),
            dry=self._dry,
        )

    def add(self, at: float, replicas: int | None, decision: FloorDecision, effect: Effect) -> None:
        """Add the result of *decision*, in place of any points of this time or later.

        An HPA that changed is judged again, and a clock may have been set back.
        """
        self._take_back(at)
        kept = effect == "left"
        floor = decision.minimum if kept else decision.target
        maximum = decision.maximum if kept else decision.target_maximum
        self._note(at, floor, maximum, decision, effect)
        times, traffic, floors, maxima, counts = self._columns
        times.append(at)
        known = () if decision.unanswered else decision.terms
        traffic.append(max((term.exact for term in known if math.isfinite(term.exact)), default=math.nan))
        floors.append(floor)
        maxima.append(maximum)
        counts.append(_UNKNOWN if replicas is None else replicas)
        self._dry = effect == "would"
        if len(times) > 2 and self._row(-1) == self._row(-2) == self._row(-3):
            self._drop(slice(-2, -1))
        if self._keep is not None:
            self._forget(self._keep, at)

    def _note(self, at: float, floor: int, maximum: int, decision: FloorDecision, effect: Effect) -> None:
        _, _, floors, maxima, _ = self._columns
        last = (floors[-1], maxima[-1]) if floors else (decision.minimum, decision.maximum)
        made = decision.changes and effect == "set"
        # A bound that was set back and set again within one cycle looks unchanged.
        again = made and Reason.CHANGED_BY_OTHERS in decision.reasons
        if last != (floor, maximum) or again:
            self._changes.append(
                BoundChange(at, decision.minimum if made else last[0], floor, maximum, decision.reasons)
            )

    def _take_back(self, at: float) -> None:
        self._drop(slice(bisect_left(self._columns[0], at), None))
        while self._changes and self._changes[-1].at >= at:
            self._changes.pop()

    def _forget(self, keep: TimelineLimits, at: float) -> None:
        times = self._columns[0]
        edge = at - keep.seconds
        old = bisect_right(times, edge)
        if old:
            # The last old point holds until the next one.
            self._drop(slice(old - 1))
            times[0] = edge
        if len(times) > keep.points:
            self._thin(keep.points)
        del self._changes[: -keep.changes]

    def _thin(self, most: int) -> None:
        """Keep at most three quarters of *most* points: the last quarter unchanged, and as few earlier points as span
        the time.

        If there is room, also keep the points at which a bound moved, or answers ceased or returned.
        """
        times, traffic, floors, maxima, _ = self._columns
        recent = len(times) - most // 4
        apart = 4 * (times[-1] - times[0]) / most
        states = list(zip(floors, maxima, map(math.isnan, traffic), strict=True))
        turns = {number for number in range(1, recent) if states[number] != states[number - 1]}
        stay = _spread(times[: recent + 1], apart, turns)
        if len(stay) > most // 2:
            stay = _spread(times[: recent + 1], apart, ())
        for number in sorted({*range(recent)} - {*stay}, reverse=True):
            self._drop(slice(number, number + 1))

    def _row(self, number: int) -> tuple[float | None, int, int, int]:
        """Return a point without its time."""
        _, traffic, floors, maxima, replicas = self._columns
        value = traffic[number]
        return None if math.isnan(value) else value, floors[number], maxima[number], replicas[number]

    def _drop(self, which: slice) -> None:
        for column in self._columns:
            del column[which]


def _spread(times: Sequence[float], apart: float, others: Collection[int]) -> list[int]:
    """Return the indexes of the first time, of *others*, and of as few as leave no gap above *apart* seconds."""
    stay = [0]
    for number in range(1, len(times) - 1):
        if times[number + 1] - times[stay[-1]] > apart or number in others:
            stay.append(number)
    return stay

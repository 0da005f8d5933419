"""What the controller remembers of one HPA from cycle to cycle. Pure values; times are seconds since 1970.

The running controller keeps it in memory, and writes it into the state annotation with each change of a floor. An
annotation may be old when it is read back, so in doubt everything here leaves a floor where it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Struct

Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""A number within the range of exact arithmetic: the annotation that the history is read from can be written by
anybody."""

BUCKETS = 20
"""Parts into which a lowering window is divided; more would enlarge the state without benefit."""

DAY = 86_400.0
"""Seconds for which a floor stays known after the queries wanted it for long enough."""
_HOURS = 6
"""Parts into which a day is divided."""


class Floor(Struct, frozen=True, array_like=True):
    """A floor that was wanted until the time *at*."""

    at: Whole
    floor: Whole


class Raise(Struct, frozen=True, array_like=True):
    """Pods that a raise of ours started at the time *at*."""

    at: Whole
    pods: Whole


class History(Struct, frozen=True, kw_only=True):
    """What the controller remembers of one HPA.

    *evaluated* is when the HPA was last judged, ``None`` if never. *floors* are those wanted within the lowering
    window, each lower than the one before. *failures* counts cycles in a row without a complete answer; *answered* is
    since when every cycle had one, and *recovering* whether a failure came before that. *aged* counts the queries whose
    server has told the age of its data. *incident* is when the hold query last fired, *rolling* since when the target
    has been rolling out.

    *known* are floors of the last day that the queries wanted for long enough to be traffic, *answers* the recent ones;
    *look* is the floor that they have wanted at least, and since when.

    *series* has the checksum of each query's text, negative if the query first answered with several series.

    *falling* is since when *answers* are kept as they were before many queries fell at once.

    *original_min* and *original_max* are the user's own bounds, *applied_min* and *applied_max* those that we last set:
    if an HPA has other values now, somebody else changed it. *resets* counts such changes, the last of them at
    *reset_at*. *seen* is the floor when the HPA was last judged or written; it is not written down.
    """

    evaluated: float | None = None
    floors: tuple[Floor, ...] = ()
    raises: tuple[Raise, ...] = ()
    failures: int = 0
    answered: float | None = None
    recovering: bool = False
    aged: int = 0
    incident: float | None = None
    rolling: float | None = None
    known: tuple[Floor, ...] = ()
    look: Floor | None = None
    series: tuple[int, ...] = ()
    answers: tuple[Floor, ...] = ()
    falling: float | None = None
    original_min: int | None = None
    original_max: int | None = None
    applied_min: int | None = None
    applied_max: int | None = None
    resets: int = 0
    reset_at: float = 0.0
    seen: int | None = None

    @property
    def ours(self) -> bool:
        """Whether we have set a bound that could be given back."""
        return self.applied_min is not None or self.applied_max is not None


def resumed(history: History, minimum: int, now: float, *, gap: float, window: float) -> History:
    """Return the part of *history* that still counts at *now*, with the floor at *minimum*.

    If nobody has looked for more than *gap* seconds, the time in between is unknown: runs of failures and of answers
    begin again, and the present floor counts as wanted now. An outage that was not over is not forgotten: it may have
    ended in between, so that the data are young and the server does not know.
    """
    if history.evaluated is not None and now - history.evaluated <= gap:
        return history
    return msgspec.structs.replace(
        history,
        failures=0,
        answered=None,
        rolling=None,
        floors=with_floor(history.floors, minimum, now, window),
    )


def unwatched(history: History) -> History:
    """Return *history* after a cycle without answers: nobody knows what was wanted meanwhile."""
    return history if history.evaluated is None else msgspec.structs.replace(history, evaluated=None)


def handed_over(history: History, now: float, gap: float) -> History:
    """Return the *history* that another term left: if it is older than *gap* seconds, the last judgement is unknown.

    The other term may have judged again since, and have wanted a higher floor than it wrote down.
    """
    if history.evaluated is None or now - history.evaluated <= gap:
        return history
    return msgspec.structs.replace(history, evaluated=None)


def with_floor(
    floors: Iterable[Floor], floor: int, now: float, window: float, parts: int = BUCKETS
) -> tuple[Floor, ...]:
    """Return *floors* plus *floor*, wanted at *now*, without those that no longer matter within *window*.

    Times are rounded up to one of the *parts* of the window: a floor is held slightly longer, never shorter.
    """
    if window <= 0:
        return ()
    bucket = max(1, math.ceil(window / parts))
    at = (int(now) // bucket + 1) * bucket
    kept = [each for each in floors if each.at + window > now and each.floor > floor]
    if kept and kept[-1].at >= at:
        # The present bucket has a higher one already, which hides this.
        return tuple(kept)
    return (*kept, Floor(at, floor))


def highest_floor(floors: Iterable[Floor], now: float, window: float) -> int | None:
    """Return the highest floor wanted within the last *window* seconds, ``None`` if none is known."""
    return max((each.floor for each in floors if each.at + window > now), default=None)


def with_known(history: History, floor: int, now: float, lately: float = 0.0) -> History:
    """Return *history* with *floor* known at *now*, and for *lately* seconds as what was wanted lately."""
    return msgspec.structs.replace(
        history,
        known=with_floor(history.known, floor, now, DAY, _HOURS),
        answers=with_floor(history.answers, floor, now, lately, _HOURS) if lately else history.answers,
    )


def with_raise(raises: Iterable[Raise], pods: int, now: float, longest: float) -> tuple[Raise, ...]:
    """Return *raises* plus one of *pods* at *now*, without those older than the *longest* period of a policy."""
    kept = tuple(each for each in raises if now - each.at < longest)
    return (*kept, Raise(int(now), pods)) if pods > 0 and longest > 0 else kept


def raised_within(raises: Iterable[Raise], now: float, period: float) -> int:
    """Return how many pods our own raises started within the last *period* seconds."""
    return sum(each.pods for each in raises if now - each.at < period)


__all__ = [
    "BUCKETS",
    "DAY",
    "Floor",
    "History",
    "Raise",
    "Whole",
    "handed_over",
    "highest_floor",
    "raised_within",
    "resumed",
    "unwatched",
    "with_floor",
    "with_known",
    "with_raise",
]

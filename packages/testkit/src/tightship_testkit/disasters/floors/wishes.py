"""What the annotations of an HPA ask for, and how many replicas that comes to: docs/hpa-scaler.md, said again.

This is what promises go by, so it shares nothing with the controller.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tightship_testkit.disasters.floors.spec import FALLBACK, PREFIX, Query, query_of

Json = dict[str, Any]
LOWER_BOUND = 3
CYCLES = 4
"""A default lowering window is as long as the query looks back, and so many cycles."""

_SECONDS = re.compile(r"([0-9]+)(s|m|h)?")
_NUMBERS = ("", *(f"-{number}" for number in range(2, 17)))
_KNOWN = (
    "several-series", "query-range", "missing-data", "missing-data-after", "scale-down-max-ratio", "lowering-window",
    "deadband", "scale-up-max-pods", "minimum-replicas", "maximum-replicas", "max-replicas-policy", "paused",
    "paused-scale-down", "paused-scale-up", "dry-run", "state",
)  # fmt: skip
_NUMBERED = ("prometheus-query", "requests-per-replica", "delta", "prometheus-server")


class Part(Struct, frozen=True):
    """One query of an HPA: its text, what it asks, of whom, and how replicas follow from it."""

    text: str
    query: Query
    source: str
    per_replica: float
    delta: float

    def replicas(self, value: float) -> int:
        """Return ``ceil(delta + value / requests-per-replica)``; a little too much by rounding is no replica more."""
        return math.ceil(self.delta + value / self.per_replica - 1e-6)


class Wish(Struct, frozen=True, kw_only=True):
    """What an opted-in HPA asks for. *window* is its lowering window in seconds, given or by default."""

    parts: tuple[Part, ...]
    window: float
    window_given: bool
    range_given: bool
    looks_back: float
    ratio: float
    lower: int
    upper: int | None
    clamp: bool
    band: int
    missing: str
    several: str
    paused: bool
    paused_down: bool
    paused_up: bool
    dry_run: bool
    step: int | None

    def capped(self, replicas: int, own_maximum: int) -> int:
        """Return *replicas* within the bounds; *own_maximum* is the user's ``maxReplicas``."""
        lower = self.lower if self.upper is None else min(self.lower, self.upper)
        found = max(replicas, lower, 1)
        if self.clamp:
            found = min(found, own_maximum)
        return found if self.upper is None else min(found, self.upper)


def enabled(hpa: Json) -> bool:
    """Whether it is opted in."""
    return (hpa["metadata"].get("annotations") or {}).get(PREFIX) == "true"


def wish_of(hpa: Json, interval: float, *, guarded: bool = True) -> Wish | None:
    """Return what *hpa* asks for, ``None`` where it is not opted in or its annotations can't be understood.

    *interval* is the time between two cycles; *guarded* whether the configuration has its ``coldSourceGuard``.
    """
    notes = hpa["metadata"].get("annotations") or {}
    start = f"{PREFIX}-"
    own = {key.removeprefix(start): value for key, value in notes.items() if key.startswith(start)}
    if not enabled(hpa) or not all(_is_known(name) for name in own):
        return None
    try:
        return _read(own, interval, guarded=guarded)
    except ValueError:
        return None


def _is_known(name: str) -> bool:
    return name in _KNOWN or any(name == f"{each}{number}" for each in _NUMBERED for number in _NUMBERS)


def _read(own: Mapping[str, str], interval: float, *, guarded: bool) -> Wish:
    parts = tuple(_part(own, number) for number in _NUMBERS if f"prometheus-query{number}" in own)
    said = _seconds(own["query-range"]) if "query-range" in own else None
    looks = max((_looks_back(each.query, said) for each in parts), default=0.0)
    given = _seconds(own["lowering-window"]) if "lowering-window" in own else None
    ratio, band = float(own.get("scale-down-max-ratio", "1")), int(own.get("deadband", "0"))
    if not 0 <= ratio < math.inf:
        raise ValueError(ratio)
    return Wish(
        parts=parts,
        window=given if given is not None else looks + CYCLES * interval if parts and guarded else 0.0,
        window_given=given is not None,
        range_given=said is not None,
        looks_back=looks,
        ratio=ratio,
        lower=int(own.get("minimum-replicas", LOWER_BOUND)),
        upper=int(own["maximum-replicas"]) if "maximum-replicas" in own else None,
        clamp=_word(own, "max-replicas-policy", "raise", "clamp") == "clamp",
        band=band,
        missing=own.get("missing-data", "hold"),
        several=_word(own, "several-series", "hold", "max", "error"),
        paused=_switch(own, "paused"),
        paused_down=_switch(own, "paused-scale-down"),
        paused_up=_switch(own, "paused-scale-up"),
        dry_run=_switch(own, "dry-run"),
        step=int(own["scale-up-max-pods"]) if "scale-up-max-pods" in own else None,
    )


def _part(own: Mapping[str, str], number: str) -> Part:
    text = own[f"prometheus-query{number}"]
    query = query_of(text)
    if query is None:
        raise ValueError(text)

    def said(name: str, absent: str) -> str:
        return own.get(f"{name}{number}", own.get(name, absent))

    per_replica, delta = float(said("requests-per-replica", "1")), float(said("delta", "0"))
    if not 0 < per_replica < math.inf or not math.isfinite(delta):
        raise ValueError(per_replica)
    return Part(text, query, said("prometheus-server", "default"), per_replica, delta)


def _looks_back(query: Query, said: float | None) -> float:
    """Return how far a query is documented to look back."""
    # The name of the rule says how far it looks back.
    seen = query.reach
    hidden = said if said is not None else FALLBACK if query.falls_back or not seen else 0.0
    return max(seen, hidden)


def _seconds(text: str) -> float:
    found = _SECONDS.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, None: 1}[found[2]]


def _switch(own: Mapping[str, str], name: str) -> bool:
    return _word(own, name, "false", "true") == "true"


def _word(own: Mapping[str, str], name: str, *words: str) -> str:
    found = own.get(name, words[0])
    if found not in words:
        raise ValueError(found)
    return found


__all__ = ["CYCLES", "LOWER_BOUND", "Part", "Wish", "enabled", "wish_of"]

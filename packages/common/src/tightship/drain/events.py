"""The events that a drain reports, for Kubernetes Events, metrics and the log."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from tightship.drain.answers import EvictionAnswer
from tightship.objects import Node, Pod
from tightship.objects.drain_record import DrainRecord, Ending, Phase
from tightship.objects.reasons import Refusal


class EventKind(StrEnum):
    """The kind of an event."""

    CLAIMED = "claimed"
    TAKEN_OVER = "taken_over"
    PHASE = "phase"
    EVICTION = "eviction"
    RESTART = "restart"
    """The drain restarted the Deployment that *text* names."""
    ENDED = "ended"
    TROUBLE = "trouble"
    """A request failed, and the drain retries it."""


class DrainEvent(Struct, frozen=True):
    """One event of a drain on *node*. *text* is a sentence for people."""

    kind: EventKind
    node: Node
    record: DrainRecord | None
    before: Phase | None = None
    because: Refusal | None = None
    ending: Ending | None = None
    pod: Pod | None = None
    answer: EvictionAnswer | None = None
    text: str = ""


EventSink = Callable[[DrainEvent], None]
"""Receives all events in order. Must not block."""

"""What the document of a plan says of the pods that have no node yet."""

from __future__ import annotations

from msgspec import Struct

from tightship.objects.counting import counted


class PendingSummary(Struct, frozen=True, rename="camel"):
    """*pods* without a node, of which *could_run* would all find one now, beside each other."""

    pods: int
    could_run: int


def pending_line(summary: PendingSummary) -> str:
    """Return *summary* in one line for people."""
    pods, could = counted(summary.pods, "pod waits", "pods wait"), summary.could_run
    if not could:
        return f"{pods} for a node, and no node could run {'it' if summary.pods == 1 else 'any of them'} now"
    which = "a node could run it" if summary.pods == 1 else f"nodes could run {could:,} of them"
    return f"{pods} for a node; {which} now, and the plan keeps that room"

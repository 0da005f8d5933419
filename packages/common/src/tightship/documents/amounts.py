"""Amounts, shares and ages as people read them."""

from __future__ import annotations

from tightship.documents.document import Share
from tightship.objects.quantity import BINARY_STEPS, humanize
from tightship.objects.times import format_duration


def cores(milli: int) -> str:
    """Return milli-CPU as cores: ``0.25``, ``1.5``, ``32``, ``12,345``."""
    if milli % 1000 == 0:
        return f"{milli // 1000:,}"
    if milli < 1000:
        return f"{milli / 1000:.3f}".rstrip("0")
    return f"{milli / 1000:,.1f}"


def memory(amount: int) -> str:
    """Return bytes with a binary suffix and at most one decimal: ``512Mi``, ``51.2Gi``."""
    return humanize("memory", amount)


def memory_pair(share: Share) -> str:
    """Return ``51.2/256Gi``: both in the unit of the allocatable amount, unless one is tiny beside the other."""
    total, used = memory(share.allocatable), memory(share.requested)
    unit = total.lstrip("0123456789.")
    scaled = share.requested / 1024 ** BINARY_STEPS.index(unit)
    return f"{scaled:.1f}/{total}" if scaled >= 0.05 or not share.requested else f"{used}/{total}"


def cores_pair(share: Share) -> str:
    """Return ``13.3/32``; the first number always has one decimal, so that a column of them reads easily."""
    return f"{share.requested / 1000:.1f}/{cores(share.allocatable)}"


def percent(ratio: float | None) -> str:
    """Return a ratio in percent without decimals, ``-`` for ``None``."""
    return "-" if ratio is None else f"{ratio * 100:.0f}%"


def moved(before: float | None, after: float | None) -> str:
    """Return ``45% → 51%``, or a single value if both are the same."""
    first, second = percent(before), percent(after)
    return first if first == second else f"{first} → {second}"


def amount(resource: str, number: int) -> str:
    """Return an amount of an extended resource, or of huge pages."""
    return memory(number) if resource.startswith("hugepages-") else f"{number:,}"


def short(resource: str) -> str:
    """Return the name of an extended resource without its domain: ``gpu``."""
    return resource.rpartition("/")[2]


def age(seconds: int | None) -> str:
    """Return an age in kubectl's notation, ``-`` if the creation time is unknown."""
    return "-" if seconds is None else format_duration(seconds)

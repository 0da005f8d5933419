"""Waits that grow: the one formula of everything that tries again."""

from __future__ import annotations


def doubled(first: float, longest: float, times: int) -> float:
    """Return *first* seconds, doubled *times* times, and at most *longest*."""
    return min(longest, first * 2.0 ** min(times, 32))

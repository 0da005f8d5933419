"""Texts of users as errors quote them: whole where they are short, and never so long that an error can't be told."""

from __future__ import annotations

LONGEST = 200
"""Characters of a quoted text."""


def quoted(text: object) -> str:
    """Return *text* in quotes, cut where it is longer than an error should be."""
    if isinstance(text, str) and len(text) > LONGEST:
        return f"{text[:LONGEST]!r}..."
    return repr(text)

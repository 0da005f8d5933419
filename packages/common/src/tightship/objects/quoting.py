"""Users' texts as errors quote them: cut if they are long, so that the error stays readable."""

from __future__ import annotations

LONGEST = 200
"""Most characters that an error quotes."""


def quoted(text: object) -> str:
    """Return *text* in quotes, cut after :data:`LONGEST` characters."""
    if isinstance(text, str) and len(text) > LONGEST:
        return f"{text[:LONGEST]!r}..."
    return repr(text)

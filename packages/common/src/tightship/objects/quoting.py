"""Users' texts as errors quote them: cut if they are long, so that the error stays readable."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST = 200
"""Most characters that an error quotes."""


def quoted(text: object) -> str:
    """Return *text* in quotes, cut after :data:`LONGEST` characters."""
    if isinstance(text, str) and len(text) > LONGEST:
        return f"{text[:LONGEST]!r}..."
    return repr(text)


def near(name: str, known: Iterable[str]) -> str:
    """Return names of *known* close to the mistyped *name*, as the end of a sentence; empty if none is close."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3) or [each for each in names if name in each][:3]
    return f"; did you mean {' or '.join(close)}?" if close else ""

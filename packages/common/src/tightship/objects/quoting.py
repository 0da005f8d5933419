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


def set_twice(older: str, native: str) -> str:
    """Return the problem that an *older* name and the *native* one of the same setting are both set."""
    return f"{older}: stands beside {native}, which is the same setting; allowed is one of them"


def near(name: str, known: Iterable[str]) -> str:
    """Return names of *known* close to the mistyped *name*, as the end of a sentence; empty if none is close."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3) or [each for each in names if name in each][:3]
    return f"; did you mean {' or '.join(close)}?" if close else ""

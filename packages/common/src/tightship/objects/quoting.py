"""Users' texts as errors quote them: cut if they are long, so that the error stays readable."""

from __future__ import annotations

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

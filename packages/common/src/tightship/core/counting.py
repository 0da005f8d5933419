"""Numbers before nouns, as every message writes them."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``1 node``, ``2 nodes``; *many* is for what takes more than an "s": ``3 queries``, ``3 nodes are``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"

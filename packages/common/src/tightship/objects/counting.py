"""Numbers with nouns, and the first of many names, as every message writes them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``1 node`` or ``2 nodes``; pass *many* for other plurals, such as ``3 queries`` or ``3 nodes are``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def some(texts: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """Return the first *most* of *texts*, and how many more there are: ``a, b, c and 4 more``."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more

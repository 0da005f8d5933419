"""Numbers with nouns, as every message writes them."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``1 node`` or ``2 nodes``; pass *many* for other plurals, such as ``3 queries`` or ``3 nodes are``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"

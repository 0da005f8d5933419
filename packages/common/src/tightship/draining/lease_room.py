"""Room in the claims' Lease: the API server takes 256 KiB of annotations on an object, everybody's together. Pure.

Claims and the counts of rates come first, since a node stays cordoned while its claim can't be dropped. Savings and
history give way, the oldest first: their documents are lists or objects in the order of time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from tightship.objects.unreadable import UNREADABLE

if TYPE_CHECKING:  # files are read without the client
    from tightship.kube.leases import Lease

CLAIMS_ANNOTATION = "tightship.dev/claims"
HISTORY_ANNOTATION = "tightship.dev/finished-drains"
SAVINGS_ANNOTATION = "tightship.dev/savings"
ADDITIONS_ANNOTATION = "tightship.dev/additions"

LIMIT = 256 * 1024
"""Bytes of all names and values of annotations (``TotalAnnotationSizeLimitB`` of apimachinery's objectmeta.go)."""

RESERVED = 16 * 1024
"""Bytes that the history leaves free for claims."""

_FULL = LIMIT - 2 * RESERVED
_A_CLAIM = 1024
# Savings are for people, while the others pace the drains to come.
_OURS = "tightship.dev/"
_GIVE_WAY = (SAVINGS_ANNOTATION, HISTORY_ANNOTATION, ADDITIONS_ANNOTATION)


def size(annotations: Mapping[str, str]) -> int:
    """Return the bytes of *annotations*, as the API server counts them."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())


def fitted(annotations: Mapping[str, str], reserved: int = 0) -> dict[str, str]:
    """Return *annotations* without the oldest history that leaves fewer than *reserved* bytes of the limit free.

    The result is still too large if claims and the annotations of others are.
    """
    found = dict(annotations)
    for name in _GIVE_WAY:
        over = size(found) + reserved - LIMIT
        if over > 0 and name in found:
            kept = _without_oldest(found.pop(name), over)
            if kept:
                found[name] = kept
    return found


def _without_oldest(text: str, least: int) -> str:
    """Return the document *text* shorter by at least so many bytes; empty if nothing is left, or nobody can read it."""
    try:
        entries = msgspec.json.decode(text, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
    except UNREADABLE:
        return ""
    oldest = 0
    for each in entries if isinstance(entries, list) else entries.items():
        if least <= 0:
            break
        # The entry and the comma or bracket beside it: [each] and {name: value}.
        least -= len(msgspec.json.encode([each] if isinstance(each, msgspec.Raw) else dict([each]))) - 1
        oldest += 1
    kept = entries[oldest:] if isinstance(entries, list) else dict(list(entries.items())[oldest:])
    return msgspec.json.encode(kept).decode() if kept else ""


def problem_of_room(lease: Lease) -> str:
    """Return a sentence if *lease* is so full that history is lost, or that no drain can begin; empty otherwise."""
    notes = lease.annotations
    if size(notes) <= _FULL:
        return ""
    others = {name: size({name: value}) for name, value in notes.items() if not name.startswith(_OURS)}
    needed = sum(others.values()) + size({CLAIMS_ANNOTATION: notes.get(CLAIMS_ANNOTATION, "")})
    lost = "no drain begins" if needed + _A_CLAIM > LIMIT else "the oldest savings and drains are forgotten"
    full = f"Lease {lease.namespace}/{lease.name} is full, as it takes {LIMIT:,} bytes of annotations: {lost}."
    largest = max(others, key=others.__getitem__, default="")
    if not largest or others[largest] < RESERVED:
        return full
    remove = f"kubectl -n {lease.namespace} annotate lease {lease.name} {largest}-"
    return f"{full} Most that is not Tightship's is in annotation {largest}; to remove it: {remove}"

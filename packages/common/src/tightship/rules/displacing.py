"""Nodes whose pods will move without a drain of ours: others empty or have cordoned them, or they are not Ready. Pure.

An upgrade that replaces a pool, a reboot, or a person cordons nodes first, and drains them minutes or hours later. The
taint manager evicts the pods of a node that stays NotReady. Meanwhile a plan keeps the room that these pods will need.
"""

from __future__ import annotations

import math

import msgspec

from tightship.cluster import Snapshot
from tightship.objects import Node
from tightship.rules.nodes import cordoner, emptied_by_others, owner_elsewhere


def displaces(node: Node) -> str:
    """Return who moves the pods of *node*, which is in no drain of ours, as half a sentence; empty if nobody does."""
    other = owner_elsewhere(node)
    if other is not None:
        return other.detail
    if emptied_by_others(node):
        return "somebody else empties the node"
    if node.unschedulable:
        return f"{cordoner(node)} cordoned the node"
    return "" if node.ready else "the node is not Ready"


def displaced_since(node: Node) -> float | None:
    """Return since when *node* has been cordoned or not Ready, whichever came last, ``None`` if nothing tells."""
    since = [node.cordoned_at] if node.unschedulable else []
    since += [] if node.ready else [node.unready_at]
    known = [each for each in since if each is not None]
    return max(known) if known and len(known) == len(since) else None


def with_abandoned(snapshot: Snapshot, kept_for: float, now: float) -> Snapshot:
    """Return *snapshot* with the nodes for whose pods no room is kept any more at *now* (seconds since 1970).

    They have been cordoned, or not Ready, for more than *kept_for* seconds; 0 keeps room for none. A node that does not
    tell since when keeps its room. The snapshot stays the same object if nothing changes.
    """
    found = frozenset(
        name
        for name, view in snapshot.nodes.items()
        if (view.node.unschedulable or not view.node.ready)
        and (kept_for <= 0 or now - (displaced_since(view.node) or math.inf) > kept_for)
    )
    return snapshot if found == snapshot.abandoned else msgspec.structs.replace(snapshot, abandoned=found)

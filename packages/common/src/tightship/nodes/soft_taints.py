"""Soft taints on the nodes to go next, and on no others, so that evicted pods land elsewhere. Pure.

kube-scheduler's ``TaintToleration`` score (weight 3, the largest of the default profile) then prefers nodes that stay,
and so does our model of it (:mod:`tightship.planning.placement.scoring`). ``PreferNoSchedule`` never keeps a pod away
altogether.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from tightship.core.objects import Node
from tightship.core.selectors import Taint
from tightship.drain_io.writing import LiveNode, NodePatch
from tightship.planning.cluster import Snapshot
from tightship.planning.installations import Beside
from tightship.planning.nodes import draining, owner_elsewhere
from tightship.planning.plan import Plan
from tightship.planning.plan.model import CANDIDATE

EFFECT = "PreferNoSchedule"


class Steering(Struct, frozen=True):
    """Nodes that get the soft taint, in the plan's order, and nodes that lose it, by name."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


def next_to_go(snapshot: Snapshot, plan: Plan, limit: int, *, spared: Collection[str] = ()) -> tuple[str, ...]:
    """Return the first *limit* nodes of *plan*, its later ones last, that nobody is taking away yet.

    *spared* nodes should stay for a while: the autoscaler would remove nodes that pods avoid even sooner.
    """
    found: dict[str, None] = {}
    kept = frozenset(spared)
    for name in (*(removal.node for removal in plan.removals), *plan.later):
        view = snapshot.nodes.get(name)
        if len(found) >= limit:
            break
        if view is not None and name not in kept and _may_carry(view.node):
            found[name] = None
    return tuple(found)


def steer(
    snapshot: Snapshot, plan: Plan, limit: int, enabled: bool, beside: Beside, *, spared: Collection[str] = ()
) -> Steering:
    """Return the changes after which exactly the first *limit* nodes of *plan*, its later ones last, carry the taint.

    A node in drain needs no taint because it is cordoned. Nodes that somebody else is deleting stay as they are; those
    that somebody else maintains lose the taint, and *spared* nodes get none. If *enabled* is false, every node with a
    taint of ours loses it. *beside* tells ours from those of other installations.
    """
    if not enabled:
        return Steering(remove=tainted(snapshot, beside))
    wanted = dict.fromkeys(next_to_go(snapshot, plan, limit, spared=spared))
    add = [name for name in wanted if not _carries_any(snapshot.nodes[name].node.taints)]
    nodes = {name: snapshot.nodes[name].node for name in tainted(snapshot, beside) if name not in wanted}
    remove = [name for name, node in nodes.items() if node.lifecycle or owner_elsewhere(node) is None]
    return Steering(tuple(add), tuple(remove))


def tainted(snapshot: Snapshot, beside: Beside) -> tuple[str, ...]:
    """Return the nodes that carry a soft taint of ours, sorted by name."""
    return tuple(sorted(name for name, view in snapshot.nodes.items() if _carries(view.node.taints, beside)))


def candidate_patch(live: LiveNode, on: bool, beside: Beside) -> NodePatch | None:
    """Return the patch that adds the soft taint to *live*, or removes ours; ``None`` if nothing changes.

    All other taints stay as the server has them. A node that somebody has taken since the judgement gets no taint.
    """
    if on:
        if not _may_carry(live.node) or _carries_any(live.node.taints):
            return None
        return NodePatch(taints=(*live.taints, {"key": CANDIDATE, "value": beside.mark, "effect": EFFECT}))
    kept = tuple(
        taint
        for taint in live.taints
        if (taint.get("key"), taint.get("effect")) != (CANDIDATE, EFFECT) or not beside.ours(str(taint.get("value")))
    )
    return NodePatch(taints=kept) if len(kept) != len(live.taints) else None


def _may_carry(node: Node) -> bool:
    return not node.unschedulable and not draining(node) and owner_elsewhere(node) is None


def _carries(taints: Iterable[Taint], beside: Beside) -> bool:
    return any((each.key, each.effect) == (CANDIDATE, EFFECT) and beside.ours(each.value or "") for each in taints)


def _carries_any(taints: Iterable[Taint]) -> bool:
    """Whether any controller set it: the API server allows one taint of a key and effect, and every one steers."""
    return any((each.key, each.effect) == (CANDIDATE, EFFECT) for each in taints)

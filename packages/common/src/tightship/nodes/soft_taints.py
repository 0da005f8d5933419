"""What the nodes that go carry, so that evicted pods land elsewhere: a soft taint, and with hints a label. Pure.

The soft taint is on the nodes to go next, and on no others. kube-scheduler's ``TaintToleration`` score (weight 3, the
largest of the default profile) then prefers nodes that stay, and so does our model of it
(:mod:`tightship.scheduler.scoring`). ``PreferNoSchedule`` never keeps a pod away altogether.

The label :data:`~tightship.objects.node.LEAVING` is on all nodes that the plan removes. The chart's admission
policy has the replacements of evicted pods, and no other pods, keep off them. So few nodes fit such a pod that
kube-scheduler scores all of them, and not only a sample: then it sees the node that the pod prefers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.draining.writing import LiveNode, NodePatch
from tightship.objects import Node
from tightship.objects.node import LEAVING
from tightship.objects.selectors import Taint
from tightship.planning.plan import Plan
from tightship.planning.plan.model import CANDIDATE
from tightship.rules.nodes import draining, owner_elsewhere

EFFECT = "PreferNoSchedule"

_MARK = re.compile(r"node-[a-z]+([.][0-9a-f]{8})?", re.ASCII)


class Marks(Struct, frozen=True):
    """Whether a node should carry our soft *taint* and our *label*; ``None`` leaves what is there."""

    taint: bool | None = None
    label: bool | None = None


NEITHER = Marks(taint=False, label=False)


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
    snapshot: Snapshot,
    plan: Plan,
    limit: int,
    enabled: bool,
    beside: Beside,
    *,
    label: bool | None = False,
    spared: Collection[str] = (),
) -> Mapping[str, Marks]:
    """Return the nodes to write, in order, after which exactly the first *limit* nodes of *plan* carry the soft taint.

    With *label* all nodes that the plan removes carry the label, but for those where it lets pods land before; ``None``
    leaves labels as they are. A node in drain is cordoned, and keeps what it carries until it goes or is given back.
    Nodes that somebody else is deleting stay as they are too; those that somebody else maintains lose both, and
    *spared* nodes get neither. If *enabled* is false, every node loses what is ours. *beside* tells ours from those of
    other installations.
    """
    if not enabled:
        return dict.fromkeys(marked(snapshot, beside), NEITHER)
    going = next_to_go(snapshot, plan, len(snapshot.nodes), spared=spared)
    tainted = frozenset(going[:limit])
    labelled = frozenset(going).difference(move.target for each in plan.removals for move in each.moves)
    found: dict[str, Marks] = {}
    for name in dict.fromkeys((*going, *marked(snapshot, beside))):
        node = snapshot.nodes[name].node
        wanted = Marks(name in tainted, label and name in labelled)
        held = draining(node) or owner_elsewhere(node) is not None
        if (node.lifecycle or not held) and _changes(node, wanted, beside):
            found[name] = wanted
    return found


def marked(snapshot: Snapshot, beside: Beside) -> tuple[str, ...]:
    """Return the nodes that carry a soft taint or a label of ours, sorted by name."""
    return tuple(sorted(name for name, view in snapshot.nodes.items() if _changes(view.node, NEITHER, beside)))


def labelled(snapshot: Snapshot, beside: Beside) -> tuple[str, ...]:
    """Return the nodes that carry a label of ours."""
    return tuple(name for name, view in snapshot.nodes.items() if beside.ours(view.node.leaving or ""))


def labelled_by_others(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the nodes whose label no controller of Tightship has written, with its value."""
    leaving = ((name, view.node.leaving) for name, view in snapshot.nodes.items())
    return tuple(f"{name} ({value!r})" for name, value in leaving if value is not None and not _MARK.fullmatch(value))


def marks_patch(live: LiveNode, wanted: Marks, beside: Beside) -> NodePatch | None:
    """Return the patch after which *live* is as *wanted*; ``None`` if nothing changes.

    All other taints stay as the server has them, and so does a label of others. A node that somebody has taken since
    the judgement gets nothing.
    """
    free = (wanted.taint or wanted.label) and _may_carry(live.node)
    taints: tuple[dict[str, object], ...] | None = None
    if wanted.taint and free and not _carries_any(live.node.taints):
        taints = (*live.taints, {"key": CANDIDATE, "value": beside.mark, "effect": EFFECT})
    elif wanted.taint is False and _carries(live.node.taints, beside):
        taints = tuple(
            taint
            for taint in live.taints
            if (taint.get("key"), taint.get("effect")) != (CANDIDATE, EFFECT)
            or not beside.ours(str(taint.get("value")))
        )
    labels: dict[str, str | None] = {}
    if wanted.label and free and live.node.leaving is None:
        labels = {LEAVING: beside.mark}
    elif wanted.label is False and beside.ours(live.node.leaving or ""):
        labels = {LEAVING: None}
    return NodePatch(taints=taints, labels=labels) if labels or taints is not None else None


def _changes(node: Node, wanted: Marks, beside: Beside) -> bool:
    return marks_patch(LiveNode(node, node.resource_version, ()), wanted, beside) is not None


def _may_carry(node: Node) -> bool:
    return not node.unschedulable and not draining(node) and owner_elsewhere(node) is None


def _carries(taints: Iterable[Taint], beside: Beside) -> bool:
    return any((each.key, each.effect) == (CANDIDATE, EFFECT) and beside.ours(each.value or "") for each in taints)


def _carries_any(taints: Iterable[Taint]) -> bool:
    """Whether any controller set it: the API server allows one taint of a key and effect, and every one steers."""
    return any((each.key, each.effect) == (CANDIDATE, EFFECT) for each in taints)

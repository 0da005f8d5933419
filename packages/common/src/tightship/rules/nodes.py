"""May this node be drained at all? The rules that need no controller's settings.

These are the opt-outs of Cluster Autoscaler, Karpenter and Tightship, the marks of others that own the node, and the
node's state. Each rule has its own :class:`~tightship.objects.reasons.Reason`; ``docs/how-it-decides.md`` lists them.
:class:`HeldData` knows the nodes whose disks hold data of claims that no pod uses now, such as those of a StatefulSet
scaled to 0. Cluster Autoscaler looks at pods alone and deletes such a node (kubernetes/autoscaler#4369).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.node_marks import control_plane, keeps_volumes, marks_of_others, routes, virtual
from tightship.objects import Node, NodePool, Pod
from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, decode_record
from tightship.objects.node import DRAIN_IN_PROGRESS, MAINTENANCE_PLANNED, SCHEDULED, SHUTDOWN_IN_PROGRESS
from tightship.objects.pod import DRAINING
from tightship.objects.quoting import LONGEST
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration
from tightship.objects.unreadable import UNREADABLE
from tightship.rules.evictability import DO_NOT_DRAIN, OTHERS_OPT_OUTS, opt_out_labels
from tightship.rules.karpenter import DISRUPTED, deletion_blocked, left_to_karpenter

LEGACY_STATE = "estafette.io/node-compactor-state"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
KARPENTER_DISRUPTED = DISRUPTED
KARPENTER_DISRUPTING = "karpenter.sh/disruption"
"""Karpenter's taint on a node that it takes away, in its releases with v1beta1."""
NODE_DO_NOT_DISRUPT = (
    "karpenter.sh/do-not-disrupt",
    "node-autoscaling.kubernetes.io/do-not-disrupt",
    "karpenter.sh/do-not-consolidate",
    "atlassian.com/no-delete",
    *OTHERS_OPT_OUTS,
)
"""Karpenter's opt-out of a node, the one proposed for all node autoscalers, the one of Karpenter before 0.33, that of
Escalator (pkg/controller/scale_down.go), and those of commercial autoscalers."""
_TAKEN = frozenset({TO_BE_DELETED, KARPENTER_DISRUPTED, KARPENTER_DISRUPTING})
_WRITES = {"label": "label", "annotation": "annotate"}
_EMPTYING = SCHEDULED | {DRAIN_IN_PROGRESS, SHUTDOWN_IN_PROGRESS}


class NodeRules(Struct, frozen=True):
    """The rules that apply; *disabled* holds the reasons of rules switched off."""

    disabled: frozenset[Reason] = frozenset()


SWITCHABLE = frozenset(
    {
        Reason.NODE_DO_NOT_DRAIN,
        Reason.SCALE_DOWN_DISABLED,
        Reason.NODE_DO_NOT_DISRUPT,
        Reason.KARPENTER_MANAGED,
        Reason.KARPENTER_CONSOLIDATION_OFF,
        Reason.NOT_AUTOSCALED,
    }
)
"""Reasons that :class:`NodeRules` can disable. Nothing overrules what the node is to the cluster, or what others are
doing to the node right now."""


class LegacyState(Struct, frozen=True):
    """The older controller's ``estafette.io/node-compactor-state``; *marked_since* is in seconds since 1970."""

    scale_down_in_progress: bool = False
    marked_since: float | None = None


def drain_record(node: Node) -> DrainRecord | None:
    """Return the node's drain annotation. An unreadable one counts as a drain in phase ``Unknown``."""
    text = node.annotations.get(DRAIN_ANNOTATION)
    return None if text is None else decode_record(text)


def legacy_state(node: Node) -> LegacyState | None:
    """Return the older controller's state annotation, ``None`` if it is absent or unreadable.

    The older controller writes the annotation when it marks a node and when it starts a removal, each time with
    ``lastUpdated``. A false flag about marking takes the mark back.
    """
    text = node.annotations.get(LEGACY_STATE)
    if text is None:
        return None
    try:
        state = msgspec.json.decode(text, type=dict[str, bool | str | None])
    except UNREADABLE:
        return None
    if state.get("scaleDownInProgress") is True:
        return LegacyState(scale_down_in_progress=True)
    if any(value is False and "mark" in name.lower() for name, value in state.items()):
        return LegacyState()
    updated = state.get("lastUpdated")
    try:
        since = datetime.fromisoformat(updated).timestamp() if isinstance(updated, str) else None
    except ValueError:
        since = None
    return LegacyState(marked_since=since)


YIELDS = 3600.0
"""Seconds for which a node taken by others counts as being drained, unless its record says otherwise."""


def draining(node: Node) -> bool:
    """Whether a drain of ours, or of the older controller, is under way or done and waiting for the autoscaler."""
    record = drain_record(node)
    if record is not None and record.owns_node:
        return True
    if any(taint.key == DRAINING.key for taint in node.taints):
        return True
    state = legacy_state(node)
    return state is not None and state.scale_down_in_progress


def yielded_for_good(node: Node, now: float) -> bool:
    """Whether others took *node* from a drain of ours so long ago that the node no longer counts as being drained.

    The node stays ours to restore, should the others let go of it.
    """
    record = drain_record(node)
    if record is None or record.phase is not Phase.YIELDED:
        return False
    since = record.entered(Phase.YIELDED)
    until = record.deadline if record.deadline is not None else None if since is None else since + YIELDS
    return until is not None and now >= until


def judge_node(
    view: NodeView, now: float, rules: NodeRules = NodeRules(), pools: Mapping[str, NodePool] = {}
) -> list[Refusal]:
    """Return everything about the node itself that forbids its drain at *now* (seconds since 1970).

    *pools* are Karpenter's NodePools, as far as they are known.
    """
    node = view.node
    return [*opt_outs(view, rules, pools, now), *_taken_by_others(node), *_state(node, now)]


def opt_outs(
    view: NodeView, rules: NodeRules = NodeRules(), pools: Mapping[str, NodePool] = {}, now: float | None = None
) -> list[Refusal]:
    """Return what the node is to the cluster, and its opt-outs, its NodePool among *pools* included.

    Any of these may appear at any time, so plan, claim and each eviction ask again. A drain that has begun gives no
    *now*: a budget of Karpenter that begins at some hour ends no drain.
    """
    node = view.node
    held = control_plane(node, view.pods)
    is_what = [] if held is None else [Refusal(Reason.CONTROL_PLANE, node.name, held)]
    no_machine = virtual_node(node)
    is_what += [] if no_machine is None else [no_machine]
    found: list[Refusal] = []
    for annotation, reason, says_no in (
        (DO_NOT_DRAIN, Reason.NODE_DO_NOT_DRAIN, node.annotations.get(DO_NOT_DRAIN, "false") != "false"),
        (SCALE_DOWN_DISABLED, Reason.SCALE_DOWN_DISABLED, node.annotations.get(SCALE_DOWN_DISABLED) == "true"),
        *(
            (each, Reason.NODE_DO_NOT_DISRUPT, node.annotations.get(each, "false") != "false")
            for each in NODE_DO_NOT_DISRUPT
        ),
    ):
        if says_no:
            detail = f"annotation {annotation}={node.annotations[annotation]}"
            fix = f"kubectl annotate node {node.name} {annotation}-"
            found.append(Refusal(reason, node.name, detail, fix))
    for each in opt_out_labels(node.labels):
        fix = f"kubectl label node {node.name} {each}-"
        found.append(Refusal(Reason.NODE_DO_NOT_DISRUPT, node.name, f"label {each}=true", fix))
    for kind, key, says in routes(node):
        fix = f"give the role to another node, and kubectl {_WRITES[kind]} node {node.name} {key}-"
        found.append(Refusal(Reason.NODE_DO_NOT_DISRUPT, node.name, f"{says} ({kind} {key})", fix))
    volumes = keeps_volumes(node)
    if volumes is not None:
        detail = f"{volumes[1]} keeps replicas of volumes on the disks of this node (label {volumes[0]})"
        fix = f"move the replicas to other nodes as {volumes[1]} does, and remove the label"
        found.append(Refusal(Reason.NODE_DO_NOT_DISRUPT, node.name, detail, fix))
    found += left_to_karpenter(node, pools, now)
    return [*is_what, *(refusal for refusal in found if refusal.reason not in rules.disabled)]


def virtual_node(node: Node) -> Refusal | None:
    """Return why *node* counts in no plan: it is no machine, or none that somebody saves. ``None`` for any other."""
    what = virtual(node)
    if what is None:
        return None
    return Refusal(Reason.VIRTUAL_NODE, node.name, f"behind the node is {what}: there is no machine to save")


def undeletable(snapshot: Snapshot, node: Node, rules: NodeRules, now: float | None = None) -> list[Refusal]:
    """Return why Karpenter would keep *node* of *snapshot* although it is empty, for the sake of pods that stay.

    As :func:`opt_outs`, asked by plan, claim and each eviction; a drain that has begun gives no *now*.
    """
    view = snapshot.nodes.get(node.name)
    if view is None or Reason.KARPENTER_CONSOLIDATION_OFF in rules.disabled:
        return []
    return list(deletion_blocked(node, view.pods, snapshot.budgets, now))


def owner_elsewhere(node: Node) -> Refusal | None:
    """Return who else has taken *node*: an autoscaler, whoever deleted its object, set a lifecycle condition, or left a
    mark of :data:`~tightship.cluster.node_marks.MARKS`.
    """
    return next(_owners_elsewhere(node), None)


def _owners_elsewhere(node: Node) -> Iterator[Refusal]:
    keys = {taint.key for taint in node.taints}
    if TO_BE_DELETED in keys:
        yield Refusal(Reason.TO_BE_DELETED, node.name, "Cluster Autoscaler is deleting the node")
    if KARPENTER_DISRUPTED in keys or KARPENTER_DISRUPTING in keys:
        yield Refusal(Reason.KARPENTER_DISRUPTED, node.name, "Karpenter is disrupting the node")
    if node.deletion is not None:
        yield Refusal(Reason.NODE_TERMINATING, node.name, "the Node object is being deleted")
    for each in node.lifecycle:
        if each.type != MAINTENANCE_PLANNED:
            why = f" ({each.reason[:LONGEST]})" if each.reason else ""
            detail = f"the condition {each.type} is True{why}: somebody else drains or maintains the node"
            yield Refusal(Reason.NODE_LIFECYCLE, node.name, detail)
    for mark, written in marks_of_others(node):
        yield Refusal(Reason.NODE_LIFECYCLE, node.name, f"{mark.says} ({written[:LONGEST]})")


def emptied_by_others(node: Node) -> bool:
    """Whether somebody else is moving the pods of *node* away, or soon will."""
    return (
        any(each.key in _TAKEN for each in node.taints)
        or any(each.type in _EMPTYING for each in node.lifecycle)
        or any(mark.drains for mark, _ in marks_of_others(node))
    )


def cordoner(node: Node) -> str:
    """Return the field managers that cordoned *node*, or "someone else" where the object names none."""
    return ", ".join(dict.fromkeys(filter(None, node.cordoned_by))) or "someone else"


def _taken_by_others(node: Node) -> list[Refusal]:
    found = list(_owners_elsewhere(node))
    if draining(node):
        record = drain_record(node)
        detail = "a drain is under way"
        if record is not None:
            by = f" by {record.controller}" if record.controller else ""
            detail = f"a drain{by} is in phase {record.phase}" + (f": {record.reason}" if record.reason else "")
        found.append(Refusal(Reason.DRAIN_IN_PROGRESS, node.name, detail))
    elif node.unschedulable:
        detail = f"{cordoner(node)} cordoned the node, so Tightship leaves it alone"
        found.append(Refusal(Reason.CORDONED, node.name, detail, f"kubectl uncordon {node.name}"))
    return found


def _state(node: Node, now: float) -> list[Refusal]:
    found: list[Refusal] = []
    if not node.ready:
        found.append(Refusal(Reason.NOT_READY, node.name, "the Ready condition is not True"))
    if node.allocatable.get("cpu", 0) <= 0:
        found.append(Refusal(Reason.NO_ALLOCATABLE, node.name, "the node's status names no allocatable CPU"))
    record = drain_record(node)
    if record is not None and record.phase is Phase.BACKOFF and record.next_try is not None and record.next_try > now:
        why = f" ({record.reason})" if record.reason else ""
        detail = f"the last drain failed{why}; next try in {format_duration(record.next_try - now)}"
        found.append(Refusal(Reason.BACKOFF, node.name, detail))
    return found


def displaces(node: Node) -> str:
    """Return who moves the pods of *node*, which is in no drain of ours, as half a sentence; empty if nobody does.

    An upgrade that replaces a pool, a reboot, or a person cordons nodes first, and drains them minutes or hours later.
    The taint manager evicts the pods of a node that stays NotReady. Meanwhile a plan keeps the room that these pods
    will need.
    """
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


class HeldData:
    """The volumes of claims that one node alone reaches, by the label of that node."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._volumes: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for volume in snapshot.volumes.values():
            if volume.host is None or volume.claim is None:
                continue
            claim = snapshot.claims.get("/".join(volume.claim[:2]))
            if claim is not None and claim.volume == volume.name and not (claim.own or claim.deleting):
                self._volumes[volume.host][claim.key] = volume.name
        self._labels = {label for label, _ in self._volumes}
        self._nodes = Counter(place for view in snapshot.nodes.values() for place in self._places(view))

    def refusals(self, view: NodeView, rules: NodeRules) -> list[Refusal]:
        """Return which claims would lose their data with the node of *view*."""
        if not self._labels or Reason.LOCAL_STORAGE in rules.disabled:
            return []
        places = [place for place in self._places(view) if self._nodes[place] == 1]
        held = {claim: volume for place in places for claim, volume in self._volumes.get(place, {}).items()}
        used = _used(view.pods) if held else set()  # no other node is a place for their pods
        return [
            Refusal(
                Reason.LOCAL_STORAGE,
                f"claim {claim}",
                f"the data of claim {claim} are on this node alone (volume {volume}), and no pod uses them now",
                f"delete claim {claim} if its data may go",
            )
            for claim, volume in sorted(held.items())
            if claim not in used
        ]

    def _places(self, view: NodeView) -> list[tuple[str, str]]:
        labels = view.node.labels
        return [(label, labels[label]) for label in self._labels if label in labels]


def _used(pods: Iterable[Pod]) -> set[str]:
    """The claims of the pods that need another place."""
    return {
        f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
        for pod in pods
        if pod.deletion is None and not (pod.daemon or pod.mirror or pod.expendable)
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    }

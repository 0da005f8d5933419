"""What opens only after a cordon: a drain of such a node waits between its cordon and its first eviction. Pure.

A refusal for a reason in :data:`AFTER_CORDON` doesn't keep a node from a plan. Its drain cordons the node, evicts
nothing while any such refusal stands, and gives the node back when the time for that is up. Then everything that it
has waited for in vain pauses, on every node: :class:`~tightship.objects.drain_record.DrainRecord` names them in its
``waits_for``. At most one node in the cluster waits so, or is in the drain that follows.

Make before break waits alike: Deployments that a drain restarts by their own rollout, instead of evicting their pods. A
restart replaces all pods of a Deployment, so that one is restarted only where the evictions from a node would leave
none of them Ready. The rollout starts a new pod before it ends an old one, and takes nothing of the replicas, which an
HPA may own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import msgspec

from tightship.cluster import Snapshot
from tightship.cluster.snapshot import Restart
from tightship.objects import DEPLOYMENT, Deployment, Owner, Pod
from tightship.objects.counting import counted
from tightship.objects.drain_record import Phase
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration
from tightship.objects.workloads import MAKE_BEFORE_BREAK
from tightship.rules.evictability import RestartMode
from tightship.rules.nodes import drain_record
from tightship.scheduler.space import Space

AFTER_CORDON = frozenset({Reason.OPENS_AFTER_CORDON, Reason.MAKE_BEFORE_BREAK})
"""Refusals for these reasons can end once the node is cordoned."""


def parted(refusals: Iterable[Refusal]) -> tuple[list[Refusal], list[Refusal]]:
    """Return the *refusals* that keep a node, and those that can end after its cordon."""
    keep: list[Refusal] = []
    opens: list[Refusal] = []
    for each in refusals:
        (opens if each.reason in AFTER_CORDON else keep).append(each)
    return keep, opens


def awaited(opens: Iterable[Refusal]) -> tuple[str, ...]:
    """Return the names by which records know what *opens* waits for."""
    return tuple(sorted({f"{each.reason} {each.subject}" for each in opens if each.reason in AFTER_CORDON}))


def paused(snapshot: Snapshot, now: float) -> Mapping[str, tuple[str, float]]:
    """Return what drains waited for in vain, with the node of each and when the next drain may wait for it."""
    found: dict[str, tuple[str, float]] = {}
    for name, view in snapshot.nodes.items():
        record = drain_record(view.node)
        if record is None or not record.waits_for or record.phase is not Phase.BACKOFF:
            continue
        until = record.next_try or 0.0
        if until > now:
            found |= {each: (name, until) for each in record.waits_for if until > found.get(each, ("", 0.0))[1]}
    return found


def pausing(
    opens: Iterable[Refusal], paused: Mapping[str, tuple[str, float]], now: float
) -> tuple[list[Refusal], list[Refusal]]:
    """Return those of *opens* that no drain waits for now, as refusals that keep their node, and the others."""
    keep: list[Refusal] = []
    rest: list[Refusal] = []
    for each in opens:
        last = next((paused[name] for name in awaited([each]) if name in paused), None)
        if last is None:
            rest.append(each)
            continue
        node, until = last
        detail = f"{each.detail}; it did not on node {node}, next try in {format_duration(until - now)}"
        keep.append(Refusal(Reason.NOT_OPENED, each.subject, detail, each.fix))
    return keep, rest


def waiting(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the operations of the drains that wait after their cordon, or are in what follows, by node."""
    records = ((name, drain_record(view.node)) for name, view in snapshot.nodes.items())
    return {
        name: record.op
        for name, record in records
        if record is not None and record.waits_for and record.phase in {Phase.CLAIMED, Phase.EVICTING}
    }


def waiting_elsewhere(snapshot: Snapshot, waiting: Mapping[str, str], node: str) -> Refusal | None:
    """Return why *node* may not wait after its cordon beside those claimed to wait, ``None`` if it may.

    *waiting* has the operation of each such claim by node. It counts until the snapshot shows that its drain has
    emptied the node.
    """
    ahead: list[str] = []
    for name, op in waiting.items():
        view = snapshot.nodes.get(name)
        record = None if view is None else drain_record(view.node)
        if name != node and (record is None or record.op != op or record.phase is not Phase.DRAINED):
            ahead.append(name)
    if not ahead:
        return None
    detail = f"one node at a time waits for what opens after its cordon, now {', '.join(ahead)}"
    return Refusal(Reason.OPENS_AFTER_CORDON, node, detail, "wait for the end of its drain")


_ENDS = frozenset({"DaemonSet", "Job"})
"""Kinds whose pods go with the node, or end by themselves."""

_ROLLOUTS = {
    "StatefulSet": "a StatefulSet ends a pod before it starts the next one of the same name",
    "Rollout.argoproj.io": "an Argo Rollout restarts by evicting its pods",
    "ReplicaSet": "no Deployment rolls this ReplicaSet out",
}
_STRATEGY = "set its strategy to RollingUpdate with maxSurge 1 and maxUnavailable 0"


def with_restarts(snapshot: Snapshot, mode: RestartMode, *, places: bool = True) -> Snapshot:
    """Return *snapshot* with the restarts that would move pods without a moment in which none is Ready.

    With *places*, only where another node has room for a new pod while the old ones run.
    """
    if mode == "off":
        return snapshot
    groups: dict[tuple[str, str, str], list[Pod]] = defaultdict(list)
    asked: dict[tuple[str, str, str], bool] = {}
    known: dict[tuple[str, str], tuple[str, str, str] | None] = {}
    for view in snapshot.nodes.values():
        for pod in view.pods:
            owner = pod.owner
            if owner is None or owner.kind in _ENDS or pod.mirror:
                continue
            if (key := (pod.namespace, owner.uid)) not in known:
                top, mark = _top(snapshot, pod, owner)
                annotated = mark if mark is not None else _namespace_mark(snapshot, pod.namespace)
                asked[top] = asked.get(top, False) or annotated == "true"
                wanted = annotated == "true" or (annotated is None and mode == "all" and top[0] == DEPLOYMENT)
                known[key] = top if wanted else None
            group = known[key]
            if group is not None:
                groups[group].append(pod)
    found: dict[str, Restart] = {}
    space = cache(lambda: Space(snapshot))
    for top, pods in groups.items():
        nodes = _needing(snapshot, pods)
        if not nodes:
            continue
        problem, fix, waits = _problem(snapshot, top)
        if not problem and places and not _has_place(space(), [each for each in pods if each.node in nodes]):
            problem = f"no other node takes a new pod of deployment/{top[2]} while the old one runs"
            fix = f"make room elsewhere, or loosen what keeps pods of deployment/{top[2]} apart or to one volume"
        if problem and not (asked[top] or waits):
            continue  # as without the mode
        deployment = f"{top[1]}/{top[2]}" if top[0] == DEPLOYMENT else ""
        restart = Restart(deployment, nodes, problem, fix, waits)
        found |= {pod.owner.uid: restart for pod in pods if pod.owner is not None}
    return msgspec.structs.replace(snapshot, restarts=found)


def deployment_of(snapshot: Snapshot, pod: Pod) -> Deployment | None:
    """Return the Deployment of *pod*, as far as *snapshot* shows."""
    if pod.owner is None:
        return None
    top, _ = _top(snapshot, pod, pod.owner)
    return snapshot.deployments.get(f"{top[1]}/{top[2]}") if top[0] == DEPLOYMENT else None


def _top(snapshot: Snapshot, pod: Pod, owner: Owner) -> tuple[tuple[str, str, str], str | None]:
    """Return what rolls the pods of *owner* out (kind, namespace, name), and the mark of *owner*."""
    workload = snapshot.workloads.get(owner.kind, {}).get(f"{pod.namespace}/{owner.name}")
    if workload is None:
        return (owner.kind, pod.namespace, owner.name), pod.annotations.get(MAKE_BEFORE_BREAK)
    above = workload.owner or owner
    return (above.kind, pod.namespace, above.name), workload.mark


def _namespace_mark(snapshot: Snapshot, namespace: str) -> str | None:
    known = snapshot.namespaces.get(namespace)
    return None if known is None else known.labels.get(MAKE_BEFORE_BREAK)


def _needing(snapshot: Snapshot, pods: Sequence[Pod]) -> frozenset[str]:
    """Return the nodes whose evictions would leave none of *pods* Ready. Cordoned nodes are about to leave."""
    ready = {pod.node for pod in pods if pod.ready and pod.deletion is None}
    staying = {name for name in ready if not snapshot.nodes[name].node.unschedulable}
    return frozenset(staying or ready) if len(staying) < 2 else frozenset()


def _problem(snapshot: Snapshot, top: tuple[str, str, str]) -> tuple[str, str, bool]:
    """Return why *top* can't be restarted now, what helps, and whether that is time."""
    kind, namespace, name = top
    what, opting_out = f"{kind.lower()}/{name}", f"remove {MAKE_BEFORE_BREAK}, or set it to false"
    if kind != DEPLOYMENT:
        why = _ROLLOUTS.get(kind, f"nobody knows a rollout of {kind} that starts a pod before it ends one")
        return f"{what}: {why}", opting_out, False
    if DEPLOYMENT in snapshot.missing:
        return f"{what}: Deployments are {snapshot.missing[DEPLOYMENT]}", "grant list and watch on deployments", False
    known = snapshot.deployments.get(f"{namespace}/{name}")
    if known is None or known.deleted:
        return f"{what} is not there, or can't be read", "", False
    if known.paused:
        return f"{what} is paused", f"kubectl -n {namespace} rollout resume {what}", False
    if known.surge < 1:
        return f"{what}: its strategy starts no pod before it ends one", _STRATEGY, False
    if known.replicas - known.unavailable < 1:
        unavailable = counted(known.unavailable, "pod")
        return f"{what}: its maxUnavailable lets {unavailable} of {known.replicas} go first", _STRATEGY, False
    if not known.settled:
        return f"{what}: a rollout is under way, or not all of its pods are available", "wait for its end", True
    return "", "", False


def _has_place(space: Space, pods: Sequence[Pod]) -> bool:
    """Whether a node that stays has room for a pod like the first of *pods*, all of which stay where they are."""
    mask = space.feasible(space.demand_of(pods[0]))
    own = {pod.node for pod in pods}
    return any(fits and space.names[at] not in own for at, fits in enumerate(mask.tolist()))

"""Sentences about gaps in a snapshot: kinds that were not read, and unreadable objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tightship.cluster import FORBIDDEN, NOT_IN_FILE, NOT_SERVED, Snapshot
from tightship.cluster.pools import shown
from tightship.objects import (
    AUTOSCALER,
    CAPACITY_BUFFER,
    CONFIG_MAP,
    LEADER_WORKER_SET,
    NODE_POOL,
    POD_GROUP,
    POD_TEMPLATE,
    VERTICAL,
    Pod,
)
from tightship.objects.autoscaler_status import STATUS_NAME
from tightship.objects.counting import counted, some
from tightship.objects.money import HOURLY_PRICE, annotation_problem
from tightship.objects.reasons import Check
from tightship.objects.storage import CSI_DRIVER, STORAGE_CAPACITY, VOLUME_ATTACHMENT
from tightship.planning.demand import MOST_IN_BUFFERS
from tightship.rules.gangs import LEADER_WORKER_SET_NAME
from tightship.rules.karpenter import POOL_LABEL
from tightship.rules.node_groups import MINIMUM_SIZE
from tightship.rules.nodes import displaces

UNREADABLE_SHOWN = 10
"""Most unreadable objects that warnings name."""

NODES_SHOWN = 3
"""Most nodes that a warning names."""

POOLS_SHOWN = 4
"""Most pools that a warning names."""

UNKNOWN_DEMAND_SHOWN = 3
"""Most HPAs, or buffers, that warnings name."""

_VOLUME_KINDS = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode")
_MORE_OF_VOLUMES = (CSI_DRIVER, STORAGE_CAPACITY, VOLUME_ATTACHMENT)
_WORKLOAD_KINDS = ("ReplicaSet", "ReplicationController", "StatefulSet", "Job")
_PLURALS = {"StorageClass": "StorageClasses", STORAGE_CAPACITY: "CSIStorageCapacities"}


def warnings_of(
    snapshot: Snapshot, unknown_minimums: Sequence[str] = (), windows: Mapping[str, Sequence[Check]] = {}
) -> tuple[str, ...]:
    """Return one sentence for each gap that concerns this cluster's pods, with its consequence.

    *unknown_minimums* are pools of planned nodes of which nothing tells the minimum size. Closed *windows* (by pool)
    come first.
    """
    return (
        *_closed(windows),
        *_missing(snapshot),
        *_unreadable(snapshot),
        *_unknown_demand(snapshot),
        *_unknown_headroom(snapshot),
        *_unreadable_prices(snapshot),
        *_unknown_node_pools(snapshot),
        *_unreadable_groups(snapshot),
        *_unreadable_recommendations(snapshot),
        *_unknown_minimums(snapshot, unknown_minimums),
        *_abandoned(snapshot),
    )


def _closed(windows: Mapping[str, Sequence[Check]]) -> Iterator[str]:
    closed: dict[str, list[str]] = {}
    for pool, checks in windows.items():
        for each in checks:
            if not each.open:
                closed.setdefault(each.detail, []).append(pool)
    for detail, pools in closed.items():
        where = "" if len(pools) == len(windows) else f" in {_pools(sorted(set(pools)))}"
        yield f"no drain begins now{where}: {detail}"


def _missing(snapshot: Snapshot) -> Iterator[str]:
    missing = snapshot.missing
    if not missing:
        return
    if "PodDisruptionBudget" in missing:
        yield f"{_are(['PodDisruptionBudget'], snapshot)}: evictions they forbid are not seen"
    pods = [pod for view in snapshot.nodes.values() for pod in view.pods]
    lacking = [kind for kind in _VOLUME_KINDS if kind in missing]
    if lacking and any(_has_claims(pod) for pod in pods):
        yield f"{_are(lacking, snapshot)}: pods whose volumes need them can't be judged and keep their nodes"
    lacking = [kind for kind in _MORE_OF_VOLUMES if missing.get(kind, NOT_IN_FILE) not in (NOT_IN_FILE, NOT_SERVED)]
    if lacking and any(_has_claims(pod) for pod in pods):
        yield f"{_are(lacking, snapshot)}: volumes are judged without them"
    lacking = [kind for kind in _WORKLOAD_KINDS if kind in missing]
    owners = {pod.owner.kind for pod in pods if pod.owner is not None}
    if owners.intersection(lacking):
        yield f"{_are(lacking, snapshot)}: whether the controller of a pod still exists is not checked"
    if "Namespace" in missing and any(_selects_namespaces(pod) for pod in pods):
        yield f"{_are(['Namespace'], snapshot)}: pods that select namespaces by label keep their nodes"
    grouped = (
        (POD_GROUP, any(pod.spec.pod_group for pod in pods)),
        (LEADER_WORKER_SET, any(LEADER_WORKER_SET_NAME in pod.template.labels for pod in pods)),
    )
    lacking = [kind for kind, named in grouped if named and kind in missing]
    if lacking:
        yield f"{_are(lacking, snapshot)}: whether pods of their groups can go one by one is not checked"
    if missing.get(VERTICAL, NOT_IN_FILE) not in (NOT_IN_FILE, NOT_SERVED):
        yield f"{_are([VERTICAL], snapshot)}: pods that they would change are planned as they are"

    # Older files of clusters have none.
    if missing.get(AUTOSCALER, NOT_IN_FILE) != NOT_IN_FILE:
        yield f"{_are([AUTOSCALER], snapshot)}: no room is kept for replicas that they are about to start"
    if missing.get(CAPACITY_BUFFER, NOT_IN_FILE) not in (NOT_IN_FILE, NOT_SERVED):
        yield f"{_are([CAPACITY_BUFFER], snapshot)}: the room that they keep free is not seen"


def _unknown_demand(snapshot: Snapshot) -> Iterator[str]:
    unknown = [each for each in snapshot.starting if each.pod is None]
    for each in unknown[:UNKNOWN_DEMAND_SHOWN]:
        yield f"{each}, but no existing pod shows what they need: no room is kept for them"
    more = len(unknown) - UNKNOWN_DEMAND_SHOWN
    if more > 0:
        yield f"{counted(more, 'more HPA is', 'more HPAs are')} about to start replicas whose needs are unknown"


def _unknown_headroom(snapshot: Snapshot) -> Iterator[str]:
    bad = [each for each in snapshot.buffers.values() if each.problem]
    for wrong in bad[:UNREADABLE_SHOWN]:
        yield f"{CAPACITY_BUFFER} {wrong.key} can't be read, so only its status counts: {wrong.problem}"
    unknown = [each for each in snapshot.headroom if each.pod is None]
    unreadable = {(each.namespace, each.name) for each in snapshot.unreadable if each.kind == POD_TEMPLATE}
    for each in unknown[:UNKNOWN_DEMAND_SHOWN]:
        why = f"is {snapshot.missing[POD_TEMPLATE]}" if POD_TEMPLATE in snapshot.missing else "does not exist"
        if (each.buffer.partition("/")[0], each.template) in unreadable:
            why = "can't be read"
        yield f"{each}, which {why}: no room is kept"
    more = len(unknown) - UNKNOWN_DEMAND_SHOWN
    if more > 0:
        yield f"{counted(more, 'more CapacityBuffer has', 'more CapacityBuffers have')} no readable PodTemplate"
    for each in snapshot.headroom:
        if each.pod is not None and each.count < each.replicas:
            yield f"{each}: all buffers together get room for at most {counted(MOST_IN_BUFFERS, 'pod')}"


def _unknown_node_pools(snapshot: Snapshot) -> Iterator[str]:
    """Tell of Karpenter's nodes about which nothing is known, and so nothing can be done."""
    unknown = {name for view in snapshot.nodes.values() if (name := view.node.labels.get(POOL_LABEL))}
    if unknown and NODE_POOL in snapshot.missing:
        how = " (add nodepools.karpenter.sh to the list of kubectl get)" * (snapshot.missing[NODE_POOL] == NOT_IN_FILE)
        yield f"{_are([NODE_POOL], snapshot)}{how}: all nodes of Karpenter are left to it"
    bad = [each for name, each in sorted(snapshot.node_pools.items()) if name in unknown and each.problem]
    for each in bad[:UNREADABLE_SHOWN]:
        yield f"NodePool {each.name} can't be read, so its nodes are left to Karpenter: {each.problem}"


_CANT = "can't be read: "


def _unreadable_groups(snapshot: Snapshot) -> Iterator[str]:
    problems = [
        text
        for key, status in sorted(snapshot.autoscaler_statuses.items())
        for text in (
            *((f"ConfigMap {key} {_CANT * (not status.updated)}{status.problem}",) if status.problem else ()),
            *(
                f"node group {each.name} can't be read, so its nodes stay: {each.problem}"
                for each in status.groups
                if each.problem
            ),
        )
    ]
    yield from problems[:UNREADABLE_SHOWN]
    more = len(problems) - UNREADABLE_SHOWN
    if more > 0:
        yield f"{counted(more, 'more node group')} can't be read"


def _unreadable_recommendations(snapshot: Snapshot) -> Iterator[str]:
    for each in [each for each in snapshot.vertical.values() if each.problem][:UNREADABLE_SHOWN]:
        whose = "/".join(each.target)
        yield f"{VERTICAL} {each.key} can't be read, so pods of {whose} stay: {each.problem}"


def _pools(pools: Sequence[str]) -> str:
    return f"pool{'s' if len(pools) > 1 else ''} {some(list(map(shown, pools)), POOLS_SHOWN)}"


def _unknown_minimums(snapshot: Snapshot, pools: Sequence[str]) -> Iterator[str]:
    """Tell that the autoscaler may keep an emptied node, and how to give it the minimum size of its group."""
    if not pools:
        return
    which = _pools(pools) if any(pools) else "nodes without a pool"
    missing = snapshot.missing.get(CONFIG_MAP)
    if missing == FORBIDDEN:
        how = f"allow reading ConfigMap {STATUS_NAME}"
    elif missing == NOT_IN_FILE:
        how = f"add the file of kubectl get configmap -n kube-system {STATUS_NAME} -o json"
    else:
        how = f"ConfigMap {STATUS_NAME} is not there, or has no group for them"
    yield (
        f"the minimum size of the autoscaler's node groups is unknown for {which}, and the autoscaler won't go "
        f"below it: {how}, or set the pool's minimumNodeCount (node-compactor), "
        f"or annotate its nodes with {MINIMUM_SIZE[0]}"
    )


def _abandoned(snapshot: Snapshot) -> Iterator[str]:
    """Tell of nodes whose pods would have to move, and for which no room is kept any more."""
    displaced_by = {
        name: displaces(view.node) for name in sorted(snapshot.abandoned) if (view := snapshot.nodes.get(name))
    }
    with_pods = [
        name for name in displaced_by if any(not (pod.daemon or pod.mirror) for pod in snapshot.nodes[name].pods)
    ]
    if with_pods:
        first = some([f"{name} ({displaced_by[name]})" for name in with_pods], NODES_SHOWN)
        nodes = "node" if len(with_pods) == 1 else "nodes"
        yield f"no room is kept for the pods of {nodes} {first}: that was longer ago than cordonRoomTimeout"


def _unreadable_prices(snapshot: Snapshot) -> Iterator[str]:
    problems = [each for view in snapshot.nodes.values() if (each := annotation_problem(view.node))]
    yield from problems[:UNREADABLE_SHOWN]
    more = len(problems) - UNREADABLE_SHOWN
    if more > 0:
        yield f"{counted(more, 'more node has', 'more nodes have')} an annotation {HOURLY_PRICE} that is not a price"


def _are(kinds: list[str], snapshot: Snapshot) -> str:
    names = [_PLURALS.get(kind, f"{kind}s") for kind in kinds]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{listed} are {snapshot.missing[kinds[0]]}"


def _has_claims(pod: Pod) -> bool:
    return any(volume.claims for volume in pod.spec.volumes)


def _selects_namespaces(pod: Pod) -> bool:
    return any(term.namespace_selector is not None for term in (*pod.spec.affinity, *pod.spec.anti_affinity))


def _unreadable(snapshot: Snapshot) -> Iterator[str]:
    for each in snapshot.unreadable[:UNREADABLE_SHOWN]:
        where = f" on node {each.node}" if each.node else ""
        if each.kind == AUTOSCALER:
            yield f"{each.kind} {each.key} can't be read, so no room is kept for its replicas: {each.problem}"
            continue
        if each.kind in (CAPACITY_BUFFER, POD_TEMPLATE):
            yield f"{each.kind} {each.key} can't be read, and no room is kept because of it: {each.problem}"
            continue
        if each.kind == VERTICAL:
            yield f"{each.kind} {each.key} can't be read, so its pods are planned as they are: {each.problem}"
            continue
        yield f"{each.kind} {each.key}{where} can't be read, so what depends on it stays: {each.problem}"
    more = len(snapshot.unreadable) - UNREADABLE_SHOWN
    if more > 0:
        yield f"{counted(more, 'more object')} can't be read"

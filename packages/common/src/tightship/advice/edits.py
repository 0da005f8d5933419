"""The changes that advice names, made in a snapshot as the cluster would make them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from tightship.cluster import Budgets, NodeView, Snapshot
from tightship.cluster.owners import AnnotationEdit
from tightship.cluster.state import sum_up
from tightship.objects import Node, Pod, PodDisruptionBudget, PodTemplate, Workload
from tightship.objects.pod import CORDON
from tightship.objects.selectors import Labels

HONOR = "Honor"
"""The ``nodeTaintsPolicy`` by which nodes with taints that keep a pod away are no domains of its topology spread."""

Pods = Mapping[str, Collection[str]]
"""Pods by node: their keys (``namespace/name``)."""


def annotate(snapshot: Snapshot, change: AnnotationEdit, pods: Pods) -> Snapshot:
    """Return *snapshot* after *change*, which reaches *pods*.

    Pods that a rollout replaces have the annotations of their template, and no others.
    """
    if change.kind != "Pod" and not change.rolls_out:
        return snapshot  # pods that run stay as they are
    workloads = {kind: dict(known) for kind, known in snapshot.workloads.items()}
    nodes = dict(snapshot.nodes)
    patched: dict[tuple[str, str], Workload] = {}

    def changed(pod: Pod) -> Pod:
        notes = pod.annotations
        owner = pod.owner
        if change.rolls_out and owner is not None:
            place = owner.kind, f"{pod.namespace}/{owner.name}"
            known = workloads.get(owner.kind, {}).get(place[1])
            if known is not None and known.annotations is not None:
                if place not in patched:
                    written = _written(known.annotations, change)
                    patched[place] = msgspec.structs.replace(known, annotations=written)
                return msgspec.structs.replace(pod, annotations=patched[place].annotations)
        return msgspec.structs.replace(pod, annotations=_written(notes, change))

    for name, keys in pods.items():
        view = nodes[name]
        made = tuple(changed(pod) if pod.key in keys else pod for pod in view.pods)
        nodes[name] = NodeView(view.node, made, sum_up(made))
    for (kind, key), workload in patched.items():
        workloads[kind][key] = workload
    return msgspec.structs.replace(snapshot, nodes=nodes, workloads=workloads if patched else snapshot.workloads)


def _written(notes: Labels, change: AnnotationEdit) -> Labels:
    rest = {key: text for key, text in notes.items() if key != change.key}
    return rest if change.value is None else {**rest, change.key: change.value}


def honoring_taints(snapshot: Snapshot, pods: Collection[str]) -> Snapshot:
    """Return *snapshot* with ``nodeTaintsPolicy: Honor`` in each topology spread constraint of *pods*, by key.

    A node in drain, which has a taint, is then no domain of them any more (KEP-3094).
    """
    made: dict[PodTemplate, PodTemplate] = {}

    def changed(pod: Pod) -> Pod:
        old = pod.template
        if pod.key not in pods or not old.spec.spread:
            return pod
        if old not in made:
            spread = tuple(msgspec.structs.replace(each, node_taints_policy=HONOR) for each in old.spec.spread)
            made[old] = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, spread=spread))
        return msgspec.structs.replace(pod, template=made[old])

    nodes = {
        name: NodeView(view.node, tuple(map(changed, view.pods)), view.usage) for name, view in snapshot.nodes.items()
    }
    return msgspec.structs.replace(snapshot, nodes=nodes, unscheduled=tuple(map(changed, snapshot.unscheduled)))


def without_annotation(snapshot: Snapshot, name: str, key: str) -> Snapshot:
    """Return *snapshot* without the annotation *key* of node *name*."""
    node = snapshot.nodes[name].node
    kept = {each: text for each, text in node.annotations.items() if each != key}
    return _with_node(snapshot, msgspec.structs.replace(node, annotations=kept))


def uncordoned(snapshot: Snapshot, name: str) -> Snapshot:
    """Return *snapshot* with node *name* schedulable, without the taint of its cordon."""
    node = snapshot.nodes[name].node
    taints = tuple(each for each in node.taints if each.key != CORDON.key)
    return _with_node(snapshot, msgspec.structs.replace(node, unschedulable=False, taints=taints, cordoned_by=()))


def untainted(snapshot: Snapshot, name: str, taints: Collection[tuple[str, str]]) -> Snapshot:
    """Return *snapshot* without those taints of node *name* whose key and effect are in *taints*."""
    node = snapshot.nodes[name].node
    kept = tuple(each for each in node.taints if (each.key, each.effect) not in taints)
    return _with_node(snapshot, msgspec.structs.replace(node, taints=kept))


def _with_node(snapshot: Snapshot, node: Node) -> Snapshot:
    view = snapshot.nodes[node.name]
    return msgspec.structs.replace(snapshot, nodes={**snapshot.nodes, node.name: NodeView(node, view.pods, view.usage)})


def loosened(budget: PodDisruptionBudget) -> tuple[PodDisruptionBudget, dict[str, int]]:
    """Return *budget* as the disruption controller would have it if one of its pods might leave, and the new rule.

    A percentage becomes ``maxUnavailable: 1``. A number stays a number: ``maxUnavailable`` does not work for pods
    without a controller.
    """
    if budget.uncounted or isinstance(budget.min_available, int):
        least = budget.current_healthy if budget.uncounted else min(budget.desired_healthy, budget.expected_pods)
        wanted = max(0, least - 1)
        new = msgspec.structs.replace(budget, min_available=wanted, max_unavailable=None, desired_healthy=wanted)
        rule = {"minAvailable": wanted}
    else:
        wanted = max(0, budget.expected_pods - 1)
        new = msgspec.structs.replace(budget, max_unavailable=1, min_available=None, desired_healthy=wanted)
        rule = {"maxUnavailable": 1}
    return msgspec.structs.replace(new, disruptions_allowed=max(0, budget.current_healthy - wanted)), rule


def with_budgets(
    snapshot: Snapshot, replaced: Iterable[PodDisruptionBudget] = (), deleted: Collection[str] = ()
) -> Snapshot:
    """Return *snapshot* with budgets *replaced* by their keys, and without those whose keys are in *deleted*."""
    budgets = {key: each for key, each in snapshot.budgets.by_key.items() if key not in deleted}
    budgets |= {each.key: each for each in replaced if each.key in budgets}
    return msgspec.structs.replace(snapshot, budgets=Budgets(budgets.values(), snapshot.budgets))


def with_group_minimum(snapshot: Snapshot, name: str, nodes: Collection[str], key: str, least: int) -> Snapshot:
    """Return *snapshot* with the minimum size *least* of node group *name*, which *nodes* tell by the annotation *key*,
    if any do.
    """
    views = dict(snapshot.nodes)
    for each in nodes:
        notes = {**views[each].node.annotations, key: str(least)}
        view = views[each]
        views[each] = NodeView(msgspec.structs.replace(view.node, annotations=notes), view.pods, view.usage)
    statuses = {
        place: msgspec.structs.replace(
            status,
            groups=tuple(
                msgspec.structs.replace(each, minimum=least) if each.name == name else each for each in status.groups
            ),
        )
        for place, status in snapshot.autoscaler_statuses.items()
    }
    return msgspec.structs.replace(snapshot, nodes=views, autoscaler_statuses=statuses)


def with_node_pool(snapshot: Snapshot, name: str, change: Mapping[str, Any]) -> Snapshot:
    """Return *snapshot* with the fields in *change* of Karpenter's NodePool *name* changed."""
    pool = msgspec.structs.replace(snapshot.node_pools[name], **change)
    return msgspec.structs.replace(snapshot, node_pools={**snapshot.node_pools, name: pool})

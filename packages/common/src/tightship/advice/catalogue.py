"""The change against each refusal of a plan: one table from a reason to the thing behind it, its edit and its command.

An edit changes a snapshot as the cluster would change. A refusal without an entry has no change: it passes by itself (a
cool-down, a young node), others have to act (a broken node, Karpenter's own disruption), or nothing small helps (no
room).

What an operator owns is the operator's to change, and what holds Karpenter itself is not for the reader to change
either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import msgspec

from tightship.cluster import Budgets, NodeView, Snapshot
from tightship.cluster.owners import (
    AnnotationEdit,
    annotation_changes,
    commands,
    lasting,
    managing,
    named,
    patching,
    template_of,
    top_owner,
)
from tightship.cluster.state import sum_up
from tightship.objects import WORKLOAD_KINDS, Node, Owner, Pod, PodDisruptionBudget, PodTemplate, Workload
from tightship.objects.counting import counted, some
from tightship.objects.karpenter import WHEN_EMPTY
from tightship.objects.pod import CORDON
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.selectors import Labels
from tightship.planning.changes import Change, Tunable
from tightship.planning.evaluate import Evaluation
from tightship.planning.facts import NodeFacts
from tightship.planning.plan.model import subjects
from tightship.rules.evictability import (
    DO_NOT_DISRUPT,
    DO_NOT_DRAIN,
    PREFER_NO_EVICTION,
    SAFE_LOCAL_VOLUMES,
    SAFE_TO_EVICT,
    all_local_volumes,
)
from tightship.rules.gangs import EVICT_TOGETHER
from tightship.rules.karpenter import POOL_LABEL
from tightship.rules.node_groups import MINIMUM_SIZE
from tightship.rules.nodes import NODE_DO_NOT_DISRUPT, SCALE_DOWN_DISABLED

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


BUDGET_REASONS = frozenset({Reason.PDB_NEVER_ALLOWS, Reason.PDB_EXHAUSTED, Reason.MULTIPLE_PDBS})
"""Reasons against which a budget may be changed."""


class BudgetChanges:
    """The changes of the budgets of *pods*, by key, of a snapshot."""

    def __init__(self, snapshot: Snapshot, pods: Mapping[str, Pod]) -> None:
        self._snapshot = snapshot
        self._pods = pods
        self._several: dict[tuple[str, ...], Change | None] = {}

    def of(self, pod: Pod, reason: Reason) -> Change | None:
        """Return the change against *reason*, one of :data:`BUDGET_REASONS`; ``None`` if there is none."""
        found = self._snapshot.budgets.of(pod.template)
        if reason is Reason.MULTIPLE_PDBS:
            keys = tuple(each.key for each in found)
            if keys not in self._several:
                self._several[keys] = self._deletion(found)
            return self._several[keys]
        if len(found) != 1 or found[0].managed.operator:
            return None
        return _loosening(found[0]) if reason is Reason.PDB_NEVER_ALLOWS else _of_unhealthy(found[0], pod)

    def _deletion(self, found: tuple[PodDisruptionBudget, ...]) -> Change | None:
        """Return the deletion of all of *found* but one, if the one that stays covers what the others cover."""
        for kept in sorted(found, key=lambda each: (each.disruptions_allowed, each.key)):
            others = [each for each in found if each is not kept]
            if self._covers(kept, others) and not any(each.managed.operator for each in others):
                deletions = tuple(f"kubectl -n {each.namespace} delete pdb {each.name}" for each in others)
                edit = partial(with_budgets, deleted={each.key for each in others})
                things = f"PDB {', '.join(each.key for each in others)}"
                notes = (
                    f"PDB {kept.key} stays, and covers the same pods",
                    *(each.managed.note(f"PDB {each.key}") for each in others),
                )
                return Change(Reason.MULTIPLE_PDBS, things, edit, commands=deletions, note=_joined(*notes))
        return None

    def _covers(self, kept: PodDisruptionBudget, others: Sequence[PodDisruptionBudget]) -> bool:
        keys = {each.key for each in others}
        for template in {id(pod.template): pod.template for pod in self._pods.values()}.values():
            covering = {each.key for each in self._snapshot.budgets.of(template)}
            if covering & keys and kept.key not in covering:
                return False
        return True


def _loosening(budget: PodDisruptionBudget) -> Change:
    """Return a rule under which one pod of *budget* may leave."""
    new, rule = loosened(budget)
    patch: dict[str, int | None] = dict(rule)
    if "maxUnavailable" in rule and budget.min_available is not None:
        patch["minAvailable"] = None
    if "minAvailable" in rule and budget.max_unavailable is not None:
        patch["maxUnavailable"] = None
    only = (budget.current_healthy if budget.uncounted else budget.expected_pods) <= 1
    few = "nothing runs while the only pod under this budget moves" if only else ""
    return _patched(Reason.PDB_NEVER_ALLOWS, budget, new, patch, few)


def _of_unhealthy(budget: PodDisruptionBudget, pod: Pod) -> Change | None:
    """Return the policy by which a pod that is not Ready may go, whatever its budget allows."""
    if pod.ready:
        return None
    new = msgspec.structs.replace(budget, always_allow_unhealthy=True)
    note = "pods that are not Ready may then be evicted at any time"
    return _patched(Reason.PDB_EXHAUSTED, budget, new, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, note)


def _patched(
    reason: Reason, budget: PodDisruptionBudget, new: PodDisruptionBudget, patch: Mapping[str, object], note: str
) -> Change:
    written = msgspec.json.encode({"spec": patch}).decode()
    command = f"kubectl -n {budget.namespace} patch pdb {budget.name} --type merge -p '{written}'"
    thing = f"PDB {budget.key}"
    edit = partial(with_budgets, replaced=(new,))
    return Change(reason, thing, edit, commands=(command,), note=_joined(note, budget.managed.note("the PDB")))


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


_HOLDS_KARPENTER = BUDGET_REASONS | {Reason.POD_DO_NOT_DISRUPT, Reason.NODE_DO_NOT_DISRUPT, Reason.PDB_SYNC_FAILED}
"""Reasons that keep Karpenter from consolidating a node as well."""

SHOWN = 3
"""Most things that a sentence names."""


def left_to_others(
    snapshot: Snapshot, refusals: Mapping[str, Sequence[Refusal]], pods: Mapping[str, Pod]
) -> tuple[str, ...]:
    """Return sentences about *refusals* by node; *pods* are all by key."""
    return (*_of_operators(snapshot, refusals, pods), *_of_karpenter(snapshot, refusals))


def _of_operators(
    snapshot: Snapshot, refusals: Mapping[str, Sequence[Refusal]], pods: Mapping[str, Pod]
) -> Iterator[str]:
    kept: dict[tuple[str, str], set[str]] = {}
    for name, found in refusals.items():
        for each in found:
            pod = pods.get(each.subject) if each.reason in BUDGET_REASONS else None
            for budget in snapshot.budgets.of(pod.template) if pod is not None else ():
                if budget.managed.operator:
                    kept.setdefault((budget.key, budget.managed.operator), set()).add(name)
    for (key, operator), names in sorted(kept.items()):
        yield f"PDB {key} keeps {counted(len(names), 'node')}: leave the PDB to {operator}, which sets it back"


def _of_karpenter(snapshot: Snapshot, refusals: Mapping[str, Sequence[Refusal]]) -> Iterator[str]:
    held: dict[str, dict[str, set[str]]] = {}
    for name, found in refusals.items():
        if name in snapshot.nodes and any(each.reason is Reason.KARPENTER_MANAGED for each in found):
            pool = held.setdefault(snapshot.nodes[name].node.labels.get(POOL_LABEL, ""), {})
            for each in found:
                if each.reason in _HOLDS_KARPENTER:
                    pool.setdefault(f"{each.reason} {each.subject}", set()).add(name)
    for pool_name, things in sorted(held.items()):
        if not things:
            continue
        nodes = set[str]().union(*things.values())
        most = sorted(things, key=lambda each: (-len(things[each]), each))
        held_on = counted(len(nodes), "node")
        yield f"Karpenter consolidates NodePool {pool_name}, but is held on {held_on} too: {some(most, SHOWN)}"


_REMOVED: Mapping[Reason, tuple[str, ...]] = {
    Reason.POD_DO_NOT_DRAIN: (DO_NOT_DRAIN,),
    Reason.NOT_SAFE_TO_EVICT: (SAFE_TO_EVICT,),
    Reason.SAFE_TO_EVICT_ON_COMPLETION: (SAFE_TO_EVICT,),
    Reason.POD_DO_NOT_DISRUPT: DO_NOT_DISRUPT,
    Reason.PREFER_NO_EVICTION: (PREFER_NO_EVICTION,),
}
"""Reasons that an annotation of a pod gives: without the annotation they are gone."""

_VOUCHED: Mapping[Reason, str] = {
    Reason.NOT_REPLICATED: "nothing recreates the pod once it is evicted",
    Reason.CUSTOM_CONTROLLER: "only if its controller recreates an evicted pod",
    Reason.CONTROLLER_NOT_FOUND: "nothing recreates the pod once it is evicted",
    Reason.KUBE_SYSTEM_POD: "",
}
"""Reasons against which somebody may vouch for the pod (safe-to-evict), and what they vouch for."""

_NOTES: Mapping[Reason, str] = {Reason.GANG_WOULD_BREAK: "the whole group starts over elsewhere"}

_ON_NODES: Mapping[Reason, tuple[str, ...]] = {
    Reason.NODE_DO_NOT_DRAIN: (DO_NOT_DRAIN,),
    Reason.SCALE_DOWN_DISABLED: (SCALE_DOWN_DISABLED,),
    Reason.NODE_DO_NOT_DISRUPT: NODE_DO_NOT_DISRUPT,
}
"""Reasons that an annotation of a node gives."""

ROOM = frozenset({Reason.NO_PLACE, Reason.NO_PLACE_AFTER_PLAN, Reason.NO_PLACE_TOGETHER})
"""Reasons that a plan in another order may take away, and a topology spread that lets emptied nodes go."""

_Top = tuple[str, str, str]
"""Namespace, kind and name of the owner whose template counts."""


def _carried(keys: Sequence[str], annotations: Mapping[str, str]) -> str | None:
    """Return the one of *keys* that is among *annotations*, ``None`` if it is a label instead."""
    return next((each for each in keys if each in annotations), None)


class Catalogue:
    """The changes behind the refusals of plans of *snapshot*. The same thing has the same change each time."""

    def __init__(self, snapshot: Snapshot, evaluation: Evaluation, tunable: Tunable) -> None:
        self._snapshot = snapshot
        self._evaluation = evaluation
        self._tunable = tunable
        self._pods = {pod.key: pod for view in snapshot.nodes.values() for pod in view.pods}
        self._known: dict[tuple[Reason, str], Change] = {}
        self._of: dict[tuple[str, Refusal], Change | None] = {}
        self._tuned: dict[tuple[Reason, str], Change | None] = {}
        self._budgets = BudgetChanges(snapshot, self._pods)
        self._owned: dict[_Top, dict[str, set[str]]] | None = None
        self._kept: dict[Reason, Mapping[str, Mapping[str, Pod]]] = {}

    def of(self, node: str, refusal: Refusal) -> Change | None:
        """Return the change against *refusal* of *node*, ``None`` if there is none."""
        place = node, refusal
        if place not in self._of:
            self._of[place] = self._find(node, refusal)
        return self._of[place]

    def all_of(self, node: str, refusals: Iterable[Refusal]) -> frozenset[Change] | None:
        """Return the changes against all *refusals* of *node*, ``None`` if one of them has none."""
        found = [self.of(node, refusal) for refusal in refusals]
        return None if None in found else frozenset(each for each in found if each is not None)

    def left_to_others(self, refusals: Mapping[str, Sequence[Refusal]]) -> tuple[str, ...]:
        """See :func:`~tightship.advice.catalogue.left_to_others`."""
        return left_to_others(self._snapshot, refusals, self._pods)

    def without(self, reason: Reason) -> Change:
        """Return the change that switches the rule of *reason* off."""
        return self._tunable.without(reason)

    def _find(self, node: str, refusal: Refusal) -> Change | None:
        fact = self._evaluation.facts.get(node)
        if fact is None:
            return None
        node_pool = self._of_node_pool(node, refusal.reason)
        if node_pool is not None:
            return node_pool
        setting = refusal.reason, fact.pool
        if setting not in self._tuned:
            own = self._tunable.change(refusal.reason, fact, self._evaluation)
            self._tuned[setting] = None if own is None else self._known.setdefault((own.reason, own.thing), own)
        tuned = self._tuned[setting]
        if tuned is not None:
            return tuned
        if node == refusal.subject:
            return self._of_node(node, refusal.reason)
        pod = self._pods.get(refusal.subject)
        spread = refusal.reason is Reason.GANG_WOULD_BREAK and EVICT_TOGETHER not in refusal.fix
        if pod is None or spread:
            return None
        if refusal.reason in BUDGET_REASONS:
            found = self._budgets.of(pod, refusal.reason)
            return found and self._known.setdefault((found.reason, found.thing), found)
        return self._of_spread(pod) if refusal.reason in ROOM else self._of_pod(pod, refusal.reason)

    # -- nodes

    def _of_node(self, name: str, reason: Reason) -> Change | None:
        if reason is Reason.NODE_GROUP_MIN_SIZE:
            return self._of_group(self._evaluation.facts[name])
        if reason in _ON_NODES:
            key = _carried(_ON_NODES[reason], self._snapshot.nodes[name].node.annotations)
            if key is None:
                return None
            command = f"kubectl annotate node {name} {key}-"
            return self._once(reason, f"node {name}", partial(without_annotation, name=name, key=key), command)
        if reason is Reason.CORDONED:
            return self._once(reason, f"node {name}", partial(uncordoned, name=name), f"kubectl uncordon {name}")
        if reason is Reason.TAINTED:
            hard = [each for each in self._snapshot.nodes[name].node.taints if each.effect != "PreferNoSchedule"]
            command = f"kubectl taint node {name} {' '.join(f'{each.key}:{each.effect}-' for each in hard)}"
            edit = partial(untainted, name=name, taints={(each.key, each.effect) for each in hard})
            note = "pods that tolerate nothing may then run there"
            return self._once(reason, f"node {name}", edit, command, note=note)
        return None

    def _of_node_pool(self, name: str, reason: Reason) -> Change | None:
        """Return the change of the NodePool of node *name*, if the pool is known and one field of it is to blame."""
        pool = self._snapshot.node_pools.get(self._snapshot.nodes[name].node.labels.get(POOL_LABEL, ""))
        if pool is None or pool.problem or pool.replicas is not None:
            return None
        if reason is not Reason.KARPENTER_CONSOLIDATION_OFF or pool.after is not None or pool.managed.operator:
            return None
        written = {"consolidationPolicy": WHEN_EMPTY, "consolidateAfter": "30s"}
        patch = msgspec.json.encode({"spec": {"disruption": written}}).decode()
        command = f"kubectl patch nodepool {pool.name} --type merge -p '{patch}'"
        edit = partial(with_node_pool, name=pool.name, change={"policy": WHEN_EMPTY, "after": 30.0})
        effect = "Karpenter then deletes the nodes that Tightship has emptied, and packs none itself"
        notes = (effect, pool.managed.note("the NodePool"))
        return self._once(reason, f"NodePool {pool.name}", edit, command, note="; ".join(filter(None, notes)))

    def _of_group(self, fact: NodeFacts) -> Change | None:
        """Return a lower minimum of the node group, if an object that kubectl reaches says the minimum.

        No command here changes the autoscaler's flags, or a group of a cloud.
        """
        group = fact.group
        if group is None or group.problem:
            return None
        others = self._evaluation.facts.items()
        mates = sorted(name for name, each in others if each.group is not None and each.group.name == group.name)
        key = next((each for each in MINIMUM_SIZE if each in fact.view.node.annotations), "")
        setter = f"kubectl annotate --overwrite node {' '.join(mates)} {key}=" if key else group.setter
        if not setter:
            return None

        def change(least: int) -> Change:
            return Change(
                Reason.NODE_GROUP_MIN_SIZE,
                f"the minimum size of node group {group.name}",
                partial(with_group_minimum, name=group.name, nodes=mates if key else (), key=key, least=least),
                commands=(f"{setter}{least}",),
                note="the autoscaler has to allow that size too" if key else "",
                tighter=lambda plan: (change(len(set(mates) - {each.node for each in plan.removals})),),
            )

        thing = Reason.NODE_GROUP_MIN_SIZE, f"the minimum size of node group {group.name}"
        return self._known[thing] if thing in self._known else self._known.setdefault(thing, change(0))

    # -- pods

    def _of_pod(self, pod: Pod, reason: Reason) -> Change | None:
        if reason in _REMOVED:
            key, value = _carried(_REMOVED[reason], pod.annotations), None
            if key is None:
                return None
        elif reason is Reason.LOCAL_STORAGE:
            key, value = SAFE_LOCAL_VOLUMES, all_local_volumes(self._snapshot, pod)
        elif reason is Reason.CUSTOM_CONTROLLER and pod.owner is not None and pod.owner.kind in WORKLOAD_KINDS:
            return None  # an update that is not finished: a changed template would begin another
        elif reason in _VOUCHED:
            key, value = SAFE_TO_EVICT, "true"
        elif reason is Reason.GANG_WOULD_BREAK:
            key, value = EVICT_TOGETHER, "true"
        else:
            return None
        thing = f"{pod.namespace}/{named(self._snapshot, pod)}"
        if (reason, thing) in self._known:
            return self._known[reason, thing]
        # One thing may need several commands: what a pod alone carries is changed pod by pod.
        kept = self._keeping(reason).get(thing, {pod.key: pod})
        made = self._annotating(reason, thing, key, value, kept.values())
        return self._known.setdefault((reason, thing), made)

    def _annotating(self, reason: Reason, thing: str, key: str, value: str | None, pods: Collection[Pod]) -> Change:
        made: dict[AnnotationEdit, None] = {}
        for each in pods:
            own = all_local_volumes(self._snapshot, each) if reason is Reason.LOCAL_STORAGE else value
            made |= dict.fromkeys(annotation_changes(self._snapshot, each, key, own))
        steps = [(each, self._reached(each)) for each in made]

        def edit(snapshot: Snapshot) -> Snapshot:
            return reduce(lambda done, step: annotate(done, *step), steps, snapshot)

        def only(fact: NodeFacts) -> Change:
            return self._annotating(reason, thing, key, value, [each for each in pods if each.node == fact.view.name])

        owners = [lasting(self._snapshot, each, key, value) for each in pods]
        notes = (_VOUCHED.get(reason, "") or _NOTES.get(reason, ""), *dict.fromkeys(owners))
        note = "; ".join(filter(None, notes))
        return Change(reason, thing, edit, commands=commands(made), note=note, only=only)

    def _of_spread(self, pod: Pod) -> Change | None:
        """Return the policy by which a node that is emptied is no domain of the pod's topology spread any more."""
        owner = top_owner(self._snapshot, pod)
        wanted = [each for each in pod.spec.spread if each.node_taints_policy != HONOR]
        if owner is None or not wanted or template_of(owner) is None:
            return None
        managed = managing(self._snapshot, pod)
        thing = f"topology spread of {pod.namespace}/{named(self._snapshot, pod)}"
        if managed.operator:
            return None
        constraints = [
            {"topologyKey": each.topology_key, "whenUnsatisfiable": each.when_unsatisfiable, "nodeTaintsPolicy": HONOR}
            for each in wanted
        ]
        places = self._owners()[pod.namespace, owner.kind, owner.name]
        edit = partial(honoring_taints, pods={key for keys in places.values() for key in keys})
        notes = ("new pods then count only nodes that take them", managed.note(named(self._snapshot, pod)))
        if "." in owner.kind:  # custom resources have no strategic merge, and any other patch replaces the whole list
            note = f"set nodeTaintsPolicy: {HONOR} in each constraint of {owner}"
            return self._once(Reason.NO_PLACE, thing, edit, note="; ".join(filter(None, (note, *notes))))
        command = patching(pod.namespace, owner, {"spec": {"topologySpreadConstraints": constraints}})
        return self._once(Reason.NO_PLACE, thing, edit, command, note="; ".join(filter(None, notes)))

    def _keeping(self, reason: Reason) -> Mapping[str, Mapping[str, Pod]]:
        """Return the pods that *reason* keeps, by the thing behind it."""
        if reason not in self._kept:
            found: dict[str, dict[str, Pod]] = {}
            for subject in sorted({each.subject for _, each in subjects(self._evaluation.plan.refusals, reason)}):
                pod = self._pods.get(subject)
                if pod is not None:
                    found.setdefault(f"{pod.namespace}/{named(self._snapshot, pod)}", {})[subject] = pod
            self._kept[reason] = found
        return self._kept[reason]

    def _reached(self, change: AnnotationEdit) -> dict[str, set[str]]:
        """Return the pods that *change* reaches, by node."""
        if change.kind == "Pod":
            key = f"{change.namespace}/{change.name}"
            return {self._pods[key].node: {key}}
        return self._owners().get((change.namespace, change.kind, change.name), {}) if change.rolls_out else {}

    def _owners(self) -> dict[_Top, dict[str, set[str]]]:
        if self._owned is None:
            self._owned = {}
            tops: dict[PodTemplate, Owner | None] = {}
            for pod in self._pods.values():
                if pod.template not in tops:
                    tops[pod.template] = top_owner(self._snapshot, pod)
                top = tops[pod.template]
                if top is not None:
                    place = self._owned.setdefault((pod.namespace, top.kind, top.name), {})
                    place.setdefault(pod.node, set()).add(pod.key)
        return self._owned

    def _once(
        self, reason: Reason, thing: str, edit: Callable[[Snapshot], Snapshot], *lines: str, note: str = ""
    ) -> Change:
        made = Change(reason, thing, edit, commands=lines, note=note)
        return self._known.setdefault((reason, thing), made)

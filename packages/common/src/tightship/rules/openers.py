"""Whose budgets open only once a node is cordoned: one row a source. Pure.

Each row is what the source of its controller does when ``spec.unschedulable`` appears on a node, and nothing else.
Some look alike and don't belong here: Strimzi's drain cleaner and KubeVirt act on a refused eviction, not on a cordon;
Longhorn deletes the budget of a cordoned node only after the pods with its volumes have left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.objects import Pod, PodDisruptionBudget
from tightship.objects.disruption import OPENS_AFTER_CORDON


class Opener(Struct, frozen=True):
    """A controller that opens the budgets that *owns* recognises. *does* says how, for people.

    If *roles* names labels, the budget guards one pod of a group, and the controller gives its role to another pod of
    the group: one that matches the budget's selector without these labels.
    """

    owns: Callable[[PodDisruptionBudget], bool]
    does: str
    roles: tuple[str, ...] = ()


def _labels(budget: PodDisruptionBudget) -> Mapping[str, str]:
    return (budget.selector.match_labels if budget.selector is not None else None) or {}


def _cloudnative_pg(budget: PodDisruptionBudget) -> bool:
    labels = _labels(budget)
    return "cnpg.io/cluster" in labels and "primary" in {labels.get("role"), labels.get("cnpg.io/instanceRole")}


def _zalando(budget: PodDisruptionBudget) -> bool:
    labels = _labels(budget)
    return labels.get("application") == "spilo" and labels.get("spilo-role") == "master"


OPENERS = (
    # Azure/eviction-autoscaler, internal/controller: node_reconciler.go, pdb_helpers.go (CreatePDBForDeployment).
    Opener(lambda budget: budget.owned_by == "EvictionAutoScaler", "eviction-autoscaler then adds replicas"),
    # cloudnative-pg, internal/controller/replicas.go (setPrimaryOnSchedulableNode), pkg/specs/poddisruptionbudget.go.
    Opener(_cloudnative_pg, "CloudNativePG then makes another instance the primary", ("role", "cnpg.io/instanceRole")),
    # zalando/postgres-operator, pkg/controller/node.go (moveMasterPodsOffNode), with its default labels.
    Opener(_zalando, "postgres-operator then makes another pod the master", ("spilo-role",)),
)

_SAID = Opener(lambda budget: budget.opens == "true", f"its annotation {OPENS_AFTER_CORDON} says that it opens then")


def opener(budget: PodDisruptionBudget, guarded: Pod, snapshot: Snapshot) -> tuple[Opener | None, bool]:
    """Return who opens *budget* of pod *guarded* after a cordon of its node, if anybody does, and whether they can now.

    The annotation on the budget comes before all rows: any value but ``true`` says that it doesn't open. A role passes
    only to a Ready pod of the same group on another node that isn't cordoned.
    """
    if budget.opens:
        return (_SAID, True) if _SAID.owns(budget) else (None, False)
    found = next((each for each in OPENERS if each.owns(budget)), None)
    if found is None or not found.roles:
        return found, True
    group = {key: value for key, value in _labels(budget).items() if key not in found.roles}
    others = [
        (pod, view.node)
        for view in snapshot.nodes.values()
        for pod in view.pods
        if pod.namespace == guarded.namespace and pod.name != guarded.name and _labelled(pod, group)
    ]
    heirs = (pod.ready and pod.deletion is None and not node.unschedulable for pod, node in others)
    elsewhere = (node.name != guarded.node for _, node in others)
    return found if others else None, any(heir and away for heir, away in zip(heirs, elsewhere, strict=True))


def _labelled(pod: Pod, group: Mapping[str, str]) -> bool:
    return all(pod.template.labels.get(key) == value for key, value in group.items())

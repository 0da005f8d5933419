"""PodDisruptionBudgets as a ledger of what each still allows while a plan grows.

The verdicts are those of the eviction subresource (``pkg/registry/core/pod/storage/eviction.go``). A Pending pod needs
no budget. An unhealthy pod needs none if its PDB's policy or health says so. A pod under two PDBs can never be evicted,
and a PDB whose status is older than its spec allows nothing.

One allowance is enough to start on a node. If a node holds more pods of a budget than the budget allows at once, the
drain waits for Ready replacements in between. Such a node takes the rest of the budget, so the next node of the same
plan waits for a later round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.objects import Owner, Pod, PodDisruptionBudget, PodTemplate
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.workloads import OPENS_AFTER_CORDON


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
"""Whose budgets open only once a node is cordoned: one row a source.

Each row is what the source of its controller does when ``spec.unschedulable`` appears on a node, and nothing else.
Some look alike and don't belong here: Strimzi's drain cleaner and KubeVirt act on a refused eviction, not on a cordon;
Longhorn deletes the budget of a cordoned node only after the pods with its volumes have left.
"""

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


class Charge(Struct, frozen=True):
    """The allowances that draining a node takes, by budget key; pods under budgets in *waits* leave one by one."""

    taken: dict[str, int] = {}
    waits: tuple[str, ...] = ()


class DisruptionLedger:
    """The allowances of all budgets. :meth:`charge` judges a node's pods together, :meth:`take` spends."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._budgets = snapshot.budgets
        self._to_be: dict[str, int] | None = None
        self._matches: dict[PodTemplate, tuple[PodDisruptionBudget, ...]] = {}
        self._unreadable: dict[str, str] = {
            each.namespace: each.key for each in snapshot.unreadable if each.kind == "PodDisruptionBudget"
        }
        self._left: dict[str, int] = {}
        self._without: set[PodTemplate] = set()
        """Templates without a budget."""
        self._plain: dict[PodTemplate, tuple[PodDisruptionBudget, str]] = {}
        """Templates with just one budget, which is in force, and its key."""

    def budgets_of(self, template: PodTemplate) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets whose selector matches pods of *template*."""
        found = self._matches.get(template)
        if found is None:
            found = self._matches[template] = self._budgets.of(template)
        return found

    def covers(self, pod: Pod) -> bool:
        """Whether any budget selects *pod*."""
        return bool(self.budgets_of(pod.template))

    def left(self, budget: PodDisruptionBudget) -> int:
        """Return how many disruptions *budget* still allows."""
        return self._left.get(budget.key, budget.disruptions_allowed)

    def charge(self, pods: Sequence[Pod]) -> tuple[Charge, list[Refusal]]:
        """Return what evicting all of *pods* from one node takes, and **all** refusals."""
        need: dict[str, int] = {}
        left: dict[str, int] = {}
        refusals: list[Refusal] = []
        for pod, budget, key in self._asking(pods, refusals):
            if key not in left:
                left[key] = self._left.get(key, budget.disruptions_allowed)
            need[key] = need.get(key, 0) + 1
            if left[key] < 1:
                refusals.append(self.exhausted(budget, pod))
        taken: dict[str, int] = {}
        waits: list[str] = []
        for key, count in sorted(need.items()):
            taken[key] = min(count, max(0, left[key]))
            if count > taken[key]:
                waits.append(key)
        return Charge(taken, tuple(waits)), refusals

    def needs(self, pods: Sequence[Pod]) -> dict[str, tuple[PodDisruptionBudget, int]]:
        """Return, by key, the budgets from which evicting *pods* needs allowances, and how many of each.

        The result does not depend on what has been taken. A budget with no more left than that has nothing to spare.
        """
        found: dict[str, tuple[PodDisruptionBudget, int]] = {}
        for _, budget, key in self._asking(pods, []):
            found[key] = (budget, found.get(key, (budget, 0))[1] + 1)
        return found

    def _asking(self, pods: Sequence[Pod], refusals: list[Refusal]) -> Iterator[tuple[Pod, PodDisruptionBudget, str]]:
        """Yield the pods that need an allowance, with their budgets and the budgets' keys. Add pods that no allowance
        would help to *refusals*.
        """
        without, plain, restarts = self._without, self._plain, self._snapshot.restarts
        for pod in pods:
            # A pass asks for every pod of a fleet. Nearly all have no budget, or are Ready under one in force.
            if pod.template in without:
                continue
            if restarts and self._snapshot.restart_of(pod) is not None:
                continue  # a rollout asks no budget
            known = plain.get(pod.template)
            if known is not None and pod.ready and pod.phase != "Pending":
                yield pod, known[0], known[1]
                continue
            if pod.phase == "Pending":
                continue
            if pod.namespace in self._unreadable:
                unreadable = self._unreadable[pod.namespace]
                detail = f"PodDisruptionBudget {unreadable} can't be read and may cover the pod"
                refusals.append(
                    Refusal(Reason.PDB_UNREADABLE, pod.key, detail, f"fix PodDisruptionBudget {unreadable}")
                )
                continue
            matching = self.budgets_of(pod.template)
            if not matching:
                if not self._unreadable:
                    without.add(pod.template)
                continue
            if len(matching) > 1:
                names = ", ".join(budget.name for budget in matching)
                detail = f"{len(matching)} PodDisruptionBudgets select the pod ({names}), so the eviction API refuses"
                refusals.append(Refusal(Reason.MULTIPLE_PDBS, pod.key, detail, f"let only one of {names} select it"))
                continue
            budget = matching[0]
            if self._in_force(budget):
                plain[pod.template] = (budget, budget.key)
            if self._needs_one(pod, budget, refusals):
                yield pod, budget, budget.key

    def _needs_one(self, pod: Pod, budget: PodDisruptionBudget, refusals: list[Refusal]) -> bool:
        """Whether evicting *pod* takes an allowance of *budget*. If none would help, say so in *refusals*."""
        if budget.always_allow_unhealthy and not pod.ready:
            return False  # this policy comes before everything else, even the status
        refusal = self._standing(budget, pod)
        if refusal is not None:
            refusals.append(refusal)
            return False
        return not _needs_no_allowance(budget, pod)

    def take(self, charge: Charge) -> None:
        """Spend what *charge* takes."""
        for key, count in charge.taken.items():
            self._left[key] = self.left(self._budgets.by_key[key]) - count

    def _in_force(self, budget: PodDisruptionBudget) -> bool:
        """Whether the status of *budget* can be relied on."""
        return not budget.sync_failed and budget.observed_generation >= budget.generation

    def _standing(self, budget: PodDisruptionBudget, pod: Pod) -> Refusal | None:
        if budget.sync_failed:
            detail = f"the disruption controller can't compute PDB {budget.name}: {budget.sync_failed}"
            return Refusal(Reason.PDB_SYNC_FAILED, pod.key, detail, f"fix what PDB {budget.key} selects")
        if budget.observed_generation < budget.generation:
            detail = (
                f"the status of PDB {budget.name} is from generation {budget.observed_generation}, "
                f"the spec is generation {budget.generation}"
            )
            return Refusal(Reason.PDB_NOT_CURRENT, pod.key, detail, "wait for the disruption controller to catch up")
        return None

    def exhausted(self, budget: PodDisruptionBudget, pod: Pod) -> Refusal:
        """Return why *budget*, which has nothing left, does not let *pod* go."""
        health = f"{budget.current_healthy} healthy of {budget.expected_pods}, {budget.desired_healthy} wanted"
        if budget.disruptions_allowed > 0:
            allowed = counted(budget.disruptions_allowed, "eviction")
            detail = f"PDB {budget.name} allows {allowed} now, already spent on nodes planned before"
            return Refusal(
                Reason.PDB_SPENT_BY_PLAN, pod.key, detail, "wait for a later round, when the moved pods are Ready"
            )
        opens, can = opener(budget, pod, self._snapshot)
        if opens is not None and can and budget.current_healthy >= budget.desired_healthy > 0:
            detail = f"PDB {budget.name} ({budget.rule}) allows no eviction until the node is cordoned: {opens.does}"
            fix = f"see what keeps PDB {budget.key} shut on a cordoned node"
            return Refusal(Reason.OPENS_AFTER_CORDON, budget.key, detail, fix)
        if opens is None and self._never_allows(budget):
            counts = "it counts replicas of controllers, which these pods lack" if budget.uncounted else health
            counts = "" if budget.unset else f": {counts}"
            detail = f"PDB {budget.name} ({budget.rule}) can never allow an eviction{counts}"
            return Refusal(Reason.PDB_NEVER_ALLOWS, pod.key, detail, _loosen(budget, pod))
        detail = f"PDB {budget.name} ({budget.rule}) allows no eviction now: {health}"
        missing = max(1, budget.desired_healthy + 1 - budget.current_healthy)
        fix = f"{counted(missing, 'more healthy pod')} under PDB {budget.key}"
        return Refusal(Reason.PDB_EXHAUSTED, pod.key, detail, fix)

    def _never_allows(self, budget: PodDisruptionBudget) -> bool:
        """Whether waiting can't help, because there will never be more pods than the budget wants.

        A ``minAvailable`` number is compared with the existing pods: one less between an eviction and the creation of
        its replacement. A percentage is compared with the replicas.
        """
        if not budget.never_allows:
            return False
        of_replicas = not isinstance(budget.min_available, int)
        return of_replicas or budget.desired_healthy >= self._pods_to_be(budget)

    def _pods_to_be(self, budget: PodDisruptionBudget) -> int:
        """Return how many pods *budget* will have: the replicas of the controllers of its present pods."""
        if self._to_be is None:
            self._to_be = self._count_replicas()
        return self._to_be.get(budget.key, 0)

    def _count_replicas(self) -> dict[str, int]:
        nodes = self._snapshot.nodes.values()
        pods = chain(self._snapshot.unscheduled, chain.from_iterable(view.pods for view in nodes))
        found: Counter[str] = Counter()
        counted: set[tuple[str, Owner]] = set()
        for template, present in Counter(pod.template for pod in pods).items():
            owner = template.owner
            named = owner and self._snapshot.workloads.get(owner.kind, {}).get(f"{template.namespace}/{owner.name}")
            for budget in self.budgets_of(template):
                if owner is None or not named or named.replicas is None:
                    found[budget.key] += present
                elif (budget.key, owner) not in counted:
                    counted.add((budget.key, owner))
                    found[budget.key] += named.replicas
        return dict(found)


class RenewedLedger(DisruptionLedger):
    """A ledger that spends nothing: every node finds what the budgets allow now.

    It suits nodes that are drained one after another, with the pods of each Ready again before the next drain begins.
    """

    def take(self, charge: Charge) -> None:
        """Spend nothing."""


def _needs_no_allowance(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Whether *pod* is unhealthy and may go while enough others are healthy (KEP-3017, ``IfHealthyBudget``)."""
    return not pod.ready and 0 < budget.desired_healthy <= budget.current_healthy


def _loosen(budget: PodDisruptionBudget, pod: Pod) -> str:
    if budget.managed.operator:
        return f"leave PDB {budget.key} to {budget.managed.operator}, which owns the PDB and sets it back"
    note = budget.managed.note("the PDB")
    return f"{_loosened(budget, pod)} ({note})" if note else _loosened(budget, pod)


def _loosened(budget: PodDisruptionBudget, pod: Pod) -> str:
    if budget.uncounted:
        return f"give PDB {budget.key} a number for minAvailable, and no maxUnavailable"
    if budget.max_unavailable is not None:
        return f"set maxUnavailable of PDB {budget.key} to 1 or more"
    lower = f"lower minAvailable of PDB {budget.key}"
    if isinstance(budget.min_available, str):
        return lower
    return f"raise the replicas of {pod.owner or pod.key} to {budget.desired_healthy + 1} or more, or {lower}"

"""The changes of PodDisruptionBudgets that free pods. What an operator owns is the operator's to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from tightship.advice.edits import loosened, with_budgets
from tightship.cluster import Snapshot
from tightship.objects import Pod, PodDisruptionBudget
from tightship.objects.reasons import Reason
from tightship.planning.changes import Change

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
    few = "nothing runs while the only pod under this budget moves" if budget.expected_pods <= 1 else ""
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

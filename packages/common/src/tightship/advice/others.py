"""What keeps nodes and is not for the reader to change: the budgets of operators, and what holds Karpenter itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tightship.advice.budgets import BUDGET_REASONS
from tightship.cluster import Snapshot
from tightship.objects import Pod
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.karpenter import POOL_LABEL

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
        more = f" and {len(most) - SHOWN} more" if len(most) > SHOWN else ""
        what = f"{', '.join(most[:SHOWN])}{more}"
        yield f"Karpenter consolidates NodePool {pool_name}, but is held on {counted(len(nodes), 'node')} too: {what}"

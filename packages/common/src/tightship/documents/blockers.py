"""What keeps the nodes that stay, by the thing behind it: a table from the refusals of one plan, without another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from tightship.cluster.owners import named
from tightship.cluster.pools import shown
from tightship.documents.money import money
from tightship.documents.presentation import Column, Grid, GridShape
from tightship.objects.reasons import Reason, Refusal

if TYPE_CHECKING:
    # hpa-scaler uses documents too, and has no numpy, which plans need.
    from tightship.cluster import Snapshot
    from tightship.objects import Pod
    from tightship.planning.facts import NodeFacts

OF_BUDGETS = frozenset({Reason.PDB_NEVER_ALLOWS, Reason.PDB_EXHAUSTED, Reason.PDB_NOT_CURRENT, Reason.PDB_SYNC_FAILED})
"""Reasons behind which a budget stands, and not the workload."""

PASSING = frozenset(
    {
        Reason.PDB_SPENT_BY_PLAN,
        Reason.FILLED_BY_PLAN,
        Reason.NOT_SELECTED,
        Reason.MAX_NODES_REACHED,
        Reason.MAX_EVICTIONS_REACHED,
    }
)
"""Reasons that the plan itself, or the command, gives: nothing is to be changed about them."""


class Blocker(Struct, frozen=True, rename="camel"):
    """A *reason* with the *thing* behind it (a workload, a budget, a pool) and the number of *nodes* that it keeps.

    It alone keeps *alone* of them, which cost *micros_alone* in a month, *micros* all of them; both are ``null`` if no
    node has a price.
    """

    reason: str
    thing: str
    nodes: int
    alone: int
    micros: int | None = None
    micros_alone: int | None = None


def blockers(
    snapshot: Snapshot, facts: Mapping[str, NodeFacts], refusals: Mapping[str, tuple[Refusal, ...]]
) -> tuple[Blocker, ...]:
    """Return what keeps nodes by *refusals*: first what alone keeps most money, then what keeps most nodes."""
    pods = {pod.key: pod for view in snapshot.nodes.values() for pod in view.pods}
    told: dict[tuple[Reason, str], str] = {}
    kept: dict[tuple[str, str], list[int]] = {}
    priced = any(fact.price is not None for fact in facts.values())
    for name, found in refusals.items():
        if any(each.reason is Reason.NOT_SELECTED for each in found) or name not in facts:
            continue
        price = facts[name].price
        cost = 0 if price is None else price.monthly
        things: dict[tuple[str, str], None] = {}
        for each in found:
            place = each.reason, each.subject
            if place not in told:
                told[place] = _thing(snapshot, pods.get(each.subject), each, facts[name].pool)
            things[each.reason.value, told[place]] = None
        for thing in things:
            sums = kept.setdefault(thing, [0, 0, 0, 0])
            sums[0] += 1
            sums[2] += cost
            if len(things) == 1:
                sums[1] += 1
                sums[3] += cost
    rows = [
        Blocker(reason, thing, nodes, alone, micros if priced else None, by_it if priced else None)
        for (reason, thing), (nodes, alone, micros, by_it) in kept.items()
        if Reason(reason) not in PASSING
    ]
    return tuple(sorted(rows, key=_worth))


def _worth(each: Blocker) -> tuple[int, int, int, int, str, str]:
    return -(each.micros_alone or 0), -each.alone, -(each.micros or 0), -each.nodes, each.reason, each.thing


def _thing(snapshot: Snapshot, pod: Pod | None, refusal: Refusal, pool: str) -> str:
    if pod is None:
        return f"pool {shown(pool)}"
    if refusal.reason in OF_BUDGETS:
        found = snapshot.budgets.of(pod.template)
        if len(found) == 1:
            return f"PDB {found[0].key}"
    return f"{pod.namespace}/{named(snapshot, pod)}"


SHOWN = 10
"""Most blockers that the output for people names."""


def blocker_grid(found: tuple[Blocker, ...], currency: str, most: int = SHOWN) -> Grid:
    """Return a table of the first *most* blockers."""
    rows = found[:most]
    columns = [
        Column("WHAT IS BEHIND IT", [each.thing for each in rows]),
        Column("BLOCKER", [each.reason for each in rows], style="why"),
        Column("NODES", [f"{each.nodes:,}" for each in rows], ">"),
        Column("ALONE", [f"{each.alone:,}" for each in rows], ">"),
    ]
    if any(each.micros_alone is not None for each in rows):
        columns.append(Column("A MONTH", [money(each.micros_alone or 0, currency) for each in rows], ">"))
    return Grid(columns, (GridShape(names=63), GridShape(shortest=24)))

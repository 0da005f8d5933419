"""What the document of a plan says of the best: the bound, the best plan found, and what each rule costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tightship.report.money import MoneySummary, money

if TYPE_CHECKING:
    # hpa-scaler uses documents too, and has no numpy, which plans need.
    from tightship.planning.gap import Gap, Kept

HOW_TO_INSTALL = "the bound may be lower than need be without its solver: pip install 'tightship[gap]'"
"""What the line says where HiGHS is not installed."""

TOO_LARGE = "the bound may be lower than need be: the cluster is too large for its solver"
"""What the line says where HiGHS found no optimum in time."""


class GapKept(Struct, frozen=True, rename="camel"):
    """What is kept by the plan shown, by the best plan found, and by every plan of one round at least."""

    planned: int
    reachable: int
    proven: int


class GapRule(Struct, frozen=True, rename="camel"):
    """Without *rule* the strategy alone would keep *nodes_after*, and so many *fewer* than with it."""

    rule: str
    nodes_after: int
    fewer: int


class GapSummary(Struct, frozen=True, rename="camel"):
    """How far the plan is from the best, after a search of *seconds*.

    *nodes* counts nodes, *micros_per_month* is the same in money, ``null`` without prices. *solver* found the bound:
    ``highs`` the best that its linear program has, ``ascent`` one near to that.
    """

    seconds: float
    nodes: GapKept
    micros_per_month: GapKept | None
    rules: tuple[GapRule, ...]
    solver: Literal["highs", "ascent"]
    installed: bool


def gap_summary(gap: Gap | None, unreadable: int) -> GapSummary | None:
    """Return *gap* for a document; the *unreadable* nodes of the cluster, which it does not know, stay."""
    if gap is None:
        return None

    def kept(of: Kept, more: int) -> GapKept:
        return GapKept(of.planned + more, of.reachable + more, of.proven + more)

    return GapSummary(
        seconds=gap.seconds,
        nodes=kept(gap.nodes, unreadable),
        micros_per_month=None if gap.micros is None else kept(gap.micros, 0),
        rules=tuple(GapRule(each.rule, each.nodes + unreadable, each.fewer) for each in gap.costs),
        solver="highs" if gap.solved else "ascent",
        installed=gap.installed,
    )


def gap_lines(gap: GapSummary, in_money: MoneySummary | None) -> Iterator[str]:
    """Return *gap* in lines for people."""
    nodes, month = gap.nodes, gap.micros_per_month
    found = f"{nodes.planned:,} planned · {nodes.reachable:,} reachable · {nodes.proven:,} proven"
    costs = [(each.rule, f"{each.fewer:,}") for each in gap.rules if each.fewer]
    if costs:
        (rule, first), *others = ((rule if rule == "budgets" else f"your {rule}", many) for rule, many in costs)
        verb = "cost" if rule == "budgets" else "costs"
        found += f" · {', '.join([f'{rule} {verb} {first}', *(f'{each} {many}' for each, many in others)])}"
    elif gap.rules:
        found += " · no rule costs a node"
    yield found
    if month is not None and in_money is not None:
        amounts = (money(each, in_money.currency) for each in (month.planned, month.reachable, month.proven))
        yield "{} planned · {} reachable · {} proven a month".format(*amounts)
    if not gap.installed:
        yield HOW_TO_INSTALL
    elif gap.solver != "highs":
        yield TOO_LARGE

"""What documents say of money: the price of a node, and what a plan saves in a month.

Amounts are millionths of a currency (*micros*). A month has 730 hours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from tightship.objects.counting import counted
from tightship.objects.money import HOURLY_PRICE, HOURS_PER_MONTH, MICROS, NodePrice, written_amount

HOW_TO_GET = "no node has a price; --prices FILE or the annotation tightship.dev/hourly-price tells the plan in money"
"""What a plan without any price says instead."""

NO_MACHINES = "there is no machine on which money could be saved"
"""What a plan says where all nodes are virtual."""

_SOURCES = {"list": "list", "opencost": "list of OpenCost", "cloud": "clouds' list"}

BASES_SHOWN = 4
"""Most bases of prices that a line names."""


class NodeCost(Struct, frozen=True, rename="camel"):
    """The price of one node. *source* is where it comes from, *basis* what there names it."""

    micros_per_hour: int
    micros_per_month: int
    currency: str
    source: str
    basis: str


class MonthTotals(Struct, frozen=True, rename="camel"):
    """Micros per month of all nodes with a price, of those that stay, and of those that go."""

    before: int
    after: int
    saved: int


class PriceOrigin(Struct, frozen=True, rename="camel"):
    """How many *nodes* have their price from *source* by *basis*."""

    source: str
    basis: str
    nodes: int


class MoneySummary(Struct, frozen=True, rename="camel"):
    """A plan in money. *unpriced* nodes are in no figure; *unpriced_removed* of them would go."""

    currency: str
    hours_per_month: int
    micros_per_month: MonthTotals
    priced: int
    unpriced: int
    unpriced_removed: int
    origins: tuple[PriceOrigin, ...]


def node_cost(price: NodePrice | None) -> NodeCost | None:
    """Return *price* for a document."""
    if price is None:
        return None
    return NodeCost(price.hourly, price.monthly, price.currency, price.source, price.basis)


def month_totals(costs: Iterable[tuple[NodeCost | None, bool]]) -> MonthTotals | None:
    """Return the totals of nodes, each with its cost and whether it goes; ``None`` if none has a price."""
    before = saved = priced = 0
    for cost, goes in costs:
        if cost is not None:
            priced += 1
            before += cost.micros_per_month
            saved += cost.micros_per_month if goes else 0
    return MonthTotals(before, before - saved, saved) if priced else None


def money_summary(costs: Iterable[tuple[NodeCost | None, bool]]) -> MoneySummary | None:
    """Return a plan in money from its nodes, each with its cost and whether it goes; ``None`` if none has a price."""
    costs = tuple(costs)
    totals = month_totals(costs)
    if totals is None:
        return None
    known = [cost for cost, _ in costs if cost is not None]
    origins = Counter((cost.source, cost.basis) for cost in known)
    return MoneySummary(
        currency=known[0].currency,
        hours_per_month=HOURS_PER_MONTH,
        micros_per_month=totals,
        priced=len(known),
        unpriced=len(costs) - len(known),
        unpriced_removed=sum(goes for cost, goes in costs if cost is None),
        origins=tuple(
            PriceOrigin(source, basis, nodes)
            for (source, basis), nodes in sorted(origins.items(), key=lambda item: (-item[1], item[0]))
        ),
    )


def money(micros: int, currency: str) -> str:
    """Return an amount as people read it: ``$70.08``, ``$12,340``, ``EUR 70.08``."""
    sign = "$" if currency == "USD" else f"{currency} "
    if not micros:
        return f"{sign}0"
    return f"{sign}{micros / MICROS:,.2f}" if abs(micros) < 100 * MICROS else f"{sign}{micros / MICROS:,.0f}"


def an_hour(micros: int, hours: int, currency: str) -> str:
    """Return *micros* of a month of *hours* as the amount of one hour: ``$2.12``, ``$0.021``."""
    amount = micros / hours / MICROS
    if not micros or amount >= 1:
        return money(round(amount * MICROS), currency)
    return f"{'$' if currency == 'USD' else f'{currency} '}{amount:.2g}"


def hourly(cost: NodeCost) -> str:
    """Return the price of an hour, exactly: ``$0.096``."""
    return f"{'$' if cost.currency == 'USD' else f'{cost.currency} '}{written_amount(cost.micros_per_hour)}"


def monthly(cost: NodeCost | None) -> str:
    """Return the price of a month, ``-`` without one."""
    return "-" if cost is None else money(cost.micros_per_month, cost.currency)


def change(totals: MonthTotals, currency: str) -> str:
    """Return ``$12,340 → $10,115``, or one amount if nothing is saved."""
    before = money(totals.before, currency)
    return f"{before} → {money(totals.after, currency)}" if totals.saved else before


def money_lines(summary: MoneySummary | None, strategy: str, nodes: int) -> Iterator[str]:
    """Return what a plan of *nodes* nodes is in money, and where its figures come from, in lines for people."""
    if summary is None and not nodes:
        yield NO_MACHINES
    elif summary is None:
        yield HOW_TO_GET
        if strategy == "lowest-cost":
            yield "strategy lowest-cost needs prices: without any, the plan is that of fewest-nodes"
    if summary is None:
        return
    totals = summary.micros_per_month
    saved, hours = "nothing saved now", summary.hours_per_month
    if totals.saved:
        share = f" ({totals.saved / totals.before:.0%})" if totals.before else ""
        now = an_hour(totals.saved, hours, summary.currency)
        saved = f"{now} an hour now; {money(totals.saved, summary.currency)} a month if it lasts{share}"
    yield saved
    yield f"{change(totals, summary.currency)} a month of {hours} h"
    sources = [
        f"{words}: {shown}"
        for source, words in _SOURCES.items()
        if (shown := _bases([each for each in summary.origins if each.source == source]))
    ]
    annotated = sum(each.nodes for each in summary.origins if each.source == "annotation")
    sources += [f"annotation {HOURLY_PRICE}: {annotated:,}"] if annotated else []
    yield f"prices of {counted(summary.priced, 'node')} from the {'; from the '.join(sources)}"
    if summary.unpriced:
        goes = f", {summary.unpriced_removed:,} of which would go" if summary.unpriced_removed else ""
        yield f"{counted(summary.unpriced, 'node has', 'nodes have')} no price, so no sum counts them{goes}"


def _bases(origins: list[PriceOrigin]) -> str:
    shown = [f"{each.nodes:,} by {each.basis}" for each in origins[:BASES_SHOWN]]
    more = sum(each.nodes for each in origins[BASES_SHOWN:])
    return ", ".join([*shown, f"{more:,} by others"] if more else shown)


def origin(source: str, basis: str) -> str:
    """Return in words where a price comes from."""
    return f"{_SOURCES[source]} ({basis})" if source in _SOURCES else basis

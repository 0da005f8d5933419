"""The answer as a document, and its look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from tightship.cluster.pools import shown
from tightship.documents.amounts import cores, memory, percent
from tightship.documents.document import Generator, Head, Source
from tightship.documents.money import an_hour, money
from tightship.documents.presentation import (
    Block,
    Column,
    Grid,
    Printout,
    TextLine,
    View,
    figure,
    warning,
)
from tightship.fit.model import Alternative, Answer, Chosen, Fitted, Present
from tightship.objects.counting import counted
from tightship.objects.money import HOURS_PER_MONTH

BASES_SHOWN = 4
"""Most bases of prices that a line names."""


class FitDocument(Head, frozen=True, rename="camel", tag_field="kind", tag="FitDocument"):
    """What ``tightship fit`` prints."""

    fitted: Fitted
    warnings: tuple[str, ...] = ()


def fit_document(
    generator: Generator, source: Source, at: str, fitted: Fitted, warnings: tuple[str, ...] = ()
) -> FitDocument:
    """Return the document of *fitted*, judged *at* a time."""
    version: Literal["tightship.dev/v1"] = "tightship.dev/v1"
    return FitDocument(version, generator, source, at, fitted, warnings)


def _month(micros: int, currency: str) -> str:
    return money(micros * HOURS_PER_MONTH, currency)


def _printout(document: FitDocument) -> Printout:
    fitted = document.fitted
    blocks = [block for answer in fitted.answers for block in _blocks(answer, fitted)]
    return Printout((document.judged,), blocks=blocks, end=tuple(_end(document)))


def _blocks(answer: Answer, fitted: Fitted) -> Iterator[Block]:
    needs = f"{counted(answer.pods, 'pod')}, {cores(answer.cpu_milli)} cores, {memory(answer.memory_bytes)}"
    lines = [TextLine(f" {each}", sign="•") for each in answer.remarks]
    yield Block(f"Machines for {answer.told}: {needs}", lines, _grid(answer, fitted))
    for each in answer.alternatives:
        yield Block(f"{each.mode}:", list(_machines(each, fitted.currency)))


def _grid(answer: Answer, fitted: Fitted) -> Grid:
    present, found, currency = fitted.present, answer.alternatives, fitted.currency
    rows: list[Present | Alternative] = [present, *found]
    return Grid(
        (
            Column("TYPES", ["as it is", *(each.mode for each in found)]),
            Column("NODES", [f"{each.nodes:,}" for each in rows], ">"),
            Column("A MONTH", [_month(each.micros_per_hour, currency) for each in rows], ">"),
            Column("SPREAD", ["", *(_month(each.spread_micros_per_hour, currency) for each in found)], ">"),
            Column("AT LEAST", ["", *(_month(each.bound_micros_per_hour, currency) for each in found)], ">"),
            Column("SAVES", ["", *(_saves(each, present) for each in found)], ">"),
            Column("CPU", [percent(each.cpu) for each in rows], ">"),
            Column("MEMORY", [percent(each.memory) for each in rows], ">"),
            Column("UNPLACED", ["", *(f"{len(each.unplaced):,}" for each in found)], ">"),
        )
    )


def _saves(each: Alternative, present: Present) -> str:
    if not present.micros_per_hour:
        return "-"
    return percent(1 - each.micros_per_hour / present.micros_per_hour)


def _machines(each: Alternative, currency: str) -> Iterator[TextLine]:
    for chosen in each.machines:
        price = an_hour(chosen.micros_per_hour * HOURS_PER_MONTH, HOURS_PER_MONTH, currency)
        yield TextLine(f" {_named(chosen)}, {price} an hour each", sign="•")
    for why, count in Counter(each.unplaced.values()).most_common():
        names = [name for name, reason in each.unplaced.items() if reason == why]
        more = f" and {count - 3:,} more" if count > 3 else ""
        yield TextLine(f" {', '.join(names[:3])}{more}: {why}", sign="✗")
    if not each.machines and not each.unplaced:
        yield TextLine(" no machine: there is no pod to carry", sign="•")


def _named(chosen: Chosen) -> str:
    spot = " spot" if chosen.spot else ""
    zones = ", ".join(f"{count:,} in {zone}" for zone, count in chosen.zones.items() if zone)
    return f"{shown(chosen.pool)}: {chosen.count:,} x {chosen.type}{spot}{f' ({zones})' if zones else ''}"


def _end(document: FitDocument) -> Iterator[TextLine]:
    fitted = document.fitted
    found = [each for answer in fitted.answers for each in answer.alternatives]
    bases = list(dict.fromkeys(chosen.basis for each in found for chosen in each.machines))
    if bases:
        more = [f"{len(bases) - BASES_SHOWN:,} others"] if len(bases) > BASES_SHOWN else []
        yield figure("Prices", "; ".join([*bases[:BASES_SHOWN], *more]))
    solved = all(each.solved for each in found)
    yield figure(
        "At least", "proven by a linear program" if solved else "by volume alone: install tightship-cli[solver]"
    )
    yield figure("Spread", "a month if kube-scheduler, which spreads pods, chooses all nodes; else pods are packed")
    for why, count in fitted.left_alone.items():
        yield figure("Left alone", f"{counted(count, 'node')}: {why}")
    if fitted.present.unpriced:
        yield figure("Unpriced", f"{counted(fitted.present.unpriced, 'node')} as it is, in no sum")
    yield from map(warning, document.warnings)


FIT: View[FitDocument] = View(_printout)

"""What annotations would have done over the past: the table, and the page with pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hpa_scaler.backtest.document import FloorBacktest, HpaBacktest, Tested, VariantEntry, WorstMoment
from hpa_scaler.backtest.variants import BacktestResult, BacktestSetup, HpaPast
from tightship.documents.presentation import (
    Cell,
    Chart,
    Column,
    Entry,
    EntryList,
    Fact,
    Grid,
    GridShape,
    Page,
    Printout,
    Section,
    Series,
    Table,
    TextLine,
    Tone,
    View,
    figure,
    warning,
)
from tightship.objects.counting import counted
from tightship.objects.durations import format_duration
from tightship.objects.money import MICROS

_OPENED = 12


def backtest_printout(document: FloorBacktest) -> Printout:
    """Return a row for each HPA and set, and the totals of each set below."""
    rows = [(hpa, entry) for hpa in document.hpas for entry in hpa.sets]
    columns = [
        Column("HPA", [hpa.key for hpa, _ in rows]),
        Column("SET", [entry.name for _, entry in rows]),
        Column("REPLICA-HOURS", [f"{entry.replica_hours:,.0f}" for _, entry in rows], ">"),
    ]
    if document.currency is not None:
        columns.append(Column(document.currency, [_amount(entry.micros) for _, entry in rows], ">"))
    columns += [
        Column(
            "SHORT",
            [_minutes(entry) for _, entry in rows],
            ">",
            styles=["bad" if entry.short_minutes else "" for _, entry in rows],
        ),
        Column("WORST", [_worst_text(entry.worst) for _, entry in rows]),
        Column("FLOOR", [f"{entry.lowest_floor}..{entry.highest_floor}" for _, entry in rows]),
        Column("OUTAGES", [held_text(entry) for _, entry in rows]),
        Column("CAUTION", [_share(entry) for _, entry in rows], ">"),
    ]
    shapes = (
        GridShape(),
        GridShape(names=28),
        GridShape(("FLOOR",), names=28),
        GridShape(("FLOOR", "WORST"), names=24),
        GridShape(("FLOOR", "WORST", "CAUTION"), names=16),
        GridShape(("FLOOR", "WORST", "CAUTION", "OUTAGES"), names=12),
    )
    return Printout(_heading(document), Grid(columns, shapes), end=tuple(_totals(document)))


def _heading(document: FloorBacktest) -> tuple[str, ...]:
    price = f"; {document.price}" if document.price else ""
    result = (
        f"{document.begin} to {document.end}, a cycle every {document.interval_seconds} s, a pod is ready after "
        f"{document.pod_start_seconds} s{price}"
    )
    return (*document.heading, result)


def _totals(document: FloorBacktest) -> Iterator[TextLine]:
    for number, name in enumerate(document.sets):
        entries = [hpa.sets[number] for hpa in document.hpas]
        hours, short = sum(each.replica_hours for each in entries), sum(each.short_minutes or 0 for each in entries)
        money = "" if document.currency is None else f", {_amount(sum(each.micros or 0 for each in entries))} "
        money += document.currency or ""
        caution = sum(each.caution.total for each in entries)
        line = f"{name}: {hours:,.0f} replica-hours{money}, {counted(short, 'minute')} short of replicas"
        if entries and entries[0].kind != "none":
            line += f", {caution:,.0f} for caution"
        yield figure("Sets" if number == 0 else "", line)
    unknown = max((hpa.sets[0].unknown_minutes for hpa in document.hpas if hpa.sets), default=0)
    if unknown:
        yield figure(
            "Unknown", f"the traffic of up to {format_duration(unknown * 60)} is unknown and not judged", "why"
        )
    yield from map(warning, document.warnings)


def _amount(micros: int | None) -> str:
    return "-" if micros is None else f"{micros / MICROS:,.2f}"


def _minutes(entry: VariantEntry) -> str:
    return "?" if entry.short_minutes is None else f"{entry.short_minutes:,} min"


def _worst_text(worst: WorstMoment | None) -> str:
    return "-" if worst is None else f"{worst.ready} for {worst.needed:g} at {worst.at}"


def held_text(entry: VariantEntry) -> str:
    """Return through how many stretches without answers the floor held, ``-`` without any."""
    if entry.kind == "none" or not entry.held:
        return "-"
    kept = sum(each.held for each in entry.held)
    lowest = min((each.lowest for each in entry.held if not each.held), default=None)
    return f"held {kept} of {len(entry.held)}" + ("" if lowest is None else f", down to {lowest}")


def _share(entry: VariantEntry) -> str:
    return "-" if entry.kind == "none" else f"{entry.caution_share:.1%}"


def backtest_columns(document: FloorBacktest) -> Sequence[Column]:
    """Return the columns with every number."""
    rows = [(hpa, entry) for hpa in document.hpas for entry in hpa.sets]
    return (
        Column("NAMESPACE", [hpa.namespace for hpa, _ in rows]),
        Column("HPA", [hpa.name for hpa, _ in rows]),
        Column("SET", [entry.name for _, entry in rows]),
        Column("FLOOR-HOURS", [f"{entry.floor_hours:.1f}" for _, entry in rows], ">"),
        Column("REPLICA-HOURS", [f"{entry.replica_hours:.1f}" for _, entry in rows], ">"),
        Column("A WEEK", [f"{entry.replica_hours_a_week:.1f}" for _, entry in rows], ">"),
        Column("COST", [_amount(entry.micros) for _, entry in rows], ">"),
        Column("SHORT", [_minutes(entry) for _, entry in rows], ">"),
        Column("UNKNOWN", [f"{entry.unknown_minutes} min" for _, entry in rows], ">"),
        Column("WORST", [_worst_text(entry.worst) for _, entry in rows]),
        Column("FLOOR", [f"{entry.lowest_floor}..{entry.highest_floor}" for _, entry in rows]),
        Column("CHANGES", [f"{entry.floor_changes}" for _, entry in rows], ">"),
        Column("OUTAGES", [held_text(entry) for _, entry in rows]),
        Column("WINDOW", [f"{entry.caution.lowering_window:.1f}" for _, entry in rows], ">"),
        Column("COLD", [f"{entry.caution.cold_source:.1f}" for _, entry in rows], ">"),
        Column("OUTAGE", [f"{entry.caution.outage:.1f}" for _, entry in rows], ">"),
        Column("FORECAST", [f"{entry.caution.forecast:.1f}" for _, entry in rows], ">"),
        Column("OTHER", [f"{entry.caution.other:.1f}" for _, entry in rows], ">"),
        Column("CAUTION", [_share(entry) for _, entry in rows], ">"),
        Column("REASONS", [",".join(entry.reasons) for _, entry in rows], style="why"),
    )


def backtest_page(document: FloorBacktest, tested: Tested | None = None) -> Page:
    """Return the page of *document*; *tested* has the numbers for its pictures."""
    names = {past.hpa.key: number for number, past in enumerate(tested.pasts)} if tested is not None else {}

    def charts(hpa: HpaBacktest) -> Iterator[Section]:
        if tested is not None and (number := names[hpa.key]) < tested.setup.drawn:
            yield from _charts(tested.pasts[number], tested.result[number], tested.setup)

    return Page(
        title=f"{document.generator.name}: {counted(len(document.hpas), 'HPA')} over the past",
        subtitle=_heading(document),
        facts=tuple(_facts(document)),
        alerts=document.warnings,
        listing=EntryList(
            heading="HPAs",
            columns=("HPA", "Sets", "Replica-hours", "Short of replicas", "Over time"),
            keys=tuple(hpa.key for hpa in document.hpas),
            rows=lambda: (_row(hpa, tuple(charts(hpa)), opened=len(document.hpas) <= _OPENED) for hpa in document.hpas),
            states=(("short", "HPAs short of replicas today"), ("enough", "HPAs with enough replicas")),
            noun="HPA",
            hint="name or target",
            empty="No HPA has a usable past.",
        ),
    )


def _facts(document: FloorBacktest) -> Iterator[Fact]:
    for number, name in enumerate(document.sets):
        entries = [hpa.sets[number] for hpa in document.hpas]
        hours, short = sum(each.replica_hours for each in entries), sum(each.short_minutes or 0 for each in entries)
        cost = sum(each.micros or 0 for each in entries)
        money = "" if document.currency is None else f", {_amount(cost)} {document.currency}"
        tone: Tone = "bad" if short else "good"
        yield Fact(name, f"{hours:,.0f}", tone, f"replica-hours{money}, {short:,} min short")


def _row(hpa: HpaBacktest, charts: tuple[Section, ...], *, opened: bool) -> Entry:
    columns = ("Set", "Replica-hours", "A week", "Short", "Worst moment", "Floor", "Outages", "For caution")
    rows = tuple(
        (
            entry.name,
            Cell(f"{entry.replica_hours:,.1f}", number=True),
            Cell(f"{entry.replica_hours_a_week:,.1f}", number=True),
            Cell(_minutes(entry), "bad" if entry.short_minutes else "", number=True),
            _worst_text(entry.worst),
            f"{entry.lowest_floor} to {entry.highest_floor}",
            held_text(entry),
            Cell(_share(entry), number=True),
        )
        for entry in hpa.sets
    )
    first = hpa.sets[0]
    return Entry(
        key=hpa.key,
        state="short" if first.short_minutes else "enough",
        cells=(
            Cell(hpa.key, detail=hpa.target),
            Cell(f"{len(hpa.sets)}"),
            Cell("", lines=tuple(f"{each.name}: {each.replica_hours:,.0f}" for each in hpa.sets)),
            Cell("", lines=tuple(f"{each.name}: {_minutes(each)}" for each in hpa.sets)),
        ),
        summary=Cell("pictures and numbers"),
        details=(*charts, Section("Sets side by side", table=Table(columns, rows))),
        opened=opened,
    )


def _charts(past: HpaPast, row: Sequence[BacktestResult], setup: BacktestSetup) -> Iterator[Section]:
    """Yield a picture for each set: its floor and replicas against traffic, and the first set's floor."""
    times = tuple(setup.cycles())
    needs = tuple(past.need(at) for at in times)
    first = row[0]
    for result in row:
        series = [
            Series("what the traffic needs, in pods", "traffic", needs),
            Series(f"replicas ({result.variant.name})", "replicas", tuple(map(float, result.running)), step=True),
            Series(f"minReplicas ({result.variant.name})", "floor", tuple(map(float, result.floors)), step=True),
        ]
        if result is not first:
            series.append(
                Series(f"minReplicas ({first.variant.name})", "maximum", tuple(map(float, first.floors)), step=True)
            )
        label = f"{past.hpa.key}, {result.variant.name}: traffic, replicas and floors; the table below has the numbers"
        if times and not math.isnan(times[0]):
            yield Section(
                f"{result.variant.name}",
                chart=Chart(times, tuple(series), "pods", label, tuple(result.shorts), "short of replicas"),
            )


def backtest_view(tested: Tested) -> View[FloorBacktest]:
    """Return the view of a backtest with pictures."""
    return View(backtest_printout, backtest_columns, lambda document: backtest_page(document, tested))


BACKTEST = View(backtest_printout, backtest_columns, backtest_page)
"""The view of a document alone, without pictures."""

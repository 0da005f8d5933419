"""The annex's two documents for people: sets of annotations side by side, and suggestions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpa_scaler.backtest.fit import FloorSuggestions, HpaSuggestion, Replayed
from hpa_scaler.backtest.replay import FloorBacktest, Found, Replay, VariantEntry, WorstMoment
from hpa_scaler.documents.chart import Chart, Series, drawn
from tightship.documents.html.page import Page
from tightship.documents.presentation import Block, Column, Grid, GridShape, Printout, TextLine, View, figure, warning
from tightship.objects.counting import counted
from tightship.objects.money import MICROS
from tightship.objects.times import format_duration

_OPENED = 12
"""Up to so many HPAs, a page shows each one open."""
_SHAPES = (
    GridShape(),
    GridShape(names=28),
    GridShape(("FLOOR",), names=28),
    GridShape(("FLOOR", "WORST"), names=24),
    GridShape(("FLOOR", "WORST", "CAUTION"), names=16),
    GridShape(("FLOOR", "WORST", "CAUTION", "OUTAGES"), names=12),
)


def backtest_view(found: Found = ()) -> View[FloorBacktest]:
    """Return the view of a backtest; the replays *found* have the numbers for its pictures."""
    return View(_backtest_printout, _backtest_columns, lambda document: _backtest_page(document, found))


def _backtest_printout(document: FloorBacktest) -> Printout:
    """Return a row for each HPA and set, and the totals of each set below."""
    rows = [(hpa, entry) for hpa in document.hpas for entry in hpa.sets]
    entries = [entry for _, entry in rows]
    columns = [
        Column("HPA", [hpa.key for hpa, _ in rows]),
        Column("SET", [entry.name for entry in entries]),
        Column("REPLICA-HOURS", [f"{entry.replica_hours:,.0f}" for entry in entries], ">"),
        Column(document.currency or "", [_amount(entry.micros) for entry in entries], ">"),
        Column("SHORT", list(map(_short, entries)), ">", styles=["bad" if e.short_minutes else "" for e in entries]),
        Column("WORST", [_worst(entry.worst) for entry in entries]),
        Column("FLOOR", [f"{entry.lowest_floor}..{entry.highest_floor}" for entry in entries]),
        Column("OUTAGES", list(map(_outages, entries))),
        Column("CAUTION", list(map(_caution, entries)), ">"),
    ]
    grid = Grid([each for each in columns if each.title], _SHAPES)
    return Printout(_heading(document), grid, end=tuple(_totals(document)))


def _heading(document: FloorBacktest) -> tuple[str, ...]:
    price = f"; {document.price}" if document.price else ""
    result = (
        f"{document.begin} to {document.end}, a cycle every {document.interval_seconds} s, a pod is ready after "
        f"{document.pod_start_seconds} s{price}"
    )
    return (*document.heading, result)


def _totals(document: FloorBacktest) -> Iterator[TextLine]:
    for number, (name, hours, money, short) in enumerate(_sums(document)):
        entries = [hpa.sets[number] for hpa in document.hpas]
        line = f"{name}: {hours:,.0f} replica-hours{money}, {counted(short, 'minute')} short of replicas"
        if entries and entries[0].kind != "none":
            line += f", {sum(each.caution.total for each in entries):,.0f} for caution"
        yield figure("Sets" if number == 0 else "", line)
    unknown = max((hpa.sets[0].unknown_minutes for hpa in document.hpas if hpa.sets), default=0)
    if unknown:
        lasted = format_duration(unknown * 60)
        yield figure("Unknown", f"the traffic of up to {lasted} is unknown and not judged", "why")
    yield from map(warning, document.warnings)


def _sums(document: FloorBacktest) -> Iterator[tuple[str, float, str, int]]:
    """Yield the name of each set, its replica-hours, what they cost and its short minutes."""
    for number, name in enumerate(document.sets):
        entries = [hpa.sets[number] for hpa in document.hpas]
        cost = f", {_amount(sum(each.micros or 0 for each in entries))} {document.currency}"
        short = sum(each.short_minutes or 0 for each in entries)
        yield name, sum(each.replica_hours for each in entries), cost if document.currency is not None else "", short


def _amount(micros: int | None) -> str:
    return "-" if micros is None else f"{micros / MICROS:,.2f}"


def _short(entry: VariantEntry) -> str:
    return "?" if entry.short_minutes is None else f"{entry.short_minutes:,} min"


def _worst(worst: WorstMoment | None) -> str:
    return "-" if worst is None else f"{worst.ready} for {worst.needed:g} at {worst.at}"


def _outages(entry: VariantEntry) -> str:
    """Return through how many stretches without answers the floor held, ``-`` without any."""
    if entry.kind == "none" or not entry.held:
        return "-"
    lowered = [each.lowest for each in entry.held if not each.held]
    down = f", down to {min(lowered)}" if lowered else ""
    return f"held {len(entry.held) - len(lowered)} of {len(entry.held)}{down}"


def _caution(entry: VariantEntry) -> str:
    return "-" if entry.kind == "none" else f"{entry.caution_share:.1%}"


def _backtest_columns(document: FloorBacktest) -> Sequence[Column]:
    """Return the columns with every number."""
    hpas = [hpa for hpa in document.hpas for _ in hpa.sets]
    entries = [entry for hpa in document.hpas for entry in hpa.sets]
    return (
        Column("NAMESPACE", [hpa.namespace for hpa in hpas]),
        Column("HPA", [hpa.name for hpa in hpas]),
        Column("SET", [entry.name for entry in entries]),
        Column("FLOOR-HOURS", [f"{entry.floor_hours:.1f}" for entry in entries], ">"),
        Column("REPLICA-HOURS", [f"{entry.replica_hours:.1f}" for entry in entries], ">"),
        Column("A WEEK", [f"{entry.replica_hours_a_week:.1f}" for entry in entries], ">"),
        Column("COST", [_amount(entry.micros) for entry in entries], ">"),
        Column("SHORT", list(map(_short, entries)), ">"),
        Column("UNKNOWN", [f"{entry.unknown_minutes} min" for entry in entries], ">"),
        Column("WORST", [_worst(entry.worst) for entry in entries]),
        Column("FLOOR", [f"{entry.lowest_floor}..{entry.highest_floor}" for entry in entries]),
        Column("CHANGES", [f"{entry.floor_changes}" for entry in entries], ">"),
        Column("OUTAGES", list(map(_outages, entries))),
        Column("WINDOW", [f"{entry.caution.lowering_window:.1f}" for entry in entries], ">"),
        Column("COLD", [f"{entry.caution.cold_source:.1f}" for entry in entries], ">"),
        Column("OUTAGE", [f"{entry.caution.outage:.1f}" for entry in entries], ">"),
        Column("FORECAST", [f"{entry.caution.forecast:.1f}" for entry in entries], ">"),
        Column("OTHER", [f"{entry.caution.other:.1f}" for entry in entries], ">"),
        Column("CAUTION", list(map(_caution, entries)), ">"),
        Column("REASONS", [",".join(entry.reasons) for entry in entries], style="why"),
    )


def _backtest_page(document: FloorBacktest, found: Found) -> Page:
    pictures = dict(zip((hpa.key for hpa in document.hpas), found, strict=False))
    values = {
        "document": document,
        "heading": _heading(document),
        "sums": list(_sums(document)),
        "states": (("short", "HPAs short of replicas today"), ("enough", "HPAs with enough replicas")),
        "opened": len(document.hpas) <= _OPENED,
        "charts": lambda hpa: _charts(pictures.get(hpa.key, ())),
        "drawn": drawn,
        "minutes": _short,
        "worst": _worst,
        "outages": _outages,
        "share": _caution,
    }
    past = f"{counted(len(document.hpas), 'HPA')} over the past"
    title = f"{document.source.shown}: {past} · {document.generator.name}"
    return Page(title, "hpa_scaler.backtest/backtest.html", values, document.warnings)


def _charts(replays: Sequence[Replay]) -> Iterator[tuple[str, Chart]]:
    """Yield a picture for each set: its floor and replicas against traffic, and the first set's floor."""
    for replay in replays:
        if not replay.running:
            return
        past, name, first = replay.past, replay.variant.name, replays[0]
        times = tuple(replay.setup.cycles())
        series = [
            Series("what the traffic needs, in pods", "traffic", tuple(map(past.need, times))),
            Series(f"replicas ({name})", "replicas", tuple(map(float, replay.running)), step=True),
            Series(f"minReplicas ({name})", "floor", tuple(map(float, replay.floors)), step=True),
        ]
        if replay is not first:
            floors = tuple(map(float, first.floors))
            series.append(Series(f"minReplicas ({first.variant.name})", "maximum", floors, step=True))
        label = f"{past.hpa.key}, {name}: traffic, replicas and floors; the table below has the numbers"
        shorts = tuple(replay.shorts)
        yield name, Chart(times, tuple(series), "pods", label, shorts, "short of replicas")


def _suggestions_printout(document: FloorSuggestions) -> Printout:
    """Return everything about each HPA, one after the other."""
    suggested = sum(1 for each in document.hpas if each.annotations)
    end = figure("HPAs", f"{counted(len(document.hpas), 'HPA')}: {suggested} with a suggestion", "bold")
    blocks = [block for hpa in document.hpas for block in _blocks(hpa)]
    heading = (*document.heading, f"fitted to {document.begin} to {document.end}")
    return Printout(heading, blocks=blocks, end=[end, *map(warning, document.warnings)])


def _blocks(hpa: HpaSuggestion) -> Iterator[Block]:
    about = [TextLine(hpa.why, word=hpa.sure)]
    if hpa.query is not None:
        about.append(TextLine(f"{hpa.query}{'   (proposed: the HPA has none)' if hpa.proposed else ''}", "query  "))
    about += [TextLine(text, f"{when:<6} ") for when, text in _replays(hpa)]
    yield Block(f"HPA {hpa.key}", about)
    if hpa.annotations:
        lines = [TextLine(f"{_value(each.value)}   ({each.why})", f"{each.annotation}: ") for each in hpa.annotations]
        yield Block("Annotations", lines)
        yield Block("kubectl", [TextLine(hpa.kubectl or "", indent=0)])
        yield Block("Values, for a chart that takes annotations of its HPA here", _indented(hpa.values))
        yield Block("Kustomize", _indented(hpa.kustomize))


def _replays(hpa: HpaSuggestion) -> list[tuple[str, str]]:
    return [(when, _text(each)) for when, each in (("before", hpa.before), ("after", hpa.after)) if each is not None]


def _value(text: str | None) -> str:
    return "leave it out" if text is None else text


def _indented(text: str | None) -> list[TextLine]:
    return [TextLine(line.lstrip(), indent=len(line) - len(line.lstrip())) for line in (text or "").splitlines()]


def _text(each: Replayed) -> str:
    short = f"{counted(each.short_minutes, 'minute')} short of replicas"
    worst = "" if each.worst is None else f"; worst: {each.worst.ready} for {each.worst.needed} at {each.worst.at}"
    return f"{each.replica_hours_a_week:,.0f} replica-hours a week, {short}{worst}"


def _suggestions_columns(document: FloorSuggestions) -> Sequence[Column]:
    """Return the columns with every number."""
    hpas = document.hpas
    return (
        Column("NAMESPACE", [hpa.namespace for hpa in hpas]),
        Column("HPA", [hpa.name for hpa in hpas]),
        Column("SURE", [hpa.sure for hpa in hpas]),
        Column("PER REPLICA", list(map(_load, hpas)), ">"),
        Column("SPREAD", ["-" if hpa.spread is None else f"{hpa.spread:.1%}" for hpa in hpas], ">"),
        Column("BEFORE", ["-" if hpa.before is None else _text(hpa.before) for hpa in hpas]),
        Column("AFTER", ["-" if hpa.after is None else _text(hpa.after) for hpa in hpas]),
        Column("KUBECTL", [hpa.kubectl or "-" for hpa in hpas]),
        Column("WHY", [hpa.why for hpa in hpas], style="why"),
    )


def _load(hpa: HpaSuggestion) -> str:
    return "-" if hpa.per_replica is None else f"{hpa.per_replica:.4g}"


def _suggestions_page(document: FloorSuggestions) -> Page:
    values = {
        "document": document,
        "suggested": sum(1 for each in document.hpas if each.annotations),
        "states": (("suggested", "HPAs with a suggestion"), ("unknown", "HPAs whose past does not tell")),
        "change": _change,
        "replays": _replays,
    }
    title = f"{document.source.shown}: annotations for {counted(len(document.hpas), 'HPA')} · {document.generator.name}"
    return Page(title, "hpa_scaler.backtest/suggestions.html", values, document.warnings)


def _change(hpa: HpaSuggestion, field: str) -> str:
    """Return a number before and after the suggestion."""
    return " → ".join(f"{getattr(each, field):,.0f}" for each in (hpa.before, hpa.after) if each is not None) or "-"


SUGGESTIONS = View(_suggestions_printout, _suggestions_columns, _suggestions_page)
"""The view of suggestions."""

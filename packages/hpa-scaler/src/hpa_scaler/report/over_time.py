"""HPAs over time, for people: traffic, floor and replicas in one picture, and every change of a bound.

A running controller remembers the last day of each HPA; a replayed decision log has everything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from hpa_scaler.decide.cycle import DecisionLine, Replay
from hpa_scaler.decide.decision import FloorDecision
from hpa_scaler.report.story import Change, Story, Told, failed, reasons_of
from tightship.core.counting import counted
from tightship.core.times import rfc3339
from tightship.report.presentation import Cell, Chart, Entry, EntryList, Fact, Page, Section, Series, Table

OPENED = 12
"""Up to this number of HPAs, all charts are open from the beginning."""
CHANGES = 200
"""How many changes of an HPA are listed, the last ones."""
_FARTHEST = 3
"""The chart includes maxReplicas up to this many times the largest other number."""


class Lately(Struct, frozen=True):
    """A running controller's memory: *told* returns the story of an HPA by its key. *dry* marks a dry run."""

    since: float
    dry: bool
    told: Callable[[str], Told | None]

    def __str__(self) -> str:
        """Say how far back the story goes, and where to find more."""
        why = "it makes a dry run" if self.dry else "it leads"
        return (
            "An opened row has the HPA over time, a day back at most, as far as this process remembers: since "
            f"{rfc3339(self.since)} {why}. With --decision-log FILE all of it is kept, and hpa-scaler replay -o html "
            "FILE draws that."
        )


def over_time(told: Told, note: str = "") -> Iterator[Section]:
    """Yield the chart, if there are several points, and the changes, the latest first, with a *note* below."""
    if len(told.times) > 1:
        yield Section("Traffic, floor and replicas", chart=_chart(told))
    if told.changes:
        columns = ("At", "minReplicas", "maxReplicas", "Reasons")
        yield Section("Changes", note=note, table=Table(columns, tuple(map(_row, reversed(told.changes)))))


def _row(change: Change) -> tuple[Cell | str, ...]:
    same = change.before == change.after
    return (
        rfc3339(change.at),
        Cell(f"{change.after:,}" if same else f"{change.before:,} → {change.after:,}", number=True),
        Cell(f"{change.maximum:,}", number=True),
        ", ".join(change.reasons),
    )


def _chart(told: Told) -> Chart:
    would = " that would be set" if told.dry else ""
    series = [
        Series("what the queries ask for, in pods", "traffic", told.traffic),
        Series("replicas", "replicas", told.replicas, step=True),
        Series(f"minReplicas{would}", "floor", told.floors, step=True),
    ]
    most = max((value for each in series for value in each.values if value is not None), default=1.0)
    if max(told.maxima) <= _FARTHEST * most:
        series.append(Series(f"maxReplicas{would}", "maximum", told.maxima, step=True))
    begin, end = rfc3339(told.times[0]), rfc3339(told.times[-1])
    label = f"{told.key}: traffic, floor and replicas from {begin} to {end}; the tables below have the changes"
    return Chart(told.times, tuple(series), "pods", label)


class LogStory:
    """The story of a whole log, and how often each HPA had each reason, or no usable answer."""

    def __init__(self) -> None:
        self.story = Story()
        self.decisions: Counter[str] = Counter()
        self.unanswered: Counter[str] = Counter()
        self.reasons: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, line: DecisionLine, decision: FloorDecision) -> None:
        """Add the *decision* that the replay made from *line*."""
        key = decision.key
        self.story.add(line.now, line.hpa, decision, "would" if decision.dry_run else "set")
        self.decisions[key] += 1
        self.unanswered[key] += failed(decision)
        self.reasons[key].update(reasons_of(decision))


def replayed(found: Replay) -> str:
    """Return the result of a replay in one line."""
    unended = f", {found.unended} of them cut off" if found.unended else ""
    cycles = found.cycles + found.unended
    decisions, in_all = counted(found.decisions, "decision"), counted(cycles, "cycle")
    return f"{decisions} of {in_all}{unended}: {counted(len(found.differences), 'difference')}"


def replay_page(program: str, name: str, found: Replay, story: LogStory) -> Page:
    """Return the page of the decision log called *name*."""
    hpas = [each.told() for each in story.story.hpas.values()]
    times = [at for hpa in hpas for at in (hpa.times[0], hpa.times[-1])]
    span = f"from {rfc3339(min(times))} to {rfc3339(max(times))}" if times else "no decision"
    differing = len(found.differences)
    return Page(
        title=f"{program}: {counted(len(hpas), 'HPA')} over time",
        subtitle=(f"decision log {name}, {span}", replayed(found)),
        facts=(
            Fact("decisions", f"{found.decisions:,}"),
            Fact("differences", f"{differing:,}", "bad" if differing else "good", "repeated by this version"),
            Fact("changes", f"{sum(len(hpa.changes) for hpa in hpas):,}", detail="of bounds"),
            Fact("without an answer", f"{story.unanswered.total():,}", detail="decisions"),
        ),
        sections=tuple(_differences(found)),
        listing=EntryList(
            heading="HPAs",
            columns=("HPA", "Floors", "Changes", "Without an answer", "Over time"),
            keys=tuple(hpa.key for hpa in hpas),
            rows=lambda: (_entry(hpa, story, opened=len(hpas) <= OPENED) for hpa in hpas),
            states=(("moved", "HPAs whose bounds moved"), ("still", "HPAs whose bounds stayed")),
            noun="HPA",
            hint="name, target or reason",
            empty="The log has no decision.",
        ),
    )


def _differences(found: Replay) -> Iterator[Section]:
    if found.differences:
        rows = tuple(
            (Cell(f"{each.line:,}", number=True), each.about, each.logged, each.now) for each in found.differences
        )
        yield Section("Differences", table=Table(("Line", "About", "Logged", "Now"), rows))


def _entry(hpa: Told, story: LogStory, *, opened: bool) -> Entry:
    reasons = story.reasons[hpa.key]
    return Entry(
        key=hpa.key,
        state="moved" if hpa.changes else "still",
        cells=(
            Cell(hpa.key, detail=hpa.target),
            Cell(f"{min(hpa.floors):,} to {max(hpa.floors):,}, at last {hpa.floors[-1]:,}"),
            Cell(f"{len(hpa.changes):,}"),
            Cell(f"{story.unanswered[hpa.key]:,} of {counted(story.decisions[hpa.key], 'decision')}"),
        ),
        tags=tuple(reasons),
        summary=Cell("chart, changes and reasons"),
        details=tuple(_details(hpa, reasons)),
        opened=opened,
    )


def _details(hpa: Told, reasons: Counter[str]) -> Iterator[Section]:
    note = f"the last {CHANGES:,} of {len(hpa.changes):,}" if len(hpa.changes) > CHANGES else ""
    yield from over_time(msgspec.structs.replace(hpa, changes=hpa.changes[-CHANGES:]), note)
    counts = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    kinds = tuple((reason, Cell(f"{count:,}", number=True)) for reason, count in counts)
    yield Section("Reasons", table=Table(("Reason", "Decisions"), kinds))

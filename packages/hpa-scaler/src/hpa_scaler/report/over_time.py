"""One HPA over time, for people: traffic, floor and replicas in one picture, and every change of a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from hpa_scaler.report.story import Change, Told
from tightship.core.times import rfc3339
from tightship.report.html.model import Cell, Chart, Section, Series, Table

_FARTHEST = 3
"""How many times the largest other number maxReplicas may be for the chart to reach it."""


class Lately(Struct, frozen=True):
    """What a running controller remembers: *told* returns the story of an HPA by its key. *dry* marks a dry run."""

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
    """Return the picture and the changes, the latest first, with a *note* below these. A single point is no picture."""
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


__all__ = ["Lately", "over_time"]

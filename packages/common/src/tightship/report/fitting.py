"""Tables that fit their terminal: of several shapes the roomiest that leaves the reasons their room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tightship.report.columns import GAP, Column, total_width
from tightship.report.terminal import Terminal, length

WORDS_SHOWN = 3
"""Reasons a row of a table names at most."""

SHORTEST_NAME = 16
"""Columns below which names are never cut."""

_Shape = TypeVar("_Shape")


def fitted(
    shapes: Sequence[_Shape],
    columns_of: Callable[[_Shape], list[Column]],
    reasons: Sequence[Sequence[str]],
    terminal: Terminal,
) -> list[Column]:
    """Return the columns of the first of *shapes*, from roomy to narrow, that fits, and *reasons* as the last one.

    At least the first reason of each row has its room. Where even the narrowest shape leaves none, the first column,
    which has the names, is cut in its middle.
    """
    least = max((length(reason_words(each, 1)) for each in reasons), default=0)
    columns: list[Column] = []
    room = 0
    for shape in shapes:
        columns = columns_of(shape)
        if terminal.width is None:
            return [*columns, _reasons(reasons, terminal, None)]
        room = terminal.width - total_width(columns, headers=terminal.headers) - len(GAP)
        if room >= least:
            return [*columns, _reasons(reasons, terminal, room)]
    names = columns[0]
    width = max(SHORTEST_NAME, names.width(headers=terminal.headers) - (least - room))
    columns[0] = Column(names.title, [terminal.shorten(name, width) for name in names.cells], styles=names.styles)
    room = max(8, (terminal.width or 0) - total_width(columns, headers=terminal.headers) - len(GAP))
    return [*columns, _reasons(reasons, terminal, room)]


def reason_words(reasons: Sequence[str], most: int) -> str:
    """Return the first *most* of *reasons* and how many more there are."""
    more = len(reasons) - most
    return ", ".join(reasons[:most]) + (f" +{more}" if more > 0 else "")


def _reasons(reasons: Sequence[Sequence[str]], terminal: Terminal, room: int | None) -> Column:
    cells = []
    for each in reasons:
        choices = (reason_words(each, most) for most in range(WORDS_SHOWN, 0, -1))
        fitting = next((text for text in choices if room is None or length(text) <= room), None)
        cells.append(terminal.cut(reason_words(each, 1), room or 0) if fitting is None else fitting)
    return Column("REASONS", cells, styles=["why"] * len(cells))


__all__ = ["SHORTEST_NAME", "WORDS_SHOWN", "fitted", "reason_words"]

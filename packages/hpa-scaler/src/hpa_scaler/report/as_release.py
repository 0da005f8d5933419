"""The result of a release, as a table."""

from __future__ import annotations

from collections import Counter

from hpa_scaler.report.document import FloorRelease, Move, ReleaseEntry
from tightship.core.counting import counted
from tightship.report.columns import Column, lines
from tightship.report.terminal import Terminal, clean

_STYLES = {"restored": "go", "would-restore": "go", "refused": "bad", "failed": "bad"}


def render_release(release: FloorRelease, terminal: Terminal) -> str:
    """Return a line for each HPA, with the bounds left to others, and a summary unless headers are off."""
    hpas, arrow = release.hpas, terminal.sign("→", "->")
    body = lines(
        [
            Column("HPA", [clean(f"{hpa.namespace}/{hpa.name}") for hpa in hpas]),
            Column("MIN", [_move(hpa.minimum, arrow) for hpa in hpas]),
            Column("MAX", [_move(hpa.maximum, arrow) for hpa in hpas]),
            Column("OUTCOME", [hpa.outcome for hpa in hpas], styles=[_STYLES.get(hpa.outcome, "dim") for hpa in hpas]),
            Column("WHY", [clean(_why(hpa)) for hpa in hpas], styles=["why"] * len(hpas)),
        ],
        terminal,
    )
    if not terminal.headers:
        return "".join(f"{line}\n" for line in body)
    outcomes = Counter(hpa.outcome for hpa in hpas)
    numbers = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(outcomes.items())) or "none"
    rest = [
        f"{counted(len(hpas), 'HPA')}: {numbers}",
        *(terminal.paint(clean(text), "bad") for text in release.warnings),
    ]
    return "\n".join([*body, "", *rest]) + "\n"


def _move(move: Move, arrow: str) -> str:
    return str(move.now) if move.now == move.after else f"{move.now} {arrow} {move.after}"


def _why(hpa: ReleaseEntry) -> str:
    return hpa.detail or hpa.left


__all__ = ["render_release"]

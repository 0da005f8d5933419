"""``docs/pictures``: what ``plan -o html`` draws of examples, as files of their own, and the folders of the code."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

import node_compactor.controller
from tightship_charts.architecture import architecture
from tightship_charts.places import CHARTS
from tightship_simulator.generate import NOW, off_peak_cluster

DOCS = CHARTS.parent / "docs"
PICTURES = DOCS / "pictures"

_MAP = re.compile(r'<svg class="map"[^>]* viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>(.*?)</svg>', re.DOTALL)
_POOL = re.compile(r'<figcaption class="group"><b>(.*?)</b>(.*?)</figcaption>', re.DOTALL)
_PATTERNS = re.compile(r'<svg class="defs"[^>]*>(<defs>.*?</defs>)</svg>', re.DOTALL)
_STYLE = """
path{fill:none}.room{stroke:#e3e8ee}.cpu{stroke:#1f5fae}.memory{stroke:#b35c00}.limit{stroke:#17202b}.leaves{fill:#17202b}
.gone{fill:none;stroke:#76818d;stroke-dasharray:2.5 1.8}
.hatch-ground{fill:#fff}.hatch-cpu{fill:#1f5fae}.hatch-memory{fill:#b35c00}
.arrived.cpu{stroke:url(#hatch-cpu)}.arrived.memory{stroke:url(#hatch-memory)}
.card{fill:#fff}text{font:12px system-ui,sans-serif;fill:#17202b}.name{font-weight:bold}.soft{fill:#566270}
"""
_MARGIN, _NAME, _GAP, _HEAD = 14.0, 110.0, 40.0, 30.0
_LEGEND = (
    "left bar: CPU requested; right bar: memory; triangle: would go; hatched: arrived with its pods; line: limit of CPU"
)


def pictures() -> Iterator[tuple[Path, str]]:
    """Yield every picture and its text."""
    yield PICTURES / "architecture.svg", architecture()
    with tempfile.TemporaryDirectory() as folder:
        fleet = Path(folder) / "cluster.json"
        fleet.write_bytes(msgspec.json.encode(off_peak_cluster(7)))
        example = DOCS / "examples" / "four-nodes.yaml"
        small = [str(example), "--limit", "0.5", "--required-count", "0", "--now", "2026-11-01T00:00:00Z"]
        yield PICTURES / "four-nodes.svg", picture(_page(small))
        yield PICTURES / "four-nodes-until-stable.svg", picture(_page([*small, "--until-stable"]))
        yield PICTURES / "off-peak.svg", picture(_page([str(fleet), "--now", f"{NOW:%Y-%m-%dT%H:%M:%SZ}"]))


def picture(page: str) -> str:
    """Return the pools of a *page* that ``plan -o html`` has printed, before and after, as an SVG file."""
    maps, pools = _MAP.findall(page), _POOL.findall(page)
    wide = max(float(width) for width, _, _ in maps)
    after = _MARGIN + _NAME + wide + _GAP
    rows: list[str] = []
    top = _HEAD
    for (name, outcome), *sides in zip(pools, maps[::2], maps[1::2], strict=True):
        label = (f'<text class="name" y="14">{name}</text>', f'<text class="soft" y="30">{outcome}</text>')
        rows.append(f'<g transform="translate({_MARGIN:g} {top:g})">{"".join(label)}</g>')
        for x, (_, _, drawn) in zip((_MARGIN + _NAME, after), sides, strict=True):
            rows.append(f'<g transform="translate({x:g} {top:g})">{drawn}</g>')
        top += float(sides[0][1]) + 14
    rows.append(f'<text class="soft" x="{_MARGIN:g}" y="{top + 6:g}">{_LEGEND}</text>')
    return _file(after + wide + _MARGIN, top + 20, _heads(after), rows, page)


def _heads(after: float) -> str:
    places = (("before", _MARGIN + _NAME), ("after", after))
    return "".join(f'<text class="soft" x="{x:g}" y="20">{side}</text>' for side, x in places)


def _file(width: float, height: float, heads: str, rows: Sequence[str], page: str) -> str:
    width = max(width, 620.0)
    [patterns] = _PATTERNS.findall(page)
    [title] = re.findall(r"<title>(.*?)</title>", page)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
        f"<title>{title}</title>",
        f"<style>{escape(_STYLE)}</style>{patterns}",
        f'<rect class="card" width="{width:g}" height="{height:g}" rx="6"/>',
        heads,
        *rows,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _page(arguments: Sequence[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = node_compactor.controller.COMMANDS.command(["plan", "-o", "html", "-f", *arguments])
    if code != 0:
        raise RuntimeError(f"plan ended with {code}: {' '.join(arguments)}")
    return out.getvalue()


__all__ = ["PICTURES", "picture", "pictures"]

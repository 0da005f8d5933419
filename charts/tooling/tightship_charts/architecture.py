"""``docs/pictures/architecture.svg``: which folder imports which, read from the code."""

from __future__ import annotations

import tomllib
from xml.sax.saxutils import escape

import grimp

from tightship_charts.places import CHARTS

_ORDER = (
    ("hpa_scaler.cli", "the program, wired"),
    ("hpa_scaler.backtest", "annotations over the past"),
    ("hpa_scaler.forecast", "what queries ask for soon"),
    ("hpa_scaler.process", "cycles, settings, commands"),
    ("hpa_scaler.write", "bounds, Events and notes, written"),
    ("hpa_scaler.documents", "plans and explanations, printed"),
    ("hpa_scaler.judge", "where a floor goes, and why"),
    ("hpa_scaler.prometheus", "queries and their answers"),
    ("hpa_scaler.annotations", "what an HPA asks for"),
    ("node_compactor", "policy by pools"),
    ("node_refiner", "policy by excess nodes"),
    ("tightship.cli", "the commands"),
    ("tightship.nodes", "what both node controllers share"),
    ("tightship.landing", "led replacements: steering by hints"),
    ("tightship.deletion_costs", "costs on pods of nodes that go next"),
    ("tightship.advice", "what each blocker costs"),
    ("tightship.frontier", "what evictions buy"),
    ("tightship.fit", "which machine types would carry it"),
    ("tightship.search", "a search for better plans"),
    ("tightship.prices", "price lists, OpenCost, clouds"),
    ("tightship.process", "settings, logs, metrics, HTTP"),
    ("tightship.draining", "drains, carried out"),
    ("tightship.kube", "connection, watch cache, Leases"),
    ("tightship.documents", "documents and their formats"),
    ("tightship.drain", "the state machine of a drain"),
    ("tightship.planning", "plans, and their evaluation"),
    ("tightship.rules", "what may not go, and why"),
    ("tightship.scheduler", "the model of kube-scheduler"),
    ("tightship.cluster", "the snapshot and its state"),
    ("tightship.objects", "objects, quantities, reasons"),
)
_STYLE = """
text{font:12px system-ui,sans-serif;fill:#17202b}.name{font-weight:bold}.soft{fill:#566270}.card{fill:#fff}
.pure{fill:#dff0e3}.row{fill:#eef1f5}.self{fill:#c3ccd6}.cell{fill:#1f5fae}
"""
_LEFT, _TOP, _STEP = 450.0, 150.0, 32.0


def architecture() -> str:
    """Return the picture: a row for each folder, a column for each, a mark where the row imports from the column."""
    pure = _pure()
    size = len(_ORDER) * _STEP
    width, height = _LEFT + size + 70, _TOP + size + 46
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
        "<title>Which folder imports which: only those below it</title>",
        f"<style>{escape(_STYLE)}</style>",
        f'<rect class="card" width="{width:g}" height="{height:g}" rx="6"/>',
    ]
    for number, (name, what) in enumerate(_ORDER):
        x, y = _LEFT + number * _STEP, _TOP + number * _STEP
        kind = "pure" if name in pure else "row"
        drawn += [
            f'<rect class="{kind}" x="14" y="{y + 2:g}" width="{_LEFT - 24:g}" height="{_STEP - 4:g}" rx="4"/>',
            f'<text class="name" x="22" y="{y + 20:g}">{name}</text>',
            f'<text class="soft" x="196" y="{y + 20:g}">{escape(what)}</text>',
            f'<text transform="translate({x + 20:g} {_TOP - 8:g}) rotate(-60)">{name}</text>',
            f'<rect class="self" x="{x + 2:g}" y="{y + 2:g}" width="{_STEP - 4:g}" height="{_STEP - 4:g}"/>',
        ]
    places = {name: number for number, (name, _) in enumerate(_ORDER)}
    for importer, imported in sorted(_imports()):
        x, y = _LEFT + places[imported] * _STEP, _TOP + places[importer] * _STEP
        drawn.append(f'<rect class="cell" x="{x + 2:g}" y="{y + 2:g}" width="{_STEP - 4:g}" height="{_STEP - 4:g}"/>')
    legend = "a row imports from the folders that its blue cells name; green: pure"
    drawn += [f'<text class="soft" x="14" y="{height - 16:g}">{legend}</text>', "</svg>"]
    return "\n".join(drawn) + "\n"


def _pure() -> frozenset[str]:
    """Return the folders that import-linter keeps pure."""
    settings = tomllib.loads((CHARTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    [rule] = [each for each in settings["tool"]["importlinter"]["contracts"] if "is pure: no network" in each["name"]]
    return frozenset(rule["source_modules"])


def _imports() -> set[tuple[str, str]]:
    graph = grimp.build_graph("tightship", "node_compactor", "node_refiner", "hpa_scaler", cache_dir=None)
    imports = set()
    for module in graph.modules:
        importer = _folder(module)
        for each in graph.find_modules_directly_imported_by(module) if importer is not None else ():
            imported = _folder(each)
            if importer is not None and imported not in (None, importer):
                imports.add((importer, str(imported)))
    return imports


def _folder(module: str) -> str | None:
    """Return which folder of the picture *module* is in; a package's own file, which has its version, in none."""
    package, _, rest = module.partition(".")
    if package in ("node_compactor", "node_refiner"):
        return package
    if not rest:
        return None
    wired = package == "hpa_scaler" and "." not in rest and rest in ("__main__", "annexes", "cli", "running")
    return "hpa_scaler.cli" if wired else f"{package}.{rest.partition('.')[0]}"


__all__ = ["architecture"]

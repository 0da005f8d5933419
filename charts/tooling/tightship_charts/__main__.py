"""``python -m tightship_charts [--check]``: make what is generated anew, or say what would change."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tightship_charts.alerts import alert_file
from tightship_charts.dashboards import dashboard
from tightship_charts.documents import schemas
from tightship_charts.metrics import METRICS, metrics
from tightship_charts.pictures import pictures
from tightship_charts.places import CHARTS, CONTROLLERS, INSTALLABLE, LIBRARY
from tightship_charts.readme import readme
from tightship_charts.reasons import REASONS, reasons
from tightship_charts.reference import REFERENCE, reference
from tightship_charts.schema import schema_of
from tightship_charts.values import shared_defaults, values_file, values_text


def generated() -> Iterator[tuple[Path, str]]:
    """Yield every generated file and the text that belongs into it."""
    for chart in INSTALLABLE:
        folder = CHARTS / chart
        yield values_file(chart), values_text(chart)
        yield folder / "values.schema.json", pretty(schema_of(chart))
        if chart in CONTROLLERS:
            yield folder / "files" / "alerts.json", pretty(alert_file(chart))
        yield folder / "README.md", readme(chart)
        yield folder / "dashboards" / f"{chart}.json", pretty(dashboard(chart))
    yield CHARTS / LIBRARY / "templates" / "_defaults.tpl", shared_defaults()
    yield METRICS, metrics()
    yield REASONS, reasons()
    for path, schema in schemas():
        yield path, pretty(schema)
    yield REFERENCE, reference()
    yield from pictures()


def pretty(value: object) -> str:
    """Return JSON for people and for diffs."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def drifted() -> list[Path]:
    """Return the generated files that are not what they should be."""
    return [path for path, text in generated() if not path.exists() or path.read_text(encoding="utf-8") != text]


def main() -> int:
    """Write the files, or with ``--check`` name those that would change and return 1."""
    parser = argparse.ArgumentParser(prog="tightship_charts", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if something would change")
    check = parser.parse_args().check
    stale = drifted()
    for path in stale:
        sys.stderr.write(f"{path.relative_to(CHARTS.parent)}: {'is out of date: make charts' if check else 'made'}\n")
    if not check:
        for path, text in generated():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

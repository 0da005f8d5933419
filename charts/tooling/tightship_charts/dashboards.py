"""The dashboards of ``dashboards.yaml``, as Grafana reads them.

All go by the variables ``datasource``, ``namespace`` and ``job``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
import yaml
from msgspec import Struct

from tightship_charts.configuration import Json
from tightship_charts.places import TOOLING, UMBRELLA

WIDTH = 24
"""Columns of Grafana's grid."""

SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
_SELECTOR = 'namespace=~"$namespace",job=~"$job"'


class Panel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One panel. *queries* are expressions by their legend, *query* is the only one; *kind* is Grafana's type."""

    title: str
    queries: Mapping[str, str] = {}
    query: str = ""
    about: str = ""
    kind: Literal["timeseries", "stat", "bargauge"] = "timeseries"
    unit: str = "short"
    width: int = 0
    height: int = 0
    stacked: bool = False
    colors: Sequence[str] = ()
    maximum: float | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in cells of the grid."""
        usual = 4 if self.kind == "stat" else 8
        return self.width or usual, self.height or usual


class Dashboard(Struct, frozen=True, forbid_unknown_fields=True):
    """One dashboard: its *rows* by title, and which *controllers* (a regular expression) it is about.

    A row holds panels, and lists of panels that dashboards share.
    """

    controllers: str
    rows: Mapping[str, list[Any]]


DASHBOARDS: Mapping[str, Dashboard] = msgspec.convert(
    yaml.safe_load((TOOLING / "dashboards.yaml").read_text(encoding="utf-8"))["dashboards"], type=dict[str, Dashboard]
)
"""The dashboard of each chart."""


def dashboard(chart: str) -> Json:
    """Return the dashboard of *chart* as Grafana imports it."""
    described = DASHBOARDS[chart]
    title = "Tightship" if chart == UMBRELLA else f"Tightship: {chart}"
    return {
        "uid": f"tightship-{chart}" if chart != UMBRELLA else "tightship",
        "title": title,
        "tags": ["tightship"],
        "timezone": "browser",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "annotations": {"list": []},
        "links": [
            {"type": "dashboards", "title": "Tightship", "tags": ["tightship"], "asDropdown": True, "keepTime": True}
        ],
        "templating": {"list": _variables(described.controllers)},
        "panels": list(_placed(described.rows)),
    }


def _variables(controllers: str) -> list[Json]:
    builds = f'tightship_build_info{{controller=~"{controllers}"}}'
    found: list[Json] = [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
    for name, of in (("namespace", builds), ("job", builds.replace("}", ',namespace=~"$namespace"}'))):
        query = f"label_values({of}, {name})"
        found.append(
            {
                "name": name,
                "type": "query",
                "datasource": SOURCE,
                "query": {"query": query, "refId": name},
                "definition": query,
                "refresh": 2,
                "sort": 1,
                "multi": True,
                "includeAll": True,
                # A scrape may leave the label out.
                "allValue": ".*" if name == "namespace" else None,
                "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            }
        )
    return found


def _placed(rows: Mapping[str, list[Any]]) -> list[Json]:
    """Return all panels, each row of them from left to right, with what is too wide in the next line."""
    found: list[Json] = []
    top = 0
    for title, panels in rows.items():
        found.append(
            {
                "id": len(found) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top},
            }
        )
        top += 1
        left = tallest = 0
        for panel in _flat(panels):
            width, height = panel.size
            if left + width > WIDTH:
                top, left, tallest = top + tallest, 0, 0
            place = {"h": height, "w": width, "x": left, "y": top}
            found.append({"id": len(found) + 1, "gridPos": place, **_panel(panel)})
            left, tallest = left + width, max(tallest, height)
        top += tallest
    return found


def _flat(panels: list[Any]) -> Iterator[Panel]:
    for each in panels:
        if isinstance(each, list):
            yield from _flat(each)
        else:
            yield msgspec.convert(each, Panel)


def _panel(panel: Panel) -> Json:
    instant = panel.kind in {"stat", "bargauge"}
    defaults: Json = {"unit": panel.unit, "min": 0}
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if panel.colors:
        steps = [{"color": color, "value": value} for color, value in zip(panel.colors, (None, 1), strict=True)]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults["custom"] = {"fillOpacity": 30 if panel.stacked else 0, "stacking": stacking, "showPoints": "never"}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": expression.replace("SELECTOR", _SELECTOR),
                "legendFormat": legend or "__auto",
                "instant": instant,
                "range": not instant,
            }
            for number, (legend, expression) in enumerate((panel.queries or {"": panel.query}).items())
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
    }


def _options(panel: Panel) -> Json:
    calculated = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    match panel.kind:
        case "stat":
            return {"reduceOptions": calculated, "colorMode": "value", "graphMode": "none", "textMode": "value"}
        case "bargauge":
            return {"reduceOptions": calculated, "orientation": "horizontal", "displayMode": "basic"}
        case _:
            legend = {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}
            return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


__all__ = ["DASHBOARDS", "SOURCE", "WIDTH", "dashboard"]

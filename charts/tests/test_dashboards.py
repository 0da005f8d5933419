"""Dashboards and alerts ask for what the controllers really tell: every metric, every label, every value of a label."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product

import pytest
from prometheus_client import CollectorRegistry
from rendering import Render, each_chart

from hpa_scaler.judge.decision import Action
from hpa_scaler.judge.ownership import ENDINGS
from hpa_scaler.prometheus.client import CircuitState
from hpa_scaler.write.metrics import ScalerMetrics
from node_compactor.controller import CompactorMetrics
from node_refiner.controller import RefinerMetrics
from tightship.drain.answers import EvictionAnswer
from tightship.nodes.metrics import ConsolidationMetrics
from tightship.objects.drain_record import Ending
from tightship.objects.reasons import NODE_REASONS, Reason
from tightship.process.metrics import RunMetrics, new_registry
from tightship_charts.alerts import ALERTS
from tightship_charts.dashboards import DASHBOARDS, SOURCE, WIDTH, dashboard
from tightship_charts.matrix import ALL_APIS
from tightship_charts.places import CHARTS, CONTROLLERS, UMBRELLA

TARGET = frozenset({"namespace", "job", "pod", "container"})
"""Labels that a scrape puts on every series."""

VALUES: Mapping[str, frozenset[str]] = {
    "answer": frozenset(each.value for each in EvictionAnswer),
    "ending": frozenset(each.value for each in Ending),
    "action": frozenset(Action.__args__) | {"not-enabled"},  # type: ignore[attr-defined]
    "state": frozenset(CircuitState.__args__),  # type: ignore[attr-defined]
    "result": frozenset(ENDINGS),
    "reason": frozenset(
        each.value for each in {*Reason} - NODE_REASONS | {Reason.UNREADABLE, Reason.OTHER_INSTALLATION}
    ),
    "which": frozenset({"now", "wanted", "counted", "dropping"}),
    "outcome": frozenset({"answered"}),
}
"""What the labels of our series may be, where an expression names one."""

OWN: Mapping[str, Callable[[CollectorRegistry], object]] = {
    "node-compactor": CompactorMetrics,
    "node-refiner": RefinerMetrics,
    "hpa-scaler": ScalerMetrics,
}

SELECTOR = re.compile(r"([a-z_][a-z0-9_]*){([^}]*)}")
MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"')
GROUPED = re.compile(r"\bby \(([^)]*)\)")


@cache
def reported(controller: str) -> dict[str, frozenset[str]]:
    """Every series that a controller may have, with its labels."""
    registry = new_registry(controller)
    RunMetrics(registry).watch_cache(dict)
    if controller != "hpa-scaler":
        ConsolidationMetrics(registry, controller)
    OWN[controller](registry)
    found: dict[str, frozenset[str]] = {}
    for collector in list(registry._collector_to_names):
        for family in collector.collect():
            labels = getattr(collector, "_labelnames", None) or getattr(family, "_labelnames", ())
            if family.type == "histogram":
                found |= {f"{family.name}_{end}": frozenset({*labels, "le"}) for end in ("bucket", "sum", "count")}
            else:
                found[family.name + ("_total" if family.type == "counter" else "")] = frozenset(labels)
    return found


def told_to(chart: str) -> dict[str, frozenset[str]]:
    every = CONTROLLERS if chart == UMBRELLA else (chart,)
    return {name: labels for controller in every for name, labels in reported(controller).items()}


def wrong(expression: str, known: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Yield what an expression asks for in vain."""
    asked = SELECTOR.findall(expression)
    if not asked:
        yield "asks for no series"
    labels: set[str] = set(TARGET)
    for metric, matchers in asked:
        if metric not in known:
            yield f"{metric}: no such metric"
            continue
        labels |= known[metric]
        for label, value in MATCHER.findall(matchers):
            if label not in known[metric] | TARGET:
                yield f"{metric}: has no label {label}"
            elif label in VALUES and label in known[metric]:
                yield from (f"{label}={each}" for each in value.split("|") if each not in VALUES[label])
    for group in GROUPED.findall(expression):
        yield from (f"by {each}" for each in re.split(r",\s*", group) if each not in labels)


PANELS = [(chart, panel) for chart in DASHBOARDS for panel in dashboard(chart)["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("chart", DASHBOARDS)
def test_a_panel_asks_for_what_there_is(chart: str) -> None:
    for target in [target for name, panel in PANELS if name == chart for target in panel["targets"]]:
        assert list(wrong(target["expr"], told_to(chart))) == [], target["expr"]
        legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        grouped = {each for group in GROUPED.findall(target["expr"]) for each in re.split(r",\s*", group)} - {"le"}
        # An aggregation keeps nothing but what it groups by.
        assert legend <= (grouped or TARGET), target["expr"]
        assert target["datasource"] == SOURCE


@each_chart
def test_an_alert_asks_for_what_there_is(chart: str) -> None:
    for alert in ALERTS[chart]:
        expression = alert.expr.replace("SELECTOR", 'namespace="ns",container="c"')
        assert list(wrong(expression, reported(chart))) == [], alert.name


def test_what_does_not_exist_would_be_noticed() -> None:
    known = reported("hpa-scaler")
    assert list(wrong('sum(tightship_hpas{action="hold"})', known)) == []
    assert list(wrong('sum(tightship_hpaz{action="hold"})', known)) == ["tightship_hpaz: no such metric"]
    assert list(wrong('sum(tightship_hpas{pool="a"})', known)) == ["tightship_hpas: has no label pool"]
    assert list(wrong('sum(tightship_hpas{action="holt"})', known)) == ["action=holt"]
    assert list(wrong("sum by (pool) (tightship_hpas{})", known)) == ["by pool"]
    assert list(wrong("vector(1)", known)) == ["asks for no series"]


@pytest.mark.parametrize("chart", sorted(DASHBOARDS))
def test_a_dashboard_is_one_that_grafana_takes(chart: str) -> None:
    board = json.loads((CHARTS / chart / "dashboards" / f"{chart}.json").read_text(encoding="utf-8"))
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= board.keys()
    assert "id" not in board  # which is the importing Grafana's to give
    assert board["uid"] == (chart if chart == UMBRELLA else f"tightship-{chart}")
    assert len(board["uid"]) <= 40
    assert [each["name"] for each in board["templating"]["list"]] == ["datasource", "namespace", "job"]
    rows = [each["title"] for each in board["panels"] if each["type"] == "row"]
    assert rows == ["Outcome", "Why not", "Safety", "Health"]
    ids = [each["id"] for each in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        columns, lines = (range(place[at], place[at] + place[size]) for at, size in ("xw", "yh"))
        cells = set(product(columns, lines))
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["type"] in {"stat", "timeseries", "bargauge"}
            assert panel["datasource"] == SOURCE
            references = [each["refId"] for each in panel["targets"]]
            assert references
            assert len(set(references)) == len(references)


@pytest.mark.parametrize("chart", [*CONTROLLERS, UMBRELLA])
def test_the_side_car_and_the_operator_get_the_dashboard_as_it_is(render: Render, chart: str) -> None:
    on = {"grafanaDashboard": {"enabled": True, "folder": "Tightship", "operator": {"enabled": True}}}
    rendered = render(chart, on, apis=ALL_APIS)
    [held] = [each for each in rendered.of("ConfigMap") if each["metadata"]["name"].endswith("-dashboard")]
    assert json.loads(held["data"][f"{chart}.json"]) == dashboard(chart)
    assert held["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert held["metadata"]["annotations"] == {"grafana_folder": "Tightship"}
    operator = rendered.one("GrafanaDashboard")
    assert operator["spec"]["configMapRef"] == {"name": held["metadata"]["name"], "key": f"{chart}.json"}

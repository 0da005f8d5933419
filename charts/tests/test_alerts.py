"""Each alert, as the chart renders it, in promtool: it fires when it should, and at no other time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct
from rendering import Json, Render, each_chart

from tightship_charts.alerts import ALERTS
from tightship_charts.dashboards import DASHBOARDS, dashboard
from tightship_charts.matrix import APIS, Values
from tightship_charts.places import CHARTS, CONTROLLERS
from tightship_e2e import binaries
from tightship_e2e.helm import HelmError, run
from tightship_e2e.plugin import require_programs

ON: Values = {"dryRun": False, "prometheusRule": {"enabled": True, "runbookUrl": "https://runbooks.example.com/alerts"}}
DOCS = CHARTS.parent / "docs" / "alerts.md"

Series = Mapping[str, str]
"""Values each minute, in promtool's notation, by metric and labels; those of the target are put in."""


class Case(Struct, frozen=True):
    """Series with which an alert fires after *after*, and with which it does not; what it then says of them."""

    fires: Series
    quiet: tuple[Series, ...]
    after: str
    labels: Mapping[str, str] = {}
    value: str = ""


CASES: Mapping[str, Case] = {
    "Down": Case({}, ({"tightship_build_info": "1x40"}, {"tightship_build_info": "1 1 _x8 1x30"}), "20m"),
    "NoLeader": Case(
        {'tightship_leader{pod="a"}': "0x40", 'tightship_leader{pod="b"}': "0x40"},
        ({'tightship_leader{pod="a"}': "0x40", 'tightship_leader{pod="b"}': "1x40"},),
        "15m",
    ),
    "SeveralLeaders": Case(
        {'tightship_leader{pod="a"}': "1x40", 'tightship_leader{pod="b"}': "1x40"},
        (
            {'tightship_leader{pod="a"}': "1x40", 'tightship_leader{pod="b"}': "0x40"},
            {'tightship_leader{pod="a"}': "1x3 0x40", 'tightship_leader{pod="b"}': "0x2 1x40"},
        ),
        "10m",
        value="2",
    ),
    "LoopStuck": Case(
        {"tightship_loop_age_seconds": "1200x40"},
        ({"tightship_loop_age_seconds": "600x40"}, {"tightship_loop_age_seconds": "10x15 1200x3 10x40"}),
        "20m",
        value="20m 0s",
    ),
    "PassesFail": Case(
        {"tightship_loop_failures_total": "0+1x60"},
        ({"tightship_loop_failures_total": "0x10 1x60"},),
        "50m",
        value="30",
    ),
    "ConfigInvalid": Case({"tightship_config_valid": "1x5 0x40"}, ({"tightship_config_valid": "1x40"},), "20m"),
    "ApiSilent": Case(
        {'tightship_cache_age_seconds{kind="Node"}': "900x40", 'tightship_cache_age_seconds{kind="Pod"}': "30x40"},
        ({'tightship_cache_age_seconds{kind="Node"}': "60x40"},),
        "20m",
        {"kind": "Node"},
        "15m 0s",
    ),
    "ClusterUnhealthy": Case(
        {"tightship_cluster_unhealthy": "1x90"},
        ({"tightship_cluster_unhealthy": "0x90"}, {"tightship_cluster_unhealthy": "1x40 0x5 1x40"}),
        "80m",
    ),
    "DrainTooLong": Case(
        {"tightship_drain_oldest_seconds": "9000x40"},
        ({"tightship_drain_oldest_seconds": "5400x40"}, {"tightship_drain_oldest_seconds": "0x40"}),
        "20m",
        value="2h 30m 0s",
    ),
    "DrainsGivenBack": Case(
        {'tightship_drains_total{ending="restored"}': "0+1x400"},
        (
            {'tightship_drains_total{ending="handed_over"}': "0+1x400"},
            {'tightship_drains_total{ending="restored"}': "0x100 1x100 2x200"},
        ),
        "366m",
        value="360",
    ),
    "EvictionsImpossible": Case(
        {'tightship_evictions_total{answer="multiple_budgets"}': "0+1x90"},
        (
            {'tightship_evictions_total{answer="budget"}': "0+1x90"},
            {'tightship_evictions_total{answer="forbidden"}': "3x90"},
        ),
        "70m",
        {"answer": "multiple_budgets"},
    ),
    "CorrelatedDrop": Case(
        {"tightship_hpa_correlated_drop": "1x40"}, ({"tightship_hpa_correlated_drop": "0x40"},), "10m"
    ),
    "QueriesFail": Case(
        {
            'tightship_hpa_queries_total{server="default",outcome="TimedOut"}': "0+3x60",
            'tightship_hpa_queries_total{server="default",outcome="answered"}': "0+1x60",
        },
        (
            {
                'tightship_hpa_queries_total{server="default",outcome="TimedOut"}': "0+1x60",
                'tightship_hpa_queries_total{server="default",outcome="answered"}': "0+3x60",
            },
        ),
        "40m",
        {"server": "default"},
        "75%",
    ),
    "WritesFail": Case(
        {'tightship_hpa_writes_total{result="refused"}': "0+1x60"},
        ({'tightship_hpa_writes_total{result="written"}': "0+9x60"},),
        "50m",
        value="30",
    ),
    "SetBackByOthers": Case(
        {"tightship_hpa_changed_by_others_total": "0+1x90"},
        ({"tightship_hpa_changed_by_others_total": "0x30 1x60"},),
        "80m",
        value="60",
    ),
    "InvalidAnnotations": Case(
        {'tightship_hpas_by_reason{reason="InvalidAnnotation"}': "2x60"},
        ({'tightship_hpas_by_reason{reason="Deadband"}': "2x60"},),
        "40m",
        value="2",
    ),
}
"""A case for every alert, by its name without the controller."""

EACH = [(chart, alert.name) for chart in CONTROLLERS for alert in ALERTS[chart]]
TEMPLATE = re.compile(r"{{ \$(value|labels\.(\w+))[^}]*}}")


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own tester of rules."""
    require_programs("promtool")
    return binaries.find("promtool")["promtool"]


def rules_of(render: Render, chart: str, values: Values | None = None) -> dict[str, Json]:
    rule = render(chart, values or ON, apis=APIS).one("PrometheusRule")
    [group] = rule["spec"]["groups"]
    return {each["alert"]: each for each in group["rules"]}


def series(chart: str, given: Series) -> list[Json]:
    """The series of a test, each with the labels that a scrape gives it, and one of another controller."""
    target = f'namespace="ns",container="{chart}"'
    found = []
    for name, values in given.items():
        metric, _, labels = name.partition("{")
        both = ",".join(each for each in (target, labels.rstrip("}")) if each)
        found.append({"series": f"{metric}{{{both}}}", "values": values})
    return found or [{"series": 'tightship_build_info{namespace="ns",container="another"}', "values": "1x40"}]


def write_rules(file: Path, rules: list[Json]) -> None:
    file.write_bytes(msgspec.yaml.encode({"groups": [{"name": "g", "rules": rules}]}))


def expected(rule: Json, case: Case) -> Json:
    """The alert as promtool has to see it."""

    def said(text: str) -> str:
        return TEMPLATE.sub(lambda found: case.labels[found[2]] if found[2] else case.value, text)

    absent = {"namespace": "ns", "container": rule["labels"]["controller"]} if "absent(" in rule["expr"] else {}
    return {
        "exp_labels": {**rule["labels"], **case.labels, **absent},
        "exp_annotations": {key: said(text) for key, text in rule["annotations"].items()},
    }


@pytest.mark.takes(3)
@each_chart
def test_every_alert_fires_when_it_should_and_at_no_other_time(
    render: Render, promtool: Path, tmp_path: Path, chart: str
) -> None:
    rules = rules_of(render, chart)
    (tmp_path / "rules.yaml").write_bytes(
        msgspec.yaml.encode({"groups": [{"name": "g", "rules": list(rules.values())}]})
    )
    tests = []
    for alert in ALERTS[chart]:
        case, name = CASES[alert.name], alert.named(chart)
        for given, fires in ((case.fires, True), *((quiet, False) for quiet in case.quiet)):
            wanted = [expected(rules[name], case)] if fires else []
            check = {"eval_time": case.after, "alertname": name, "exp_alerts": wanted}
            tests.append({"interval": "1m", "input_series": series(chart, given), "alert_rule_test": [check]})
    (tmp_path / "tests.yaml").write_bytes(msgspec.yaml.encode({"rule_files": ["rules.yaml"], "tests": tests}))
    run([str(promtool), "test", "rules", str(tmp_path / "tests.yaml")], b"", {})


@pytest.mark.parametrize("chart", sorted(DASHBOARDS))
def test_promtool_reads_every_expression_of_a_dashboard(promtool: Path, tmp_path: Path, chart: str) -> None:
    targets = [target for panel in dashboard(chart)["panels"] for target in panel.get("targets", [])]
    plain = [re.sub(r"\$__range", "1h", each["expr"]) for each in targets]
    records = [{"record": f"panel_{number}", "expr": each} for number, each in enumerate(plain)]
    write_rules(tmp_path / "rules.yaml", records)
    run([str(promtool), "check", "rules", str(tmp_path / "rules.yaml")], b"", {})


@pytest.mark.parametrize(("chart", "name"), EACH, ids=[f"{chart}-{name}" for chart, name in EACH])
def test_every_alert_has_a_runbook(chart: str, name: str) -> None:
    assert chart in ALERTS
    assert f"## {name}\n" in DOCS.read_text(encoding="utf-8")


@each_chart
def test_an_alert_can_be_switched_off_and_changed(render: Render, chart: str) -> None:
    down, stuck, invalid = (
        next(each.named(chart) for each in ALERTS[chart] if each.name == name)
        for name in ("Down", "LoopStuck", "ConfigInvalid")
    )
    own = {down: {"enabled": False}, stuck: {"threshold": 77, "for": "1h", "severity": "info"}}
    rules = rules_of(render, chart, {"prometheusRule": {"enabled": True, "alerts": own, "selector": 'a="b"'}})
    assert down not in rules
    assert rules[stuck]["expr"] == 'max(tightship_loop_age_seconds{a="b"}) > 77'
    assert (rules[stuck]["for"], rules[stuck]["labels"]["severity"]) == ("1h", "info")
    assert rules[invalid]["labels"]["severity"] == "warning"


@each_chart
def test_a_long_interval_is_no_alert(render: Render, chart: str) -> None:
    rules = rules_of(render, chart, {"prometheusRule": {"enabled": True}, "interval": "1h"})
    [stuck] = [rule for name, rule in rules.items() if name.endswith("LoopStuck")]
    assert stuck["expr"].endswith("> 10800")


@each_chart
@pytest.mark.parametrize("values", [{"dryRun": True}, {"dryRun": False, "leaderElection": {"enabled": False}}])
def test_where_nothing_is_to_lead_no_alert_asks_for_a_leader(render: Render, chart: str, values: Values) -> None:
    rules = rules_of(render, chart, {**values, "prometheusRule": {"enabled": True}})
    assert not [name for name in rules if name.endswith(("Leader", "Leaders"))]
    assert [name for name in rules_of(render, chart) if name.endswith("NoLeader")]


def test_an_alert_that_does_not_exist_is_refused_by_name(render: Render) -> None:
    with pytest.raises(HelmError, match=r"alerts.Nonsense: no such alert; there are NodeCompactorDown"):
        rules_of(render, "node-compactor", {"prometheusRule": {"enabled": True, "alerts": {"Nonsense": {}}}})

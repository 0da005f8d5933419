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
from tightship_charts.matrix import ALL_APIS, Values
from tightship_charts.places import CHARTS
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


CASES = msgspec.yaml.decode((Path(__file__).parent / "alerts.yaml").read_bytes(), type=dict[str, Case])
"""A case for every alert, by its name without the controller."""

TEMPLATE = re.compile(r"{{ \$(value|labels\.(\w+))[^}]*}}")


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own tester of rules."""
    require_programs("promtool")
    return binaries.find("promtool")["promtool"]


def rules_of(render: Render, chart: str, values: Values | None = None) -> dict[str, Json]:
    rule = render(chart, values or ON, apis=ALL_APIS).one("PrometheusRule")
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
    write_rules(tmp_path / "rules.yaml", list(rules.values()))
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


def test_every_alert_has_a_runbook() -> None:
    pages = DOCS.read_text(encoding="utf-8")
    assert [each.name for alerts in ALERTS.values() for each in alerts if f"## {each.name}\n" not in pages] == []


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

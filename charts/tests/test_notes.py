"""What a person reads after an installation, and what ``helm test`` starts."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Protocol

import pytest
from rendering import each_chart, each_node_chart

from tightship_charts.matrix import Values, everything
from tightship_charts.places import CONTROLLERS, UMBRELLA
from tightship_e2e.helm import Helm, objects

NOTHING: Values = {"global": {"apiVersions": ["v1/Pod"]}}
"""As in a cluster that serves no kind of another project: a dry run of the client asks no cluster."""


class Notes(Protocol):
    """Returns the notes of a chart that is installed with values."""

    def __call__(self, chart: str, values: Values | None = None) -> str: ...


@pytest.fixture
def notes(helm: Helm, charts: Path) -> Notes:
    def said(chart: str, values: Values | None = None) -> str:
        flags = ("--namespace", "ns", "--dry-run=client")
        return helm("install", "rel", charts / chart, *flags, values=values or {}).partition("NOTES:\n")[2]

    return said


@each_chart
def test_they_say_what_is_live_how_to_watch_it_and_how_to_leave(notes: Notes, chart: str) -> None:
    dry, live = notes(chart, {"dryRun": True}), notes(chart, {"dryRun": False})
    assert f"{chart} 0.1.0: DRY RUN." in dry
    assert "An uninstall " not in dry
    assert f"{chart} 0.1.0: LIVE." in live
    assert "dryRun" not in live
    assert "An uninstall " in live
    commands = [line.strip() for line in live.splitlines() if line.startswith("  kubectl ")]
    assert [line.split()[3] for line in commands] == ["logs", "exec", "port-forward"]
    assert all(f"/rel-{chart}" in line for line in commands)


@pytest.mark.parametrize("chart", [*CONTROLLERS, UMBRELLA])
def test_a_dry_run_leads_to_one_pool_and_never_to_everything_at_once(notes: Notes, chart: str) -> None:
    dry, live = (notes(chart, {"global": {"dryRun": each}}) for each in (True, False))
    assert dry.count("five-steps/#4-let-it-drain-one-pool") == 1
    assert "dryRun=false" not in dry
    assert "five-steps" not in live


def test_under_an_alias_values_are_named_as_the_parent_has_to_write_them(
    helm: Helm, charts: Path, tmp_path: Path
) -> None:
    alias = {"name": "node-refiner", "alias": "packer", "version": "0.1.0", "repository": ""}
    parent = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [alias]}
    (tmp_path / "Chart.yaml").write_text(json.dumps(parent))
    shutil.copytree(charts / "node-refiner", tmp_path / "charts" / "node-refiner")
    flags = ("--namespace", "ns", "--dry-run=client", "--render-subchart-notes")
    said = helm("install", "rel", tmp_path, *flags, values={"packer": {"dryRun": False}})
    assert "(packer.config.enabled=false)" in said


@each_node_chart
def test_those_of_a_controller_of_nodes_say_what_ends_a_drain_that_an_uninstall_has_left(
    notes: Notes, chart: str
) -> None:
    assert "A Job then gives the nodes back, and Helm waits for the Job" in notes(chart, {"dryRun": False})
    said = notes(chart, {"dryRun": False, "giveBack": {"enabled": False}})
    assert "install the controller again with that value" in said


def test_values_that_they_name_are_those_of_the_chart_that_is_installed(notes: Notes) -> None:
    assert "(config.enabled=false)" in notes("node-refiner", {"dryRun": False})
    assert "(config.nodePools.NAME.enabled=false)" in notes("node-compactor", {"dryRun": False})
    said = notes(UMBRELLA, {"global": {"dryRun": False}})
    assert "(node-refiner.config.enabled=false)" in said
    assert "(node-compactor.config.nodePools.NAME.enabled=false)" in said
    assert "Enable pools in node-compactor.config.nodePools." in said
    assert "Set hpa-scaler.prometheusServerUrl," in said


def test_what_could_not_be_made_is_named_as_it_was_asked_for(notes: Notes) -> None:
    said = notes(UMBRELLA, {"hpa-scaler": {"serviceMonitor": {"enabled": True}}, **NOTHING})
    assert "WARNING: hpa-scaler.serviceMonitor.enabled is true" in said


def test_those_of_all_speak_of_each_that_is_installed(notes: Notes) -> None:
    said = notes(UMBRELLA, {"node-refiner": {"enabled": False}, "node-compactor": {"dryRun": False}})
    assert "node-compactor 0.1.0: LIVE." in said
    assert "hpa-scaler 0.1.0: DRY RUN." in said
    assert "node-refiner" not in said


@each_chart
def test_they_warn_of_what_was_asked_for_and_could_not_be_made(notes: Notes, chart: str) -> None:
    said = notes(chart, {**everything(chart), **NOTHING})
    for key in ("serviceMonitor", "prometheusRule", "verticalPodAutoscaler", "grafanaDashboard.operator"):
        assert f"WARNING: {key}.enabled is true, but this cluster does not serve" in said
    assert "WARNING" not in notes(chart)


@pytest.mark.parametrize(
    ("chart", "values", "said"),
    [
        ("node-compactor", {}, "No pool is enabled; the dry run shows what would be possible in every pool."),
        ("node-compactor", {"dryRun": False}, "No pool is enabled, so the controller drains nothing."),
        (
            "node-compactor",
            {"config": {"nodePools": {"a": {"enabled": True}}}},
            "would drain underutilized nodes of",
        ),
        ("node-compactor", {"configMap": {"create": False, "name": "own"}}, "in the ConfigMap own"),
        ("node-refiner", {"config": {"excessNodesThreshold": 3}}, "excess nodes is 3 or more."),
        (
            "node-refiner",
            {"config": {"enabled": False}},
            "config.enabled is false, so the controller drains nothing",
        ),
        ("hpa-scaler", {}, "No default Prometheus is set"),
        ("hpa-scaler", {"annotationPrefix": "example.com"}, 'example.com/hpa-scaler: "true"'),
    ],
)
def test_they_say_what_the_values_come_to(notes: Notes, chart: str, values: Values, said: str) -> None:
    assert said in notes(chart, values)


@each_chart
def test_the_test_of_a_chart_has_no_token_and_nothing_selects_its_pod(helm: Helm, charts: Path, chart: str) -> None:
    rendered = objects(helm("template", "rel", charts / chart, "--namespace", "ns", values=everything(chart)))
    [pod] = [each for each in rendered if each["kind"] == "Pod"]
    [deployment] = [each for each in rendered if each["kind"] == "Deployment"]
    [service] = [each for each in rendered if each["kind"] == "Service"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod["spec"]
    labels = pod["metadata"]["labels"].items()
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == chart
    assert not deployment["spec"]["selector"]["matchLabels"].items() <= labels
    ours = deployment["spec"]["template"]["spec"]["containers"][0]
    [container] = pod["spec"]["containers"]
    assert container["image"] == ours["image"]
    assert container["securityContext"] == ours["securityContext"]
    target = f"https://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert {"name": "TARGET", "value": target} in container["env"]
    ast.parse(container["args"][0])

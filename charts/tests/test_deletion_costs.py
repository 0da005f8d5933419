"""What the charts install for deletion costs on pods, where, and with which rights."""

from __future__ import annotations

import pytest
from rendering import Json, Render, Rendered, each_node_chart

from tightship_charts.matrix import FENCE, Values
from tightship_e2e.helm import Helm

PATCH = ("patch", "pods")
ALONE: Values = {"dryRun": False, "admissionPolicy": {"enabled": False}}
"""Without the policies on other objects."""
KINDS = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
COST, MARK = "controller.kubernetes.io/pod-deletion-cost", "tightship.dev/deletion-cost"


def costs(chart: str, on: bool = True, **values: object) -> Values:
    return {**ALONE, "config": {"deletionCost": on}, **values}


def of_job(rendered: Rendered) -> tuple[bool, int]:
    """Whether the Job that gives nodes back may patch pods, and how many objects of a fence it has."""
    rules: list[Json] = [rule for each in rendered.hooks if each["kind"] == "ClusterRole" for rule in each["rules"]]
    patches = any("pods" in rule["resources"] and "patch" in rule["verbs"] for rule in rules)
    return patches, sum(each["kind"] in KINDS for each in rendered.hooks)


def messages(rendered: Rendered) -> str:
    return str([each["message"] for each in rendered.one("ValidatingAdmissionPolicy")["spec"]["validations"]])


@each_node_chart
def test_the_right_to_patch_pods_and_its_fence_are_there_only_with_the_setting(render: Render, chart: str) -> None:
    for on in (True, False):
        rendered = render(chart, costs(chart, on), apis=[FENCE])
        assert (PATCH in rendered.rights()) is on
        assert bool(rendered.kinds & KINDS) is on
        assert ("patch", "pods/status") not in rendered.rights()
        assert of_job(rendered) == ((True, 2) if on else (False, 0))
    rendered = render(chart, costs(chart), apis=[FENCE])
    assert rendered.one("ValidatingAdmissionPolicy")["metadata"]["annotations"][MARK] == "true"
    assert "somebody else" in messages(rendered)


@each_node_chart
def test_nothing_is_granted_where_no_fence_can_stand(render: Render, chart: str) -> None:
    for rendered in (
        render(chart, costs(chart)),
        render(chart, costs(chart, kubeconfig={"secretName": "other"}), apis=[FENCE]),
        render(chart, costs(chart, dryRun=True), apis=[FENCE]),
    ):
        assert PATCH not in rendered.rights()
        assert not rendered.kinds & KINDS


@each_node_chart
def test_a_dry_run_removes_costs_by_its_job(render: Render, chart: str) -> None:
    assert of_job(render(chart, costs(chart, dryRun=True), apis=[FENCE])) == (True, 2)


@each_node_chart
def test_the_right_can_be_kept_where_charts_are_rendered_without_a_cluster(render: Render, chart: str) -> None:
    kept = render(chart, costs(chart, False, giveBack={"deletionCosts": True}), apis=[FENCE])
    on = render(chart, costs(chart), apis=[FENCE])
    assert kept.rules() == on.rules()
    assert kept.one("ValidatingAdmissionPolicy")["spec"] == on.one("ValidatingAdmissionPolicy")["spec"]
    assert MARK not in kept.one("ValidatingAdmissionPolicy")["metadata"].get("annotations", {})


@pytest.mark.parametrize("chart", ["node-refiner"])
def test_the_notes_say_why_the_setting_does_nothing(helm: Helm, charts: object, chart: str) -> None:
    flags = ("--namespace", "ns", "--dry-run=client")
    values = costs(chart, **{"global": {"apiVersions": ["v1/Pod"]}})
    text = helm("install", "rel", f"{charts}/{chart}", *flags, values=values).partition("NOTES:\n")[2]
    assert "WARNING: the configuration asks for deletion costs, but this cluster does not serve" in text

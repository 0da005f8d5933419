"""What is written once for all controllers, what gives way to a controller's own values, and the defaults of both."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from rendering import Json, Render, each_chart

from tightship import __version__
from tightship_charts.matrix import APIS, Values
from tightship_charts.places import CHARTS, CONTROLLERS, UMBRELLA
from tightship_charts.values import shared_defaults
from tightship_e2e.helm import Helm, HelmError

OPENSHIFT = "security.openshift.io/v1"
IDS = {"runAsUser", "runAsGroup", "fsGroup"}

A: Json = {"name": "A", "value": "all"}
OWN: Json = {"name": "OWN", "value": "own"}
VOLUME: Json = {"name": "ca", "configMap": {"name": "ca"}}
REFERENCE: Json = {"secretRef": {"name": "a"}}
LIMITS: Json = {"limits": {"memory": "512Mi"}, "requests": {"cpu": "50m", "memory": "128Mi"}}

CASES: dict[str, tuple[object, object, object, object]] = {
    "env": ([A], [OWN], [A], [A, OWN]),
    "envFrom": ([REFERENCE], [], [REFERENCE], [REFERENCE]),
    "extraVolumes": ([VOLUME], [VOLUME], [VOLUME], [VOLUME]),
    "tolerations": ([{"key": "a"}], [{"key": "b"}], [{"key": "a"}], [{"key": "a"}, {"key": "b"}]),
    "hostAliases": ([{"ip": "192.0.2.1"}], [], [{"ip": "192.0.2.1"}], [{"ip": "192.0.2.1"}]),
    "podLabels": ({"a": "all"}, {"a": "own", "b": "own"}, {"a": "all"}, {"a": "own", "b": "own"}),
    "podAnnotations": ({"a": "all"}, {"b": "own"}, {"a": "all"}, {"a": "all", "b": "own"}),
    "affinity": (
        {"podAffinity": {}},
        {"nodeAffinity": {}},
        {"podAffinity": {}},
        {"podAffinity": {}, "nodeAffinity": {}},
    ),
    "resources": (
        {"limits": {"memory": "1Gi"}},
        {"limits": {"memory": "2Gi", "cpu": "1"}},
        {**LIMITS, "limits": {"memory": "1Gi"}},
        {**LIMITS, "limits": {"memory": "2Gi", "cpu": "1"}},
    ),
    "podSecurityContext": ({"runAsUser": 7}, {"runAsUser": 8}, 7, 8),
    "securityContext": ({"runAsUser": 7}, {"readOnlyRootFilesystem": False}, 7, 7),
    "priorityClassName": ("all", "own", "all", "own"),
}
"""By the name of a value: what is global, what is node-refiner's own, and what they come to elsewhere and there."""


@pytest.mark.parametrize("key", CASES)
def test_what_is_global_is_the_default_of_each_and_merges_with_its_own(render: Render, key: str) -> None:
    everywhere, own, of_all, of_own = CASES[key]
    rendered = render(UMBRELLA, {"global": {key: everywhere}, "node-refiner": {key: own}})
    for each in rendered.of("Deployment"):
        metadata, pod = each["spec"]["template"]["metadata"], each["spec"]["template"]["spec"]
        [container] = pod["containers"]
        shown = {
            "podLabels": {name: value for name, value in metadata["labels"].items() if "/" not in name},
            "podAnnotations": {name: value for name, value in metadata["annotations"].items() if "/" not in name},
            "extraVolumes": pod.get("volumes"),
            "podSecurityContext": pod["securityContext"].get("runAsUser"),
            "securityContext": container["securityContext"].get("runAsUser"),
            "env": [one for one in container["env"] if one in (A, OWN)],
            "envFrom": container.get("envFrom"),
            "resources": container["resources"],
        }
        expected = of_own if container["name"] == "node-refiner" else of_all
        assert shown.get(key, pod.get(key)) == expected, container["name"]


def test_replicas_and_labels_of_monitors_are_written_once(render: Render) -> None:
    prometheus = {"enabled": True, "labels": {"release": "prometheus"}}
    everywhere = {"serviceMonitor": prometheus, "prometheusRule": prometheus, "replicaCount": 1, "dryRun": False}
    own = {"replicaCount": 3, "serviceMonitor": {"labels": {"own": "x"}}}
    rendered = render(UMBRELLA, {"global": everywhere, "node-refiner": own}, apis=APIS)
    assert sorted(each["spec"]["replicas"] for each in rendered.of("Deployment")) == [1, 1, 3]
    made = [each["metadata"]["labels"] for kind in ("ServiceMonitor", "PrometheusRule") for each in rendered.of(kind)]
    assert len(made) == 2 * len(CONTROLLERS)
    assert all(each["release"] == "prometheus" for each in made)
    assert [each.get("own") for each in made].count("x") == 1


@each_chart
def test_global_values_of_other_charts_are_nothing_of_ours(render: Render, chart: str) -> None:
    """Many charts have ``global.env: production``, and a parent passes what is global to all of its parts."""
    foreign: Values = {"env": "production", "extraVolumes": {}, "image": {"tag": "x"}, "compatibility": {"x": 1}}
    foreign |= {"logLevel": 2, "networkPolicy": {"create": True}}  # cert-manager's, and Argo CD's
    foreign |= {each: {"x": 1} for each in ("serviceMonitor", "podMonitor", "prometheusRule")}
    assert render(chart, {"global": foreign}).objects == render(chart).objects


@each_chart
def test_pull_secrets_may_be_names_as_for_istio_and_kube_prometheus_stack(render: Render, chart: str) -> None:
    rendered = render(chart, {"global": {"imagePullSecrets": ["all"]}, "imagePullSecrets": ["own", {"name": "other"}]})
    assert rendered.pod["imagePullSecrets"] == [{"name": "all"}, {"name": "own"}, {"name": "other"}]


@each_chart
@pytest.mark.parametrize("above", ["", "global"])
def test_a_variable_that_is_no_text_is_refused_by_name(helm: Helm, charts: Path, chart: str, above: str) -> None:
    """The API server would refuse it: helm keeps ``--set env[0].value=5`` a number."""
    values: Values = {"env": [{"name": "A", "value": 5}]}
    with pytest.raises(HelmError, match=r"env/0/value': got number, want null or string"):
        helm.template(charts / chart, {above: values} if above else values)


def test_anchors_have_a_place(helm: Helm, charts: Path) -> None:
    text = "x-common: &common {env: [{name: A, value: all}]}\nnode-refiner: *common\nhpa-scaler: *common\n"
    found = [each for each in helm.template(charts / UMBRELLA, yaml.safe_load(text)) if each["kind"] == "Deployment"]
    assert sum(A in each["spec"]["template"]["spec"]["containers"][0]["env"] for each in found) == 2
    assert helm.template(charts / "node-refiner", {"x-anything": 1})


@each_chart
@pytest.mark.parametrize(
    ("word", "apis", "left"),
    [("auto", [], IDS), ("auto", [OPENSHIFT], set()), ("force", [], set()), ("disabled", [OPENSHIFT], IDS)],
)
def test_openshift_chooses_ids_itself(render: Render, chart: str, word: str, apis: list[str], left: set[str]) -> None:
    adapt: Values = {"global": {"compatibility": {"openshift": {"adaptSecurityContext": word}}}, "dryRun": False}
    rendered = render(chart, {**adapt, "securityContext": {"runAsUser": 1}}, apis=apis, tests=True)
    specs = [each["spec"] for each in rendered.hooks if each["kind"] == "Pod"]
    specs += [each["spec"]["template"]["spec"] for each in rendered.hooks if each["kind"] == "Job"]
    for spec in (rendered.pod, *specs):
        assert set(spec["securityContext"]) & IDS == left
        assert ("runAsUser" in spec["containers"][0]["securityContext"]) is bool(left)
        assert spec["securityContext"]["runAsNonRoot"] is True


def test_a_chart_around_this_one_says_so_with_one_value(helm: Helm, charts: Path, tmp_path: Path) -> None:
    """Nulls in the values.yaml of a parent chart would be ignored: helm#32132."""
    found = {"name": UMBRELLA, "version": __version__, "repository": ""}
    parent = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [found]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(parent))
    force = {"global": {"compatibility": {"openshift": {"adaptSecurityContext": "force"}}, "dryRun": False}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(force))
    shutil.copytree(charts / UMBRELLA, tmp_path / "charts" / UMBRELLA)
    text = helm("template", "rel", tmp_path, "--namespace", "ns")
    assert text.count("kind: Deployment") == len(CONTROLLERS)
    assert "65532" not in text


@each_chart
def test_a_plain_install_changes_nothing_has_a_limit_and_a_priority(render: Render, chart: str) -> None:
    rendered = render(chart)
    assert rendered.env["DRY_RUN"] == "true"
    assert not {"patch", "update", "delete", "create"} & {verb for verb, _ in rendered.rights()}
    assert rendered.container["resources"] == LIMITS
    assert rendered.pod["priorityClassName"] == "system-cluster-critical"


@each_chart
@pytest.mark.parametrize(
    ("values", "replicas"),
    [
        ({}, 1),
        ({"dryRun": False}, 2),
        ({"dryRun": False, "leaderElection": {"enabled": False}}, 1),
        ({"dryRun": False, "replicaCount": 1}, 1),
        ({"replicaCount": 2}, 2),
        ({"dryRun": False, "podDisruptionBudget": {"minAvailable": 1}}, 2),
    ],
)
def test_a_live_controller_has_two_replicas(render: Render, chart: str, values: Values, replicas: int) -> None:
    rendered = render(chart, values)
    assert rendered.one("Deployment")["spec"]["replicas"] == replicas
    assert rendered.one("PodDisruptionBudget")["spec"].get("minAvailable", 0) < replicas


def test_gke_refuses_the_systems_classes_outside_kube_system(helm: Helm, charts: Path) -> None:
    """By a template that all charts share.

    Without a ResourceQuota for them no pod starts there: gatekeeper#1120, openservicemesh/osm#4408, flux2#3800.
    """

    def chosen(*flags: str, namespace: str = "ns", **values: object) -> str | None:
        text = helm("template", "rel", charts / CONTROLLERS[0], "--namespace", namespace, *flags, values=values)
        [one] = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "Deployment"]
        found: str | None = one["spec"]["template"]["spec"].get("priorityClassName")
        return found

    critical = "system-cluster-critical"
    for gke in (("--kube-version", "1.34.1-gke.1234000"), ("--api-versions", "networking.gke.io/v1")):
        assert chosen(*gke) is None
        assert chosen(*gke, namespace="kube-system") == critical
        assert chosen(*gke, priorityClassName=critical) == critical
    assert chosen("--kube-version", "1.34.1-eks-0abcdef") == critical
    assert chosen(**{"global": {"priorityClassName": ""}}) is None


def test_the_librarys_defaults_are_those_of_the_values() -> None:
    made = CHARTS / "tightship-lib" / "templates" / "_defaults.tpl"
    assert made.read_text(encoding="utf-8") == shared_defaults()

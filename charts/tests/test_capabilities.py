"""Which kinds the charts make: as a cluster or a tool lists them, and where nobody knows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from rendering import Json, Render, each_chart, each_node_chart

from tightship_charts.matrix import ALL_APIS, APIS, FEATURES, FENCE, POLICY, Values, everything, merge
from tightship_charts.places import CONTROLLERS, INSTALLABLE, UMBRELLA
from tightship_e2e import binaries
from tightship_e2e.helm import Helm, objects, run
from tightship_e2e.plugin import require_programs
from tightship_e2e.renderings import HOOK

LISTED: Mapping[str, Sequence[str]] = yaml.safe_load(
    (Path(__file__).parent / "kubernetes-kinds.yaml").read_text(encoding="utf-8")
)
"""The releases of Kubernetes that serve a kind, the first and the last, by the kind."""

RELEASES = [f"1.{minor}" for minor in range(28, 39)]
"""Every minor release that the charts allow, up to the newest of which there is a list."""


def served(release: str) -> set[str]:
    """The kinds of Kubernetes itself that a release serves, of those that the charts may make."""
    return {each for each, (first, last) in LISTED.items() if minor(first) <= minor(release) <= minor(last)}


def minor(release: str) -> int:
    return int(release.partition(".")[2])


TURNS = [each for before, each in pairwise(("1.0", *RELEASES)) if served(before) != served(each)]
"""The releases that serve other kinds than the one before."""

PODS = {"podMonitor": FEATURES["pod monitor"]["podMonitor"], "serviceMonitor": {"enabled": False}}
ASKED: Values = {"dryRun": False, "serviceMonitor": {"enabled": True}}


def kind(item: Json) -> str:
    """Such as apps/v1/Deployment."""
    return f"{item['apiVersion']}/{item['kind']}"


@pytest.mark.takes(2)
@pytest.mark.parametrize("release", [*TURNS, RELEASES[-1]])
@each_chart
def test_every_kind_is_one_that_the_release_of_kubernetes_serves(render: Render, chart: str, release: str) -> None:
    """Rendered without a cluster by its version alone, and with the list of kinds that Argo CD would hand over."""
    for apis in (None, [*APIS, *served(release)]):
        rendered = render(chart, everything(chart), apis=apis, kubernetes=f"{release}.0")
        made = {kind(each) for each in [*rendered.objects, *rendered.hooks]}
        assert made - set(APIS) <= served(release)
        assert (FENCE in made) is (minor(release) >= 30)
        assert "FlowSchema" in rendered.kinds


def test_the_list_has_every_release_that_the_charts_allow() -> None:
    for chart in INSTALLABLE:
        about = yaml.safe_load((Path(__file__).parents[1] / chart / "Chart.yaml").read_text(encoding="utf-8"))
        assert about["kubeVersion"] == f">={RELEASES[0]}.0-0"
    assert {release for each in LISTED.values() for release in each} <= set(RELEASES)


@each_chart
def test_without_a_cluster_nothing_that_was_asked_for_is_left_out(render: Render, chart: str) -> None:
    """``helm template`` and kustomize: whoever applies a kind that is not served hears so from the API server."""
    foreign = {each.rpartition("/")[2] for each in APIS}
    made = (
        render(chart, everything(chart), apis=None).kinds
        | render(chart, merge(everything(chart), PODS), apis=None).kinds
    )
    assert foreign <= made
    assert {"ServiceMonitor", "ValidatingAdmissionPolicy"} <= render(chart, ASKED, apis=None).kinds
    assert not foreign & render(chart, {"dryRun": False}, apis=None).kinds


@each_node_chart
def test_without_a_cluster_hints_have_their_policy(render: Render, chart: str) -> None:
    assert (
        "MutatingAdmissionPolicy" in render(chart, {"dryRun": False, "config": {"steering": "hints"}}, apis=None).kinds
    )


def text(helm: Helm, chart: Path, values: Values, *flags: str) -> str:
    return helm("template", "rel", chart, *flags, values=values)


MISSED: Sequence[tuple[Values, Collection[str]]] = [
    (
        reduce(
            merge,
            [
                {"dryRun": False},
                {"serviceMonitor": {"enabled": True}},
                {"prometheusRule": {"enabled": True}},
                {"verticalPodAutoscaler": {"enabled": True}},
                {"grafanaDashboard": {"enabled": True, "operator": {"enabled": True}}},
                FEATURES["secure by cert-manager"],
            ],
        ),
        {
            "admissionPolicy.enabled is true",
            "serviceMonitor.enabled is true",
            "prometheusRule.enabled is true",
            "verticalPodAutoscaler.enabled is true",
            "grafanaDashboard.operator.enabled is true",
            "http.secure.issuerRef is set",
        },
    ),
    (PODS, {"podMonitor.enabled is true"}),
    ({"global": {"serviceMonitor": {"enabled": True}}}, {"serviceMonitor.enabled is true"}),
]
"""Values that ask for kinds of others, and what is said of each where they are not served."""


def missed(rendered: str) -> set[str]:
    return set(re.findall(r"^# WARNING: (.*? is \w+)", rendered, re.MULTILINE))


@pytest.mark.parametrize(("values", "said"), MISSED)
def test_what_a_cluster_does_not_serve_is_missed_in_the_manifests_too(
    helm: Helm, charts: Path, values: Values, said: Collection[str]
) -> None:
    """Argo CD and kustomize show no notes."""
    for chart in CONTROLLERS:
        assert missed(text(helm, charts / chart, values, "--api-versions=v1/Pod")) == said
        assert "# WARNING" not in text(helm, charts / chart, values)
    suite = text(helm, charts / UMBRELLA, dict.fromkeys(CONTROLLERS, values), "--api-versions=v1/Pod")
    assert missed(suite) == {f"{chart}.{each}" for chart in CONTROLLERS for each in said}


@each_node_chart
def test_steering_and_deletion_costs_that_a_release_can_not_have_are_missed_too(
    helm: Helm, charts: Path, chart: str
) -> None:
    values = {"dryRun": False, "config": {"steering": "hints", "deletionCost": True}}
    rendered = text(helm, charts / chart, values, "--kube-version=1.29.0")
    assert "# WARNING: config.steering is hints" in rendered
    assert "# WARNING: the configuration asks for deletion costs" in rendered
    assert "# WARNING" not in text(helm, charts / chart, values, "--kube-version=1.36.0")


def test_the_dashboard_of_the_suite_is_missed_as_well(helm: Helm, charts: Path) -> None:
    values = {"grafanaDashboard": {"enabled": True, "operator": {"enabled": True}}}
    said = "# WARNING: grafanaDashboard.operator.enabled is true"
    assert said in text(helm, charts / UMBRELLA, values, "--api-versions=v1/Pod")
    assert "# WARNING" not in text(helm, charts / UMBRELLA, values)


@each_chart
def test_a_value_says_which_kinds_are_served_as_the_flag_does(render: Render, chart: str) -> None:
    """For tools that have no such flag, and for a CRD that comes with the same sync."""
    for apis in ([], [FENCE], ALL_APIS):
        by_value = merge(everything(chart), {"global": {"apiVersions": ["v1/Pod", *apis]}})
        assert render(chart, by_value, apis=None).objects == render(chart, everything(chart), apis=apis).objects
    one = merge(ASKED, {"global": {"apiVersions": [APIS[0]]}})
    assert "ServiceMonitor" in render(chart, one).kinds
    assert "ServiceMonitor" in render(UMBRELLA, {chart: ASKED, "global": one["global"]}).kinds


@each_node_chart
@pytest.mark.parametrize("version", ["v1.36.0-eks-1a2b3c", "v1.36.2-gke.1000", "1.36.0-beta.0", "v1.36.1+k3s1"])
def test_the_version_of_a_cloud_counts_as_its_release(render: Render, chart: str, version: str) -> None:
    values = {"dryRun": False, "config": {"steering": "hints"}, "flowSchema": {"enabled": True}}
    rendered = render(chart, values, apis=None, kubernetes=version)
    assert {POLICY, FENCE, "flowcontrol.apiserver.k8s.io/v1/FlowSchema"} <= {kind(each) for each in rendered.objects}


GITOPS = (Path(__file__).parents[2] / "docs/operations.md").read_text(encoding="utf-8")


def test_the_page_about_gitops_names_every_kind_that_the_charts_ask_for() -> None:
    assert sorted(re.findall(r"^\| `([\w./-]+/[A-Z]\w+)` \|", GITOPS, re.MULTILINE)) == sorted(ALL_APIS)


def test_its_kustomization_makes_all_that_it_asks_for_and_no_hook(helm: Helm, charts: Path, tmp_path: Path) -> None:
    """By the kustomize in kubectl."""
    require_programs("kubectl")
    block = next(each for each in re.findall(r"```yaml\n(.*?)```", GITOPS, re.DOTALL) if "helmCharts" in each)
    (tmp_path / "kustomization.yaml").write_text(block, encoding="utf-8")
    (tmp_path / "charts").mkdir()
    shutil.copytree(charts / UMBRELLA, tmp_path / "charts" / UMBRELLA)
    command = [str(binaries.find("kubectl")["kubectl"]), "kustomize", "--enable-helm", "--helm-command", str(helm.path)]
    made = objects(run([*command, str(tmp_path)], b"", {}))
    assert [each["kind"] for each in made].count("ServiceMonitor") == 3
    assert not [each for each in made if HOOK in (each["metadata"].get("annotations") or {})]
    assert all(each["metadata"]["namespace"] == "tightship" for each in made if each["kind"] == "Deployment")

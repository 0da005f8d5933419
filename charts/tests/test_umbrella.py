"""The chart of all controllers, and how charts depend on each other."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from rendering import Json, Render, Rendered

from tightship import __version__
from tightship_charts.matrix import APIS, LONGEST_RELEASE, everything
from tightship_charts.places import CHARTS, CONTROLLERS, INSTALLABLE, LIBRARY, UMBRELLA
from tightship_e2e.helm import Helm


def chart_file(chart: str) -> Json:
    found: Json = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text(encoding="utf-8"))
    return found


def names(rendered: Rendered) -> list[tuple[str, str, str]]:
    places = [(each["kind"], each["metadata"]) for each in rendered.objects]
    return [(kind, meta.get("namespace", ""), meta["name"]) for kind, meta in places]


def environments(rendered: Rendered) -> dict[str, dict[str, str | None]]:
    """The environment of each controller, by its name; None for a variable that has no plain value."""
    containers = [each["spec"]["template"]["spec"]["containers"][0] for each in rendered.of("Deployment")]
    return {each["name"]: {one["name"]: one.get("value") for one in each["env"]} for each in containers}


def test_it_installs_all_controllers_beside_each_other(render: Render) -> None:
    rendered = render(UMBRELLA, release="tightship", namespace="tightship")
    deployed = {each["metadata"]["name"] for each in rendered.of("Deployment")}
    assert deployed == {f"tightship-{each}" for each in CONTROLLERS}
    for found in (names(rendered), names(render(UMBRELLA, everything(UMBRELLA), release=LONGEST_RELEASE))):
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("wanted", CONTROLLERS)
def test_each_controller_can_be_had_alone(render: Render, wanted: str) -> None:
    rendered = render(UMBRELLA, {each: {"enabled": each == wanted} for each in CONTROLLERS})
    own = [each["metadata"]["labels"]["app.kubernetes.io/component"] for each in rendered.objects]
    assert set(own) == {wanted}


GLOBALS: dict[str, str] = {
    "networkPolicy": "NetworkPolicy",
    "serviceMonitor": "ServiceMonitor",
    "podMonitor": "PodMonitor",
    "prometheusRule": "PrometheusRule",
}


@pytest.mark.parametrize("key", GLOBALS)
def test_what_is_switched_on_for_all_can_be_switched_off_for_one(render: Render, key: str) -> None:
    on = {"global": {key: {"enabled": True}}}
    assert len(render(UMBRELLA, on, apis=APIS).of(GLOBALS[key])) == len(CONTROLLERS)
    but_one = {**on, "hpa-scaler": {key: {"enabled": False}}}
    assert len(render(UMBRELLA, but_one, apis=APIS).of(GLOBALS[key])) == len(CONTROLLERS) - 1
    assert render(UMBRELLA, {"hpa-scaler": {key: {"enabled": True}}}, apis=APIS).one(GLOBALS[key])


def test_pods_are_placed_by_what_is_global_and_by_what_is_their_own(render: Render) -> None:
    everywhere = {"key": "all", "operator": "Exists"}
    own = {"key": "own", "operator": "Exists"}
    given = {"nodeSelector": {"pool": "system"}, "tolerations": [everywhere], "priorityClassName": "all"}
    refiner = {"nodeSelector": {"pool": "own"}, "tolerations": [own], "priorityClassName": "own"}
    rendered = render(UMBRELLA, {"global": given, "node-refiner": refiner})
    pods = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in rendered.of("Deployment")}
    linux = {"kubernetes.io/os": "linux"}
    for name, pod in pods.items():
        of_its_own = name.endswith("node-refiner")
        assert pod["nodeSelector"] == {**linux, "pool": "own" if of_its_own else "system"}
        assert pod["tolerations"] == ([everywhere, own] if of_its_own else [everywhere])
        assert pod["priorityClassName"] == ("own" if of_its_own else "all")


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_controller_in_it_is_what_its_own_chart_makes(render: Render, controller: str) -> None:
    values = everything(controller)
    alone = render(controller, values, release="tightship")
    others = {each: {"enabled": False} for each in CONTROLLERS}
    # What a part says of `global` is nobody's: Helm takes the whole's.
    within = render(UMBRELLA, {**others, controller: values, "global": values["global"]}, release="tightship")
    assert within.objects == alone.objects


def test_what_is_global_reaches_all_and_gives_way_to_what_is_a_controllers_own(render: Render) -> None:
    rendered = render(
        UMBRELLA,
        {
            "global": {"imageRegistry": "registry.example.com", "logLevel": "debug", "dryRun": False},
            "node-refiner": {"dryRun": True, "log": {"level": "warn"}},
        },
    )
    images = {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in rendered.of("Deployment")}
    assert images == {f"registry.example.com/tightship/{each}:{__version__}" for each in CONTROLLERS}
    for controller, env in environments(rendered).items():
        own = controller == "node-refiner"
        assert env["DRY_RUN"] == ("true" if own else "false")
        assert env["LOG_LEVEL"] == ("warn" if own else "debug")


def test_the_controllers_of_nodes_share_one_ledger_of_claims(render: Render) -> None:
    found = environments(render(UMBRELLA))
    ledgers = {(env.get("CLAIMS_LEASE_NAMESPACE"), env.get("CLAIMS_LEASE_NAME")) for env in found.values()}
    assert ledgers == {("kube-system", "tightship-claims"), (None, None)}


@pytest.mark.parametrize("chart", INSTALLABLE)
def test_in_a_parent_of_the_users_it_may_have_an_alias_and_a_condition(
    helm: Helm, charts: Path, chart: str, tmp_path: Path
) -> None:
    found = {"name": chart, "alias": "own", "condition": "own.enabled", "version": __version__, "repository": ""}
    parent = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [found]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(parent))
    shutil.copytree(charts / chart, tmp_path / "charts" / chart)
    assert helm.template(tmp_path, {"own": {"enabled": True}, "global": {"own": 1}}, release="rel", namespace="ns")
    assert not helm.template(tmp_path, {"own": {"enabled": False}}, release="rel", namespace="ns")


@pytest.mark.parametrize("chart", [*INSTALLABLE, LIBRARY])
def test_all_charts_have_the_version_of_the_code(chart: str) -> None:
    found = chart_file(chart)
    assert found["version"] == __version__
    assert found.get("appVersion", __version__) == __version__
    for dependency in found.get("dependencies", []):
        assert dependency["version"] == __version__
        assert dependency["repository"] == f"file://../{dependency['name']}"


@pytest.mark.parametrize("chart", INSTALLABLE)
def test_a_catalogue_can_show_what_a_chart_installs(render: Render, chart: str) -> None:
    found = chart_file(chart)
    assert {"home", "icon", "sources", "maintainers", "description"} <= found.keys()
    assert (CHARTS.parent / found["icon"].partition("/main/")[2]).is_file()
    named = {each["image"] for each in yaml.safe_load(found["annotations"]["artifacthub.io/images"])}
    pods = [each["spec"]["template"]["spec"] for each in render(chart).of("Deployment")]
    assert named == {each["containers"][0]["image"] for each in pods}
    for link in yaml.safe_load(found["annotations"]["artifacthub.io/links"]):
        page = link["url"].partition("/blob/main/")[2]
        assert not page or (CHARTS.parent / page).is_file()


@pytest.mark.parametrize("chart", INSTALLABLE)
def test_a_chart_names_the_releases_of_kubernetes_that_are_built_for_tests(chart: str) -> None:
    modules = (CHARTS.parent / "e2e" / "controlplane").glob("kubernetes*/go.mod")
    built = re.findall(r"k8s\.io/kubernetes v(\d+\.\d+)", "\n".join(each.read_text() for each in modules))
    tested = chart_file(chart)["annotations"]["tightship.dev/tested-kubernetes"]
    assert tested.split(", ") == sorted(set(built))


@pytest.mark.parametrize("chart", INSTALLABLE)
def test_dependencies_are_locked_and_can_be_built(charts: Path, chart: str) -> None:
    """Helm refuses to build what is out of step with ``Chart.lock``."""
    wanted = {f"{each['name']}-{each['version']}.tgz" for each in chart_file(chart)["dependencies"]}
    assert {each.name for each in (charts / chart / "charts").iterdir()} == wanted

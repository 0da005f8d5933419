"""What every object of every chart has to be, whatever the values."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Iterator
from functools import reduce
from itertools import groupby
from pathlib import Path

import jsonschema
import pytest
from rendering import Feature, Json, Render, each_case, each_chart

from tightship_charts.matrix import ALL_APIS, APIS, FEATURES, LONGEST_RELEASE, Values, everything
from tightship_charts.places import CONTROLLERS, UMBRELLA
from tightship_charts.schema import schema_of
from tightship_charts.values import defaults, documented, own_keys
from tightship_e2e.helm import Helm, HelmError

POLICIES = {f"{kind}AdmissionPolicy{part}" for kind in ("Mutating", "Validating") for part in ("", "Binding")}
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
CLUSTER_KINDS = {"ClusterRole", "ClusterRoleBinding", "FlowSchema", *POLICIES}


def place(item: Json) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


@each_case
def test_every_object_has_its_own_name_and_the_labels_it_is_found_by(feature: Feature, chart: str, name: str) -> None:
    items = [each for each in feature(chart, name).objects if "app.kubernetes.io/name" in str(each["metadata"])]
    assert len({place(each) for each in items}) == len(items)
    for item in items:
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "tightship", place(item)
        assert labels["app.kubernetes.io/component"] == chart, place(item)
        assert labels["app.kubernetes.io/managed-by"] == "Helm", place(item)
        assert ("namespace" in item["metadata"]) == (item["kind"] not in CLUSTER_KINDS), place(item)


@each_case
def test_whatever_selects_pods_selects_the_controllers_and_changes_with_no_version(
    feature: Feature, chart: str, name: str
) -> None:
    rendered = feature(chart, name)
    template = rendered.one("Deployment")["spec"]["template"]
    labels = template["metadata"]["labels"]
    selectors = [
        rendered.one("Deployment")["spec"]["selector"]["matchLabels"],
        rendered.one("Service")["spec"]["selector"],
        *(each["spec"]["selector"]["matchLabels"] for each in rendered.of("PodDisruptionBudget")),
        *(each["spec"]["podSelector"]["matchLabels"] for each in rendered.of("NetworkPolicy")),
        *(each["spec"]["selector"]["matchLabels"] for each in rendered.of("PodMonitor")),
        *(each["labelSelector"]["matchLabels"] for each in template["spec"].get("topologySpreadConstraints", [])),
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert set(selector) == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}


@each_chart
@pytest.mark.parametrize("release", [LONGEST_RELEASE, "team.blue"], ids=["of 53 characters", "with dots"])
def test_a_release_name_leaves_every_name_and_label_valid(render: Render, chart: str, release: str) -> None:
    assert len(LONGEST_RELEASE) == 53
    for item in render(chart, everything(chart), release=release, apis=ALL_APIS).objects:
        if item["kind"] in {"Service", "Deployment", "ServiceAccount", "ConfigMap"}:
            assert DNS_LABEL.fullmatch(item["metadata"]["name"]), place(item)
        for value in (item["metadata"].get("labels") or {}).values():
            assert len(value) <= 63, place(item)


@each_chart
def test_two_releases_have_no_object_in_common(render: Render, chart: str) -> None:
    """Neither with long names that begin alike, nor with one name in two namespaces."""
    for others in (
        ({"release": LONGEST_RELEASE[:-1] + "1"}, {"release": LONGEST_RELEASE[:-1] + "2"}),
        (
            {"namespace": "one"},
            {"namespace": "two"},
        ),
    ):
        first, second = ({place(each) for each in render(chart, **each_of).objects} for each_of in others)
        assert not first & second


@each_chart
def test_objects_of_other_projects_are_made_only_where_their_kind_is_served(render: Render, chart: str) -> None:
    foreign = {each.rpartition("/")[2] for each in APIS}
    values = everything(chart)
    assert not foreign & render(chart, values).kinds
    with_one = render(chart, values, apis=["monitoring.coreos.com/v1/ServiceMonitor"])
    assert foreign & with_one.kinds == {"ServiceMonitor"}
    both = {**values, "serviceMonitor": {"enabled": False}, "podMonitor": FEATURES["pod monitor"]["podMonitor"]}
    assert foreign & (render(chart, both, apis=ALL_APIS).kinds | with_one.kinds) == foreign


@each_chart
def test_the_chart_has_nothing_that_helm_warns_of(helm: Helm, charts: Path, chart: str) -> None:
    said = helm("lint", "--strict", charts / chart)
    assert "[WARNING]" not in said
    assert "0 chart(s) failed" in said


def test_a_chart_that_is_refused_says_which_values_are_wrong(render: Render) -> None:
    with pytest.raises(HelmError, match=r"nodePools/x/enabled.*got string"):
        render("node-compactor", {"config": {"nodePools": {"x": {"enabled": "yes"}}}})


HOSTILE: Values = {
    "log": {"level": "info\n- name: EVIL"},
    "interval": "1s; rm",
    "annotationPrefix": "a b",
    "dryRun": "no",
    "replicaCount": "2",
    "priorityClassName": "system\nhostNetwork: true",
    "runtimeClassName": "sandbox\nhostNetwork: true",
    "schedulerName": "mine\nhostNetwork: true",
    "prometheusRule": {"namespace": "a\nb: c"},
    "grafanaDashboard": {"namespace": "a\nb: c"},
    "nonsense": True,
}


@pytest.mark.parametrize("key", HOSTILE)
def test_a_hostile_value_is_refused_by_its_name(render: Render, key: str) -> None:
    with pytest.raises(HelmError, match=rf"'/{key}|'{key}'"):
        render("hpa-scaler", {key: HOSTILE[key]})


@each_chart
def test_a_default_that_is_taken_away_is_missed_by_its_name_or_by_nothing(render: Render, chart: str) -> None:
    """As by ``--set image=null``, and by a heading in a file of values with nothing under it."""
    schema = jsonschema.Draft7Validator(schema_of(chart))
    optional: list[tuple[str, ...]] = []
    for value in documented(chart):
        # What charts share is the same text and the same templates in all of them: see test_values_matter.py.
        if value.default is None or not (chart == CONTROLLERS[0] or value.path[0] in own_keys(chart)):
            continue
        left = copy.deepcopy(defaults(chart))
        del reduce(lambda within, key: within[key], value.path[:-1], left)[value.path[-1]]
        problems = [each.message for each in schema.iter_errors(left)]
        assert problems in ([], [f"'{value.path[-1]}' is a required property"]), value.dotted
        optional += [] if problems else [value.path]
    with pytest.raises(HelmError, match="missing property 'interval'"):
        render(chart, {"interval": None})

    def taken_away(paths: list[tuple[str, ...]]) -> None:
        values: Values = {"dryRun": False}
        for path in paths:
            within = values
            for key in path[:-1]:
                within = within.setdefault(key, {})
            within[path[-1]] = None
        try:
            objects = render(chart, values, apis=ALL_APIS).objects
        except HelmError as error:
            said, half, objects = str(error), len(paths) // 2, []
            assert half or f"{'.'.join(paths[0])}: nothing would block" in said, (paths, said)
            for part in (paths[:half], paths[half:]) if half else ():
                taken_away(part)
        assert not list(nothings(objects)), paths

    # All at once, but for those that are parts of others.
    for _, each in groupby(sorted(optional, key=len), key=len):
        taken_away(list(each))


def test_a_chart_that_says_too_little_is_told_what_is_missing(helm: Helm, charts: Path, tmp_path: Path) -> None:
    chart = shutil.copytree(charts / "node-refiner", tmp_path / "node-refiner")
    said = (chart / "templates/all.yaml").read_text()
    (chart / "templates/all.yaml").write_text(said.replace('"clusterRules"', '"clusterRule"'))
    with pytest.raises(HelmError, match=r"tightship-lib\.manifests: clusterRules is missing"):
        helm.template(chart)


def nothings(item: object) -> Iterator[object]:
    """Whatever has a key without a value."""
    for value in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
        if value is None:
            yield item
        yield from nothings(value)


@pytest.mark.parametrize("heading", ["global", *CONTROLLERS])
def test_a_heading_with_nothing_under_it_leaves_the_defaults_of_the_umbrella(render: Render, heading: str) -> None:
    assert render(UMBRELLA, {heading: None}).objects == render(UMBRELLA).objects


@each_chart
def test_a_large_number_has_no_exponent(render: Render, chart: str) -> None:
    """Helm reads every number of a file of values as a float."""
    large = 1_000_000
    values = {"shutdown": {"timeout": "1000000s", "grace": "1000000s"}}
    rendered = render(chart, {**values, "terminationGracePeriodSeconds": large + 1, "revisionHistoryLimit": large})
    assert rendered.pod["terminationGracePeriodSeconds"] == large + 1
    assert rendered.one("Deployment")["spec"]["revisionHistoryLimit"] == large
    with pytest.raises(HelmError, match=r"must be above shutdown\.grace"):
        render(chart, {**values, "terminationGracePeriodSeconds": large})

"""What the charts install for ``steering: hints``, where, and with which rights."""

from __future__ import annotations

import pytest
from rendering import Render, Rendered, each_node_chart

from tightship_charts.matrix import LONGEST_RELEASE, POLICY, Values
from tightship_charts.places import NODE_CONTROLLERS, UMBRELLA
from tightship_e2e.helm import Helm

NOTE = "tightship.dev/landing-policy"
MUTATION = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
PATCHES = {("patch", "pods"), ("patch", "pods/status"), ("update", "pods"), ("update", "pods/status")}
NAMED = {("get", "configmaps"), ("patch", "configmaps")}


def steered(mode: object, **values: object) -> Values:
    return {"dryRun": False, "config": {"steering": mode}, **values}


def made(rendered: Rendered) -> set[str]:
    """The kinds of all that is made for landings, and the annotation of the ConfigMap."""
    notes = {each["metadata"].get("annotations", {}).get(NOTE, "") for each in rendered.of("ConfigMap")}
    return (rendered.kinds & MUTATION) | (notes - {""})


@each_node_chart
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("exact", MUTATION | {"hints/2"}),
        ("hints", MUTATION | {"hints/2"}),
        ("taints", set()),
        ("off", set()),
        (False, set()),
    ],
)
def test_each_mode_has_its_policies_and_rights_and_no_others(
    render: Render, chart: str, mode: object, expected: set[str]
) -> None:
    rendered = render(chart, steered(mode), apis=[POLICY])
    assert made(rendered) == expected
    more = rendered.rights() - render(chart, {"dryRun": False}, apis=[POLICY]).rights()
    assert more == (NAMED if expected else set())
    assert not PATCHES & rendered.rights()
    granted = [rule for rule in rendered.rules("Role") if rule["verbs"] == ["get", "patch"]]
    assert [rule["resourceNames"] for rule in granted] == ([[f"rel-{chart}-landings"]] if expected else [])


@each_node_chart
def test_nothing_is_made_where_it_could_do_nothing(render: Render, chart: str) -> None:
    """Kubernetes before 1.36, a dry run, another cluster."""
    elsewhere = {"kubeconfig": {"secretName": "other"}}
    for rendered in (
        render(chart, steered("hints")),
        render(chart, steered("hints", dryRun=True), apis=[POLICY]),
        render(chart, steered("hints", **elsewhere), apis=[POLICY]),
    ):
        assert made(rendered) == set()
        assert not NAMED & rendered.rights()


@each_node_chart
def test_the_policy_reads_the_config_map_that_the_controller_writes(render: Render, chart: str) -> None:
    rendered = render(chart, steered("hints", namespaceOverride="elsewhere"), apis=[POLICY])
    [config] = [each for each in rendered.of("ConfigMap") if NOTE in each["metadata"].get("annotations", {})]
    assert config.keys() == {"apiVersion", "kind", "metadata"}, "an upgrade would take the controller's entries away"
    meta = config["metadata"]
    binding = rendered.one("MutatingAdmissionPolicyBinding")
    reads = {"name": meta["name"], "namespace": meta["namespace"], "parameterNotFoundAction": "Allow"}
    assert binding["spec"] == {
        "policyName": rendered.one("MutatingAdmissionPolicy")["metadata"]["name"],
        "paramRef": reads,
    }
    assert rendered.env["LANDINGS_CONFIG_MAP_NAME"] == meta["name"]
    assert meta["namespace"] == rendered.one("Deployment")["metadata"]["namespace"] == "elsewhere"


@each_node_chart
def test_a_policy_that_fails_lets_every_pod_through_and_none_is_about_the_controllers_own(
    render: Render, chart: str
) -> None:
    rendered = render(chart, steered("hints"), apis=[POLICY])
    spec = rendered.one("MutatingAdmissionPolicy")["spec"]
    assert (spec["failurePolicy"], spec["reinvocationPolicy"]) == ("Ignore", "Never")
    [rule] = spec["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
    [spared] = spec["matchConstraints"]["objectSelector"]["matchExpressions"]
    labels = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert spared["operator"] == "NotIn"
    assert labels[spared["key"]] in spared["values"]


@each_node_chart
def test_policies_of_two_releases_have_two_names(render: Render, chart: str) -> None:
    names = [
        render(chart, steered("hints"), release=release, namespace=space, apis=[POLICY]).one("MutatingAdmissionPolicy")[
            "metadata"
        ]["name"]
        for release, space in (("one", "a"), ("one", "b"), ("two", "a"), (LONGEST_RELEASE, "a"))
    ]
    assert len(set(names)) == 4
    assert all(len(name) <= 253 and name.endswith((".a", ".b")) for name in names)


def test_in_the_umbrella_each_controller_has_its_own_mode(render: Render) -> None:
    modes = dict(zip(NODE_CONTROLLERS, ("hints", "taints"), strict=True))
    values = {name: {"config": {"steering": mode}} for name, mode in modes.items()}
    rendered = render(UMBRELLA, {"global": {"dryRun": False}, **values}, apis=[POLICY])
    found = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each["metadata"]["annotations"][NOTE]
        for each in rendered.of("ConfigMap")
        if NOTE in each["metadata"].get("annotations", {})
    }
    assert found == {NODE_CONTROLLERS[0]: "hints/2"}
    assert len(rendered.of("MutatingAdmissionPolicy")) == 1
    assert rendered.of("ValidatingAdmissionPolicy") == []


@each_node_chart
def test_the_notes_say_what_the_mode_does_or_why_it_does_nothing(helm: Helm, charts: object, chart: str) -> None:
    def said(**values: object) -> str:
        flags = ("--namespace", "ns", "--dry-run=client")
        known = {"global": {"apiVersions": ["v1/Pod"]}}
        text = helm("install", "rel", f"{charts}/{chart}", *flags, values=steered("hints", **known, **values))
        return text.partition("NOTES:\n")[2]

    assert "WARNING: config.steering is hints, but this cluster does not serve" in said()
    assert "WARNING: config.steering is hints, but the controller manages" in said(kubeconfig={"secretName": "other"})
    assert "steering" not in said(dryRun=True)


@each_node_chart
def test_a_release_that_had_exact_is_told_to_take_its_successor(helm: Helm, charts: object, chart: str) -> None:
    flags = ("--namespace", "ns", "--dry-run=client")
    text = helm("install", "rel", f"{charts}/{chart}", *flags, values=steered("exact"))
    assert "config.steering: exact is no more. hints takes its place" in text.partition("NOTES:\n")[2]

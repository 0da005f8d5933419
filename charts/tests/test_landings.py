"""What the charts install for ``steering: hints`` and ``exact``, where, and with which rights."""

from __future__ import annotations

import pytest
from rendering import Json, Render, Rendered, each_node_chart

from tightship_charts.matrix import LONGEST_RELEASE, POLICY, Values
from tightship_charts.places import NODE_CONTROLLERS, UMBRELLA
from tightship_e2e.helm import Helm, HelmError

MODES = ("hints", "exact")
NOTE = "tightship.dev/landing-policy"
FENCE = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
MUTATION = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
PATCHES = {("patch", "pods"), ("patch", "pods/status")}
NAMED = {("get", "configmaps"), ("patch", "configmaps")}


def steered(mode: object, **values: object) -> Values:
    return {"dryRun": False, "config": {"steering": mode}, **values}


def made(rendered: Rendered) -> set[str]:
    """The kinds of all that is made for landings, and the annotation of the ConfigMap."""
    notes = {each["metadata"].get("annotations", {}).get(NOTE, "") for each in rendered.of("ConfigMap")}
    return (rendered.kinds & (FENCE | MUTATION)) | (notes - {""})


@each_node_chart
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("exact", MUTATION | FENCE | {"exact/1"}),
        ("hints", MUTATION | {"hints/1"}),
        ("taints", set()),
        ("off", set()),
        (True, set()),
        (False, set()),
    ],
)
def test_each_mode_has_its_policies_and_rights_and_no_others(
    render: Render, chart: str, mode: object, expected: set[str]
) -> None:
    rendered = render(chart, steered(mode), apis=[POLICY])
    assert made(rendered) == expected
    more = rendered.rights() - render(chart, {"dryRun": False}, apis=[POLICY]).rights()
    assert more == {"exact": PATCHES | NAMED, "hints": NAMED}.get(str(mode), set())
    granted = [rule for rule in rendered.rules("Role") if rule["verbs"] == ["get", "patch"]]
    assert [rule["resourceNames"] for rule in granted] == ([[f"rel-{chart}-landings"]] if expected else [])


@each_node_chart
@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_made_where_it_could_do_nothing(render: Render, chart: str, mode: str) -> None:
    """Kubernetes before 1.36, a dry run, another cluster."""
    elsewhere = {"kubeconfig": {"secretName": "other"}}
    for rendered in (
        render(chart, steered(mode)),
        render(chart, steered(mode, dryRun=True), apis=[POLICY]),
        render(chart, steered(mode, **elsewhere), apis=[POLICY]),
    ):
        assert made(rendered) == set()
        assert not (PATCHES | NAMED) & rendered.rights()


@each_node_chart
@pytest.mark.parametrize("mode", MODES)
def test_the_policy_reads_the_config_map_that_the_controller_writes(render: Render, chart: str, mode: str) -> None:
    rendered = render(chart, steered(mode, namespaceOverride="elsewhere"), apis=[POLICY])
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
@pytest.mark.parametrize("mode", MODES)
def test_a_policy_that_fails_lets_every_pod_through_and_none_is_about_the_controllers_own(
    render: Render, chart: str, mode: str
) -> None:
    rendered = render(chart, steered(mode), apis=[POLICY])
    spec = rendered.one("MutatingAdmissionPolicy")["spec"]
    assert (spec["failurePolicy"], spec["reinvocationPolicy"]) == ("Ignore", "Never")
    [rule] = spec["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
    [spared] = spec["matchConstraints"]["objectSelector"]["matchExpressions"]
    labels = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert spared["operator"] == "NotIn"
    assert labels[spared["key"]] in spared["values"]


@each_node_chart
def test_the_fence_is_around_the_account_that_has_the_rights(render: Render, chart: str) -> None:
    for account in ({"create": True, "name": "mine"}, {"create": False, "name": "theirs"}):
        rendered = render(chart, steered("exact", serviceAccount=account), apis=[POLICY])
        spec = rendered.one("ValidatingAdmissionPolicy")["spec"]
        assert spec["failurePolicy"] == "Fail"
        [condition] = spec["matchConditions"]
        user = f"system:serviceaccount:ns:{account['name']}"
        assert condition["expression"] == f"request.userInfo.username == '{user}'"
        binding = rendered.one("ValidatingAdmissionPolicyBinding")["spec"]
        assert binding["validationActions"] == ["Deny"]
        assert binding["policyName"] == rendered.one("ValidatingAdmissionPolicy")["metadata"]["name"]


def rights(rendered: Rendered) -> set[tuple[str, str]]:
    """(verb, resource) of what the Job that gives nodes back may do."""
    rules: list[Json] = [
        rule for each in rendered.hooks if each["kind"] in ("ClusterRole", "Role") for rule in each["rules"]
    ]
    return {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


@each_node_chart
@pytest.mark.parametrize("dry_run", [False, True])
def test_the_job_that_gives_nodes_back_may_remove_gates_too_and_is_fenced_as_well(
    render: Render, chart: str, dry_run: bool
) -> None:
    plain = rights(render(chart, {"dryRun": dry_run}, apis=[POLICY]))
    assert rights(render(chart, steered("hints", dryRun=dry_run), apis=[POLICY])) == plain
    rendered = render(chart, steered("exact", dryRun=dry_run), apis=[POLICY])
    assert rights(rendered) - plain == {("patch", "pods"), *NAMED}
    fence = [each for each in rendered.hooks if each["kind"] in FENCE]
    assert len(fence) == 2
    account = next(each["metadata"]["name"] for each in rendered.hooks if each["kind"] == "ServiceAccount")
    assert f":{account}'" in str(fence)


@each_node_chart
def test_exact_is_refused_where_an_uninstall_would_leave_gates(render: Render, chart: str) -> None:
    for values in ({"giveBack": {"enabled": False}}, {"rbac": {"create": False}}):
        with pytest.raises(HelmError, match=r"config\.steering: exact: needs the Job"):
            render(chart, steered("exact", **values), apis=[POLICY])
        assert render(chart, steered("hints", **values), apis=[POLICY]).of("MutatingAdmissionPolicy")
        assert render(chart, steered("exact", **values)).of("Deployment")


@each_node_chart
def test_the_rights_of_exact_can_be_kept_where_charts_are_rendered_without_a_cluster(
    render: Render, chart: str
) -> None:
    kept = render(chart, steered("taints", giveBack={"gates": True}), apis=[POLICY])
    exact = render(chart, steered("exact"), apis=[POLICY])
    assert made(kept) == FENCE
    assert kept.rules() == exact.rules()
    assert rights(kept) == rights(exact)
    dry = render(chart, steered("taints", dryRun=True, giveBack={"gates": True}), apis=[POLICY])
    assert made(dry) == set()
    assert ("patch", "pods") in rights(dry)
    assert ("patch", "pods") not in dry.rights()


@each_node_chart
def test_policies_of_two_releases_have_two_names(render: Render, chart: str) -> None:
    names = [
        render(chart, steered("exact"), release=release, namespace=space, apis=[POLICY]).one(kind)["metadata"]["name"]
        for kind in ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
        for release, space in (("one", "a"), ("one", "b"), ("two", "a"), (LONGEST_RELEASE, "a"))
    ]
    assert len(set(names)) == 4
    assert all(len(name) <= 253 and name.endswith((".a", ".b")) for name in names)


def test_in_the_umbrella_each_controller_has_its_own_mode(render: Render) -> None:
    modes = dict(zip(NODE_CONTROLLERS, MODES, strict=True))
    values = {name: {"config": {"steering": mode}} for name, mode in modes.items()}
    rendered = render(UMBRELLA, {"global": {"dryRun": False}, **values}, apis=[POLICY])
    found = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each["metadata"]["annotations"][NOTE]
        for each in rendered.of("ConfigMap")
        if NOTE in each["metadata"].get("annotations", {})
    }
    assert found == {name: f"{mode}/1" for name, mode in modes.items()}
    assert len(rendered.of("MutatingAdmissionPolicy")) == 2
    assert len(rendered.of("ValidatingAdmissionPolicy")) == 1


@each_node_chart
@pytest.mark.parametrize("mode", MODES)
def test_the_notes_say_what_the_mode_does_or_why_it_does_nothing(
    helm: Helm, charts: object, chart: str, mode: str
) -> None:
    def said(**values: object) -> str:
        flags = ("--namespace", "ns", "--dry-run=client")
        known = {"global": {"apiVersions": ["v1/Pod"]}}
        text = helm("install", "rel", f"{charts}/{chart}", *flags, values=steered(mode, **known, **values))
        return text.partition("NOTES:\n")[2]

    assert f"WARNING: config.steering is {mode}, but this cluster does not serve" in said()
    assert f"WARNING: config.steering is {mode}, but the controller manages" in said(kubeconfig={"secretName": "other"})
    assert "steering" not in said(dryRun=True)

"""The rights that the charts grant: what docs/permissions.md says, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from rendering import Feature, Json, Render, each_case, each_chart, each_node_chart

from tightship_charts.matrix import POLICY, Values, features

Right = tuple[str, str, str, str]

ROLLOUT = "argoproj.io/v1alpha1/Rollout"
ROLLOUTS: Right = ("get", "argoproj.io", "rollouts", "")

WRITES = {"create", "patch", "update", "delete", "deletecollection", "*"}
PERMISSIONS = Path(__file__).resolve().parents[2] / "docs" / "permissions.md"


def rights_of(rules: list[Json]) -> set[Right]:
    """(verb, group, resource, name) of all rules."""
    return {
        (verb, group, resource, name)
        for rule in rules
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def documented(kind: str, *names: str) -> list[Json]:
    """The rules of roles in docs/permissions.md."""
    blocks = re.findall(r"```yaml\n(.*?)```", PERMISSIONS.read_text(encoding="utf-8"), re.DOTALL)
    roles = [yaml.safe_load(block) for block in blocks]
    chosen = [role for role in roles if role.get("kind") == kind and role["metadata"]["name"] in names]
    assert len(chosen) == len(names)
    return [rule for role in chosen for rule in role["rules"]]


@pytest.mark.parametrize(
    ("chart", "config_map", "cluster"),
    [
        ("node-compactor", "node-compactor-config", ("tightship-reader", "tightship-drainer")),
        ("node-refiner", "node-refiner-config", ("tightship-reader", "tightship-drainer")),
        ("hpa-scaler", "hpa-scaler-config", ("hpa-scaler",)),
    ],
)
def test_a_controller_has_the_documented_rights(
    render: Render, chart: str, config_map: str, cluster: tuple[str, ...]
) -> None:
    rendered = render(chart, {"dryRun": False, "fullnameOverride": chart, "configMap": {"name": config_map}})
    assert rights_of(rendered.rules()) == rights_of(documented("ClusterRole", *cluster))
    roles = ("hpa-scaler",) if chart == "hpa-scaler" else ("node-compactor", "tightship-claims")
    # The page says that node-refiner's names stand for node-compactor's.
    named = {(*right[:3], right[3].replace("node-compactor", chart)) for right in rights_of(documented("Role", *roles))}
    assert rights_of(rendered.rules("Role")) == named


@each_node_chart
def test_what_landings_need_is_documented_as_well(render: Render, chart: str) -> None:
    values = {"dryRun": False, "fullnameOverride": "node-compactor"}
    plain = render(chart, values)
    rendered = render(chart, {**values, "config": {"steering": "hints"}}, apis=[POLICY])
    assert rights_of(rendered.rules()) == rights_of(plain.rules())
    more = rights_of(rendered.rules("Role")) - rights_of(plain.rules("Role"))
    assert more == rights_of(documented("Role", "node-compactor-landings"))


@each_node_chart
def test_what_deletion_costs_need_is_documented_as_well(feature: Feature, render: Render, chart: str) -> None:
    more = rights_of(feature(chart, "deletion costs").rules()) - rights_of(render(chart, {"dryRun": False}).rules())
    assert more == rights_of(documented("ClusterRole", "tightship-pricer"))


@each_node_chart
def test_who_looks_at_no_autoscalers_or_buffers_may_not(feature: Feature, render: Render, chart: str) -> None:
    granted = rights_of(feature(chart, "live").rules())
    without = rights_of(feature(chart, "no veto").rules())
    assert {right[2] for right in granted - without} == {"horizontalpodautoscalers"}
    without = rights_of(render(chart, {"dryRun": False, "config": {"disabledRules": ["BufferNeedsNode"]}}).rules())
    assert {right[2] for right in granted - without} == {"capacitybuffers", "podtemplates"}


def test_only_a_scaler_that_watches_may_watch(feature: Feature) -> None:
    watch = ("watch", "horizontalpodautoscalers")
    assert [watch in feature("hpa-scaler", name).rights() for name in ("watch", "live")] == [True, False]


@each_case
def test_no_right_has_a_wildcard_and_none_is_about_secrets(feature: Feature, chart: str, name: str) -> None:
    rendered = feature(chart, name)
    for verb, group, resource, _ in rights_of([*rendered.rules(), *rendered.rules("Role")]):
        assert "*" not in verb + group + resource
        assert resource != "secrets"


@each_case
def test_leases_and_config_maps_are_granted_by_name_in_one_namespace(feature: Feature, chart: str, name: str) -> None:
    rendered = feature(chart, name)
    for verb, _, resource, named in rights_of(rendered.rules()):
        # Nobody knows the namespace of Cluster Autoscaler.
        own = resource == "configmaps" and named == "cluster-autoscaler-status"
        assert own or resource not in {"leases", "configmaps"}, verb
    for verb, _, resource, named in rights_of(rendered.rules("Role")):
        if resource in {"leases", "configmaps"} and verb != "create":
            assert named
    named = {right[3] for right in rights_of(rendered.rules("Role")) if right[2] == "leases"}
    if named:
        assert rendered.env["LEASE_NAME"] in named or name == "no election"


@each_node_chart
@pytest.mark.parametrize(("dry_run", "when"), [(True, "post-upgrade,post-rollback"), (False, "post-delete")])
def test_what_gives_nodes_back_may_patch_nodes_and_write_leases_and_no_more(
    render: Render, chart: str, dry_run: bool, when: str
) -> None:
    rendered = render(chart, {"dryRun": dry_run, "config": {}})
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in rendered.hooks} == {when}
    roles = [each for each in rendered.hooks if each["kind"] in ("ClusterRole", "Role")]
    granted = rights_of([rule for role in roles for rule in role["rules"]])
    reads = {right for right in granted if right[0] in ("list", "watch")}
    live = render(chart, {"dryRun": False, "config": {}})
    assert reads == {each for each in rights_of([*live.rules(), *live.rules("Role")]) if each[0] in ("list", "watch")}
    assert {(verb, resource) for verb, _, resource, _ in granted - reads} == {
        ("get", "nodes"), ("patch", "nodes"), ("create", "leases"), ("get", "leases"), ("update", "leases"),
    }  # fmt: skip
    [job] = [each for each in rendered.hooks if each["kind"] == "Job"]
    [account] = [each["metadata"]["name"] for each in rendered.hooks if each["kind"] == "ServiceAccount"]
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account
    bound = [each["subjects"] for each in rendered.hooks if each["kind"].endswith("Binding")]
    assert bound == [[{"kind": "ServiceAccount", "name": account, "namespace": "ns"}]] * 3
    env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert env["RELEASE"] == "true"
    assert {name: env[name] for name in ("LEASE_NAME", "CLAIMS_LEASE_NAME", "CLAIMS_LEASE_NAMESPACE")} == {
        name: live.env[name] for name in ("LEASE_NAME", "CLAIMS_LEASE_NAME", "CLAIMS_LEASE_NAMESPACE")
    }


@each_node_chart
def test_nothing_gives_nodes_back_where_it_is_switched_off_or_could_only_fail(render: Render, chart: str) -> None:
    assert render(chart, {"giveBack": {"enabled": False}}).hooks == []
    assert render(chart, {"rbac": {"create": False}}).hooks == []
    account = {"create": False, "name": "mine"}
    [job] = render(chart, {"rbac": {"create": False}, "serviceAccount": account}).hooks
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == "mine"
    assert render("hpa-scaler").hooks == []


@each_chart
def test_the_charts_own_dry_run_comes_before_the_global_one(render: Render, chart: str) -> None:
    for own, everywhere, dry in (
        (None, True, "true"),
        (None, False, "false"),
        (False, True, "false"),
        (True, False, "true"),
    ):
        rendered = render(chart, {"dryRun": own, "global": {"dryRun": everywhere}})
        assert rendered.env["DRY_RUN"] == dry
        assert bool(WRITES & {verb for verb, _ in rendered.rights()}) is (dry == "false")


def test_a_refiner_whose_drainer_is_switched_off_may_finish_what_it_had_begun(render: Render) -> None:
    rendered = render("node-refiner", {"dryRun": False, "config": {"enabled": False}})
    assert ("patch", "nodes") in rendered.rights()


def test_a_scaler_of_some_namespaces_has_rights_in_those_alone(feature: Feature, render: Render) -> None:
    rendered = render("hpa-scaler", {**features("hpa-scaler")["namespaces"], "dryRun": False})
    assert not rendered.of("ClusterRole")
    granted = {role["metadata"]["namespace"]: rights_of(role["rules"]) for role in rendered.of("Role")}
    assert set(granted) == {"ns", "elsewhere", "monitoring"}
    assert granted["elsewhere"] == granted["monitoring"]
    # Nobody grants a right that nobody holds: where there are no Rollouts, a tenant's own roles name none.
    assert rights_of(feature("hpa-scaler", "live").rules()) - granted["elsewhere"] == {ROLLOUTS}
    assert "horizontalpodautoscalers" not in {right[2] for right in granted["ns"]}


@pytest.mark.parametrize(
    ("values", "apis", "granted"),
    [
        ({}, [], True),
        ({"optionalRights": {"rollouts": False}}, [ROLLOUT], False),
        ({"config": {"namespaces": ["a"]}}, [], False),
        ({"config": {"namespaces": ["a"]}}, [ROLLOUT], True),
        ({"config": {"namespaces": ["a"]}, "optionalRights": {"rollouts": True}}, [], True),
        ({"config": {"namespaces": ["a"]}, "optionalRights": {"rollouts": False}}, [ROLLOUT], False),
        ({"config": {"namespaces": ["a"]}}, None, True),
    ],
)
def test_rollouts_are_read_by_who_may_and_where_there_are_some(
    render: Render, values: Values, apis: list[str] | None, granted: bool
) -> None:
    rendered = render("hpa-scaler", values, apis=apis)
    assert (ROLLOUTS in rights_of([*rendered.rules(), *rendered.rules("Role")])) is granted


@pytest.mark.parametrize("namespaces", [[], ["a"]])
def test_a_scaler_does_without_events_and_with_no_rule_that_says_nothing(render: Render, namespaces: list[str]) -> None:
    rendered = render("hpa-scaler", {"config": {"namespaces": namespaces}, "optionalRights": {"events": False}})
    assert "events" not in {resource for _, resource in rendered.rights()}
    assert all(rule for rule in [*rendered.rules(), *rendered.rules("Role")])


@each_case
def test_only_the_eviction_method_delete_may_delete_pods(feature: Feature, chart: str, name: str) -> None:
    assert (("delete", "pods") in feature(chart, name).rights()) is (name == "deletion")


@each_node_chart
def test_claims_in_another_namespace_are_granted_there(feature: Feature, chart: str) -> None:
    rendered = feature(chart, "claims elsewhere")
    there = [role for role in rendered.of("Role") if role["metadata"]["namespace"] == "claims"]
    assert rights_of(there[0]["rules"]) == {
        ("create", "coordination.k8s.io", "leases", ""),
        ("get", "coordination.k8s.io", "leases", "team-claims"),
        ("update", "coordination.k8s.io", "leases", "team-claims"),
        ("watch", "coordination.k8s.io", "leases", "team-claims"),
    }
    [binding] = [each for each in rendered.of("RoleBinding") if each["metadata"]["namespace"] == "claims"]
    assert binding["subjects"][0]["namespace"] == "ns"
    assert rendered.env["CLAIMS_LEASE_NAMESPACE"] == "claims"
    here = [role for role in rendered.of("Role") if role["metadata"]["namespace"] == "ns"]
    assert all(right[3] != "team-claims" for role in here for right in rights_of(role["rules"]))


@each_case
def test_every_role_is_bound_to_the_controllers_account(feature: Feature, chart: str, name: str) -> None:
    rendered = feature(chart, name)
    account = rendered.pod["serviceAccountName"]
    for kind in ("ClusterRole", "Role"):
        bound = {(each["metadata"].get("namespace"), each["roleRef"]["name"]) for each in rendered.of(f"{kind}Binding")}
        assert bound == {(each["metadata"].get("namespace"), each["metadata"]["name"]) for each in rendered.of(kind)}
        for binding in rendered.of(f"{kind}Binding"):
            namespace = rendered.one("Deployment")["metadata"]["namespace"]
            if binding["metadata"]["name"].endswith(":readers"):
                continue
            assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]

"""The policies that hold the accounts of the charts to their work: where they are, and about whom.

What they refuse: e2e/tests/test_stolen_token.py.
"""

from __future__ import annotations

import pytest
from rendering import Json, Render, each_chart, each_node_chart

from tightship_charts.matrix import FENCE, LONGEST_RELEASE, POLICY, Values
from tightship_charts.places import UMBRELLA

LIVE: Values = {"dryRun": False}


def about(items: list[Json]) -> set[str]:
    """What the policies of *items* are about, by the last parts of their names."""
    return {
        each["metadata"]["name"].rpartition(".")[2] for each in items if each["kind"] == "ValidatingAdmissionPolicy"
    }


@each_chart
def test_a_live_controller_is_held_to_what_it_writes_by_default(render: Render, chart: str) -> None:
    rendered = render(chart, LIVE, apis=[FENCE])
    own = {"autoscalers"} if chart == "hpa-scaler" else {"nodes", "evictions"}
    assert about(rendered.objects) == {"events", "leases", *own}
    assert about(rendered.hooks) == (set() if chart == "hpa-scaler" else {"nodes", "leases"})
    for items in (rendered.objects, rendered.hooks):
        [account] = [each["metadata"]["name"] for each in items if each["kind"] == "ServiceAccount"] or [None]
        bound = {each["spec"]["policyName"] for each in items if each["kind"] == "ValidatingAdmissionPolicyBinding"}
        for each in items:
            if each["kind"] == "ValidatingAdmissionPolicy":
                [condition] = each["spec"]["matchConditions"]
                assert condition["expression"] == f"request.userInfo.username == 'system:serviceaccount:ns:{account}'"
                assert each["spec"]["failurePolicy"] == "Fail"
                assert each["metadata"]["name"] in bound


@each_chart
@pytest.mark.parametrize(
    "values",
    [
        {"admissionPolicy": {"enabled": False}},
        {"kubeconfig": {"secretName": "other"}},
        {"serviceAccount": {"create": False, "name": "shared"}},
    ],
)
def test_an_account_of_others_or_of_another_cluster_is_not_held(render: Render, chart: str, values: Values) -> None:
    rendered = render(chart, {**LIVE, **values}, apis=[FENCE])
    assert about([*rendered.objects, *rendered.hooks]) == set()


@each_chart
def test_where_the_api_is_not_served_or_nothing_is_written_there_is_no_policy(render: Render, chart: str) -> None:
    assert about(render(chart, LIVE).objects) == set()
    assert about(render(chart, {"dryRun": True}, apis=[FENCE]).objects) == set()


@each_node_chart
def test_the_job_that_gives_back_after_a_dry_run_is_held_too(render: Render, chart: str) -> None:
    """Its right on pods as well, which takes deletion costs off them after a rollback."""
    hooks = render(chart, {"dryRun": True}, apis=[FENCE]).hooks
    assert about(hooks) == {"nodes", "leases", "pods"}
    [account] = [each["metadata"]["name"] for each in hooks if each["kind"] == "ServiceAccount"]
    [policy] = [each for each in hooks if about([each]) == {"pods"}]
    [rule] = policy["spec"]["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["UPDATE"]
    assert set(rule["resources"]) == {"pods", "pods/*"}
    [condition] = policy["spec"]["matchConditions"]
    assert condition["expression"] == f"request.userInfo.username == 'system:serviceaccount:ns:{account}'"
    assert policy["spec"]["failurePolicy"] == "Fail"
    kind = "ValidatingAdmissionPolicyBinding"
    [bound] = [each["spec"] for each in hooks if each["kind"] == kind and each["metadata"]["name"].endswith(".pods")]
    assert bound == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    for each in hooks:
        for granted in each["rules"] if each["kind"] in {"ClusterRole", "Role"} else []:
            if "pods" in granted["resources"]:
                assert set(granted["verbs"]) <= {"get", "list", "watch", "patch"}


@each_node_chart
def test_with_landings_their_config_map_is_held_as_well(render: Render, chart: str) -> None:
    rendered = render(chart, {**LIVE, "config": {"steering": "hints"}}, apis=[FENCE, POLICY])
    assert "landings" in about(rendered.objects)


@each_chart
def test_the_leases_are_those_of_the_environment(render: Render, chart: str) -> None:
    values = {**LIVE, "leaderElection": {"resourceName": "chosen"}}
    if chart != "hpa-scaler":
        values["claims"] = {"leaseName": "shared", "namespace": "claims"}
    rendered = render(chart, values, apis=[FENCE])
    [policy] = [each for each in rendered.of("ValidatingAdmissionPolicy") if about([each]) == {"leases"}]
    leases = ["ns/chosen"] + (["claims/shared"] if chart != "hpa-scaler" else [])
    assert str(leases) in policy["spec"]["validations"][0]["expression"]


def test_policies_of_two_releases_have_two_names(render: Render) -> None:
    names = [
        each["metadata"]["name"]
        for release, space in (("one", "a"), ("one", "b"), ("two", "a"), (LONGEST_RELEASE, "a"))
        for each in render(UMBRELLA, {"global": {"dryRun": False}}, release=release, namespace=space, apis=[FENCE]).of(
            "ValidatingAdmissionPolicy"
        )
    ]
    assert len(set(names)) == len(names) == 4 * 11
    assert all(len(name) <= 253 for name in names)

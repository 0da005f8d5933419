"""The pods of the controllers: how they are secured, started, stopped, spread and replaced."""

from __future__ import annotations

import pytest
from rendering import Feature, Render, each_case, each_chart

from tightship_charts.matrix import Values
from tightship_e2e.helm import HelmError


@each_case
def test_every_container_of_ours_is_restricted(feature: Feature, chart: str, name: str) -> None:
    rendered = feature(chart, name)
    pod = rendered.pod["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    container = rendered.container["securityContext"]
    assert container == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


@each_case
def test_the_token_is_mounted_where_it_is_needed_and_nowhere_else(feature: Feature, chart: str, name: str) -> None:
    rendered = feature(chart, name)
    for account in rendered.of("ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    assert rendered.pod["automountServiceAccountToken"] is (name != "another cluster")


@each_chart
def test_what_is_secured_by_default_can_be_taken_back(render: Render, chart: str) -> None:
    rendered = render(chart, {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}})
    assert set(rendered.pod["securityContext"]) == {"runAsNonRoot", "seccompProfile"}


@each_case
def test_probes_ask_what_the_controllers_serve(feature: Feature, chart: str, name: str) -> None:
    container = feature(chart, name).container
    ports = {each["name"]: str(each["containerPort"]) for each in container["ports"]}
    assert len(ports) == len(container["ports"]) == len(set(ports.values()))
    probed = container["livenessProbe"]["httpGet"]["port"]
    env = feature(chart, name).env
    scheme = {"scheme": "HTTPS"} if env["HTTP_SECURE"] == "true" and probed != "probes" else {}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": probed, **scheme}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": probed, **scheme}
    assert ports[probed] == env["HTTP_PROBE_PORT"]
    main = "https" if env["HTTP_SECURE"] == "true" else "http"
    assert [ports[main], *(port for name, port in ports.items() if name not in (main, "probes"))] == env[
        "HTTP_PORTS"
    ].split(",")
    assert all(name == "probes" or name.split("-")[0] == main for name in ports)


@each_chart
def test_probes_have_a_port_of_their_own_unless_another_has_its_number(render: Render, chart: str) -> None:
    """As in values of the time when the older controller's port of probes was one of the extra ones."""

    def probed(http: Values) -> str:
        name: str = render(chart, {"http": http}).container["readinessProbe"]["httpGet"]["port"]
        return name

    assert probed({}) == "probes"
    assert probed({"probePort": 7000, "extraPorts": [7000, 7001]}) == "http-7000"
    assert probed({"port": 7000, "probePort": 7000}) == "http"


@each_chart
def test_with_election_replicas_overlap_and_without_the_old_one_goes_first(render: Render, chart: str) -> None:
    assert render(chart).env["LEADER_ELECT"] == "true"
    two = render(chart, {"replicaCount": 2}).one("Deployment")["spec"]
    assert two["replicas"] == 2
    assert two["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    alone = render(chart, {"leaderElection": {"enabled": False}}).one("Deployment")["spec"]
    assert alone["strategy"] == {"type": "Recreate"}


@each_chart
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicaCount": 2, "leaderElection": {"enabled": False}}, "replicaCount: 2: more than one replica needs"),
        ({"strategy": {"type": "RollingUpdate"}, "leaderElection": {"enabled": False}}, "only Recreate is allowed"),
        ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, "one of the two"),
        ({"terminationGracePeriodSeconds": 25}, "must be above shutdown.grace"),
        ({"shutdown": {"grace": "1m30s"}, "terminationGracePeriodSeconds": 90}, "must be above shutdown.grace"),
        ({"podDisruptionBudget": {"minAvailable": 1}}, "would block every drain"),
        ({"replicaCount": 2, "podDisruptionBudget": {"minAvailable": "51%"}}, "would block every drain"),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "would block every drain"),
        ({"podDisruptionBudget": {"maxUnavailable": "0%"}}, "would block every drain"),
        ({"podDisruptionBudget": {"maxUnavailable": None}}, "would block every drain"),
        ({"serviceAccount": {"create": False}}, "the name of an existing ServiceAccount"),
    ],
)
def test_values_that_would_be_unsafe_together_are_refused(
    render: Render, chart: str, values: Values, said: str
) -> None:
    with pytest.raises(HelmError, match=said):
        render(chart, values)


@each_chart
@pytest.mark.parametrize(
    ("replicas", "budget", "rendered"),
    [
        (1, {}, {"maxUnavailable": 1}),
        (2, {"minAvailable": 1}, {"minAvailable": 1}),
        (3, {"minAvailable": "66%"}, {"minAvailable": "66%"}),
        (1, {"maxUnavailable": "10%"}, {"maxUnavailable": "10%"}),
    ],
)
def test_a_budget_that_leaves_one_pod_to_go_is_taken(
    render: Render, chart: str, replicas: int, budget: Values, rendered: Values
) -> None:
    spec = render(chart, {"replicaCount": replicas, "podDisruptionBudget": budget}).one("PodDisruptionBudget")["spec"]
    assert rendered.items() <= spec.items()
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@each_chart
def test_a_change_of_what_is_watched_leaves_the_pods_alone_and_of_what_is_mounted_rolls_them(
    render: Render, chart: str
) -> None:
    changed: Values = {"config": CHANGES[chart]}

    def template(values: Values) -> object:
        return render(chart, values).one("Deployment")["spec"]["template"]

    assert template({}) == template(changed)
    mounted: Values = {"configMap": {"mounted": True}}
    assert template(mounted) != template({**mounted, **changed})
    assert render(chart).one("ConfigMap") != render(chart, changed).one("ConfigMap")


CHANGES: dict[str, Values] = {
    "node-compactor": {"maximumNodesInPlan": 3},
    "node-refiner": {"maximumNodesInPlan": 3},
    "hpa-scaler": {"maximumWritesPerSecond": 3},
}


@each_chart
def test_a_mounted_configuration_is_where_the_controller_looks_and_needs_no_right(render: Render, chart: str) -> None:
    rendered = render(chart, {"configMap": {"mounted": True}})
    [mount] = [each for each in rendered.container["volumeMounts"] if each["name"] == "config"]
    [volume] = [each for each in rendered.pod["volumes"] if each["name"] == "config"]
    assert mount["mountPath"] == rendered.env["CONFIG_PATH"]
    assert volume["configMap"]["name"] == rendered.one("ConfigMap")["metadata"]["name"]
    # All may read how large Cluster Autoscaler keeps its groups.
    rules = [*rendered.rules(), *rendered.rules("Role")]
    named = [each.get("resourceNames") for each in rules if "configmaps" in each["resources"]]
    assert [names for names in named if names != ["cluster-autoscaler-status"]] == []

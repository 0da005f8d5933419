"""The pods of Jobs and tests: whatever values say of the controller's pod reaches them, and policies let them out."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pytest
import yaml
from rendering import HOOK, Json, Render, each_chart, each_node_chart

from tightship_charts.matrix import FENCE, Values, merge
from tightship_charts.places import CONTROLLERS, NODE_CONTROLLERS, UMBRELLA
from tightship_e2e.helm import Helm, objects

CONSTANT = {
    "replicas": "topologySpreadConstraints",
    "who": "serviceAccountName",
    "token": "automountServiceAccountToken",
}
"""Fields of a pod's spec that are not the same in every pod of a controller, each for the reason that is its key."""

POD_VALUES: dict[str, Values] = {
    "labels of all": {"global": {"commonLabels": {"team": "all"}}},
    "labels": {"podLabels": {"team": "own"}},
    "annotations of all": {"commonAnnotations": {"example.com/a": "b"}},
    "annotations": {"podAnnotations": {"sidecar.istio.io/inject": "false"}},
    "environment": {"env": [{"name": "SSL_CERT_FILE", "value": "/etc/corp-ca/ca.crt"}]},
    "environment from elsewhere": {"envFrom": [{"configMapRef": {"name": "proxies"}}]},
    "volumes": {
        "extraVolumes": [{"name": "corp-ca", "configMap": {"name": "corp-ca"}}],
        "extraVolumeMounts": [{"name": "corp-ca", "mountPath": "/etc/corp-ca"}],
    },
    "secrets": {"secretMounts": {"plugin": "credentials"}},
    "hosts": {"hostAliases": [{"ip": "192.0.2.1", "hostnames": ["api.example.com"]}]},
    "names": {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"]}},
    "pod security": {"podSecurityContext": {"runAsUser": 1234}},
    "container security": {"securityContext": {"seLinuxOptions": {"level": "s0"}}},
    "users": {"hostUsers": False},
    "limits": {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
    "place": {
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    },
    "priority": {"priorityClassName": "high"},
    "runtime": {"runtimeClassName": "sandbox"},
    "scheduler": {"schedulerName": "gke.io/optimize-utilization-scheduler"},
    "pull secrets": {"imagePullSecrets": [{"name": "registry"}]},
    "image": {"image": {"registry": "registry.example.com", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"}},
    "grace": {"terminationGracePeriodSeconds": 90},
    "lifecycle": {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
}
"""Values of a pod, each with what it is about. All together they say nothing twice, but for :data:`NETWORK`."""

NETWORK: Values = {"hostNetwork": True}
"""Decides on the ``dnsPolicy``, too."""


def pods(render: Render, chart: str, values: Values) -> dict[str, Json]:
    """The pods of *chart* by what they are for, as metadata and spec."""
    found = render(chart, {"dryRun": False, **values}, tests=True)
    made: dict[str, Json] = {"controller": found.one("Deployment")["spec"]["template"]}
    for each in found.hooks:
        if each["kind"] in ("Pod", "Job"):
            made |= {"test": each} if each["kind"] == "Pod" else {"job": each["spec"]["template"]}
    return made


def flat(value: object, path: str = "") -> set[tuple[str, str]]:
    """Every leaf of *value* with its path; what is in a list has no place in it."""
    if isinstance(value, dict):
        return {leaf for key, each in value.items() for leaf in flat(each, f"{path}.{key}")}
    if isinstance(value, list):
        return {leaf for each in value for leaf in flat(each, path)}
    return {(path, str(value))}


@each_chart
@pytest.mark.parametrize("together", [[*POD_VALUES.values()], [NETWORK]], ids=["of the pod", "the node's network"])
def test_what_reaches_the_controllers_pod_reaches_the_others(
    render: Render, chart: str, together: list[Values]
) -> None:
    """Each of them changes something: see test_values_matter.py."""
    plain, changed = pods(render, chart, {}), pods(render, chart, reduce(merge, together))
    assert set(changed) == ({"controller", "test"} if chart == "hpa-scaler" else {"controller", "test", "job"})
    new = flat(changed["controller"]) - flat(plain["controller"])
    assert len(new) >= len(together)
    for name, pod in changed.items():
        assert new - flat(pod) == set(), name


@each_chart
def test_pods_differ_in_what_only_one_of_them_has_and_in_nothing_else(render: Render, chart: str) -> None:
    made = pods(render, chart, {"kubeconfig": {"secretName": "other"}, "configMap": {"mounted": True}})
    kept = {name: {key for key in pod["spec"] if key not in CONSTANT.values()} for name, pod in made.items()}
    for name, keys in kept.items():
        assert keys - kept["controller"] == (set() if name == "controller" else {"restartPolicy"})
        # The ConfigMap goes with the release, before the Job runs.
        mounted = {each["name"] for each in made[name]["spec"].get("volumes", [])}
        assert mounted == {"controller": {"config", "kubeconfig"}, "job": {"kubeconfig"}, "test": set()}[name]


@each_chart
def test_a_policy_of_its_own_is_about_each_pod(render: Render, chart: str) -> None:
    """Under a default deny: the Job reaches the API server, and the test the controller, which lets it in."""
    extra = [{"ports": [{"port": 3128, "protocol": "TCP"}]}]
    values: Values = {"networkPolicy": {"enabled": True, "egress": {"extra": extra}}}
    found = render(chart, {"dryRun": False, **values}, tests=True)
    policies = {
        name: [
            each
            for each in (*found.objects, *found.hooks)
            if each["kind"] == "NetworkPolicy"
            and each["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        ]
        for name, pod in pods(render, chart, values).items()
    }
    assert all(len(each) == 1 for each in policies.values()), "each is about one pod, and each pod has one"
    egress = {name: flat(each[0]["spec"]["egress"], "egress") for name, each in policies.items()}
    dns = ("egress.ports.port", "53")
    assert all(dns in each for each in egress.values())
    for name in set(egress) - {"test"}:
        assert {("egress.ports.port", port) for port in ("443", "6443", "3128")} <= egress[name]
    assert ("egress.to.podSelector.matchLabels.app.kubernetes.io/name", chart) in egress["test"]
    for name, [each] in policies.items():
        hook = each["metadata"].get("annotations", {}).get(HOOK)
        assert hook == {"controller": None, "test": "test", "job": "post-delete"}[name]


@each_node_chart
def test_init_containers_run_before_the_job_too_and_sidecars_do_not(render: Render, chart: str) -> None:
    """A plugin for credentials may be copied by the first; a Job with the second would never end."""
    beside = {"name": "x", "image": "x"}
    made = pods(render, chart, {"initContainers": [beside], "extraContainers": [beside]})
    counts = {
        name: (len(each["spec"].get("initContainers", [])), len(each["spec"]["containers"]))
        for name, each in made.items()
    }
    assert counts == {"controller": (1, 2), "job": (1, 1), "test": (0, 1)}


def test_jobs_that_run_at_the_same_time_are_one_hook(helm: Helm, charts: Path) -> None:
    """Helm stops at the first hook that fails; what is in one hook is created before Helm waits for any of it."""

    def jobs(values: Values) -> list[list[str]]:
        """The names of the Jobs of each hook."""
        text = helm("template", "rel", charts / UMBRELLA, "--namespace", "ns", "--api-versions", FENCE, values=values)
        found = []
        for each in yaml.safe_load_all(text):
            items = each["items"] if each and each["kind"] == "List" else [each] if each else []
            if items and items[0]["kind"] == "Job":
                assert {item["metadata"]["annotations"][HOOK] for item in items} == {
                    each["metadata"]["annotations"][HOOK]
                }
                found.append([item["metadata"]["name"] for item in items])
        assert sorted(name for names in found for name in names) == sorted(
            item["metadata"]["name"] for item in objects(text) if item["kind"] == "Job"
        )
        return found

    both = [f"rel-{each}-release" for each in NODE_CONTROLLERS]
    assert jobs({"global": {"dryRun": False}}) == [both]
    assert jobs({}) == [both]
    assert jobs({"node-compactor": {"dryRun": False}}) == [[each] for each in both]
    assert jobs({"node-refiner": {"enabled": False}}) == [both[:1]]
    assert jobs({"node-refiner": {"giveBack": {"enabled": False}}}) == [both[:1]]
    assert sorted(jobs({"node-refiner": {"giveBack": {"leftToParent": False}}})) == [[each] for each in both]


@each_chart
def test_on_the_nodes_network_ports_differ_and_none_waits_for_a_second(render: Render, chart: str) -> None:
    """All three may share a node, a rollout can't have two pods of one there, and names of the cluster resolve."""
    rendered = render(UMBRELLA, {each: {"hostNetwork": True} for each in CONTROLLERS})
    taken = [
        port["containerPort"]
        for each in rendered.of("Deployment")
        for port in each["spec"]["template"]["spec"]["containers"][0]["ports"]
    ]
    assert len(set(taken)) == len(taken) == 2 * len(CONTROLLERS)
    alone = render(chart, {"hostNetwork": True, "dryRun": False})
    strategy = alone.one("Deployment")["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    assert alone.pod["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert render(chart, {"hostNetwork": True, "dnsPolicy": "Default"}).pod["dnsPolicy"] == "Default"
    assert "dnsPolicy" not in render(chart).pod

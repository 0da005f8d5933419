"""Who reaches the controllers, and whom they reach: the chain from a scrape to the pod, and the NetworkPolicy."""

from __future__ import annotations

from pathlib import Path

import pytest
from rendering import EVERYTHING, Feature, Json, Render, each_case, each_chart

from tightship_charts.matrix import ALL_APIS, Values
from tightship_e2e.helm import Helm, objects


def ports(rules: list[Json]) -> set[tuple[int | str, str]]:
    return {(each["port"], each["protocol"]) for rule in rules for each in rule["ports"]}


def policy(render: Render, chart: str, values: Values | None = None) -> Json:
    spec: Json = render(chart, {**(values or {}), "networkPolicy": {"enabled": True}}).one("NetworkPolicy")["spec"]
    return spec


@each_case
def test_a_scrape_finds_the_pods(feature: Feature, chart: str, name: str) -> None:
    """From the monitor by labels to the Service, from there to the pods, by names of ports all the way."""
    rendered = feature(chart, name)
    service = rendered.one("Service")
    [named] = [each["name"] for each in service["spec"]["ports"]]
    assert service["spec"]["ports"][0]["targetPort"] in {each["name"] for each in rendered.container["ports"]}
    for monitor in rendered.of("ServiceMonitor"):
        spec = monitor["spec"]
        assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert spec["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]
        assert [(each["port"], each["path"]) for each in spec["endpoints"]] == [(named, "/metrics")]
    for monitor in rendered.of("PodMonitor"):
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in {each["name"] for each in rendered.container["ports"]}


@each_chart
def test_by_default_nothing_is_scraped_and_no_policy_is_made(render: Render, chart: str) -> None:
    assert not {"ServiceMonitor", "PodMonitor", "NetworkPolicy"} & render(chart, apis=ALL_APIS).kinds


@each_chart
def test_a_policy_lets_in_scrapes_and_out_what_names_and_the_api_server_need(render: Render, chart: str) -> None:
    """The API server under both of its ports: what a plug-in sees may be that of the Service or its own."""
    spec = policy(render, chart)
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    served = {("http", "TCP"), ("probes", "TCP")}
    assert ports(spec["ingress"]) == served
    assert "from" not in spec["ingress"][0]
    assert ports(policy(render, chart, {"http": {"extraPorts": [5001]}})["ingress"]) == served | {("http-5001", "TCP")}
    assert ports(spec["egress"]) == {(53, "UDP"), (53, "TCP"), (443, "TCP"), (6443, "TCP")}


@each_chart
def test_who_may_ask_can_be_said_and_helm_test_may_in_any_case(
    render: Render, helm: Helm, charts: Path, chart: str
) -> None:
    monitoring = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
    wanted = {"networkPolicy": {"enabled": True, "ingress": {"from": [monitoring]}}}
    rendered = render(chart, wanted)
    [rule] = rendered.one("NetworkPolicy")["spec"]["ingress"]
    first, second = rule["from"]
    assert first == monitoring
    labels = second["podSelector"]["matchLabels"]
    text = helm("template", "rel", charts / chart, "--namespace", "ns", values=wanted)
    [test] = [each for each in objects(text) if each["kind"] == "Pod"]
    assert test["metadata"]["namespace"] == rendered.one("NetworkPolicy")["metadata"]["namespace"]
    assert labels.items() <= test["metadata"]["labels"].items()
    assert not labels.items() <= rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("values", "port"),
    [
        ({"prometheusServerUrl": "http://prometheus.monitoring.svc:9090"}, 9090),
        ({"prometheusServerUrl": "http://prometheus.monitoring.svc/base"}, 80),
        ({"prometheusServerUrl": "http://[2001:db8::1]:9095/base"}, 9095),
        ({"config": {"prometheusServers": {"mimir": {"url": "https://mimir.example.com:8443/prometheus"}}}}, 8443),
        ({"config": {"allowedServerURLs": ["https://*.monitoring.svc:9091"]}}, 9091),
    ],
)
def test_a_scalers_policy_lets_out_to_the_servers_that_are_named(render: Render, values: Values, port: int) -> None:
    plain = ports(policy(render, "hpa-scaler")["egress"])
    assert ports(policy(render, "hpa-scaler", values)["egress"]) - plain == {(port, "TCP")}


def test_a_scalers_policy_takes_the_ports_and_the_peers_of_the_pods_instead(render: Render) -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    url = {"prometheusServerUrl": "http://prometheus.monitoring.svc"}
    plain = policy(render, "hpa-scaler", url)["egress"]
    own = policy(render, "hpa-scaler", {**url, "prometheusEgress": {"ports": [9090], "to": peers}})["egress"]
    assert [each for each in own if each not in plain] == [{"ports": [{"port": 9090, "protocol": "TCP"}], "to": peers}]


@each_case
def test_nothing_is_of_one_ip_family_unless_values_say_so(feature: Feature, chart: str, name: str) -> None:
    """No CIDR is in a rule, no address in a probe, and the process listens on every address."""
    rendered = feature(chart, name)
    peers = [
        peer
        for each in rendered.of("NetworkPolicy")
        for rule in [*each["spec"]["ingress"], *each["spec"]["egress"]]
        for peer in rule.get("from", rule.get("to", []))
    ]
    both = {"192.0.2.0/24", "2001:db8::/32"}
    asked = {"network policy": {"192.0.2.0/24"}, "dual stack": both, EVERYTHING: both}.get(name, set())
    assert {each["ipBlock"]["cidr"] for each in peers if "ipBlock" in each} == asked
    probes = [each for key, each in rendered.container.items() if key.endswith("Probe")]
    assert probes
    assert all(each["httpGet"].keys() <= {"path", "port", "scheme"} for each in probes)
    assert rendered.env["HTTP_HOST"] == "::"


@each_chart
def test_a_service_has_the_families_that_values_ask_for(render: Render, chart: str) -> None:
    assert not {"ipFamilies", "ipFamilyPolicy"} & render(chart).one("Service")["spec"].keys()
    asked = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}
    assert asked.items() <= render(chart, {"service": asked}).one("Service")["spec"].items()


@each_chart
def test_a_policy_can_be_narrowed_and_widened(feature: Feature, chart: str) -> None:
    spec = feature(chart, "network policy").one("NetworkPolicy")["spec"]
    assert spec["ingress"][0]["from"][0] == {"namespaceSelector": {"matchLabels": {"monitoring": "yes"}}}
    assert {"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}.items() <= spec["egress"][1].items()
    assert spec["egress"][0]["to"] == [{"podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}]
    assert {(8443, "TCP"), (9090, "TCP"), (5353, "UDP")} <= ports(spec["egress"])

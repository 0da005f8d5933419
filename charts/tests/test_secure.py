"""HTTPS for those whom the API server lets read: certificate, rights, probes, and monitors that get through."""

from __future__ import annotations

import pytest
from rendering import Json, Render, Rendered, each_chart

from tightship_charts.matrix import APIS, Values
from tightship_charts.places import CONTROLLERS
from tightship_e2e.helm import HelmError

READERS = [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]
REVIEWS = {("create", "tokenreviews"), ("create", "subjectaccessreviews")}


def secure(**values: object) -> Values:
    return {"http": {"secure": {"enabled": True, **values}}}


def endpoint(rendered: Rendered, kind: str = "ServiceMonitor") -> Json:
    spec = rendered.one(kind)["spec"]
    [found] = spec.get("endpoints") or spec["podMetricsEndpoints"]
    assert "bearerTokenFile" not in found, "OpenShift refuses it: operator-sdk#7003"
    return {key: found[key] for key in ("scheme", "tlsConfig", "authorization") if key in found}


@each_chart
def test_plain_http_is_the_default_and_needs_no_right(render: Render, chart: str) -> None:
    rendered = render(chart, {"serviceMonitor": {"enabled": True}}, apis=APIS)
    assert not REVIEWS & rendered.rights()
    assert rendered.env["HTTP_SECURE"] == "false"
    assert endpoint(rendered) == {"scheme": "http"}


WHATEVER: list[tuple[str, Values]] = [(chart, {"dryRun": dry}) for chart in CONTROLLERS for dry in (True, False)]


@pytest.mark.parametrize(("chart", "values"), [*WHATEVER, ("hpa-scaler", {"config": {"namespaces": ["a"]}})])
def test_the_account_may_ask_whoever_it_is_and_nothing_else_is_new(render: Render, chart: str, values: Values) -> None:
    rendered = render(chart, {**values, **secure()})
    assert rendered.rights() - render(chart, values).rights() == REVIEWS
    assert "readers" not in str([each["metadata"]["name"] for each in rendered.of("ClusterRole")])
    assert rendered.env["HTTP_SECURE"] == "true"
    assert "HTTP_TLS_PATH" not in rendered.env


@each_chart
def test_readers_may_get_what_is_served_and_no_more(render: Render, chart: str) -> None:
    rendered = render(chart, secure(readers=READERS))
    [role] = [each for each in rendered.of("ClusterRole") if each["metadata"]["name"].endswith(":readers")]
    assert role["rules"] == [{"nonResourceURLs": ["/", "/metrics", "/status"], "verbs": ["get"]}]
    [binding] = [each for each in rendered.of("ClusterRoleBinding") if each["metadata"]["name"].endswith(":readers")]
    assert binding["subjects"] == READERS
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


@each_chart
def test_a_made_certificate_is_not_verified_and_one_of_a_secret_is(render: Render, chart: str) -> None:
    monitor = {"serviceMonitor": {"enabled": True}}
    made = endpoint(render(chart, {**monitor, **secure()}, apis=APIS))
    token = {"credentials": {"name": f"rel-{chart}-scraper", "key": "token"}}
    assert made == {"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}, "authorization": token}
    rendered = render(chart, {**monitor, **secure(secretName="issued")}, apis=APIS)
    ca = {"secret": {"name": "issued", "key": "ca.crt"}}
    assert endpoint(rendered)["tlsConfig"] == {"ca": ca, "serverName": f"rel-{chart}.ns.svc"}
    [mount] = [each for each in rendered.container["volumeMounts"] if each["name"] == "tls"]
    assert mount["mountPath"] == rendered.env["HTTP_TLS_PATH"]
    assert {"name": "tls", "secret": {"secretName": "issued"}} in rendered.pod["volumes"]


@each_chart
def test_cert_manager_issues_into_the_secret_that_is_mounted(render: Render, chart: str) -> None:
    rendered = render(chart, secure(issuerRef={"kind": "Issuer", "name": "ca"}), apis=APIS)
    spec = rendered.one("Certificate")["spec"]
    assert f"rel-{chart}.ns.svc" in spec["dnsNames"]
    assert {"name": "tls", "secret": {"secretName": spec["secretName"]}} in rendered.pod["volumes"]
    assert not render(chart, secure(issuerRef={"name": "ca"})).of("Certificate")


@each_chart
@pytest.mark.parametrize("key", ["serviceMonitor", "podMonitor"])
def test_a_monitor_shows_the_token_of_an_account_that_may_read_metrics_alone(
    render: Render, chart: str, key: str
) -> None:
    """In the monitor's namespace, where the Prometheus Operator looks for Secrets."""
    rendered = render(chart, {key: {"enabled": True, "namespace": "monitoring"}, **secure()}, apis=APIS)
    [secret] = rendered.of("Secret")
    assert secret["metadata"]["namespace"] == "monitoring"
    assert secret["type"] == "kubernetes.io/service-account-token"
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    [made] = [each for each in rendered.of("ServiceAccount") if each["metadata"]["namespace"] == "monitoring"]
    assert made["metadata"]["name"] == account
    [binding] = [each for each in rendered.of("ClusterRoleBinding") if each["subjects"][0]["name"] == account]
    assert binding["subjects"][0]["namespace"] == "monitoring"
    [role] = [each for each in rendered.of("ClusterRole") if each["metadata"]["name"] == binding["roleRef"]["name"]]
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    shown = endpoint(rendered, key[0].upper() + key[1:])["authorization"]["credentials"]
    assert shown == {"name": secret["metadata"]["name"], "key": "token"}


@each_chart
def test_meshes_are_told_what_a_port_speaks(render: Render, chart: str) -> None:
    """By the name of the Service's port, or by its appProtocol: Istio takes `http` for plain HTTP."""
    for values, word in (({}, "http"), (secure(), "https")):
        rendered = render(chart, {**values, "networkPolicy": {"enabled": True}})
        [port] = rendered.one("Service")["spec"]["ports"]
        assert (port["name"], port["targetPort"], port["appProtocol"]) == (word, word, word)
        assert word in {each["name"] for each in rendered.container["ports"]}
        [ingress] = rendered.one("NetworkPolicy")["spec"]["ingress"]
        assert ingress["ports"][0]["port"] == word


@each_chart
def test_monitors_take_credentials_instead_and_need_them_without_rbac(render: Render, chart: str) -> None:
    given = {"authorization": {"credentials": {"name": "a", "key": "b"}}, "tlsConfig": {"serverName": "c"}}
    for key, kind in (("serviceMonitor", "ServiceMonitor"), ("podMonitor", "PodMonitor")):
        rendered = render(chart, {key: {"enabled": True, **given}, **secure()}, apis=APIS)
        assert endpoint(rendered, kind) == {"scheme": "https", **given}
        assert not rendered.of("Secret")
        with pytest.raises(HelmError, match=rf"{key}\.authorization: http\.secure needs credentials"):
            render(chart, {key: {"enabled": True}, "rbac": {"create": False}, **secure()}, apis=APIS)


@each_chart
def test_probes_on_a_port_of_https_ask_by_https(render: Render, chart: str) -> None:
    shared = {"http": {"port": 8443, "probePort": 8443, "secure": {"enabled": True}}}
    for values, scheme in ((secure(), None), (shared, "HTTPS")):
        assert render(chart, values).container["livenessProbe"]["httpGet"].get("scheme") == scheme

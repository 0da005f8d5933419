"""What can be set, where it comes from, and what an error says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpa_scaler.annotations.spec import Rules
from hpa_scaler.process.settings import (
    ScalerRunSettings,
    ScalerSettings,
    allowed_of,
    limits_of,
    load_settings,
    parse_config_map,
    read_settings,
    rules_of,
    servers_of,
)
from hpa_scaler.prometheus.client import ClientLimits
from tightship.objects.query_servers import Server, Tls, parse_address
from tightship.process.settings.loading import SettingsError
from tightship.process.settings.process import load_process

Json = dict[str, Any]


def process(**environment: str) -> ScalerRunSettings:
    return load_process(ScalerRunSettings, environment)


def process_problems(**environment: str) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        process(**environment)
    return refused.value.problems


def problems(values: Json) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load_settings(values)
    return refused.value.problems


# The process.


def test_without_anything_the_process_is_as_the_older_controllers() -> None:
    run = process()
    assert (run.interval, run.lower_bound) == (75.0, 3)
    assert (run.annotation_prefix, run.prometheus_server_url) == ("tightship.dev", "")
    assert (*run.ports, run.probe_port) == (9101, 5000)
    assert (run.lease_name, run.config_map) == ("hpa-scaler", "hpa-scaler-config")
    assert (run.log_format, run.log_level) == ("text", "info")


def test_the_older_controllers_variables_are_read() -> None:
    run = process(
        PROMETHEUS_SERVER_URL="http://prometheus.monitoring.svc/",
        MINIMUM_REPLICAS_LOWER_BOUND="010",
        ESTAFETTE_LOG_FORMAT="v3",
        ESTAFETTE_LOG_LEVEL="debug",
    )
    assert (run.prometheus_server_url, run.lower_bound) == ("http://prometheus.monitoring.svc", 8)
    assert (run.log_format, run.log_level) == ("v3", "debug")


def test_an_empty_variable_counts_as_not_set() -> None:
    assert process(PROMETHEUS_SERVER_URL="", MINIMUM_REPLICAS_LOWER_BOUND="").lower_bound == 3


@pytest.mark.parametrize(("text", "bound"), [("0", 0), ("-1", -1), ("0x10", 16), ("1_0", 10), ("+5", 5)])
def test_the_lower_bound_is_read_as_go_reads_it(text: str, bound: int) -> None:
    assert process(MINIMUM_REPLICAS_LOWER_BOUND=text).lower_bound == bound


@pytest.mark.parametrize("text", ["3.0", " 3", "08", "three", "2147483648"])
def test_a_bad_lower_bound_is_an_error_and_not_3(text: str) -> None:
    [line] = process_problems(MINIMUM_REPLICAS_LOWER_BOUND=text)
    assert line.startswith(f"MINIMUM_REPLICAS_LOWER_BOUND: {text!r}: allowed is a whole number as Go reads it")


def test_all_bad_variables_are_told_at_once() -> None:
    found = process_problems(
        PROMETHEUS_SERVER_URL="prometheus", ANNOTATION_PREFIX="A/b", MINIMUM_REPLICAS_LOWER_BOUND="x"
    )
    assert [line.partition(":")[0] for line in found] == [
        "ANNOTATION_PREFIX",
        "MINIMUM_REPLICAS_LOWER_BOUND",
        "PROMETHEUS_SERVER_URL",
    ]


# The live part.

FULL = """
prometheusServers:
  default:
    bearerTokenFile: /secrets/token
  main:
    url: https://mimir.example.com/prometheus/
    basicAuth: {username: scaler, passwordFile: /secrets/password}
    headers: {X-Scope-OrgID: 17}
    parameters: {dedup: "true"}
    tls: {caFile: /ca, certFile: /cert, keyFile: /key, serverName: mimir, insecureSkipVerify: false}
    timeout: 30s
    maximumConcurrency: 4
allowedServerURLs: ["https://*.monitoring.svc:9090"]
defaults:
  requestsPerReplica: 2.50
  loweringWindow: 10m
  dryRun: true
  missingDataAfter: 5
  deadband: 5%
namespaces: [shop, web]
labelSelector: team in (a, b)
correlatedDropPercentage: 40%
coldSourceLimit: 30m
circuitBreakerFailures: 5
"""


def test_everything_is_read_from_a_config_map() -> None:
    settings = parse_config_map({"config.yaml": FULL})
    assert settings.defaults == {
        "requests-per-replica": "2.5",
        "lowering-window": "10m",
        "dry-run": "true",
        "missing-data-after": "5",
        "deadband": "5%",
    }
    assert settings.namespaces == ("shop", "web")
    servers = servers_of(settings, process(PROMETHEUS_SERVER_URL="http://p:9090"))
    assert servers == {
        "default": Server("default", parse_address("http://p:9090"), token_file="/secrets/token"),
        "main": Server(
            "main",
            parse_address("https://mimir.example.com/prometheus"),
            headers=(("X-Scope-OrgID", "17"),),
            parameters=(("dedup", "true"),),
            username="scaler",
            password_file="/secrets/password",
            tls=Tls("/ca", "/cert", "/key", "mimir"),
            timeout=30.0,
            concurrency=4,
        ),
    }
    assert allowed_of(settings).allows(parse_address("https://a.monitoring.svc:9090"))
    assert limits_of(settings) == ClientLimits(5, 30.0)
    rules = rules_of(settings, process(MINIMUM_REPLICAS_LOWER_BOUND="2"))
    assert (rules.lower_bound, rules.drop_share, rules.longest_guard, rules.longest_gap) == (2, 0.4, 1800.0, 300.0)


def test_without_a_config_map_everything_has_a_default() -> None:
    settings = parse_config_map({})
    assert settings == ScalerSettings()
    assert servers_of(settings, process()) == {}
    assert rules_of(settings, process()) == Rules()


def test_the_environment_comes_before_the_default_servers_url() -> None:
    settings = load_settings({"prometheusServers": {"default": {"url": "http://a"}}})
    assert str(servers_of(settings, process())["default"].address) == "http://a"
    assert str(servers_of(settings, process(PROMETHEUS_SERVER_URL="http://b"))["default"].address) == "http://b"


REFUSED: list[tuple[str, Json, tuple[str, ...]]] = [
    ("an unknown key", {"prometheusServer": {}}, ("prometheusServer: unknown key", "prometheusServers")),
    (
        "an unknown key of a server",
        {"prometheusServers": {"a": {"url": "http://a", "uri": "x"}}},
        ("prometheusServers.a.uri: unknown key", "bearerTokenFile", "maximumConcurrency"),
    ),
    (
        "an unknown key of tls",
        {"prometheusServers": {"a": {"url": "http://a", "tls": {"ca": "x"}}}},
        ("prometheusServers.a.tls.ca: unknown key", "caFile", "insecureSkipVerify"),
    ),
    ("a server without an address", {"prometheusServers": {"a": {}}}, ("prometheusServers", "'a' has no url")),
    (
        "a bad name of a server",
        {"prometheusServers": {"a b": {"url": "http://a"}}},
        ("'a b' is not the name of a server",),
    ),
    (
        "a bad address",
        {"prometheusServers": {"a": {"url": "a:9090"}}},
        ("prometheusServers.a.url: 'a:9090'", "is not an http or https address"),
    ),
    (
        "the address of queries",
        {"prometheusServers": {"a": {"url": "https://a/workspaces/ws-1/api/v1/query"}}},
        ("prometheusServers.a.url", "leave out /api/v1 and what follows"),
    ),
    (
        "two ways to log in",
        {"prometheusServers": {"default": {"bearerTokenFile": "x", "basicAuth": {"username": "y"}}}},
        ("prometheusServers.default", "mutually exclusive"),
    ),
    (
        "a certificate without its key",
        {"prometheusServers": {"default": {"tls": {"certFile": "x"}}}},
        ("prometheusServers.default.tls", "certFile and keyFile go together"),
    ),
    (
        "a secret in a header",
        {"prometheusServers": {"default": {"headers": {"authorization": "Bearer x"}}}},
        ("prometheusServers.default.headers", "allowed are bearerTokenFile and basicAuth"),
    ),
    (
        "a header that is none",
        {"prometheusServers": {"default": {"headers": {"a b": "x"}}}},
        ("prometheusServers.default.headers", "'a b': is not the name of a header"),
    ),
    ("an address that is too wide", {"allowedServerURLs": ["http://*"]}, ("allowedServerURLs", "http://*")),
    ("a bad default", {"defaults": {"requestsPerReplica": 0}}, ("defaults.requestsPerReplica: '0': allowed is",)),
    ("a default that is none", {"defaults": {"rpr": 1}}, ("defaults.rpr: unknown key", "requestsPerReplica")),
    ("a default that is a list", {"defaults": {"delta": [1]}}, ("defaults.delta: [1]: allowed is a text",)),
    ("defaults that are none", {"defaults": 3}, ("defaults: 3: must be a mapping",)),
    ("an infinite default", {"defaults": {"delta": float("inf")}}, ("defaults.delta: 'inf': allowed is a number",)),
    ("a bad selector", {"labelSelector": "a in b"}, ("labelSelector: 'a in b'",)),
    ("a bad namespace", {"namespaces": ["A b"]}, ("namespaces", "'A b' is not the name")),
    ("a share of nothing", {"correlatedDropPercentage": 0}, ("correlatedDropPercentage: 0", "more than 0")),
    ("an age of nothing", {"dataAgeQuery": "up"}, ("dataAgeQuery: 'up': has no {range}",)),
    ("no time", {"queryDeadline": "soon"}, ("queryDeadline: 'soon'", "is not a duration")),
]


@pytest.mark.parametrize(("values", "words"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED])
def test_a_bad_setting_is_named_with_what_is_allowed(values: Json, words: tuple[str, ...]) -> None:
    [line] = problems(values)
    for word in words:
        assert word in line


def test_a_secret_is_not_repeated_in_its_problem() -> None:
    [line] = problems({"prometheusServers": {"default": {"headers": {"Authorization": "Bearer hush"}}}})
    assert "hush" not in line


def test_all_problems_are_told_at_once() -> None:
    bad = {"defaults": {"delta": "x", "rpr": 1}, "queryDeadline": 0, "nonsense": 1}
    assert [line.partition(":")[0] for line in problems(bad)] == [
        "defaults.delta",
        "defaults.rpr",
        "nonsense",
        "queryDeadline",
    ]


def test_a_problem_of_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "scaler.yaml"
    path.write_text("defaults: {delta: x}\nqueryDeadline: 0\n")
    with pytest.raises(SettingsError) as refused:
        read_settings(str(path))
    assert all(line.startswith(f"{path}: ") for line in refused.value.problems)
    assert len(refused.value.problems) == 2


def test_without_a_file_the_settings_are_the_defaults() -> None:
    assert read_settings(None) == ScalerSettings()

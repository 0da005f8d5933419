"""What the process is told by flags and environment, and by the live ConfigMap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node_compactor.configuration import parse_config_map
from node_compactor.run_settings import RunSettings, load_run_settings
from tightship.kube.election import LeaseTiming
from tightship.settings.loading import SettingsError

SETTINGS = Path(__file__).resolve().parents[3] / "docs" / "settings.md"
NOWHERE = Path("/nonexistent")


def loaded(environment: dict[str, str], flags: dict[str, object] | None = None, file: Path = NOWHERE) -> RunSettings:
    return load_run_settings(environment, flags, namespace_file=file, unique=lambda: "cafe")


def problems(environment: dict[str, str], flags: dict[str, object] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        loaded(environment, flags)
    return refused.value.problems


def test_what_is_not_set_is_as_in_the_older_controller_or_safe() -> None:
    found = loaded({})
    assert (found.interval, found.log_format, found.log_level) == (300.0, "plaintext", "info")
    assert (found.ports, found.host) == ((9101, 5000), "0.0.0.0")
    assert (found.config_map, found.config_path) == ("estafette-k8s-node-compactor-config", None)
    assert (found.namespace, found.claims_namespace) == ("default", "default")
    assert (found.lease_name, found.claims_lease) == ("node-compactor", "tightship-claims")
    assert (found.leader_elect, found.dry_run) == (True, False)
    timing = LeaseTiming(
        duration=found.lease_duration, renew_deadline=found.lease_renew_deadline, retry_period=found.lease_retry_period
    )
    assert timing == LeaseTiming()
    assert (found.kubeconfig, found.context) == (None, None)
    assert found.stop_timeout < found.grace < 30


def test_every_variable_is_read() -> None:
    found = loaded(
        {
            "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS": "60",
            "ESTAFETTE_LOG_FORMAT": "stackdriver",
            "ESTAFETTE_LOG_LEVEL": "DEBUG",
            "TIGHTSHIP_KUBECONFIG": "/k",
            "KUBE_CONTEXT": "c",
            "NAMESPACE": "tools",
            "POD_NAME": "compactor-1",
            "CONFIG_MAP_NAME": "mine",
            "CONFIG_PATH": "/configs",
            "DRY_RUN": "true",
            "HTTP_HOST": "127.0.0.1",
            "HTTP_PORTS": "9101, 0",
            "REQUEST_TIMEOUT_SECONDS": "5s",
            "LEADER_ELECT": "off",
            "LEASE_NAME": "lease",
            "LEASE_DURATION_SECONDS": "30",
            "LEASE_RENEW_DEADLINE_SECONDS": "20",
            "LEASE_RETRY_PERIOD_SECONDS": "500ms",
            "CLAIMS_LEASE_NAME": "claims",
            "CLAIMS_LEASE_NAMESPACE": "shared",
            "STOP_TIMEOUT_SECONDS": "1m",
            "STOP_GRACE_SECONDS": "2m",
        }
    )
    assert (found.interval, found.log_format, found.log_level) == (60, "stackdriver", "debug")
    assert (found.kubeconfig, found.context, found.namespace) == ("/k", "c", "tools")
    assert (found.config_map, found.config_path, found.dry_run) == ("mine", Path("/configs"), True)
    assert (found.host, found.ports, found.request_timeout) == ("127.0.0.1", (9101, 0), 5)
    assert (found.leader_elect, found.lease_name) == (False, "lease")
    assert (found.lease_duration, found.lease_renew_deadline, found.lease_retry_period) == (30, 20, 0.5)
    assert (found.claims_lease, found.claims_namespace) == ("claims", "shared")
    assert (found.stop_timeout, found.grace) == (60, 120)
    assert found.identity == "compactor-1_cafe"


def test_flags_come_before_the_environment_and_that_before_defaults() -> None:
    environment = {"LEASE_NAME": "from-environment", "HTTP_PORTS": "1", "LOG_FORMAT": "json", "DRY_RUN": "false"}
    found = loaded(environment, {"ports": [2, 3], "dry_run": True, "config_path": "c.yaml"})
    assert (found.lease_name, found.ports, found.log_format) == ("from-environment", (2, 3), "json")
    assert (found.dry_run, found.config_path) == (True, Path("c.yaml"))


def test_the_environment_of_the_process_is_not_read_behind_our_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASE_NAME", "other")
    monkeypatch.setenv("interval", "1")
    assert (loaded({}).lease_name, loaded({}).interval) == ("node-compactor", 300)


def test_an_empty_variable_counts_as_not_set() -> None:
    assert loaded({"NAMESPACE": "", "POD_NAMESPACE": "pods", "DRY_RUN": ""}).namespace == "pods"


def test_the_namespace_is_by_default_the_pods_own(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("estafette\n")
    assert loaded({}, file=file).namespace == "estafette"
    assert loaded({}, file=file).claims_namespace == "estafette"
    assert loaded({"NAMESPACE": "default"}, file=file).namespace == "default"


def test_an_identity_is_unique_to_the_process() -> None:
    assert load_run_settings({"POD_NAME": "p"}).identity != load_run_settings({"POD_NAME": "p"}).identity
    assert loaded({}).identity.endswith("_cafe")
    assert len(loaded({}).identity) > len("_cafe")


def test_all_that_is_wrong_is_told_at_once_with_name_value_and_what_is_allowed() -> None:
    found = problems(
        {
            "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS": "soon",
            "LOG_FORMAT": "xml",
            "ESTAFETTE_LOG_LEVEL": "loud",
            "HTTP_PORTS": "9101,99999",
            "DRY_RUN": "maybe",
            "POD_NAMESPACE": "A B",
            "LEASE_DURATION_SECONDS": "5",
            "STOP_TIMEOUT_SECONDS": "60",
            "REQUEST_TIMEOUT_SECONDS": "0",
        },
        {"lease_name": "Mine", "leader_elect": "perhaps"},
    )
    told = dict(each.split(": ", 1) for each in found)
    assert set(told) == {
        "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS",
        "LOG_FORMAT",
        "ESTAFETTE_LOG_LEVEL",
        "HTTP_PORTS",
        "DRY_RUN",
        "POD_NAMESPACE",
        "LEASE_RENEW_DEADLINE_SECONDS",
        "STOP_GRACE_SECONDS",
        "REQUEST_TIMEOUT_SECONDS",
        "--lease-name",
        "--no-leader-elect",
    }
    assert told["LOG_FORMAT"] == "'xml': allowed are plaintext, console, json, stackdriver, v3"
    assert (
        "'soon' is not a duration; allowed is a duration such as 90s"
        in told["SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS"]
    )
    assert told["DRY_RUN"] == "'maybe': is no switch; allowed are true and false"
    assert told["LEASE_RENEW_DEADLINE_SECONDS"] == "10.0: must be below LEASE_DURATION_SECONDS, which is 5"
    assert told["STOP_GRACE_SECONDS"] == "25.0: must be above STOP_TIMEOUT_SECONDS, which is 60"


@pytest.mark.parametrize("field", RunSettings.model_fields)
def test_every_variable_is_documented(field: str) -> None:
    text = SETTINGS.read_text()
    for variable in RunSettings.variables(field):
        assert f"`{variable}`" in text


# -- the live configuration

SEED_KEY = "estafette-k8s-node-compactor-config.yaml"
POOL = {"nodePools": {"p": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.6}}}


def refused(data: dict[str, str], environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as error:
        parse_config_map(data, environment or {})
    return error.value.problems


@pytest.mark.parametrize("key", [SEED_KEY, "config.yaml", "config.json", "mounted-as-something-else.yaml"])
def test_the_configuration_is_found_under_its_key(key: str) -> None:
    found = parse_config_map({key: json.dumps(POOL)}, {})
    assert found.pools["p"].limit == 0.6
    assert (found.minimum_age, found.marked_for) == (1200, 300)


def test_the_older_controllers_key_comes_first() -> None:
    found = parse_config_map({"config.yaml": "{}", SEED_KEY: json.dumps(POOL), "notes": "x"}, {})
    assert set(found.pools) == {"p"}


def test_the_environment_comes_before_the_config_map_and_that_before_defaults() -> None:
    text = json.dumps({**POOL, "minimumNodeAge": "5m", "neededMarkedTimeForRemoval": "2m"})
    found = parse_config_map({"config.yaml": text}, {"MINIMUM_NODE_AGE_SECONDS": "0"})
    assert (found.minimum_age, found.marked_for) == (0, 120)


@pytest.mark.parametrize("data", [{}, {"config.yaml": ""}], ids=["no data", "an empty text"])
def test_without_a_configuration_no_pool_is_configured(data: dict[str, str]) -> None:
    found = parse_config_map(data, {"NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS": "600"})
    assert found.pools == {}
    assert found.marked_for == 600


def test_a_mounted_manifest_is_read_as_well() -> None:
    manifest: dict[str, Any] = {"kind": "ConfigMap", "data": {SEED_KEY: json.dumps(POOL)}}
    assert set(parse_config_map({"config.yaml": json.dumps(manifest)}, {}).pools) == {"p"}


def test_all_problems_are_told_at_once() -> None:
    text = json.dumps({"nodePools": {"p": {"enabled": "perhaps", "limits": 1}}, "steerin": True})
    found = refused({SEED_KEY: text}, {"MINIMUM_NODE_AGE_SECONDS": "old"})
    assert [each.partition(": ")[0] for each in found] == ["MINIMUM_NODE_AGE_SECONDS", SEED_KEY, SEED_KEY, SEED_KEY]
    told = "\n".join(found)
    assert f"{SEED_KEY}: nodePools.p.enabled: 'perhaps': " in told
    assert f"{SEED_KEY}: nodePools.p.limits: unknown key; allowed are " in told
    assert f"{SEED_KEY}: steerin: unknown key; allowed are " in told


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"config.yaml": "{"}, "config.yaml: neither JSON nor YAML: "),
        ({"config.yaml": "[]"}, "config.yaml: holds list, not a mapping of settings"),
        ({"a": "", "b": ""}, "the ConfigMap has no configuration: its data keys are a, b; looked for are "),
        ({"config.yaml": "kind: ConfigMap"}, "config.yaml: the ConfigMap has no configuration: its data keys are none"),
    ],
)
def test_what_is_no_configuration_is_refused(data: dict[str, str], says: str) -> None:
    [problem] = refused(data)
    assert problem.startswith(says)

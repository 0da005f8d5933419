"""What the process is told by flags and environment, and by the live ConfigMap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node_compactor.controller import COMPACTOR, CompactorRunSettings
from tightship.kube.leases import LeaseTiming
from tightship.process.settings.loading import SettingsError
from tightship.process.settings.process import load_process

SETTINGS = Path(__file__).resolve().parents[3] / "docs" / "settings.md"
NOWHERE = Path("/nonexistent")


def loaded(environment: dict[str, str]) -> CompactorRunSettings:
    return load_process(CompactorRunSettings, environment, namespace_file=NOWHERE, unique=lambda: "cafe")


def test_what_is_not_set_is_as_in_the_older_controller_or_safe() -> None:
    found = loaded({})
    assert (found.interval, found.log_format, found.log_level) == (300.0, "text", "info")
    assert (found.ports, found.probe_port, found.host) == ((9101,), 5000, "127.0.0.1")
    assert (found.config_map, found.config_path) == ("node-compactor-config", None)
    assert (found.namespace, found.claims_namespace) == ("default", "kube-system")
    assert (found.lease_name, found.claims_lease) == ("node-compactor", "tightship-claims")
    assert (found.leader_elect, found.dry_run) == (True, True)
    timing = LeaseTiming(
        duration=found.lease_duration, renew_deadline=found.lease_renew_deadline, retry_period=found.lease_retry_period
    )
    assert timing == LeaseTiming()
    assert (found.kubeconfig, found.context) == (None, None)
    assert found.stop_timeout < found.grace < 30


def test_every_variable_is_read() -> None:
    found = loaded(
        {
            "INTERVAL": "60s",
            "LOG_FORMAT": "json",
            "LOG_LEVEL": "DEBUG",
            "TIGHTSHIP_KUBECONFIG": "/k",
            "KUBE_CONTEXT": "c",
            "NAMESPACE": "tools",
            "POD_NAME": "compactor-1",
            "CONFIG_MAP_NAME": "mine",
            "CONFIG_PATH": "/configs",
            "DRY_RUN": "true",
            "HTTP_HOST": "127.0.0.1",
            "HTTP_PORTS": "9101, 0",
            "REQUEST_TIMEOUT": "5s",
            "LEADER_ELECT": "off",
            "LEASE_NAME": "lease",
            "LEASE_DURATION": "30s",
            "LEASE_RENEW_DEADLINE": "20s",
            "LEASE_RETRY_PERIOD": "500ms",
            "CLAIMS_LEASE_NAME": "claims",
            "CLAIMS_LEASE_NAMESPACE": "shared",
            "STOP_TIMEOUT": "1m",
            "STOP_GRACE": "2m",
        }
    )
    assert (found.interval, found.log_format, found.log_level) == (60, "json", "debug")
    assert (found.kubeconfig, found.context, found.namespace) == ("/k", "c", "tools")
    assert (found.config_map, found.config_path, found.dry_run) == ("mine", Path("/configs"), True)
    assert (found.host, found.ports, found.request_timeout) == ("127.0.0.1", (9101, 0), 5)
    assert (found.leader_elect, found.lease_name) == (False, "lease")
    assert (found.lease_duration, found.lease_renew_deadline, found.lease_retry_period) == (30, 20, 0.5)
    assert (found.claims_lease, found.claims_namespace) == ("claims", "shared")
    assert (found.stop_timeout, found.grace) == (60, 120)
    assert found.identity == "compactor-1_cafe"


def test_the_older_controllers_environment_is_read() -> None:
    found = loaded(
        {
            "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS": "60",
            "ESTAFETTE_LOG_FORMAT": "stackdriver",
            "ESTAFETTE_LOG_LEVEL": "DEBUG",
            "CONFIGMAP_NAME": "mine",
        }
    )
    assert (found.interval, found.log_format, found.log_level, found.config_map) == (60, "stackdriver", "debug", "mine")
    assert loaded({"ESTAFETTE_LOG_FORMAT": "json"}).config_map == "estafette-k8s-node-compactor"


def test_an_older_variable_and_the_native_one_contradict_each_other() -> None:
    with pytest.raises(SettingsError) as error:
        loaded({"ESTAFETTE_LOG_FORMAT": "json", "LOG_FORMAT": "text"})
    [problem] = error.value.problems
    assert problem.startswith("ESTAFETTE_LOG_FORMAT: stands beside LOG_FORMAT")


def test_every_variable_is_documented() -> None:
    text = SETTINGS.read_text()
    every = [each for field in CompactorRunSettings.model_fields for each in CompactorRunSettings.variables(field)]
    assert [each for each in every if f"`{each}`" not in text] == []


# -- the live configuration

SEED_KEY = "estafette-k8s-node-compactor-config.yaml"
POOL = {"nodePools": {"p": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.6}}}


def refused(data: dict[str, str], environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as error:
        COMPACTOR.configured(data, environment or {})
    return error.value.problems


@pytest.mark.parametrize("key", [SEED_KEY, "config.yaml", "config.json", "mounted-as-something-else.yaml"])
def test_the_configuration_is_found_under_its_key(key: str) -> None:
    found = COMPACTOR.configured({key: json.dumps(POOL)}, {})
    assert found.pools["p"].limit == 0.6
    assert (found.minimum_age, found.marked_for) == (1200, 300)


def test_the_older_controllers_key_comes_first() -> None:
    found = COMPACTOR.configured({"config.yaml": "{}", SEED_KEY: json.dumps(POOL), "notes": "x"}, {})
    assert set(found.pools) == {"p"}


def test_the_environment_comes_before_the_config_map_and_that_before_defaults() -> None:
    text = json.dumps({**POOL, "minimumNodeAge": "5m", "neededMarkedTimeForRemoval": "2m"})
    found = COMPACTOR.configured({"config.yaml": text}, {"MINIMUM_NODE_AGE_SECONDS": "0"})
    assert (found.minimum_age, found.marked_for) == (0, 120)


@pytest.mark.parametrize("data", [{}, {"config.yaml": ""}], ids=["no data", "an empty text"])
def test_without_a_configuration_no_pool_is_configured(data: dict[str, str]) -> None:
    found = COMPACTOR.configured(data, {"NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS": "600"})
    assert found.pools == {}
    assert found.marked_for == 600


def test_a_mounted_manifest_is_read_as_well() -> None:
    manifest: dict[str, Any] = {"kind": "ConfigMap", "data": {SEED_KEY: json.dumps(POOL)}}
    assert set(COMPACTOR.configured({"config.yaml": json.dumps(manifest)}, {}).pools) == {"p"}


def test_all_problems_are_told_at_once() -> None:
    text = json.dumps({"nodePools": {"p": {"enabled": "perhaps", "limits": 1}}, "steerin": True})
    found = refused({SEED_KEY: text}, {"MINIMUM_NODE_AGE_SECONDS": "old"})
    assert [each.partition(": ")[0] for each in found] == ["MINIMUM_NODE_AGE_SECONDS", SEED_KEY, SEED_KEY, SEED_KEY]
    detail = "\n".join(found)
    assert f"{SEED_KEY}: nodePools.p.enabled: 'perhaps': " in detail
    assert f"{SEED_KEY}: nodePools.p.limits: unknown key; allowed are " in detail
    assert f"{SEED_KEY}: steerin: unknown key; did you mean steering? allowed are " in detail


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

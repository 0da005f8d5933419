"""What a process is told by flags and environment, whichever controller it is."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest

from tightship.process.settings.loading import SettingsError
from tightship.process.settings.process import (
    LogFormat,
    Name,
    NodeProcessSettings,
    Port,
    Ports,
    Positive,
    ProcessSettings,
    load_process,
    variable,
)

NOWHERE = Path("/nonexistent")
PROBES = 9102


class Own(NodeProcessSettings):
    """A controller with names of its own, and an older name of its port."""

    interval: Positive = variable("PAUSE_SECONDS", default=300.0)
    config_map: Name = variable("CONFIG_MAP_NAME", default="own-config")
    ports: Ports = variable("HTTP_PORTS", default=(8080,))
    probe_port: Port = variable("HTTP_PROBE_PORT", default=PROBES)
    listening_port: Ports = variable("LISTENING_PORT", default=(8080,))
    lease_name: Name = variable("LEASE_NAME", default="own")
    log_format: LogFormat = variable("OLD_LOG_FORMAT", "LOG_FORMAT", default="text")

    def filled(self, namespace: str, unique: str) -> Self:
        found = super().filled(namespace, unique)
        return found if "ports" in self.model_fields_set else found.model_copy(update={"ports": self.listening_port})


class WithoutNodes(ProcessSettings):
    """A controller that drains nothing."""

    interval: Positive = variable("PAUSE_SECONDS", default=60.0)
    config_map: Name = variable("CONFIG_MAP_NAME", default="scaler")
    ports: Ports = variable("HTTP_PORTS", default=(5000,))
    lease_name: Name = variable("LEASE_NAME", default="scaler")


def loaded(environment: dict[str, str], flags: dict[str, object] | None = None, file: Path = NOWHERE) -> Own:
    return load_process(Own, environment, flags, namespace_file=file, unique=lambda: "cafe")


def problems(environment: dict[str, str], flags: dict[str, object] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        loaded(environment, flags)
    return refused.value.problems


def test_a_controller_that_drains_nothing_knows_no_claims() -> None:
    found = load_process(WithoutNodes, {"CLAIMS_LEASE_NAME": "!", "LEASE_NAME": "mine"}, namespace_file=NOWHERE)
    assert (found.interval, found.lease_name, found.ports) == (60, "mine", (5000,))
    assert not hasattr(found, "claims_lease")


POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


@pytest.mark.parametrize(
    ("environment", "flags", "dry_run", "host"),
    [
        (POD, {}, False, "::"),
        (POD, {"dry_run": True}, True, "::"),
        # The chart sets both, for its own cluster and for that of another kubeconfig, whose pod has no account.
        (POD | {"DRY_RUN": "true", "HTTP_HOST": "::", "TIGHTSHIP_KUBECONFIG": "/k"}, {}, True, "::"),
        (POD | {"DRY_RUN": "false", "HTTP_HOST": "::", "TIGHTSHIP_KUBECONFIG": "/k"}, {}, False, "::"),
        ({}, {}, True, "127.0.0.1"),
        ({"KUBERNETES_SERVICE_HOST": ""}, {}, True, "127.0.0.1"),
        ({"KUBECONFIG": "/k", "NAMESPACE": "tightship"}, {}, True, "127.0.0.1"),
        ({"DRY_RUN": "false"}, {}, False, "127.0.0.1"),
        ({"DRY_RUN": "true"}, {"dry_run": "false"}, False, "127.0.0.1"),
        ({"HTTP_HOST": "0.0.0.0"}, {}, True, "0.0.0.0"),
        ({}, {"dry_run": "false", "host": "0.0.0.0"}, False, "0.0.0.0"),
    ],
)
def test_outside_a_pod_it_is_a_dry_run_on_loopback_unless_somebody_says_otherwise(
    environment: dict[str, str], flags: dict[str, object], dry_run: bool, host: str
) -> None:
    for model in (Own, WithoutNodes):
        found = load_process(model, environment, flags, namespace_file=NOWHERE)
        assert (found.dry_run, found.host) == (dry_run, host)


@pytest.mark.parametrize(
    ("environment", "gives_back"),
    [
        ({}, False),
        ({"DRY_RUN": "true"}, False),
        ({"DRY_RUN": "false"}, False),
        ({"RELEASE": "true"}, True),
        (POD, False),
        (POD | {"DRY_RUN": "true"}, True),
        (POD | {"RELEASE": "true"}, True),
    ],
)
def test_a_dry_run_by_hand_gives_nothing_back_unless_that_is_what_it_is_for(
    environment: dict[str, str], gives_back: bool
) -> None:
    assert loaded(environment).gives_back is gives_back


@pytest.mark.parametrize(
    ("environment", "ports", "probe_port"),
    [
        ({}, (8080,), PROBES),
        ({"LISTENING_PORT": "8090"}, (8090,), PROBES),
        ({"HTTP_PROBE_PORT": "8081"}, (8080,), 8081),
        ({"HTTP_PROBE_PORT": "8081", "HTTP_PORTS": "1,2"}, (1, 2), 8081),
        # Who names ports alone gets no other: that of the probes might be somebody else's.
        ({"LISTENING_PORT": "8090", "HTTP_PORTS": "1,2"}, (1, 2), 1),
    ],
)
def test_probes_have_a_port_of_their_own_unless_only_others_are_named(
    environment: dict[str, str], ports: tuple[int, ...], probe_port: int
) -> None:
    found = loaded(environment)
    assert (found.ports, found.probe_port) == (ports, probe_port)


def test_the_first_name_that_is_set_counts() -> None:
    assert loaded({"OLD_LOG_FORMAT": "v3", "LOG_FORMAT": "json"}).log_format == "v3"
    assert loaded({"LOG_FORMAT": "json"}).log_format == "json"


def test_flags_come_before_the_environment_and_that_before_defaults() -> None:
    environment = {"LEASE_NAME": "from-environment", "HTTP_PORTS": "1", "LOG_FORMAT": "json", "DRY_RUN": "false"}
    found = loaded(environment, {"ports": [2, 3], "dry_run": True, "config_path": "c.yaml"})
    assert (found.lease_name, found.ports, found.log_format) == ("from-environment", (2, 3), "json")
    assert (found.dry_run, found.config_path) == (True, Path("c.yaml"))


def test_the_environment_of_the_process_is_not_read_behind_our_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASE_NAME", "other")
    monkeypatch.setenv("interval", "1")
    assert (loaded({}).lease_name, loaded({}).interval) == ("own", 300)


def test_an_empty_variable_counts_as_not_set() -> None:
    assert loaded({"NAMESPACE": "", "POD_NAMESPACE": "pods", "DRY_RUN": ""}).namespace == "pods"


def test_the_namespace_is_by_default_the_pods_own(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("tools\n")
    assert loaded({}, file=file).namespace == "tools"
    assert loaded({}, file=file).claims_namespace == "kube-system", "one place, whoever is installed where"
    assert loaded({"NAMESPACE": "default"}, file=file).namespace == "default"


def test_an_identity_is_unique_to_the_process() -> None:
    assert load_process(Own, {"POD_NAME": "p"}).identity != load_process(Own, {"POD_NAME": "p"}).identity
    assert loaded({}).identity.endswith("_cafe")
    assert len(loaded({}).identity) > len("_cafe")


def test_all_that_is_wrong_is_told_at_once_with_name_value_and_what_is_allowed() -> None:
    found = problems(
        {
            "PAUSE_SECONDS": "soon",
            "LOG_FORMAT": "xml",
            "LOG_LEVEL": "loud",
            "HTTP_PORTS": "9101,99999",
            "HTTP_PROBE_PORT": "5000,5001",
            "DRY_RUN": "maybe",
            "POD_NAMESPACE": "A B",
            "LEASE_DURATION": "5s",
            "STOP_TIMEOUT": "60s",
            "REQUEST_TIMEOUT": "0s",
        },
        {"lease_name": "Mine", "leader_elect": "perhaps"},
    )
    reported = dict(each.split(": ", 1) for each in found)
    assert set(reported) == {
        "PAUSE_SECONDS",
        "LOG_FORMAT",
        "LOG_LEVEL",
        "HTTP_PORTS",
        "HTTP_PROBE_PORT",
        "DRY_RUN",
        "POD_NAMESPACE",
        "LEASE_RENEW_DEADLINE",
        "STOP_GRACE",
        "REQUEST_TIMEOUT",
        "--lease-name",
        "--no-leader-elect",
    }
    assert reported["LOG_FORMAT"] == "'xml': allowed are text, json, plaintext, console, stackdriver, v3"
    assert "'soon' is not a duration; allowed is a duration such as 90s" in reported["PAUSE_SECONDS"]
    assert reported["DRY_RUN"] == "'maybe': is not a switch; allowed are true and false"
    assert reported["LEASE_RENEW_DEADLINE"] == "10.0: must be below LEASE_DURATION, which is 5"
    assert reported["STOP_GRACE"] == "25.0: must be above STOP_TIMEOUT, which is 60"

"""What is started for a pod of a chart, where no container runs: exactly what the pod says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_e2e.providers.container import Command, ContainerError, command_of, volumes_of
from tightship_testkit.client import Json


def pod(**container: object) -> Json:
    """A pod of a Deployment, with more in its container."""
    main: Json = {"name": "hpa-scaler", "command": ["hpa-scaler"], "args": ["run"], **container}
    return {"metadata": {"name": "tight-0", "namespace": "packed"}, "spec": {"containers": [main]}}


def test_command_environment_and_grace_are_those_of_the_pod() -> None:
    own = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    where = {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    made = pod(args=["run", "--odd"], env=[own, where, {"name": "ODD", "value": "a\n{{ b }}"}, {"name": "NONE"}])
    made["spec"]["terminationGracePeriodSeconds"] = 45
    environment = {"POD_NAME": "tight-0", "NAMESPACE": "packed", "ODD": "a\n{{ b }}", "NONE": ""}
    assert command_of(made, {}) == Command(("hpa-scaler", "run", "--odd"), environment, 45.0)
    assert command_of(pod(), {}).grace == 30.0


def test_a_path_below_a_mount_is_in_the_volumes_directory() -> None:
    paths = {"WHOLE": "/etc/tightship", "WITHIN": "/etc/tightship/a/b", "OTHER": "/etc/tightship-else"}
    made = pod(
        args=["run", "--config", "/etc/tightship/a"],
        env=[{"name": name, "value": value} for name, value in paths.items()],
        volumeMounts=[{"name": "config", "mountPath": "/etc/tightship"}],
    )
    found = command_of(made, {"config": Path("/tmp/v")})
    assert found.environment == {"WHOLE": "/tmp/v", "WITHIN": "/tmp/v/a/b", "OTHER": "/etc/tightship-else"}
    assert found.argv == ("hpa-scaler", "run", "--config", "/tmp/v/a")


def test_references_are_expanded_as_kubernetes_does() -> None:
    variables = {"A": "1", "B": "$(A)$(C)", "C": "$$(A) $(B) 5$$ $"}
    made = pod(args=["$(C)"], env=[{"name": name, "value": value} for name, value in variables.items()])
    assert command_of(made, {}).environment == {"A": "1", "B": "1$(C)", "C": "$(A) 1$(C) 5$ $"}
    assert command_of(made, {}).argv[-1] == "$(A) 1$(C) 5$ $"


def test_volumes_are_named_with_what_fills_them() -> None:
    made = pod()
    made["spec"]["volumes"] = [
        {"name": "config", "configMap": {"name": "tight"}},
        {"name": "key", "secret": {"secretName": "mimir"}},
        {"name": "log", "emptyDir": {}},
    ]
    assert volumes_of(made) == {"config": ("ConfigMap", "tight"), "key": ("Secret", "mimir"), "log": ("", "")}


@pytest.mark.parametrize(
    "volume",
    [
        {"name": "v", "hostPath": {"path": "/"}},
        {"name": "v", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}},
        {"name": "v", "secret": {"secretName": "c", "items": []}},
    ],
)
def test_a_volume_that_cant_be_had_is_refused(volume: Json) -> None:
    made = pod()
    made["spec"]["volumes"] = [volume]
    with pytest.raises(ContainerError, match="volume v "):
        volumes_of(made)


@pytest.mark.parametrize(
    "container",
    [
        {"envFrom": [{"secretRef": {"name": "s"}}]},
        {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        {"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
    ],
)
def test_an_environment_that_cant_be_had_is_refused(container: Json) -> None:
    with pytest.raises(ContainerError):
        command_of(pod(**container), {})


def test_a_container_beside_the_controller_is_refused() -> None:
    made = pod()
    made["spec"]["containers"].append({"name": "beside"})
    with pytest.raises(ContainerError, match="other containers"):
        command_of(made, {})

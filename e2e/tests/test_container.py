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


def test_command_environment_and_grace_are_those_of_the_pod_with_paths_and_references_resolved() -> None:
    """A path below a mount is in the volume's directory; references are expanded as Kubernetes does."""
    own = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    where = {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    given = {
        "ODD": "a\n{{ b }}", "WITHIN": "/etc/tightship/a/b", "OTHER": "/etc/tightship-else",
        "A": "1", "B": "$(A)$(C)", "C": "$$(A) $(B) 5$$ $",
    }  # fmt: skip
    made = pod(
        args=["run", "--config", "/etc/tightship/a", "$(C)"],
        env=[own, where, {"name": "NONE"}, *({"name": name, "value": value} for name, value in given.items())],
        volumeMounts=[{"name": "config", "mountPath": "/etc/tightship"}],
    )
    assert command_of(made, {"config": Path("/tmp/v")}).grace == 30.0
    made["spec"]["terminationGracePeriodSeconds"] = 45
    expanded = {**given, "WITHIN": "/tmp/v/a/b", "B": "1$(C)", "C": "$(A) 1$(C) 5$ $"}
    environment = {"POD_NAME": "tight-0", "NAMESPACE": "packed", "NONE": "", **expanded}
    argv = ("hpa-scaler", "run", "--config", "/tmp/v/a", "$(A) 1$(C) 5$ $")
    assert command_of(made, {"config": Path("/tmp/v")}) == Command(argv, environment, 45.0)


def test_volumes_are_named_with_what_fills_them() -> None:
    made = pod()
    made["spec"]["volumes"] = [
        {"name": "config", "configMap": {"name": "tight"}},
        {"name": "key", "secret": {"secretName": "mimir"}},
        {"name": "log", "emptyDir": {}},
    ]
    assert volumes_of(made) == {"config": ("ConfigMap", "tight"), "key": ("Secret", "mimir"), "log": ("", "")}


@pytest.mark.parametrize(
    ("spec", "container"),
    [
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, {}),
        ({"volumes": [{"name": "v", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}}]}, {}),
        ({}, {"envFrom": [{"secretRef": {"name": "s"}}]}),
        ({}, {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}),
        ({"containers": [{"name": "hpa-scaler"}, {"name": "beside"}]}, {}),
    ],
)
def test_what_cant_be_had_is_refused(spec: Json, container: Json) -> None:
    made = pod(**container)
    made["spec"] |= spec
    with pytest.raises(ContainerError):
        (volumes_of if "volumes" in spec else lambda each: command_of(each, {}))(made)

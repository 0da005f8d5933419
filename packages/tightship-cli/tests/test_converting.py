"""``tightship config convert`` on what the older controllers' own charts, manifests and pages have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import node_compactor.controller
import node_refiner.controller
from hpa_scaler.annotations.parsing import parse_spec
from tightship.cli.app import CliError
from tightship.process.settings.loading import SettingsError
from tightship_cli.cli import command
from tightship_cli.converting import converted

Json = dict[str, Any]

POOLS: Json = {
    "nodePools": {
        "mynodepool": {
            "enabled": True,
            "scaleDownCPURequestRatioLimit": 0.75,
            "scaleDownRequiredUnderutilizedNodeCount": 5,
        }
    }
}
"""The value configmap.compactorConfig of estafette-k8s-node-compactor's chart."""

REFINER = {
    "drainer_enabled": "false", "time_gap": "5", "time_since_last_addition": "60", "minimum_nodes": "3",
    "minimum_non_tainted_nodes": "3", "excess_nodes_threshold": "2",
}  # fmt: skip
"""The data of SAP node-refiner's manifests/base/settings.yaml."""

COMPACTOR_ENV = {
    "ESTAFETTE_LOG_FORMAT": "plaintext", "MINIMUM_NODE_AGE_SECONDS": "0",
    "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS": "600", "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS": "60",
    "CONFIGMAP_NAME": "estafette-k8s-node-compactor",
}  # fmt: skip
"""The environment that estafette-k8s-node-compactor's chart sets by its defaults."""


def config_map(name: str, data: Json) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def deployment(image: str, env: dict[str, str], args: tuple[str, ...] = ()) -> Json:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    container = {"name": "main", "image": image, "env": variables, **({"args": list(args)} if args else {})}
    return {
        "kind": "Deployment",
        "metadata": {"name": "main"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def convert(*things: Json) -> tuple[list[Json], str]:
    text, notes = converted(yaml.safe_dump_all(things).encode(), "f")
    return list(yaml.safe_load_all(text)), "\n".join(notes)


def env_of(thing: Json) -> dict[str, str]:
    [container] = thing["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_the_older_compactors_json_becomes_native() -> None:
    [found], notes = convert(POOLS)
    assert found == {
        "nodePools": {
            "mynodepool": {"enabled": True, "cpuRequestRatioLimit": 0.75, "requiredUnderutilizedNodeCount": 5}
        },
        "utilization": "cpu",
        "workloadPause": 0,
    }
    assert "nodePools.mynodepool.scaleDownCPURequestRatioLimit is cpuRequestRatioLimit now" in notes
    assert notes.endswith("f: changes in behaviour: nothing")


@pytest.mark.parametrize("key", ["estafette-k8s-node-compactor-config.yaml", "config.yaml"])
def test_its_config_map_holds_the_native_form(key: str) -> None:
    older = {key: json.dumps(POOLS), "beside": "x"}
    [found], _ = convert(config_map("estafette-k8s-node-compactor", older))
    assert list(found["data"]) == ["config.yaml", "beside"]
    del found["data"]["beside"], older["beside"]
    parse = node_compactor.controller.COMPACTOR.configured
    assert parse(found["data"], {}) == parse(older, {})


def test_the_older_refiners_config_map_becomes_native() -> None:
    [found], notes = convert(config_map("node-refiner-cm", REFINER))
    assert yaml.safe_load(found["data"]["config.yaml"]) == {
        "enabled": False,
        "clusterCoolDownAfterDrain": "5m",
        "clusterCoolDownAfterNodeAdded": "60m",
        "minimumNodeCount": 3,
        "minimumNonTaintedNodeCount": 3,
        "excessNodesThreshold": 2,
        "nodeDrainTimeout": "8m30s",
        "podEvictionTimeout": "8m30s",
        "backoff": "5m",
        "workloadPause": 0,
    }
    parse = node_refiner.controller.REFINER.configured
    assert parse(found["data"], {}) == parse(REFINER, {})
    assert "written down: nodeDrainTimeout: 8m30s, as SAP node-refiner" in notes
    assert notes.endswith("changes in behaviour: nothing")


def test_a_manifest_and_its_config_map_are_converted_together() -> None:
    older = config_map("estafette-k8s-node-compactor", {"estafette-k8s-node-compactor-config.yaml": json.dumps(POOLS)})
    (config, pods), notes = convert(older, deployment("estafette/estafette-k8s-node-compactor:1", COMPACTOR_ENV))
    held = yaml.safe_load(config["data"]["config.yaml"])
    assert (held["minimumNodeAge"], held["neededMarkedTimeForRemoval"]) == (0, "600s")
    assert env_of(pods) == {
        "LOG_FORMAT": "text", "INTERVAL": "60s", "CONFIG_MAP_NAME": "estafette-k8s-node-compactor",
    }  # fmt: skip
    assert "MINIMUM_NODE_AGE_SECONDS is minimumNodeAge of the ConfigMap now" in notes


def test_a_manifest_alone_keeps_what_belongs_into_the_configuration_and_says_so() -> None:
    [pods], notes = convert(deployment("estafette/estafette-k8s-node-compactor:1", COMPACTOR_ENV))
    assert env_of(pods)["NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS"] == "600"
    assert "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS stays, since neededMarkedTimeForRemoval belongs into" in notes


def test_the_older_refiners_manifest_says_what_it_took_for_granted() -> None:
    [pods], notes = convert(deployment("ghcr.io/sap/node-refiner:latest", {"LISTENING_PORT": "8080"}))
    assert env_of(pods) == {"HTTP_PORTS": "8080", "CONFIG_MAP_NAME": "node-refiner-cm", "HTTP_PROBE_PORT": "9102"}
    assert "written down: HTTP_PROBE_PORT=9102" in notes


def test_a_flag_that_run_does_not_have_changes_the_behaviour() -> None:
    flag = "--sleep-duration-between-iterations-seconds=90"
    _, notes = convert(deployment("estafette/estafette-k8s-node-compactor:1", {}, (flag,)))
    assert notes.endswith(f"changes in behaviour: {flag}: run has no such flag, set INTERVAL")


OLDER_HPA: Json = {
    "apiVersion": "autoscaling/v1",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {
        "name": "web",
        "annotations": {
            "estafette.io/hpa-scaler": "true",
            "estafette.io/hpa-scaler-prometheus-query": "sum(rate(requests_total{app='my-app'}[5m])) by (app)",
            "estafette.io/hpa-scaler-requests-per-replica": "2.5",
            "estafette.io/hpa-scaler-delta": "-0.5",
            "estafette.io/hpa-scaler-state": "{}",
            "team": "shop",
        },
    },
}
"""The HPA of estafette-k8s-hpa-scaler's README."""


def test_an_older_hpas_annotations_become_native_and_its_state_stays_for_the_controller() -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [OLDER_HPA]}
    [found], notes = convert(listed)
    annotations = found["items"][0]["metadata"]["annotations"]
    assert {key.partition("/")[0] for key in annotations} == {"tightship.dev", "estafette.io", "team"}
    assert "estafette.io/hpa-scaler-state" in annotations
    assert parse_spec(annotations) == parse_spec(OLDER_HPA["metadata"]["annotations"])
    assert notes.endswith("HorizontalPodAutoscaler web: changes in behaviour: nothing")


def test_an_annotation_that_can_not_be_used_is_named() -> None:
    thing = json.loads(json.dumps(OLDER_HPA).replace('"2.5"', '"2,5"'))
    _, notes = convert(thing)
    assert "can't be used before nor after: estafette.io/hpa-scaler-requests-per-replica: '2,5'" in notes


def test_what_is_not_theirs_passes_unchanged_and_a_native_file_stays_as_it_is() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    [found], notes = convert(service)
    assert found == service
    assert notes == "f: nothing of an older controller is in there; it passes unchanged"
    [once], _ = convert(POOLS)
    [twice], notes = convert(once)
    assert twice == once
    assert notes == "f: nothing of an older controller is in there; it passes unchanged"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "f: neither YAML nor JSON: "),
        ("[1]", "f: holds no mapping; allowed is a configuration, or manifests of Kubernetes"),
        ("", "f: holds no mapping"),
        ("name: x", "f: neither nodePools nor a key of SAP node-refiner is in there; allowed is a configuration of"),
    ],
)
def test_what_is_no_file_of_theirs_is_refused(text: str, says: str) -> None:
    with pytest.raises(CliError) as refused:
        converted(text.encode(), "f")
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"time_gap": "soon"}, "f: time_gap: 'soon' is not a duration"),
        ({"time_gap": "5", "clusterCoolDownAfterDrain": "5m"}, "f: time_gap: stands beside clusterCoolDownAfterDrain"),
        ({"minimum_nodes": "3", "typo": "1"}, "f: typo: unknown key"),
    ],
)
def test_a_bad_value_is_named_as_the_user_wrote_it(values: Json, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        convert(values)
    assert refused.value.problems[0].startswith(says)


def test_the_command_prints_the_file_and_says_what_changes_on_stderr(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "pools.json"
    path.write_text(json.dumps(POOLS))
    assert command(["config", "convert", str(path)]) == 0
    printed = capfdbinary.readouterr()
    assert yaml.safe_load(printed.out)["utilization"] == "cpu"
    assert printed.err.endswith(b"changes in behaviour: nothing\n")

"""Every setting that the controllers have can be set by values, and takes effect.

Which settings there are comes from the code. What is rendered is read back by the controllers' own readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pydantic import BaseModel
from rendering import Json, Render, Rendered, each_chart

import hpa_scaler.process.settings
import node_compactor.controller
import node_refiner.controller
from hpa_scaler.annotations.parsing import ANNOTATIONS
from tightship.process.settings.process import ProcessSettings, load_process
from tightship_charts.configuration import config_keys
from tightship_charts.matrix import Values, merge
from tightship_e2e.helm import Helm, objects
from tightship_testkit.replica import IN_POD

PROCESS: Mapping[str, type[ProcessSettings]] = {
    "node-compactor": node_compactor.controller.CompactorRunSettings,
    "node-refiner": node_refiner.controller.RefinerRunSettings,
    "hpa-scaler": hpa_scaler.process.settings.ScalerRunSettings,
}
PARSERS: Mapping[str, Callable[[Mapping[str, str]], BaseModel]] = {
    "node-compactor": lambda data: node_compactor.controller.COMPACTOR.configured(data, {}),
    "node-refiner": lambda data: node_refiner.controller.REFINER.configured(data, {}),
    "hpa-scaler": hpa_scaler.process.settings.parse_config_map,
}

OTHERWISE = {
    "identity": "the name of the pod, from the downward API",
    "namespace": "the namespace of the pod, from the downward API",
    "listening_port": "the older name of what HTTP_PORTS says, which comes first",
    "service_host": "the kubelet, in every pod",
    "release": "the Job that gives nodes back sets it, and no controller's own pods do",
}
"""Settings of a process that no value sets, and what does."""

CHANGED: Values = {
    "dryRun": True,
    "clusterName": "changed",
    "interval": "17s",
    "requestTimeout": "18s",
    "leaderElection": {
        "enabled": False,
        "resourceName": "changed",
        "leaseDuration": "19s",
        "renewDeadline": "11s",
        "retryPeriod": "3s",
    },
    "shutdown": {"timeout": "16s", "grace": "26s"},
    "http": {
        "port": 1,
        "probePort": 3,
        "extraPorts": [2],
        "host": "127.0.0.1",
        "secure": {"enabled": True, "secretName": "changed"},
    },
    "log": {"level": "error", "format": "json"},
    "configMap": {"mounted": True, "name": "changed"},
    "kubeconfig": {"secretName": "changed", "context": "changed"},
}
"""A value for every setting of a process that all controllers have, none of them a default of any."""

CHANGED_TOO: Mapping[str, Values] = {
    "node-compactor": {"claims": {"leaseName": "changed", "namespace": "changed"}},
    "node-refiner": {"claims": {"leaseName": "changed", "namespace": "changed"}},
    "hpa-scaler": {
        "prometheusServerUrl": "http://changed",
        "minimumReplicasLowerBound": 7,
        "annotationPrefix": "changed.example.com",
        "cycleDeadline": "119s",
        "watch": True,
        "decisionLog": {"enabled": True, "megabytes": 199},
    },
}


def process_of(chart: str, rendered: Rendered) -> ProcessSettings:
    return load_process(PROCESS[chart], {**IN_POD, **rendered.env}, unique=lambda: "u")


@each_chart
def test_every_setting_of_the_process_can_be_set_by_values(render: Render, chart: str) -> None:
    """All at once to what is no default: what is still one can't be reached. No variable is set that nobody reads."""
    rendered, model = render(chart, merge(CHANGED, CHANGED_TOO[chart])), PROCESS[chart]
    loaded = process_of(chart, rendered).model_dump()
    plain = load_process(model, IN_POD, unique=lambda: "u").model_dump()
    same = {field for field, value in loaded.items() if value == plain[field]}
    assert same == OTHERWISE.keys() & loaded.keys()
    known = {name for field in model.model_fields for name in model.variables(field)}
    assert {each["name"] for each in rendered.container["env"]} <= known


@each_chart
def test_what_no_value_sets_is_set_by_what_is_said(render: Render, chart: str) -> None:
    fields = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in render(chart).container["env"][:2]}
    assert fields == {"POD_NAME": "metadata.name", "NAMESPACE": "metadata.namespace"}


@each_chart
def test_by_default_the_process_runs_as_it_would_without_the_chart(render: Render, chart: str) -> None:
    """But for names, which are the release's, the dry run, and the time for a stop: without the chart a pod has the 30
    seconds of Kubernetes. Ports of all charts differ, so that their pods may share a node's network.
    """
    loaded = process_of(chart, render(chart)).model_dump()
    plain = load_process(PROCESS[chart], IN_POD, unique=lambda: "u").model_dump()
    different = {field for field, value in loaded.items() if value != plain[field]}
    expected = {"config_map", "lease_name", "dry_run", "stop_timeout", "grace"}
    assert different == expected | ({"ports", "probe_port"} if chart == "hpa-scaler" else {"landings"})


def sample(key: str, schema: Json, default: str) -> object:
    """A value that *schema* allows and that is not the default."""
    if key == "prices":
        return {"currency": "EUR", "instanceTypes": {"changed": 0.5}}
    if key == "windows":
        return {"allow": ["Mon-Fri 20:00-06:00"], "timeZone": "Europe/Berlin"}
    if "properties" in schema:
        return {name: sample(name, each, "") for name, each in schema["properties"].items()}
    if "enum" in schema:
        return next(each for each in schema["enum"] if each != default)
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if kinds == ["array"]:
        return [sample(key, schema["items"], "")]
    if kinds == ["object"]:
        return {"changed": sample(key, schema["additionalProperties"], "")}
    if kinds == ["boolean"]:
        return default != "true"
    if "ms|s|m|h|d" in schema.get("pattern", ""):
        return "100h" if key.lower().endswith(("limit", "deadline")) else "77s"
    if "number" in kinds or "integer" in kinds:
        return 0.7 if "exclusiveMaximum" in schema else 7
    return SAMPLES.get(key, "changed")


SAMPLES = {
    "url": "http://changed:9090",
    "allowedServerURLs": "http://allowed:9090",
    "labelSelector": "a=b",
    "dataAgeQuery": "changed[{range}]",
    "lateSamplesQuery": "changed",
    "failedScrapesQuery": "changed",
}


def changed_config(chart: str) -> Json:
    """A configuration in which no key has its default."""
    config: Json = {}
    for key in config_keys(chart):
        within = config
        for step in key.path[:-1]:
            within = within.setdefault("changed" if step == "NAME" else step, {})
        within[key.path[-1]] = sample(key.path[-1], key.schema, key.default)
    if chart == "hpa-scaler":
        config["queryDeadline"] = "77s"
        config["defaults"] = {"dryRun": True}
        del config["prometheusServers"]["changed"]["bearerTokenFile"]  # excludes basicAuth
    return config


@each_chart
def test_every_key_of_the_configuration_goes_through_to_the_controller(render: Render, chart: str) -> None:
    config = changed_config(chart)
    data = render(chart, {"config": config}).one("ConfigMap")["data"]
    same = dict(unchanged(PARSERS[chart](data), PARSERS[chart]({})))
    assert not same


def unchanged(found: object, plain: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the settings of *found* that are those of *plain*, by their path."""
    for field, value in dict(found).items() if isinstance(found, BaseModel) else ():  # type: ignore[call-overload]
        here = f"{path}{field}"
        if value == getattr(plain, field):
            if here != "servers.bearer_token_file":
                yield here, value
        elif isinstance(value, Mapping):
            for part in value.values():
                if isinstance(part, BaseModel):
                    yield from unchanged(part, type(part).model_construct(), f"{here}.")


def test_a_bearer_token_goes_through_too(render: Render) -> None:
    config = {"prometheusServers": {"mimir": {"url": "http://mimir", "bearerTokenFile": "/secrets/mimir/token"}}}
    data = render("hpa-scaler", {"config": config}).one("ConfigMap")["data"]
    assert (
        hpa_scaler.process.settings.parse_config_map(data).servers["mimir"].bearer_token_file == "/secrets/mimir/token"
    )


def test_every_annotation_may_have_a_default(render: Render) -> None:
    texts = {
        "prometheusQuery": "up",
        "holdQuery": "up",
        "prometheusServer": "default",
        "holdQueryServer": "default",
        "prometheusServerUrl": "http://allowed:9090",
        "severalSeries": "error",
        "missingData": "zero",
        "maxReplicasPolicy": "clamp",
        "loweringWindow": "10m",
        "lowerDuring": "Mon-Fri 20:00-06:00",
        "queryRange": "10m",
        "holdCoolDown": "10m",
        "forecast": "daily",
        "forecastAhead": "15m",
        "deadband": "5%",
        "delta": -0.5,
        "scaleDownMaxRatio": 0.25,
        "scaleUpMaxRatio": 0.25,
    }
    switch = next(each.read for each in ANNOTATIONS if each.key == "dryRun")
    switches = {each.key: True for each in ANNOTATIONS if each.read is switch}
    whole = {each.key: 3 for each in ANNOTATIONS if each.key not in {*texts, *switches, "paused"}}
    values = {**texts, **switches, **whole, "paused": "2026-01-01T00:00:00Z"}
    values |= {"pausedScaleDown": True, "pausedScaleUp": False}
    del values["prometheusServerUrl"]  # one server, by name or by address
    data = render("hpa-scaler", {"config": {"defaults": values}}).one("ConfigMap")["data"]
    read = hpa_scaler.process.settings.parse_config_map(data).defaults
    assert set(read) == {each.name for each in ANNOTATIONS} - {"prometheus-server-url"}


@pytest.mark.parametrize(
    ("chart", "flag", "read"),
    [
        (
            "node-compactor",
            "config.nodePools.a.cpuRequestRatioLimit=0.75",
            lambda it: it.pools["a"].limit == 0.75,
        ),
        (
            "node-compactor",
            "config.nodePools.a.cpuRequestRatioLimit=75%",
            lambda it: it.pools["a"].limit == 0.75,
        ),
        ("node-compactor", "config.maximumNodesInDrain=10%", lambda it: str(it.cluster_budget) == "10%"),
        ("node-refiner", "config.excessNodesThreshold=1.5", lambda it: it.excess_nodes_threshold == 1.5),
        ("node-refiner", "config.disabledRules={JobRunning,LocalStorage}", lambda it: len(it.disabled_rules) == 2),
        ("node-refiner", "config.maximumNodesInPlan=2000000", lambda it: it.max_nodes == 2_000_000),
        ("hpa-scaler", "config.correlatedDropSize=12.5%", lambda it: it.drop_size == 0.125),
        (
            "hpa-scaler",
            "config.defaults.scaleDownMaxRatio=0.2",
            lambda it: it.defaults["scale-down-max-ratio"] == "0.2",
        ),
    ],
)
def test_flags_of_helm_are_read_as_they_were_meant(
    helm: Helm, charts: Path, chart: str, flag: str, read: Callable[[object], bool]
) -> None:
    """Helm's ``--set`` makes texts of fractions, and YAML writes large numbers with an exponent."""
    shown = helm("template", "rel", charts / chart, "--set", flag, "--skip-tests")
    [config] = [each for each in objects(shown) if each["kind"] == "ConfigMap"]
    assert read(PARSERS[chart](config["data"]))

"""``README.md`` of a chart: how to install it, its objects and alerts, and every value with what it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import yaml

from tightship_charts.alerts import ALERTS
from tightship_charts.configuration import Json, config_keys
from tightship_charts.places import CHARTS, UMBRELLA
from tightship_charts.values import Value, leaves

_LONGEST = 60
"""Characters of a default in a table; what is longer is in ``values.yaml``."""

SETTINGS_PAGES: Mapping[str, str] = {
    "node-compactor": "settings.md",
    "node-refiner": "settings.md#settings-of-node-refiner",
    "hpa-scaler": "settings.md#settings-of-the-hpa-scaler",
}
"""Where the settings of each are told, from the folder of all docs."""
_OLDER: Mapping[str, str] = {
    "node-compactor": "estafette-k8s-node-compactor",
    "node-refiner": "SAP node-refiner",
    "hpa-scaler": "estafette-k8s-hpa-scaler",
}
_FIRST: Mapping[str, str] = {
    "node-compactor": "--set 'config.nodePools.*.enabled=true' "
    "--set 'config.nodePools.*.scaleDownCPURequestRatioLimit=0.75'",
    "node-refiner": "--set config.excess_nodes_threshold=2",
    "hpa-scaler": "--set prometheusServerUrl=http://prometheus.monitoring.svc:9090",
}
_AT_FIRST: Mapping[str, str] = {
    "node-compactor": "The controller starts in a dry run: look at the plan before you set `dryRun=false`.",
    "node-refiner": "The controller starts in a dry run: look at the plan before you set `dryRun=false`.",
    "hpa-scaler": "The controller is live at once for annotated HPAs; with `dryRun=true` it changes none.",
}

_PROMISES = """\
The chart creates, and promises:

* A Deployment whose pods meet the Pod Security Standard *restricted*, with a read-only root file system. One value,
  `replicaCount`, makes it two replicas.
* RBAC rules without a wildcard ([which](../../docs/permissions.md)): no right to write in a dry run, and access to the
  Lease and the ConfigMap by name only.
* A ConfigMap that the controller watches: a change needs no restart. If you mount the ConfigMap instead
  (`configMap.mounted`), a change rolls the pods.
* A PodDisruptionBudget that can't block a drain. The chart refuses values with which the budget would, and refuses two
  replicas without leader election.
* On request a NetworkPolicy, a ServiceMonitor or PodMonitor, alerts, a dashboard and a VerticalPodAutoscaler. The chart
  creates an object of another project only where its CRD is installed.
"""

_UMBRELLA = """\
# tightship

All controllers of Tightship in one release: node-compactor, node-refiner and hpa-scaler. You can disable each of them.

```console
$ helm install tightship charts/tightship -n tightship --create-namespace --dependency-update
$ helm test tightship -n tightship --logs
```

node-compactor and node-refiner start in a dry run; hpa-scaler changes only annotated HPAs. Helm's notes say what is
live. `--set global.dryRun=true` puts all of them in a dry run, `--set global.dryRun=false` none. A controller's value
stands under the controller's name and overrides the global one: `--set node-compactor.dryRun=false`. The controllers'
own values: [node-compactor](../node-compactor/README.md), [node-refiner](../node-refiner/README.md),
[hpa-scaler](../hpa-scaler/README.md).

node-compactor and node-refiner run side by side: they share one budget and one list of claims.

A checkout holds no built dependencies: `--dependency-update` builds those that are missing. After a `git pull` run
`helm dependency build charts/tightship`. A package holds all of them.
"""


def readme(chart: str) -> str:
    """Return the README of *chart*."""
    parts = _umbrella() if chart == UMBRELLA else _controller(chart)
    return "\n".join(["<!-- Made by `make charts` from values.yaml, the schema and the code: edit those. -->", *parts])


def _controller(chart: str) -> Iterator[str]:
    about = _chart_file(chart)
    older = _OLDER[chart]
    anchor = f"from-{older.lower().replace(' ', '-')}"
    yield f"# {chart}\n"
    yield f"{about['description']}\n"
    yield "```console"
    yield f"$ helm install {chart} charts/{chart} -n tightship --create-namespace --dependency-update \\"
    yield f"    {_FIRST[chart]}"
    yield f"$ helm test {chart} -n tightship --logs"
    yield "```\n"
    yield f"{_AT_FIRST[chart]}\n"
    newest = about["kubeVersion"].removeprefix(">=").removesuffix(".0-0")
    yield f"Kubernetes {newest} or newer, Helm 4 or 3."
    yield f"Coming from [{older}](../../docs/migration-charts.md#{anchor}).\n"
    yield _PROMISES
    yield "## Values\n"
    yield from _values(chart)
    yield "## Configuration\n"
    plain = "minutes" if chart == "node-refiner" else "seconds"
    yield f"The keys of `config`; [settings](../../docs/{SETTINGS_PAGES[chart]}) explains each."
    yield f"Write durations as `90s`, `10m`, `1h30m`, or as plain {plain}.\n"
    yield "| key | allowed | default |\n|---|---|---|"
    for key in config_keys(chart):
        yield f"| `{'.'.join(key.path)}` | {allowed(key.schema)} | {f'`{key.default}`' if key.default else ''} |"
    yield "\n## Alerts\n"
    yield "These alerts need `prometheusRule.enabled`; [alerts](../../docs/alerts.md) says what to do about each.\n"
    yield "| alert | severity | for | threshold | |\n|---|---|---|---|---|"
    for alert in ALERTS[chart]:
        least = "" if alert.threshold is None else f"{alert.threshold:g}"
        least += f", or {alert.passes} intervals" if alert.passes else ""
        said = alert.summary.replace("CONTROLLER", chart)
        link = f"[`{alert.named(chart)}`](../../docs/alerts.md#{alert.name.lower()})"
        yield f"| {link} | {alert.severity} | {alert.patience} | {least} | {said} |"
    yield ""


def _umbrella() -> Iterator[str]:
    yield _UMBRELLA
    yield "## Values\n"
    yield from _values(UMBRELLA)


def _values(chart: str) -> Iterator[str]:
    yield "| key | what | default |\n|---|---|---|"
    for value in leaves(chart):
        yield f"| `{value.dotted}` | {value.description.replace('|', '/')} | {_default(value)} |"
    yield ""


def _default(value: Value) -> str:
    if value.default is None:
        return ""
    text = msgspec.json.encode(value.default).decode()
    return f"`{text}`" if len(text) <= _LONGEST else "see values.yaml"


def allowed(schema: Json) -> str:
    """Return in words what *schema* allows."""
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    pattern = schema.get("pattern", "")
    if "ms|s|m|h|d" in pattern:
        return "a duration"
    if pattern.endswith("%)$"):
        return "a number or a percentage"
    if kinds == ["array"]:
        return f"a list of {allowed(schema['items'])}".replace("a text", "texts")
    if kinds == ["object"]:
        names = ", ".join(f"`{each}`" for each in schema.get("properties", ()))
        return f"by annotation: {names}" if names else "texts by name"
    if kinds in (["integer"], ["number", "string"]):
        return f"a {'whole ' if kinds == ['integer'] else ''}number{_bounds(schema)}"
    return "`true`, `false`" if kinds == ["boolean"] else "a text"


def _bounds(schema: Json) -> str:
    words: Sequence[tuple[str, str]] = (
        ("minimum", "from {}"),
        ("exclusiveMinimum", "above {}"),
        ("maximum", "up to {}"),
        ("exclusiveMaximum", "below {}"),
    )
    found = [text.format(f"{schema[key]:g}") for key, text in words if key in schema]
    return f" {' '.join(found)}" if found else ""


def _chart_file(chart: str) -> Json:
    found: Json = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text(encoding="utf-8"))
    return found


__all__ = ["SETTINGS_PAGES", "allowed", "readme"]

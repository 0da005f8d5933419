"""``README.md`` of a chart: how to install it, its objects and alerts, and every value with what it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import yaml
from msgspec import Struct

from tightship_charts.alerts import ALERTS
from tightship_charts.configuration import Json, allowed, config_keys
from tightship_charts.places import CHARTS, NODE_CONTROLLERS, UMBRELLA
from tightship_charts.values import Value, leaves

REGISTRY = "oci://ghcr.io/tightship/charts"
"""Where releases of the charts are."""

_LONGEST = 60
"""Characters of a default in a table; what is longer is in ``values.yaml``."""


class _About(Struct, frozen=True):
    """What a chart's README says first: page of the settings, and flags to try."""

    settings: str
    flags: str


_ABOUT: Mapping[str, _About] = {
    "node-compactor": _About(
        "settings.md",
        "--set 'config.nodePools.*.enabled=true' --set 'config.nodePools.*.cpuRequestRatioLimit=0.75'",
    ),
    "node-refiner": _About(
        "settings.md#settings-of-node-refiner",
        "--set config.excessNodesThreshold=2",
    ),
    "hpa-scaler": _About(
        "settings.md#settings-of-the-hpa-scaler",
        "--set prometheusServerUrl=http://prometheus.monitoring.svc:9090",
    ),
}

_DRY_AT_FIRST = "The controller starts in a dry run: read the plan before you set `dryRun=false`."

_PROMISES = """\
The chart creates:

* A Deployment whose pods meet the Pod Security Standard *restricted*, with a read-only root file system: one replica of
  a dry run, two of a live controller.
* [RBAC rules](../../docs/permissions.md) without a wildcard. In a dry run the controller has no right to write. The
  controller reads and updates Leases, and reads its ConfigMap, by name only.
* A ConfigMap that the controller watches: a change needs no restart. With `configMap.mounted` the pods mount the
  ConfigMap instead, and a change replaces the pods.
* A PodDisruptionBudget that can't block a drain: the chart refuses values that would. The chart also refuses two
  replicas without leader election.
* If you enable them: a NetworkPolicy, a ServiceMonitor or PodMonitor, alerts, a dashboard and a VerticalPodAutoscaler.
  The chart creates an object of another project only if its CRD is installed.
"""

_LANDINGS = """\
* With `config.steering=hints`, where MutatingAdmissionPolicy is served (Kubernetes 1.36 or newer): a policy that leads
  the replacements of evicted pods to the nodes that the plan chose, and [the ConfigMap that the policy
  reads](../../docs/permissions.md#steering-by-hints).
"""

_TENANTS = """\
## Without rights on the cluster

A tenant with the ClusterRole `admin` in some namespaces can install hpa-scaler for them, into one of them:

```yaml
config:
  namespaces: [team-a, team-b]
admissionPolicy:
  enabled: false
# Kubernetes 1.34 and older, where `admin` may not write Events of events.k8s.io:
optionalRights:
  events: false
```

hpa-scaler then has a Role in each of these namespaces, and no ClusterRole. These values need more than `admin` holds:
`http.secure.enabled` and `flowSchema.enabled` (objects of the cluster), and, unless a role that aggregates to `admin`
has them, objects of other projects, such as monitors and alerts. If Argo Rollouts is installed
without its aggregated roles, set `optionalRights.rollouts=false`. Controllers of nodes need ClusterRoles: a tenant
can't install them. With a GitOps tool, kustomize or `helm template`, read [GitOps](../../docs/operations.md#gitops).
"""

_NO_TENANTS = """\
The chart creates ClusterRoles, because nodes belong to no namespace: a tenant without rights on the cluster can't
install it. With a GitOps tool, kustomize or `helm template`, read [GitOps](../../docs/operations.md#gitops).
"""

_UMBRELLA = """\
# tightship

All controllers of Tightship in one release: node-compactor, node-refiner and hpa-scaler. You can disable each of them.

```console
$ helm install tightship {registry}/tightship --version {version} -n tightship --create-namespace
$ helm test tightship -n tightship --logs
```

All controllers start in a dry run. The notes that Helm prints say which are live. `--set global.dryRun=false` makes
every controller live, `--set node-compactor.dryRun=false` one. What is written under `global` is the default of every
controller's value of the same name: lists add up, mappings merge by key, and anything that a controller's own values
change wins. Keys that begin with `x-` are yours, for YAML anchors. Each controller's chart lists its values:
[node-compactor](../node-compactor/README.md), [node-refiner](../node-refiner/README.md),
[hpa-scaler](../hpa-scaler/README.md).

node-compactor and node-refiner run side by side: they share one budget and one list of claims. Each has its own
[steering](../../docs/settings.md#steering): `--set node-compactor.config.steering=hints` installs the admission
policy for node-compactor alone.

A packaged chart holds all of its dependencies; [a checkout](../../docs/contributing.md#from-a-checkout) holds none.
"""


def readme(chart: str) -> str:
    """Return the README of *chart*."""
    parts = _umbrella() if chart == UMBRELLA else _controller(chart)
    return "\n".join(["<!-- Made by `make charts` from values.yaml, the schema and the code: edit those. -->", *parts])


def _controller(chart: str) -> Iterator[str]:
    about = _chart_file(chart)
    said = _ABOUT[chart]
    yield f"# {chart}\n"
    yield f"{about['description']}\n"
    yield "```console"
    yield f"$ helm install {chart} {REGISTRY}/{chart} --version {about['version']} -n tightship --create-namespace \\"
    yield f"    {said.flags}"
    yield f"$ helm test {chart} -n tightship --logs"
    yield "```\n"
    yield f"{_DRY_AT_FIRST}\n"
    oldest = about["kubeVersion"].removeprefix(">=").removesuffix(".0-0")
    tested = about["annotations"]["tightship.dev/tested-kubernetes"].replace(", ", " and ")
    releases = f"[tested](../../docs/contributing.md#releases-of-kubernetes) on {tested}"
    yield f"Kubernetes {oldest} or newer ({releases}), Helm 4 or 3."
    yield "Coming from another controller: [Moving here](../../docs/moving.md).\n"
    yield _PROMISES + (_LANDINGS + "\n" + _NO_TENANTS if chart in NODE_CONTROLLERS else "\n" + _TENANTS)
    yield "## Values\n"
    yield from _values(chart)
    yield "## Configuration\n"
    yield f"The keys of `config`. [Settings](../../docs/{said.settings}) explains each key."
    yield "Write durations with their unit (`90s`, `8m30s`, `1h30m`), and shares as `75%` or `0.75`.\n"
    yield "| key | allowed | default |\n|---|---|---|"
    for key in config_keys(chart):
        yield f"| `{'.'.join(key.path)}` | {allowed(key.schema)} | {f'`{key.default}`' if key.default else ''} |"
    yield "\n## Alerts\n"
    yield "These alerts need `prometheusRule.enabled`. [Alerts](../../docs/alerts.md) says what to do about each.\n"
    yield "| alert | severity | for | threshold | summary |\n|---|---|---|---|---|"
    for alert in ALERTS[chart]:
        least = "" if alert.threshold is None else f"{alert.threshold:g}"
        least += f", or {alert.passes} intervals" if alert.passes else ""
        summary = alert.summary.replace("CONTROLLER", chart)
        link = f"[`{alert.named(chart)}`](../../docs/alerts.md#{alert.name.lower()})"
        yield f"| {link} | {alert.severity} | {alert.patience} | {least} | {summary} |"
    yield ""


def _umbrella() -> Iterator[str]:
    yield _UMBRELLA.replace("{registry}", REGISTRY).replace("{version}", _chart_file(UMBRELLA)["version"])
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


def _chart_file(chart: str) -> Json:
    found: Json = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text(encoding="utf-8"))
    return found


__all__ = ["readme"]

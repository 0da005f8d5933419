"""``values.schema.json`` of a chart: the types of its defaults, what is said here besides, ``config`` from the code.

Helm puts ``global``, a mapping for each dependency (the library too) and, by a dependency's condition, ``enabled`` into
the values of a chart: all are allowed, and ``global`` may hold what other charts want.

A default that a user takes away with ``null``, or with a heading that has nothing under it, is gone. Where templates
count on it, it is required, so that the error names it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tightship.app.observability.logging import FORMATS, LEVELS
from tightship_charts.configuration import DURATION, FRACTION, MODELS, Json, config_schema
from tightship_charts.places import CONTROLLERS, LIBRARY, UMBRELLA
from tightship_charts.values import defaults, documented

_PORT: Json = {"type": "integer", "minimum": 1, "maximum": 65535}
_DURATION: Json = {"type": ["string", "number"], "pattern": DURATION, "exclusiveMinimum": 0}
_PROMETHEUS_DURATION: Json = {"type": "string", "pattern": "^(|([0-9]+(ms|[smhdwy]))+)$"}
_FREE: Json = {"type": "object"}
_OBJECTS: Json = {"type": "array", "items": _FREE}
_TEXTS: Json = {"type": "object", "additionalProperties": {"type": "string"}}
_NAME: Json = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$"}
_LABEL_NAME: Json = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"}
_PROBE: Json = {"type": "object", "properties": {"enabled": {"type": "boolean"}}, "required": ["enabled"]}
_AMOUNT: Json = {"type": ["integer", "string", "null"], "minimum": 0, "pattern": "^(100|[0-9]{1,2})%$"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_SWITCH_OR_NONE: Json = {"type": ["boolean", "null"]}
_LEVEL: Json = {"enum": ["", *LEVELS]}
_FORMAT: Json = {"enum": ["", *FORMATS]}
_RULES: Json = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"verbs": {"type": "array", "minItems": 1, "items": {"type": "string"}}},
        "required": ["verbs"],
    },
}
_ALERTS: Json = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {
            "enabled": {"type": "boolean"},
            "severity": {"type": "string", "minLength": 1},
            "for": {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))+$"},
            "threshold": {"type": ["number", "string"], "pattern": FRACTION},
        },
        "additionalProperties": False,
    },
}

SAID: Mapping[str, Json] = {
    "dryRun": _SWITCH_OR_NONE,
    "interval": _DURATION,
    "prometheusServerUrl": {"type": "string", "pattern": "^(|https?://.+)$"},
    "minimumReplicasLowerBound": {"type": ["integer", "string"]},
    "cycleDeadline": _DURATION,
    "decisionLog.megabytes": {"type": "number", "exclusiveMinimum": 0},
    "decisionLog.volume": _FREE,
    "annotationPrefix": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"},
    "claims.leaseName": _NAME | {"minLength": 1},
    "claims.namespace": _LABEL_NAME,
    "http.port": _PORT,
    "http.probePort": _PORT,
    "http.extraPorts": {"type": "array", "items": _PORT, "uniqueItems": True},
    "http.host": {"type": "string", "minLength": 1},
    "image.repository": {"type": "string", "minLength": 1},
    "image.digest": {"type": "string", "pattern": "^(|sha256:[0-9a-f]{64})$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "nameOverride": _LABEL_NAME,
    "fullnameOverride": _LABEL_NAME,
    "namespaceOverride": _LABEL_NAME,
    "commonLabels": _TEXTS,
    "commonAnnotations": _TEXTS,
    "imagePullSecrets": _OBJECTS,
    "global.imagePullSecrets": _OBJECTS,
    "global.commonLabels": _TEXTS,
    "global.dryRun": _SWITCH_OR_NONE,
    "global.logLevel": _LEVEL,
    "global.logFormat": _FORMAT,
    "configMap.name": _NAME,
    "configMap.annotations": _TEXTS,
    "log.level": _LEVEL,
    "log.format": _FORMAT,
    "replicaCount": _COUNT,
    "revisionHistoryLimit": _COUNT,
    "strategy": {"type": "object", "properties": {"type": {"enum": ["RollingUpdate", "Recreate"]}}},
    "leaderElection.resourceName": _NAME,
    "leaderElection.leaseDuration": _DURATION,
    "leaderElection.renewDeadline": _DURATION,
    "leaderElection.retryPeriod": _DURATION,
    "requestTimeout": _DURATION,
    "shutdown.timeout": _DURATION,
    "shutdown.grace": _DURATION,
    "terminationGracePeriodSeconds": {"type": "integer", "minimum": 1},
    "kubeconfig.secretName": _NAME,
    "serviceAccount.name": _NAME,
    "serviceAccount.annotations": _TEXTS,
    "serviceAccount.labels": _TEXTS,
    "rbac.additionalRules": _RULES,
    "deploymentAnnotations": _TEXTS,
    "podAnnotations": _TEXTS,
    "podLabels": _TEXTS,
    "podSecurityContext": _FREE,
    "securityContext": _FREE,
    "hostUsers": _SWITCH_OR_NONE,
    "dnsConfig": _FREE,
    "dnsPolicy": {"enum": ["", "Default", "ClusterFirst", "ClusterFirstWithHostNet", "None"]},
    "resources": _FREE,
    "nodeSelector": _TEXTS,
    "tolerations": _OBJECTS,
    "affinity": _FREE,
    "topologySpreadConstraints": _OBJECTS,
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "extraArgs": {"type": "array", "items": {"type": "string"}},
    "env": _OBJECTS,
    "envFrom": _OBJECTS,
    "secretMounts": {
        "type": "object",
        "propertyNames": {"pattern": "^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$"},
        "additionalProperties": _NAME | {"minLength": 1},
    },
    "extraVolumes": _OBJECTS,
    "extraVolumeMounts": _OBJECTS,
    "initContainers": _OBJECTS,
    "extraContainers": _OBJECTS,
    "extraObjects": {"type": "array", "items": {"type": ["object", "string"]}},
    "podDisruptionBudget.minAvailable": _AMOUNT,
    "podDisruptionBudget.maxUnavailable": _AMOUNT,
    "podDisruptionBudget.unhealthyPodEvictionPolicy": {"enum": ["", "AlwaysAllow", "IfHealthyBudget"]},
    "networkPolicy.ingress.from": _OBJECTS,
    "networkPolicy.ingress.extra": _OBJECTS,
    "networkPolicy.egress.dnsPorts": {"type": "array", "items": _PORT, "minItems": 1},
    "networkPolicy.egress.apiServerPorts": {"type": "array", "items": _PORT, "minItems": 1},
    "networkPolicy.egress.apiServerTo": _OBJECTS,
    "networkPolicy.egress.extra": _OBJECTS,
    "service.port": _PORT | {"type": ["integer", "null"]},
    "service.annotations": _TEXTS,
    "service.labels": _TEXTS,
    "service.ipFamilies": {"type": "array", "items": {"enum": ["IPv4", "IPv6"]}},
    "service.ipFamilyPolicy": {"enum": ["", "SingleStack", "PreferDualStack", "RequireDualStack"]},
    "prometheusRule.interval": _PROMETHEUS_DURATION,
    "prometheusRule.labels": _TEXTS,
    "prometheusRule.annotations": _TEXTS,
    "prometheusRule.alertLabels": _TEXTS,
    "prometheusRule.alerts": _ALERTS,
    "prometheusRule.additionalRules": _OBJECTS,
    "grafanaDashboard.labels": _TEXTS,
    "grafanaDashboard.annotations": _TEXTS,
    "grafanaDashboard.operator.instanceSelector": _TEXTS,
    "verticalPodAutoscaler.updateMode": {"enum": ["Off", "Initial", "Recreate", "Auto", "InPlaceOrRecreate"]},
    "verticalPodAutoscaler.minAllowed": _FREE,
    "verticalPodAutoscaler.maxAllowed": _FREE,
    **{
        f"{monitor}.{key}": schema
        for monitor in ("serviceMonitor", "podMonitor")
        for key, schema in {
            "namespace": _LABEL_NAME,
            "interval": _PROMETHEUS_DURATION,
            "scrapeTimeout": _PROMETHEUS_DURATION,
            "labels": _TEXTS,
            "annotations": _TEXTS,
            "relabelings": _OBJECTS,
            "metricRelabelings": _OBJECTS,
        }.items()
    },
}
"""What is allowed where the default does not say enough, by path."""

_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema_of(chart: str) -> Json:
    """Return the schema of all values of *chart*. Raises :class:`TypeError` for a default that says no type."""
    said = dict(SAID)
    if chart in MODELS:
        said["config"] = config_schema(chart)
    described = {each.dotted: each.description for each in documented(chart)}
    schema = _closed(defaults(chart), (), said, described)
    schema["properties"]["global"]["additionalProperties"] = True
    if chart == UMBRELLA:
        # Each of them checks its own values.
        for controller in CONTROLLERS:
            schema["properties"][controller] |= {"required": [], "additionalProperties": True}
        # A heading with nothing under it leaves the controllers' own defaults.
        schema["required"] = [each for each in schema["required"] if each not in {"global", *CONTROLLERS}]
    what = "Whether this chart is installed as a part of another: its condition there."
    schema["properties"]["enabled"] = {"type": "boolean", "description": what}
    schema["properties"][LIBRARY] = {"type": "object", "description": "Not for people: Helm puts it here."}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"Values of the chart {chart}", **schema}


def _closed(
    values: Mapping[str, object], above: tuple[str, ...], said: Mapping[str, Json], described: Mapping[str, str]
) -> Json:
    properties: Json = {}
    required: list[str] = []
    for key, value in values.items():
        dotted = ".".join((*above, key))
        if dotted in said:
            schema = dict(said[dotted])
        elif isinstance(value, Mapping) and value:
            schema = _closed(value, (*above, key), said, described)
        elif type(value) in _PLAIN:
            schema = {"type": _PLAIN[type(value)]}
        else:
            raise TypeError(f"{dotted}: its default, {value!r}, does not say what is allowed: say it in SAID")
        if dotted == "config" or (
            _says_something(value, whole=dotted in said) and "null" not in schema.get("type", "")
        ):
            required.append(key)
        text = described.get(dotted)
        properties[key] = schema | ({"description": text} if text else {})
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _says_something(value: object, *, whole: bool) -> bool:
    """Whether templates count on this default: it is not empty, nor a part of the pod that goes *whole* with it."""
    if isinstance(value, Mapping | list):
        return bool(value) and not whole
    return value is not None and value != ""


__all__ = ["SAID", "schema_of"]

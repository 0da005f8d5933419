"""Values that the charts are tried with: defaults, every feature alone, and everything at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tightship_charts.places import CONTROLLERS

Values = dict[str, Any]

LONGEST_RELEASE = "a-release-whose-name-is-as-long-as-helm-will-take-it0"
"""53 characters: Helm takes no more."""

APIS = (
    "monitoring.coreos.com/v1/ServiceMonitor",
    "monitoring.coreos.com/v1/PodMonitor",
    "monitoring.coreos.com/v1/PrometheusRule",
    "grafana.integreatly.org/v1beta1/GrafanaDashboard",
    "autoscaling.k8s.io/v1/VerticalPodAutoscaler",
)
"""Kinds of other projects that the charts make where they are served."""

_SIDECAR: Values = {"name": "beside", "image": "example.com/beside:1", "securityContext": {}}
_RESTRICTED: Values = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
_OWN_NAME = '{{ include "tightship-lib.fullname" . }}'
_MONITOR: Values = {
    "enabled": True,
    "namespace": "monitoring",
    "interval": "30s",
    "scrapeTimeout": "10s",
    "labels": {"release": "prometheus"},
    "annotations": {"example.com/a": "monitor"},
    "honorLabels": True,
    "relabelings": [{"action": "labeldrop", "regex": "a"}],
    "metricRelabelings": [{"action": "labeldrop", "regex": "b"}],
}

_CLAIMS: Values = {"dryRun": False, "claims": {"leaseName": "team-claims", "namespace": "claims"}}

FEATURES: Mapping[str, Values] = {
    "live": {"dryRun": False},
    "dry run": {"dryRun": True},
    "two replicas": {"replicaCount": 2, "dryRun": False},
    "no election": {"leaderElection": {"enabled": False}, "dryRun": False},
    "names": {"nameOverride": "packer", "namespaceOverride": "elsewhere", "dryRun": False},
    "full name": {"fullnameOverride": "packer"},
    "mounted configuration": {"configMap": {"mounted": True, "annotations": {"example.com/a": "config"}}},
    "configuration made elsewhere": {"configMap": {"create": False, "name": "made-elsewhere"}},
    "another cluster": {"kubeconfig": {"secretName": "other", "key": "value", "context": "there"}},
    "account made elsewhere": {
        "serviceAccount": {"create": False, "name": "made-elsewhere"},
        "rbac": {"create": False},
    },
    "account": {"serviceAccount": {"name": "packer", "labels": {"a": "b"}, "annotations": {"example.com/a": "b"}}},
    "more rights": {"rbac": {"additionalRules": [{"apiGroups": [""], "resources": ["events"], "verbs": ["get"]}]}},
    "image by digest": {"image": {"digest": "sha256:" + "0" * 64, "pullPolicy": "Always"}},
    "image of global registry": {
        "global": {"imageRegistry": "registry.example.com", "imagePullSecrets": [{"name": "all"}]},
        "imagePullSecrets": [{"name": "own"}],
        "image": {"tag": "edge"},
    },
    "labels and annotations": {
        "commonLabels": {"team": "own"},
        "global": {"commonLabels": {"team": "all", "cluster": "blue"}},
        "commonAnnotations": {"example.com/a": "all"},
        "deploymentAnnotations": {"example.com/b": "deployment"},
        "podAnnotations": {"example.com/c": "pod"},
        "podLabels": {"pod": "yes"},
    },
    "scheduling": {
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "system", "operator": "Exists"}]}]
                }
            }
        },
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    },
    "pod": {
        "hostUsers": False,
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["192.0.2.1"]},
        "runtimeClassName": "sandbox",
        "terminationGracePeriodSeconds": 60,
        "shutdown": {"timeout": "40s", "grace": "50s"},
        "resources": {"limits": {"memory": "1Gi"}},
        "livenessProbe": {"periodSeconds": 30},
        "startupProbe": {"enabled": False},
    },
    "host network": {
        "hostNetwork": True,
        "http": {"port": 19101, "probePort": 19102, "extraPorts": [15000], "host": "::"},
    },
    "extras": {
        "extraArgs": ["--log-level", '{{ .Values.log.level | default "debug" }}'],
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}],
        "envFrom": [{"secretRef": {"name": "variables", "optional": True}}],
        "secretMounts": {"mimir": "mimir-credentials"},
        "extraVolumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}],
        "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "initContainers": [{"name": "before", "image": "example.com/before:1", "securityContext": _RESTRICTED}],
        "extraContainers": [{**_SIDECAR, "securityContext": _RESTRICTED}],
        "extraObjects": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": '{{ include "tightship-lib.fullname" . }}-object'},
            },
            'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ include "tightship-lib.fullname" . }}-text\n',
        ],
    },
    "budget of percent": {"replicaCount": 3, "podDisruptionBudget": {"minAvailable": "50%"}},
    "no budget": {"podDisruptionBudget": {"enabled": False}},
    "network policy": {
        "networkPolicy": {
            "enabled": True,
            "ingress": {
                "from": [{"namespaceSelector": {"matchLabels": {"monitoring": "yes"}}}],
                "extra": [{"ports": [{"port": 1, "protocol": "TCP"}]}],
            },
            "egress": {
                "dnsPorts": [53, 5353],
                "apiServerPorts": [443, 8443],
                "apiServerTo": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
                "extra": [{"ports": [{"port": 9090, "protocol": "TCP"}]}],
            },
        },
        "http": {"extraPorts": [5000]},
    },
    "service": {
        "service": {
            "port": 80,
            "labels": {"a": "b"},
            "annotations": {"example.com/a": "service"},
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
        }
    },
    "service monitor": {"serviceMonitor": _MONITOR},
    "pod monitor": {"podMonitor": _MONITOR},
    "alerts": {
        "prometheusRule": {
            "enabled": True,
            "namespace": "monitoring",
            "labels": {"release": "prometheus"},
            "annotations": {"example.com/a": "alerts"},
            "interval": "1m",
            "alertLabels": {"team": "platform"},
            "runbookUrl": "https://runbooks.example.com/alerts",
            "additionalRules": [{"record": "a:b", "expr": "vector(1)"}],
        }
    },
    "dashboard": {
        "grafanaDashboard": {
            "enabled": True,
            "namespace": "monitoring",
            "folder": "Tightship",
            "annotations": {"example.com/a": "dashboard"},
            "operator": {"enabled": True},
        }
    },
    "vertical autoscaler": {
        "verticalPodAutoscaler": {"enabled": True, "minAllowed": {"cpu": "10m"}, "maxAllowed": {"memory": "1Gi"}}
    },
    "logs": {"log": {"level": "debug", "format": "json"}},
}
"""Values of one feature each, for every chart of a controller."""

OWN_FEATURES: Mapping[str, Mapping[str, Values]] = {
    "node-compactor": {
        "pools": {
            "dryRun": False,
            "config": {
                "nodePools": {
                    "general": {
                        "enabled": True,
                        "scaleDownCPURequestRatioLimit": 0.75,
                        "scaleDownRequiredUnderutilizedNodeCount": 1,
                        "maximumNodesInDrain": "10%",
                    }
                },
                "settleTime": "10s",
                "backoffLimit": 3600,
            },
        },
        "deletion": {"dryRun": False, "config": {"evictionMethod": "delete"}},
        "no veto": {"dryRun": False, "config": {"scaleUpVeto": False}},
        "claims elsewhere": _CLAIMS,
    },
    "node-refiner": {
        "thresholds": {
            "dryRun": False,
            "config": {
                "excess_nodes_threshold": 1.5,
                "minimum_nodes": 3,
                "time_gap": 10,
                "time_since_last_addition": "1h30m",
                "drainer_enabled": True,
                "disabled_rules": ["JobRunning", "LocalStorage"],
                "maximum_nodes_in_drain": "10%",
            },
        },
        "deletion": {"dryRun": False, "config": {"eviction_method": "delete"}},
        "no veto": {"dryRun": False, "config": {"scale_up_veto": False}},
        "claims elsewhere": _CLAIMS,
    },
    "hpa-scaler": {
        "servers": {
            "prometheusServerUrl": "http://prometheus.monitoring.svc:9090",
            "minimumReplicasLowerBound": "0x10",
            "annotationPrefix": "example.com",
            "config": {
                "prometheusServers": {
                    "mimir": {
                        "url": "https://mimir.example.com/prometheus",
                        "headers": {"X-Scope-OrgID": 1},
                        "basicAuth": {"username": "scaler", "passwordFile": "/secrets/mimir/password"},
                    }
                },
                "allowedServerURLs": ["https://*.monitoring.svc:9091"],
                "defaults": {"scaleDownMaxRatio": 0.2, "dryRun": True, "loweringWindow": "10m"},
            },
        },
        "watch": {"watch": True, "cycleDeadline": "1m"},
        "decision log": {"decisionLog": {"enabled": True, "megabytes": 50}},
        "namespaces": {"config": {"namespaces": ["elsewhere", "monitoring"]}},
    },
}
"""The same, for what only one controller has."""


def features(chart: str) -> dict[str, Values]:
    """Return the values of each feature of *chart* alone, by its name."""
    if chart in CONTROLLERS:
        return {**FEATURES, **OWN_FEATURES[chart]}
    alone = {f"{name} alone": {each: {"enabled": each == name} for each in CONTROLLERS} for name in CONTROLLERS}
    return {**alone, "live": {"global": {"dryRun": False}}, "dashboard": FEATURES["dashboard"]}


def everything(chart: str) -> Values:
    """Return values with everything on that can be on together."""
    if chart not in CONTROLLERS:
        merged = merge(FEATURES["dashboard"], FEATURES["labels and annotations"])
        unknown = {"podAnnotations", "podLabels", "deploymentAnnotations"}

        def own(controller: str) -> Values:
            return {"nameOverride": controller, "serviceAccount": {"name": controller}}

        return {
            **{key: value for key, value in merged.items() if key not in unknown},
            **{each: merge(everything(each), own(each)) for each in CONTROLLERS},
        }
    apart = {"dry run", "no election", "pod monitor", "full name", "configuration made elsewhere", "another cluster"}
    apart |= {"account made elsewhere", "deletion", "no budget", "host network", "budget of percent"}
    merged = {}
    for name, values in features(chart).items():
        if name not in apart:
            merged = merge(merged, values)
    return merged


def merge(below: Values, above: Values) -> Values:
    """Return *above* over *below*, as Helm merges values: mappings by key, everything else as a whole."""
    merged = copy.deepcopy(below)
    for key, value in above.items():
        known = merged.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            merged[key] = merge(known, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


__all__ = ["APIS", "LONGEST_RELEASE", "Values", "everything", "features", "merge"]

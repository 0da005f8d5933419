"""Values that the charts are tried with: every feature of ``features.yaml`` alone, and everything at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import yaml

from tightship_charts.places import AUDIENCES, CONTROLLERS, TOOLING

Values = dict[str, Any]

LONGEST_RELEASE = "a-release-whose-name-is-as-long-as-helm-will-take-it0"
"""53 characters: Helm takes no more."""

APIS = (
    "monitoring.coreos.com/v1/ServiceMonitor",
    "monitoring.coreos.com/v1/PodMonitor",
    "monitoring.coreos.com/v1/PrometheusRule",
    "grafana.integreatly.org/v1beta1/GrafanaDashboard",
    "autoscaling.k8s.io/v1/VerticalPodAutoscaler",
    "cert-manager.io/v1/Certificate",
)
"""Kinds of other projects that the charts make where they are served."""

POLICY = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
"""A kind of Kubernetes itself, since 1.36."""

FENCE = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
"""A kind of Kubernetes itself, since 1.30."""

ALL_APIS = (*APIS, POLICY, FENCE)
"""All that the charts ask for before they make an object."""

_READ: Mapping[str, Mapping[str, Values]] = yaml.safe_load((TOOLING / "features.yaml").read_text(encoding="utf-8"))

FEATURES = _READ["every controller"]
"""Values of one feature each, for every chart of a controller."""

_APART = {"dry run", "no election", "pod monitor", "full name", "configuration made elsewhere", "another cluster"}
_APART |= {"account made elsewhere", "deletion", "no budget", "host network", "budget of percent"}
"""Features that exclude others."""


def features(chart: str) -> dict[str, Values]:
    """Return the values of each feature of *chart* alone, by its name."""
    if chart in CONTROLLERS:
        own = [features for audience, features in _READ.items() if chart in AUDIENCES.get(audience, [audience])]
        return {name: values for features in own for name, values in features.items()}
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
    merged = {}
    for name, values in features(chart).items():
        if name not in _APART:
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


__all__ = [
    "ALL_APIS",
    "APIS",
    "FEATURES",
    "FENCE",
    "LONGEST_RELEASE",
    "POLICY",
    "Values",
    "everything",
    "features",
    "merge",
]

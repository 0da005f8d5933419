"""HPAs as tools and people write them, each asked for 20 replicas: where the floor goes from 12, and why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tightship_testkit.commands import Outcome

Json = dict[str, Any]

QUERY = "sum(requests)"
AGE = "time() - min(min_over_time(timestamp(up)[300s:15s]))"
PREFIX = "tightship.dev/hpa-scaler"
CONTENT = [{"type": "AbleToScale", "status": "True"}, {"type": "ScalingActive", "status": "True"}]


def hpa(version: str = "autoscaling/v2", notes: Json | None = None, status: Json | None = None, **more: Any) -> Json:
    meta = more.pop("meta", {})
    asked = {
        PREFIX: "true",
        f"{PREFIX}-prometheus-query": QUERY,
        f"{PREFIX}-requests-per-replica": "10",
        **(notes or {}),
    }
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 12}
    spec |= {"maxReplicas": 100, **more}
    return {
        "apiVersion": version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "annotations": asked, **meta},
        "spec": {key: value for key, value in spec.items() if value is not ...},
        "status": {"currentReplicas": 12, "desiredReplicas": 12, "conditions": CONTENT} if status is None else status,
    }


def owned(kind: str, version: str) -> Json:
    reference = {"apiVersion": version, "kind": kind, "name": "web", "uid": "o", "controller": True}
    return {"meta": {"ownerReferences": [reference]}}


def managed(by: str, operation: str = "Apply") -> Json:
    entry = {"manager": by, "operation": operation, "fieldsV1": {"f:spec": {"f:minReplicas": {}}}}
    return {"meta": {"managedFields": [entry]}}


def target(kind: str, version: str | None) -> Json:
    named = {"kind": kind, "name": "web", **({"apiVersion": version} if version else {})}
    return {"scaleTargetRef": named}


def failing(kind: str, reason: str, replicas: int = 12) -> Json:
    return {
        "currentReplicas": replicas,
        "desiredReplicas": replicas,
        "conditions": [{"type": kind, "status": "False", "reason": reason}],
    }


CONTAINER = {"name": "cpu", "container": "app", "target": {"type": "Utilization", "averageUtilization": 50}}
OUTER = {
    "metric": {"name": "q", "selector": {"matchLabels": {"a": "b"}}},
    "target": {"type": "AverageValue", "averageValue": "30"},
}

ROWS: list[tuple[str, Json, int, str]] = [
    ("as kubectl prints one", hpa(), 20, "FollowsQuery"),
    ("v1", hpa("autoscaling/v1", targetCPUUtilizationPercentage=80), 20, "FollowsQuery"),
    ("v2beta2", hpa("autoscaling/v2beta2"), 20, "FollowsQuery"),
    ("without a floor", hpa(minReplicas=...), 20, "FollowsQuery"),
    ("null for lists", hpa(metrics=None, behavior=None), 20, "FollowsQuery"),
    ("a container's metric", hpa(metrics=[{"type": "ContainerResource", "containerResource": CONTAINER}]), 20, ""),
    ("an external metric", hpa(metrics=[{"type": "External", "external": OUTER}]), 20, "FollowsQuery"),
    ("a tolerance as text", hpa(behavior={"scaleUp": {"tolerance": "0.05"}}), 20, "FollowsQuery"),
    ("a tolerance as a number", hpa(behavior={"scaleUp": {"tolerance": 0}}), 20, "FollowsQuery"),
    ("never down", hpa(behavior={"scaleDown": {"selectPolicy": "Disabled"}}), 20, "FollowsQuery"),
    ("never up", hpa(behavior={"scaleUp": {"selectPolicy": "Disabled"}}), 12, "BehaviorLimit"),
    ("a StatefulSet", hpa(**target("StatefulSet", "apps/v1")), 20, "FollowsQuery"),
    ("a rollout", hpa(**target("Rollout", "argoproj.io/v1alpha1")), 20, "FollowsQuery"),
    ("a DeploymentConfig", hpa(**target("DeploymentConfig", "apps.openshift.io/v1")), 20, "FollowsQuery"),
    ("a ReplicationController", hpa(**target("ReplicationController", "v1")), 20, "FollowsQuery"),
    ("a target without a group", hpa(**target("Deployment", None)), 20, "FollowsQuery"),
    # Who else has the HPA.
    ("KEDA's", hpa(**owned("ScaledObject", "keda.sh/v1alpha1")), 12, "ControlledByOther"),
    ("Knative's", hpa(**owned("PodAutoscaler", "autoscaling.internal.knative.dev/v1alpha1")), 12, "ControlledByOther"),
    ("an operator's", hpa(**owned("OpenTelemetryCollector", "opentelemetry.io/v1beta1")), 12, "ControlledByOther"),
    ("Zalando's", hpa(**owned("Stack", "zalando.org/v1")), 12, "ControlledByOther"),
    ("Argo CD's", hpa(**managed("argocd-controller")), 20, "FollowsQuery"),
    ("Flux's", hpa(**managed("kustomize-controller")), 20, "FollowsQuery"),
    ("Helm's", hpa(**managed("helm", "Update")), 20, "FollowsQuery"),
    ("one that goes", hpa(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), 12, "HpaTerminating"),
    ("a surge of a drain", hpa(notes={"evictionSurgeReplicas": "12"}), 12, "EvictionSurge"),
    # Bounds.
    ("scale to zero", hpa(minReplicas=0), 0, "ScaleToZero"),
    ("a target at zero", hpa(status=failing("ScalingActive", "ScalingDisabled", 0)), 12, "TargetAtZero"),
    ("a maximum below the floor asked for", hpa(maxReplicas=15), 20, "MaxRaised"),
    ("a maximum that counts",
     hpa(maxReplicas=15, notes={f"{PREFIX}-max-replicas-policy": "clamp"}), 15, "AtMaxReplicas"),
    ("the largest maximum", hpa(maxReplicas=2147483647), 20, "FollowsQuery"),
    # Targets that Kubernetes does not scale.
    ("metrics that fail", hpa(status=failing("ScalingActive", "FailedGetResourceMetric")), 20, "HpaInactive"),
    ("a selector of two", hpa(status=failing("ScalingActive", "AmbiguousSelector")), 20, "HpaInactive"),
    ("a target that is not there", hpa(status=failing("AbleToScale", "FailedGetScale")), 20, "HpaInactive"),
    # Annotations.
    ("paused", hpa(notes={f"{PREFIX}-paused": "true"}), 12, "Paused"),
    ("on several lines", hpa(notes={f"{PREFIX}-prometheus-query": "sum(\n  requests\n)\n"}), 12, "NotAsked"),
    ("a query of Grafana", hpa(notes={f"{PREFIX}-prometheus-query": "sum(rate(x[$__rate_interval]))"}), 12, "NotAsked"),
    *((f"{text!r} a replica", hpa(notes={f"{PREFIX}-requests-per-replica": text}), 12, "InvalidAnnotation")
      for text in ("0", "-5", '"10"', "10rps", "10,5", "500m", "10 ", "ten", "NaN", "inf")),
    *((f"{text!r} a replica", hpa(notes={f"{PREFIX}-requests-per-replica": text}), 20, "FollowsQuery")
      for text in ("1e1", "10.0", "+10", "0x1.4p3")),
    ("a word wrong", hpa(notes={f"{PREFIX}-request-per-replica": "5"}), 12, "InvalidAnnotation"),
    ("the controller's name left out", hpa(notes={"tightship.dev/requests-per-replica": "5"}), 12, "InvalidAnnotation"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "floor", "reason"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_an_hpa_of_others_is_answered_rightly(
    given: Json, floor: int, reason: str, cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    outcomes = [{"query": QUERY, "values": [200]}, {"query": AGE, "values": [100_000]}]
    (tmp_path / "hpas.json").write_text(json.dumps(given))
    (tmp_path / "outcomes.json").write_text(json.dumps({"kind": "QueryOutcomes", "outcomes": outcomes}))
    outcome = cli("plan", "-f", tmp_path / "hpas.json", "--outcomes", tmp_path / "outcomes.json", "-o", "json")
    assert outcome.code == 0, outcome.err
    [found] = json.loads(outcome.out)["hpas"]
    assert found["minimum"]["after"] == floor
    assert not reason or reason in found["reasons"]

"""HPAs and their targets, decoded: what is kept, what counts as unknown, and errors that name object and field."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tightship.objects import (
    AUTOSCALER,
    HorizontalPodAutoscaler,
    ObjectError,
    decode,
    decode_scale_target,
)

Json = dict[str, Any]


def autoscaler(spec: Json | None = None, status: Json | None = None, **meta: Any) -> Json:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": AUTOSCALER,
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", **meta},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 20,
            **(spec or {}),
        },
        **({} if status is None else {"status": status}),
    }


def read(thing: Json) -> HorizontalPodAutoscaler:
    found = decode(AUTOSCALER, json.dumps(thing).encode())
    assert isinstance(found, HorizontalPodAutoscaler)
    return found


def test_what_is_judged_is_kept() -> None:
    condition = {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound", "message": "m"}
    other = {"type": "Other", "status": "True"}
    hpa = read(
        autoscaler(
            {
                "behavior": {
                    "scaleUp": {
                        "selectPolicy": "Min",
                        "stabilizationWindowSeconds": 60,
                        "policies": [{"type": "Pods", "value": 2, "periodSeconds": 90}],
                    },
                    "scaleDown": {"selectPolicy": "Disabled"},
                }
            },
            {"currentReplicas": 4, "desiredReplicas": 5, "conditions": [condition, other]},
            annotations={"example.com/hpa-scaler": "true", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
            labels={"team": "a"},
        )
    )
    assert (hpa.key, hpa.min_replicas, hpa.max_replicas, str(hpa.target)) == ("shop/web", 2, 20, "Deployment/web")
    assert (hpa.current_replicas, hpa.desired_replicas) == (4, 5)
    assert [each.type for each in hpa.conditions] == ["ScalingActive"]
    assert hpa.annotations == {"example.com/hpa-scaler": "true"}
    assert (hpa.scale_up.select_policy, hpa.scale_up.policies[0].value) == ("Min", 2)
    assert hpa.scale_down.select_policy == "Disabled"


V1 = "autoscaling.alpha.kubernetes.io/"
INACTIVE = '[{"type":"ScalingActive","status":"False","reason":"FailedGetResourceMetric","message":"no requests"}]'
RULES = '{"ScaleUp":null,"ScaleDown":{"SelectPolicy":"Min","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":60}]}}'
PODS = '[{"type":"Pods","pods":{"metricName":"rps","targetAverageValue":"10"}}]'
CPU = (("cpu", ""),)


@pytest.mark.parametrize(
    ("notes", "cpu", "reason", "rules", "utilization"),
    [
        ({"conditions": INACTIVE}, 80, "FailedGetResourceMetric", None, CPU),
        ({"behavior": RULES, "metrics": PODS}, None, None, "Min", ()),
        ({"metrics": PODS}, 80, None, None, CPU),
        ({"conditions": "{", "behavior": "[]", "metrics": "x"}, None, None, None, CPU),
        ({}, None, None, None, CPU),
    ],
    ids=["conditions", "behavior and metrics", "metrics and CPU", "unreadable", "none"],
)
def test_what_autoscaling_v1_says_in_annotations_is_read(
    notes: Json, cpu: int | None, reason: str | None, rules: str | None, utilization: Any
) -> None:
    """As `kubectl get hpa -o yaml` wrote it up to Kubernetes 1.22, and `kubectl get hpa.v1.autoscaling` does today."""
    thing = autoscaler({"targetCPUUtilizationPercentage": cpu}, {}, annotations={V1 + key: notes[key] for key in notes})
    hpa = read({**thing, "apiVersion": "autoscaling/v1"})
    active = hpa.condition("ScalingActive")
    assert (active.reason if active else None) == reason
    assert (hpa.scale_down.select_policy if hpa.scale_down else None) == rules
    assert hpa.utilization == utilization
    assert not read(thing).conditions  # the API server passes over them in other versions
    assert read(thing).scale_down is None


def test_what_hpas_have_in_common_is_held_once() -> None:
    condition = {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "of this one alone"}
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 90}]}}
    key = "example.com/hpa-scaler-requests-per-replica"
    one, other = (
        read(autoscaler({"behavior": behavior}, {"conditions": [condition]}, uid=uid, annotations={key: uid}))
        for uid in ("u1", "u2")
    )
    assert (one.annotations[key], other.annotations[key]) == ("u1", "u2")
    assert next(iter(one.annotations)) is next(iter(other.annotations))
    assert one.scale_up is other.scale_up
    assert one.conditions[0] is other.conditions[0]
    assert one.conditions[0].message == ""


def test_an_absent_minimum_is_1() -> None:
    thing = autoscaler()
    del thing["spec"]["minReplicas"]
    assert read(thing).min_replicas == 1
    thing["spec"]["minReplicas"] = None
    assert read(thing).min_replicas == 1


@pytest.mark.parametrize(
    ("status", "replicas"),
    [
        (None, None),
        ({}, None),
        ({"desiredReplicas": 0, "currentMetrics": None}, None),
        ({"currentReplicas": 3, "desiredReplicas": 0}, 3),
        ({"desiredReplicas": 0, "conditions": [{"type": "AbleToScale", "status": "True"}]}, 0),
        ({"desiredReplicas": 0, "lastScaleTime": "2026-01-01T00:00:00Z"}, 0),
    ],
    ids=["no status", "empty", "as created", "scaled", "conditions, no number", "once scaled, no number"],
)
def test_replicas_are_unknown_until_the_hpa_controller_has_looked(status: Json | None, replicas: int | None) -> None:
    assert read(autoscaler(status=status)).current_replicas == replicas


def test_of_the_managed_fields_only_the_owners_of_the_bounds_are_kept() -> None:
    def entry(manager: str, fields: Json, operation: str = "Update") -> Json:
        return {
            "manager": manager,
            "operation": operation,
            "time": "2026-01-01T00:00:10Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }

    hpa = read(
        autoscaler(
            managedFields=[
                entry("kubectl-client-side-apply", {"f:spec": {"f:minReplicas": {}, "f:maxReplicas": {}}}),
                entry("hpa-scaler", {"f:metadata": {"f:annotations": {}}, "f:spec": {"f:minReplicas": {}}}),
                entry("kube-controller-manager", {"f:status": {"f:currentReplicas": {}}}),
                {**entry("argocd-controller", {"f:spec": {"f:maxReplicas": {}}}, "Apply"), "time": None},
            ]
        )
    )
    assert [(each.manager, each.sets_min, each.sets_max) for each in hpa.managers] == [
        ("kubectl-client-side-apply", True, True),
        ("hpa-scaler", True, False),
        ("argocd-controller", False, True),
    ]
    assert [each.time for each in hpa.managers] == [1767225610, 1767225610, 0]


def test_the_controller_of_an_hpa_is_its_owner() -> None:
    reference = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "x"}
    assert read(autoscaler(ownerReferences=[reference])).owner is None
    owner = read(autoscaler(ownerReferences=[{**reference, "controller": True}])).owner
    assert owner is not None
    assert str(owner) == "ScaledObject.keda.sh/web"


def test_an_hpa_can_be_written_down_and_read_back() -> None:
    hpa = read(autoscaler({"behavior": {"scaleUp": {"selectPolicy": "Disabled"}}}, {"currentReplicas": 1}))
    assert msgspec.json.decode(msgspec.json.encode(hpa), type=HorizontalPodAutoscaler) == hpa


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"minReplicas": "many"},
            r"HorizontalPodAutoscaler shop/web: spec\.minReplicas: .*many.* is not a whole number",
        ),
        (
            {"scaleTargetRef": {"kind": "Deployment"}},
            r"HorizontalPodAutoscaler shop/web: spec\.scaleTargetRef\.name is missing",
        ),
        (
            {"behavior": {"scaleUp": {"policies": [{"type": "Pods"}]}}},
            r"shop/web: spec\.behavior\.scaleUp\.policies\[0\]\.value is missing",
        ),
    ],
)
def test_a_malformed_hpa_is_named_with_its_field(spec: Json, message: str) -> None:
    with pytest.raises(ObjectError, match=message):
        read(autoscaler(spec))


def target(kind: str, status: Json, generation: int = 2) -> Any:
    thing = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": generation},
        "spec": {"replicas": 3},
        "status": status,
    }
    return decode_scale_target(kind, json.dumps(thing).encode())


def test_a_target_shows_its_rollout() -> None:
    found = target("Deployment", {"replicas": 5, "updatedReplicas": 2, "observedGeneration": 1})
    assert (found.wanted, found.replicas, found.updated) == (3, 5, 2)
    assert (found.generation, found.observed_generation) == (2, 1)


def test_an_argo_rollout_writes_its_generation_as_text() -> None:
    assert target("Rollout", {"observedGeneration": "7", "phase": "Progressing"}).observed_generation == 7
    assert target("Rollout", {"observedGeneration": "5c8"}).observed_generation is None


def test_a_malformed_target_is_named() -> None:
    with pytest.raises(ObjectError, match=r"Deployment shop/web: .*status\.replicas"):
        target("Deployment", {"replicas": "x"})


def test_other_kinds_have_no_rollout_that_can_be_told() -> None:
    with pytest.raises(KeyError):
        target("Job", {})

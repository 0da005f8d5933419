"""A pod that a VerticalPodAutoscaler will change is planned as it will be once it is made anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from cluster_builder import node, pod, snapshot
from test_plans import in_drain, judge

from tightship.cluster import Snapshot
from tightship.documents.warnings import warnings_of
from tightship.objects import ObjectError, decode
from tightship.objects.reasons import Reason
from tightship.planning.demand import ReservedDemand, with_demand
from tightship.planning.plan import STRATEGIES, Plan, make_plan
from tightship.scheduler.space import Space

Json = dict[str, Any]
GI = 1 << 30
AHEAD = ReservedDemand(recommended=True)


def vpa(
    target: Json | None = None,
    mode: str | None = None,
    *,
    name: str = "web",
    policy: Json | None = None,
    created: str = "2026-01-01T00:00:00Z",
    spec: Json | None = None,
    container: str = "main",
    **amounts: Any,
) -> Json:
    recommended = {"containerRecommendations": [{"containerName": container, "target": amounts or {"cpu": "3"}}]}
    policies = {} if policy is None else {"resourcePolicy": {"containerPolicies": [policy]}}
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": created},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            **({} if mode is None else {"updatePolicy": {"updateMode": mode}}),
            **policies,
            **(spec or {}),
        },
        "status": {"recommendation": recommended},
    }


def replica_set() -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    return {"kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "default", "ownerReferences": [owner]}}


def seen(*things: Json) -> Snapshot:
    return with_demand(snapshot([replica_set(), *things]), AHEAD)


def planned(*things: Json, only: Sequence[str] = ("a",)) -> Plan:
    return make_plan(seen(*things), lambda each: judge(each, only), STRATEGIES["least-utilized"], "likely")


def requests(*things: Json, **given: Any) -> tuple[float, float]:
    """Return the CPUs and GiB that the pod of node a will request."""
    found = seen(node("a"), pod("p", "a", **given), *things)
    anew = found.requests_anew(found.nodes["a"].pods[0])
    return anew["cpu"] / 1000, anew["memory"] / GI


@pytest.mark.parametrize("mode", [None, "", "Auto", "Recreate", "InPlaceOrRecreate", "InPlace", "Initial"])
def test_a_replacement_requests_what_is_recommended(mode: str | None) -> None:
    assert requests(vpa(mode=mode, cpu="3", memory="2Gi")) == (3, 2)
    assert planned(node("a"), node("b", "2"), pod("p", "a"), vpa(mode=mode)).refusals["a"][0].reason is Reason.NO_PLACE
    assert planned(node("a"), node("b", "3"), pod("p", "a"), vpa(mode=mode)).removals


@pytest.mark.parametrize(("room", "fits"), [("1", False), ("3", True)])
def test_a_replacement_needs_its_present_room_though_less_is_recommended(room: str, *, fits: bool) -> None:
    # While the VPA's webhook is away, it is made as before (kubernetes/autoscaler, VPA's FAQ, question 1).
    assert bool(planned(node("a"), node("b", room), pod("p", "a", "3"), vpa(cpu="500m")).removals) is fits


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"minAllowed": {"cpu": "4"}}, (4, 2)),
        ({"minAllowed": {"cpu": 4}}, (4, 2)),
        ({"maxAllowed": {"cpu": "2", "memory": "1.5Gi"}}, (2, 1.5)),
        ({"minAllowed": {"cpu": "4"}, "maxAllowed": {"cpu": "3500m"}}, (3.5, 2)),
        ({"maxAllowed": {"cpu": "0"}}, (3, 2)),  # as upstream: zero is no bound
        ({"controlledResources": ["memory"]}, (1, 2)),
        ({"controlledResources": []}, (1, 1)),
        ({"mode": "Off"}, (1, 1)),
        ({"containerName": "main", "mode": "Off"}, (1, 1)),
        ({"containerName": "other", "mode": "Off"}, (3, 2)),
    ],
)
def test_the_policy_of_a_container_bounds_it(policy: Json, expected: tuple[float, float]) -> None:
    assert requests(vpa(policy={"containerName": "*", **policy}, cpu="3", memory="2Gi")) == expected


def test_its_own_limits_bound_a_container_of_which_only_the_requests_are_controlled() -> None:
    limited = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}}
    for values, expected in (("RequestsOnly", 2), ("RequestsAndLimits", 3)):
        policy = {"containerName": "main", "controlledValues": values}
        assert requests(vpa(policy=policy), container=limited)[0] == expected


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "Off"},
        {"container": "other"},
        {"spec": {"targetRef": {"kind": "Deployment", "name": "other"}}},
        {"cpu": "1"},
        {"nvidia.com/gpu": "1"},
    ],
)
def test_what_a_vpa_leaves_alone_stays_as_it_is(given: Json) -> None:
    assert seen(node("a"), pod("p", "a"), vpa(**given)).anew == {}
    assert with_demand(snapshot([replica_set(), node("a"), pod("p", "a"), vpa()]), ReservedDemand()).anew == {}


def test_of_two_vpas_the_older_counts() -> None:
    assert requests(vpa(cpu="3"), vpa(cpu="2", name="older", created="2025-01-01T00:00:00Z"))[0] == 2


@pytest.mark.parametrize(
    ("bad", "reported"),
    [
        ({"cpu": "lots"}, "status.recommendation.containerRecommendations[0].target.cpu: 'lots' is not a quantity"),
        ({"cpu": "-1"}, "-1"),
        ({"cpu": ["1"]}, "status.recommendation.containerRecommendations[0].target.cpu: a list is not"),
        ({"cpu": "9" * 5000}, "is not a quantity"),
        ({"policy": {"containerName": "*", "minAllowed": {"cpu": "few"}}}, "few"),
        ({"policy": {"containerName": 1}}, "spec.resourcePolicy.containerPolicies[0].containerName: 1 is not text"),
    ],
)
def test_a_bad_vpa_keeps_the_pods_of_its_target_and_no_others(bad: Json, reported: str) -> None:
    other = pod("q", "b", owner="ReplicaSet/other")
    found = planned(node("a"), node("b"), node("c"), pod("p", "a"), other, vpa(**bad), only=["a", "b"])
    [refusal] = found.refusals["a"]
    assert (refusal.reason, refusal.subject) == (Reason.REQUESTS_UNKNOWN, "default/p")
    assert "VerticalPodAutoscaler default/web can't be read" in refusal.detail
    assert reported in refusal.detail
    assert [each.node for each in found.removals] == ["b"]
    [warning] = [each for each in warnings_of(seen(node("a"), vpa(**bad))) if "VerticalPod" in each]
    assert warning.startswith("VerticalPodAutoscaler default/web can't be read, so pods of Deployment/web stay: ")


def test_a_vpa_whose_target_is_unreadable_is_named_with_the_field() -> None:
    bad = {**vpa(), "spec": {"targetRef": 7}}
    with pytest.raises(ObjectError, match=r"VerticalPodAutoscaler default/web: spec\.targetRef: 7 is not a mapping"):
        decode("VerticalPodAutoscaler", msgspec.json.encode(bad))


def test_a_pod_that_waits_for_a_node_is_what_it_is() -> None:
    found = seen(node("a"), pod("p", "a"), pod("q"), vpa())
    space = Space(found)
    [bound], [waits] = found.nodes["a"].pods, found.unscheduled
    assert bound.template is waits.template
    assert dict(space.demand_of(bound).rows)[0] == 3000
    assert dict(space.demand_of(waits).rows)[0] == 1000


def test_a_pod_that_leaves_a_node_in_drain_holds_the_room_that_it_will_need() -> None:
    things = [node("a"), node("b"), in_drain("d"), pod("p", "a", "2", owner="ReplicaSet/other"), pod("leaves", "d")]
    assert planned(*things).removals
    assert not planned(*things, vpa()).removals


def test_the_rounds_of_a_plan_count_what_has_been_made_anew() -> None:
    things = [node("a"), node("b"), node("c", "6"), pod("p", "a"), pod("q", "b"), replica_set(), vpa()]
    found = with_demand(snapshot(things), AHEAD)
    plan = make_plan(
        found, lambda each: judge(each, ["a", "b"]), STRATEGIES["least-utilized"], "likely", until_stable=True
    )
    assert sorted(each.node for each in plan.removals) == ["a", "b"]
    smaller = [*things[:2], node("c", "5"), *things[3:]]
    found = with_demand(snapshot(smaller), AHEAD)
    plan = make_plan(
        found, lambda each: judge(each, ["a", "b"]), STRATEGIES["least-utilized"], "likely", until_stable=True
    )
    assert len(plan.removals) == 1, "6 CPUs for both"


def test_where_vpas_cannot_be_read_the_rest_works() -> None:
    missing = msgspec.structs.replace(snapshot([node("a")]), missing={"VerticalPodAutoscaler": "forbidden"})
    assert warnings_of(missing) == (
        "VerticalPodAutoscalers are forbidden: pods that they would change are planned as they are",
    )

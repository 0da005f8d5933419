"""Plans and drains keep the room that CapacityBuffers keep free, and say so where that keeps a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from cluster_builder import HOST, anti_affinity, node, pod, snapshot
from hpas import hpa, replica, replica_set
from test_plans import in_drain, judge

from tightship.cluster import Headroom, Snapshot
from tightship.documents.explain import DrainAlone
from tightship.documents.warnings import warnings_of
from tightship.drain.assessment import Assessment
from tightship.drain.machine import DrainRules
from tightship.objects import ObjectError, decode
from tightship.objects.buffers import StoredTemplate
from tightship.objects.reasons import Reason
from tightship.planning import demand
from tightship.planning.demand import ReservedDemand, with_demand
from tightship.planning.plan import STRATEGIES, Placement, Plan, Planner, make_plan
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.evictability import EvictionRules
from tightship_testkit.builders import state_of

Json = dict[str, Any]
AHEAD = ReservedDemand(100, buffers=True)
PLACEMENTS: list[Placement] = ["possible", "likely"]


def template(name: str = "unit", cpu: str = "2", **spec: Any) -> Json:
    resources = spec.pop("resources", {"requests": {"cpu": cpu, "memory": "1Gi"}})
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "template": {
            "metadata": {"labels": {"app": "unit"}},
            "spec": {"containers": [{"name": "main", "resources": resources}], **spec},
        },
    }


def buffer(replicas: int | None = 1, *, version: str = "v1beta1", name: str = "spare", **status: Any) -> Json:
    """As its autoscaler leaves it; ``replicas=None`` is one of which nothing is known yet."""
    found = {} if replicas is None else {"replicas": replicas, "podTemplateRef": {"name": "unit"}}
    return {
        "apiVersion": f"autoscaling.x-k8s.io/{version}",
        "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"podTemplateRef": {"name": "unit"}, "replicas": 99},
        "status": {**found, "podTemplateGeneration": 1, **status},
    }


def seen(things: Sequence[Json], ahead: ReservedDemand = AHEAD) -> Snapshot:
    return with_demand(snapshot(things), ahead)


def plan(
    things: Sequence[Json], only: Sequence[str] = ("a",), placement: Placement = "likely", ahead: ReservedDemand = AHEAD
) -> Plan:
    return make_plan(seen(things, ahead), lambda each: judge(each, only), STRATEGIES["least-utilized"], placement)


def why(found: Plan, name: str = "a") -> list[Reason]:
    return [each.reason for each in found.refusals[name]]


def tight(replicas: int = 1) -> list[Json]:
    """b has room for one pod of 2 CPUs: for that of node a, or for one unit of the buffer."""
    return [node("a"), node("b"), pod("q", "b", "2"), pod("p", "a", "2"), template(), buffer(replicas)]


def headroom(*things: Json) -> list[Headroom]:
    return list(seen([node("a"), *things]).headroom)


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_a_buffer_keeps_what_its_status_says_not_what_its_spec_asks(version: str) -> None:
    [found] = headroom(buffer(3, version=version), template())
    assert (found.buffer, found.template, found.replicas, found.count) == ("default/spare", "unit", 3, 3)
    assert found.pod is not None
    assert found.pod.requests == {"cpu": 2000, "memory": 1 << 30, "pods": 1}


def test_limits_are_requests_where_a_template_has_no_others() -> None:
    given = {"limits": {"cpu": "3", "memory": "2Gi"}, "requests": {"memory": "1Gi"}}
    thing = decode("PodTemplate", msgspec.json.encode(template(resources=given)))
    assert isinstance(thing, StoredTemplate)
    assert thing.pod.requests == {"cpu": 3000, "memory": 1 << 30, "pods": 1}


@pytest.mark.parametrize(
    ("strategy", "kept"),
    [
        ("", True),
        ("active-capacity", True),
        ("buffer.x-k8s.io/active-capacity", True),
        ("buffer.gke.io/standby-capacity", False),
    ],
)
def test_only_a_buffer_of_running_nodes_keeps_room(strategy: str, kept: bool) -> None:
    status = {"provisioningStrategy": strategy} if strategy else {}
    assert bool(headroom(buffer(1, **status), template())) is kept


def test_nothing_is_kept_where_the_autoscaler_provisions_nothing() -> None:
    assert headroom(buffer(None), template()) == []
    assert headroom(buffer(0), template()) == []
    leaving = buffer(2)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert headroom(leaving, template()) == []


def test_a_buffer_whose_template_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.pod for each in headroom(buffer(2))] == [None]
    [warning] = warnings_of(seen([node("a"), buffer(2)]))
    assert "default/spare" in warning
    assert "PodTemplate unit" in warning
    monkeypatch.setattr(demand, "MOST_IN_BUFFERS", 5)
    many = [buffer(3), buffer(7, name="third"), template()]
    assert [each.count for each in headroom(*many)] == [3, 2]
    [warning] = warnings_of(seen([node("a"), *many]))
    assert "room is kept for 2 of them" in warning


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_node_stays_whose_pods_would_take_the_room_of_a_buffer(placement: Placement) -> None:
    found = plan(tight(), placement=placement)
    assert why(found) == [Reason.BUFFER_NEEDS_NODE]
    [refusal] = found.refusals["a"]
    assert refusal.subject == "a"
    assert "CapacityBuffer default/spare keeps room for 1 pod of PodTemplate unit" in refusal.detail
    assert refusal.fix
    assert plan([*tight(), node("c", "2")], placement=placement).removals


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_an_empty_node_stays_that_a_buffer_needs(placement: Placement) -> None:
    things = [node("a"), node("b", "3"), pod("q", "b", "2"), template(), buffer(1)]
    assert why(plan(things, placement=placement)) == [Reason.BUFFER_NEEDS_NODE]
    assert plan([*things, node("c", "2")], placement=placement).removals


def test_switched_off_it_keeps_nothing() -> None:
    assert plan(tight(), ahead=ReservedDemand(100)).removals


def test_a_buffer_that_is_not_full_keeps_every_node_that_could_take_a_unit() -> None:
    assert why(plan(tight(50))) == [Reason.BUFFER_NEEDS_NODE]
    small = [node("a", "1"), *tight(50)[1:3], pod("p", "a", "500m", nodeSelector={HOST: "e"}), template(), buffer(50)]
    assert plan([*small, node("e", "1")]).removals, "neither could take one"
    assert why(plan([*small, node("e", "2")])) == [Reason.BUFFER_NEEDS_NODE]


def test_where_pods_go_is_the_schedulers_choice_who_knows_of_no_buffer() -> None:
    things = [node("a"), node("b"), node("c"), pod("q", "b", "1"), pod("p", "a", "1"), template(), buffer(3)]
    # On b there would be room for one unit more than on c, which is emptier and therefore chosen.
    assert plan(things, placement="possible").removals
    assert why(plan(things, placement="likely")) == [Reason.BUFFER_NEEDS_NODE]


def test_units_of_several_buffers_are_counted_together() -> None:
    things = [*tight(1), buffer(1, name="other"), node("c", "2")]
    [refusal] = plan(things).refusals["a"]
    assert "CapacityBuffer default/other" in refusal.detail or "CapacityBuffer default/spare" in refusal.detail
    assert plan([*things, node("d", "2")]).removals


def test_units_that_keep_apart_are_placed_apart() -> None:
    apart = template(affinity=anti_affinity(app="unit"))
    things = [node("a"), node("b"), pod("p", "a", "100m"), apart, buffer(2)]
    assert why(plan(things)) == [Reason.BUFFER_NEEDS_NODE]
    assert plan([*things, node("c")]).removals


def test_replicas_to_come_take_their_room_first() -> None:
    fixed = pod("p", "a", "2", nodeSelector={HOST: "b"})
    things = [*tight(0)[:3], fixed, template(), replica("web-1", "c", cpu="2"), node("c"), hpa(minimum=2)]
    assert plan(things).removals
    assert why(plan([*things, buffer(1, name="one")])) == [Reason.BUFFER_NEEDS_NODE]
    assert plan([*things, buffer(1, name="one"), node("d", "2")]).removals


def test_what_a_buffer_keeps_counts_as_requested_for_the_excess() -> None:
    cluster = seen([node("a"), node("b"), template(), buffer(3)])
    planner = Planner(cluster, DisruptionLedger(cluster), judge(cluster, ["a"]).candidates, "likely")
    assert sum(held["cpu"] for held in planner.start.starting_on.values()) == 6000


@pytest.mark.parametrize("phase", ["Claimed", "Evicting"])
def test_a_drain_under_way_ends_for_a_buffer_that_came_later(phase: str) -> None:
    def against(of: Sequence[Json]) -> list[Reason]:
        sight = Assessment(snapshot(of), "a", 0.0, DrainRules(), EvictionRules())
        return [each.reason for each in sight.rest("likely", AHEAD)]

    draining = [in_drain("a", phase), *tight()[1:]]
    assert against([each for each in draining if each["kind"] != "CapacityBuffer"]) == []
    assert against(draining) == [Reason.BUFFER_NEEDS_NODE]


def scaled(now: int = 1, **spec: Any) -> Json:
    """A buffer in the image of Deployment web, as its autoscaler leaves it."""
    ref = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
    return {**buffer(now), "spec": {"scalableRef": ref, **spec}}


@pytest.mark.parametrize(
    ("spec", "replicas"),
    [
        ({"percentage": 50}, 2),
        ({"percentage": 100, "replicas": 3}, 3),
        ({"percentage": 100, "limits": {"cpu": "5", "memory": "9Gi"}}, 2),
        ({"percentage": 100, "limits": {"cpu": 5}}, 2),
        ({"percentage": 10}, 1),
        ({"percentage": 100, "replicas": -5}, 1),
        ({"percentage": 2**40, "limits": {"memory": "3Gi", "nvidia.com/gpu": "1"}}, 3),
        ({"replicas": 3}, 1),
    ],
    ids=[
        "half",
        "no more than",
        "limits",
        "limits as a number, which no schema makes a text",
        "less than the status says",
        "negative",
        "a number that is too large",
        "a number alone: the status knows",
    ],
)
def test_a_buffer_of_a_workload_grows_with_it_before_its_status_says_so(spec: Json, replicas: int) -> None:
    pods = [replica(f"web-{number}", "a") for number in range(4)]
    [found] = headroom(*pods, template(), scaled(**spec))
    assert (found.replicas, found.count) == (replicas, replicas)


def test_a_buffer_whose_template_is_unknown_takes_the_image_of_its_workload() -> None:
    [found] = headroom(replica("web-0", "a", cpu="3"), scaled(percentage=100))
    assert found.pod is not None
    assert (found.pod.requests["cpu"], found.pod.node) == (3000, "")
    [found] = headroom(scaled(percentage=100))
    assert found.pod is None


def test_a_template_made_of_a_pod_is_neither_on_its_node_nor_bound_to_its_claims() -> None:
    claims = ("data-db-0", "shared")
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    made = scaled()
    made["spec"]["scalableRef"] = {"kind": "StatefulSet", "name": "db"}
    [found] = headroom(template(nodeName="a", volumes=volumes), made)
    assert found.pod is not None
    assert found.pod.node == ""
    assert [
        each.persistent_volume_claim.claim_name for each in found.pod.spec.volumes if each.persistent_volume_claim
    ] == ["shared"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"limits": {"cpu": "lots"}}, "spec.limits.cpu: 'lots' is not a quantity"),
        ({"percentage": "half"}, "spec.percentage: '\"half\"' is not a whole number"),
        ({"scalableRef": 7}, "spec.scalableRef: 7 is not a mapping"),
    ],
)
def test_of_a_buffer_whose_spec_is_unreadable_the_status_counts(spec: Json, problem: str) -> None:
    pods = [replica(f"web-{number}", "a") for number in range(4)]
    found = seen([node("a"), *pods, template(), scaled(**{"percentage": 100, **spec})])
    assert [each.replicas for each in found.headroom] == [1]
    [reported] = [each for each in warnings_of(found) if "CapacityBuffer" in each]
    assert reported.startswith(f"CapacityBuffer default/spare can't be read, so only its status counts: {problem}")


def test_a_template_that_is_unreadable_is_none_that_does_not_exist() -> None:
    state = state_of(node("a"), buffer())
    state.mark_unreadable(ObjectError("PodTemplate", "default", "unit", "template.spec: 7 is not a mapping"))
    detail = " ".join(warnings_of(with_demand(state.snapshot(), AHEAD)))
    assert "of PodTemplate unit, which can't be read: no room is kept" in detail


def test_explain_shows_where_pods_could_go_though_a_buffer_wants_the_room() -> None:
    things = seen([node("a"), node("b"), pod("q", "b", "2"), pod("p", "a", "2"), template(), buffer(1)])
    alone = DrainAlone(things, "likely").of("a", things.nodes["a"].pods)
    assert [each.reason for each in alone.refusals] == [Reason.BUFFER_NEEDS_NODE]
    assert alone.targets == {"default/p": "b"}


def test_a_buffer_that_quotas_limit_does_not_grow() -> None:
    pods = [replica(f"web-{number}", "a") for number in range(4)]
    limited = scaled(percentage=100)
    limited["status"]["conditions"] = [{"type": "LimitedByQuotas", "status": "True"}]
    [found] = headroom(*pods, template(), limited)
    assert found.replicas == 1


def test_beside_a_buffer_the_largest_rollout_has_room_too() -> None:
    sets = [
        replica_set(),
        replica_set(of="small", owner="Deployment/small"),
        replica_set(of="set", owner="Rollout/set"),
    ]
    for each, replicas in zip(sets, (5, 4, 100), strict=True):
        each["spec"]["replicas"] = replicas
    pods = [
        replica("web-0", "a", cpu="1"),
        replica("small-0", "a", of="small", cpu="1"),
        replica("set-0", "a", of="set"),
    ]
    unit, surge = headroom(*sets, *pods, template(), buffer())
    assert (unit.rollout, surge.rollout) == ("", "Deployment/web of namespace default")
    assert (surge.count, str(surge)) == (
        2,
        "a rollout of Deployment/web of namespace default takes room for 2 pods from CapacityBuffer default/spare",
    )
    assert headroom(*sets, *pods, template()) == []


@pytest.mark.parametrize(
    ("workloads", "rollout", "count"),
    [
        ({"a": (4, "3"), "b": (4, "1"), "c": (4, "1")}, "a", 1),
        ({"a": (8, "1"), "b": (4, "1")}, "a", 2),
        ({"a": (8, "1"), "b": (4, "2")}, "b", 1),
        ({"a": (1, "1"), "b": (100, "0")}, "a", 1),
    ],
    ids=["pods that ask for more", "more pods", "by name, if both ask for as much", "nothing asked"],
)
def test_the_largest_rollout_is_that_whose_pods_ask_for_most(
    workloads: dict[str, tuple[int, str]], rollout: str, count: int
) -> None:
    things: list[Json] = [template(), buffer()]
    for name, (replicas, cpu) in workloads.items():
        made = replica_set(of=name, owner=f"Deployment/{name}")
        made["spec"]["replicas"] = replicas
        things += [made, replica(f"{name}-0", "a", of=name, cpu=cpu)]
    _, surge = headroom(*things)
    assert (surge.rollout, surge.count) == (f"Deployment/{rollout} of namespace default", count)

"""Plans keep the room of replicas that HPAs are about to start, and say so where that keeps a node."""

from collections.abc import Sequence
from typing import Any

import pytest
from cluster_builder import HOST, anti_affinity, node, pod, snapshot
from hpas import hpa, replica
from test_plans import in_drain, judge

from tightship.cluster import Snapshot
from tightship.documents.explain import DrainAlone
from tightship.documents.warnings import warnings_of
from tightship.drain.assessment import Assessment
from tightship.drain.machine import DrainRules
from tightship.objects.reasons import Reason
from tightship.planning.demand import ReservedDemand, with_starting
from tightship.planning.plan import STRATEGIES, Placement, Plan, Planner, make_plan
from tightship.planning.plan.reserving import MOST_IN_THE_WAY
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.evictability import EvictionRules

Json = dict[str, Any]
PLACEMENTS: list[Placement] = ["possible", "likely"]


def seen(things: Sequence[Json], most: int = 100) -> Snapshot:
    return with_starting(snapshot(things), most)


def plan(
    things: Sequence[Json],
    only: Sequence[str] = ("a",),
    placement: Placement = "likely",
    *,
    most: int = 100,
    until_stable: bool = False,
) -> Plan:
    return make_plan(
        seen(things, most),
        lambda each: judge(each, only),
        STRATEGIES["least-utilized"],
        placement,
        until_stable=until_stable,
    )


def why(found: Plan, name: str = "a") -> list[Reason]:
    return [each.reason for each in found.refusals[name]]


def tight(minimum: int = 2) -> list[Json]:
    """b has room for one pod of 2 CPUs: for the one of node a, or for a replica that is to come."""
    return [node("a"), node("b"), replica("web-1", "b", cpu="2"), pod("p", "a", "2"), hpa(minimum=minimum)]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_node_stays_whose_pods_would_take_the_room_of_replicas_to_come(placement: Placement) -> None:
    found = plan(tight(), placement=placement)
    assert why(found) == [Reason.SCALE_UP_NEEDS_NODE]
    [refusal] = found.refusals["a"]
    assert refusal.subject == "a"
    assert "HPA default/web is about to start 1 more replica (minReplicas is 2, 1 exists)" in refusal.detail
    assert refusal.fix


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_it_goes_when_the_replicas_are_there_or_nobody_asks(placement: Placement) -> None:
    assert plan(tight(1), placement=placement).removals
    assert plan(tight(), placement=placement, most=0).removals
    there = [*tight(), node("c"), replica("web-2", "c", cpu="2")]
    assert plan(there, placement=placement).removals


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_an_empty_node_stays_that_replicas_to_come_need(placement: Placement) -> None:
    things = [node("a"), node("b", "2"), replica("web-1", "b", cpu="2"), hpa(minimum=2)]
    assert why(plan(things, placement=placement)) == [Reason.SCALE_UP_NEEDS_NODE]
    assert plan([*things, node("c", "2")], placement=placement).removals


def test_a_pending_replica_counts_once() -> None:
    things = [*tight(3), node("c", "2"), replica("web-2", cpu="2")]
    # One waits, one is to come: b and c have room for just these two.
    assert why(plan(things)) == [Reason.SCALE_UP_NEEDS_NODE]
    assert plan([*things, node("d", "2")]).removals


def test_replicas_that_fit_nowhere_block_nothing_by_themselves() -> None:
    things = [node("a"), node("b"), replica("web-1", "b", cpu="2", nodeSelector={HOST: "b"}), pod("p", "a", "1")]
    # b is full of what could be placed of them; a could take none of them anyway, and its own pod has no place left.
    assert why(plan([*things, hpa(minimum=9)])) == [Reason.SCALE_UP_NEEDS_NODE]
    assert plan([*things, hpa(minimum=9), node("c")]).removals
    impossible = [node("a"), node("b"), replica("web-1", "b", cpu="3"), pod("p", "a", "1"), node("d", "1")]
    assert plan([*impossible, hpa(minimum=9, maximum=9)], only=["d"]).removals, "d could take none of them"


def test_when_not_all_fit_no_node_goes_that_could_take_one() -> None:
    things = [node("a"), node("b", "2"), replica("web-1", "b", cpu="2"), hpa(minimum=50, maximum=50)]
    assert why(plan(things)) == [Reason.SCALE_UP_NEEDS_NODE]


def test_replicas_move_out_of_the_way_of_pods_that_have_one_place_only() -> None:
    picky = pod("p", "a", "2", nodeSelector={"disk": "fast"})
    things = [
        node("a", labels={"disk": "fast"}),
        node("b", labels={"disk": "fast"}),
        node("c", "2"),
        node("small", "1"),
        replica("web-1", "b", cpu="2"),
        replica("other", "c", cpu="100m", of="other"),
        picky,
        hpa(minimum=2),
    ]
    assert why(plan(things)) == [Reason.SCALE_UP_NEEDS_NODE], "c has less than 2 CPUs left"
    roomy = [each for each in things if each["metadata"]["name"] != "other"]
    (removal,) = plan(roomy).removals
    assert [(move.pod.name, move.target) for move in removal.moves] == [("p", "b")]


def test_what_moved_out_of_the_way_holds_its_room_for_the_rest_of_the_plan() -> None:
    picky = {"nodeSelector": {"disk": "fast"}}
    things = [
        node("a", labels={"disk": "fast"}),
        node("b", labels={"disk": "fast"}),
        node("c", "2"),
        node("d"),
        replica("web-1", "b", cpu="2"),
        pod("p", "a", "1900m", **picky),
        pod("q", "d", "2"),
        hpa(minimum=2),
    ]
    # The replica makes way for p, from b to c; then q has no place but the one where it stands now.
    found = plan(things, only=["a", "d"])
    assert [(each.node, [move.target for move in each.moves]) for each in found.removals] == [("a", ["b"])]
    assert why(found, "d") == [Reason.SCALE_UP_NEEDS_NODE]
    assert [each.node for each in plan(things, only=["d"]).removals] == ["d"]


def test_what_moved_with_a_planned_node_is_known_where_it_went() -> None:
    things = [
        node("a"),
        node("d"),
        node("e"),
        node("full", "2"),
        replica("web-1", "full", cpu="2"),
        pod("q", "d", "1"),
        pod("r", "e", "2"),
        hpa(minimum=2),
    ]
    found = plan(things, only=["a", "d", "e"])
    assert [each.node for each in found.removals] == ["a"]
    assert (why(found, "d"), why(found, "e")) == ([Reason.SCALE_UP_NEEDS_NODE],) * 2


def test_it_is_told_beside_what_keeps_the_node_anyway() -> None:
    unplaced = pod("h", "a", "100m", nodeSelector={HOST: "a"})
    assert why(plan([*tight(), unplaced])) == [Reason.NO_PLACE]
    only_here = [node("a"), node("b", "2"), replica("web-1", "b", cpu="2"), hpa(minimum=2), unplaced]
    assert why(plan(only_here)) == [Reason.NO_PLACE, Reason.SCALE_UP_NEEDS_NODE]


def test_constraints_between_replicas_are_kept() -> None:
    things = [
        node("a"),
        node("b"),
        replica("web-1", "b", cpu="100m", affinity=anti_affinity(app="web")),
        hpa(minimum=2),
    ]
    assert why(plan(things)) == [Reason.SCALE_UP_NEEDS_NODE], "two replicas need two nodes"
    assert plan([*things, node("c")]).removals


def test_each_round_keeps_the_room() -> None:
    things = [node(name) for name in "abc"] + [replica("web-1", "c", cpu="3"), hpa(minimum=2)]
    found = plan(things, only=["a", "b"], until_stable=True)
    assert len(found.removals) == 1
    left = ({"a", "b"} - {found.removals[0].node}).pop()
    assert why(found, left) == [Reason.SCALE_UP_NEEDS_NODE]


def test_pods_of_another_scheduler_or_unknown_needs_hold_no_room() -> None:
    for spec in ({"schedulerName": "volcano"}, {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}):
        things = [node("a"), node("b"), replica("web-1", "b", cpu="2", **spec), pod("p", "a", "2"), hpa(minimum=2)]
        assert plan(things).removals, spec


def test_a_drain_under_way_looks_at_it_as_the_plan_does() -> None:
    draining = [in_drain("a"), *tight()[1:]]
    rules: Any = {"rules": DrainRules(), "eviction": EvictionRules(disabled=frozenset({Reason.NOT_REPLICATED}))}
    sight = Assessment(snapshot(draining), "a", 1767225700.0, **rules)
    assert [each.reason for each in sight.rest("likely", ReservedDemand(100))] == [Reason.SCALE_UP_NEEDS_NODE]
    assert sight.rest("likely") == []


@pytest.mark.parametrize(("phase", "kept"), [("Claimed", True), ("Evicting", False)])
@pytest.mark.parametrize("pods", [[], [pod("p", "a", "100m")]], ids=["empty", "with a pod"])
def test_the_last_look_before_evicting_finds_what_could_run_on_the_node_only(
    pods: list[Json], phase: str, kept: bool
) -> None:
    rest = [node("b", "2200m"), replica("web-1", "b", cpu="2"), *pods]
    trusted = EvictionRules(disabled=frozenset({Reason.NOT_REPLICATED, Reason.CONTROLLER_NOT_FOUND}))

    def found(*things: Json) -> list[Reason]:
        seen = snapshot([in_drain("a", phase), *rest, *things])
        return [
            each.reason
            for each in Assessment(seen, "a", 1767225700.0, DrainRules(), trusted).rest("likely", ReservedDemand(100))
        ]

    assert found() == []
    assert found(hpa(minimum=2)) == ([Reason.SCALE_UP_NEEDS_NODE] if kept else [])
    assert found(replica("web-2", cpu="2")) == ([Reason.PENDING_POD_NEEDS_NODE] if kept else [])


def test_explain_finds_the_same_for_one_node() -> None:
    cluster = seen(tight())
    found = DrainAlone(cluster, "likely").of("a", cluster.nodes["a"].pods)
    assert [each.reason for each in found.refusals] == [Reason.SCALE_UP_NEEDS_NODE]


def test_room_is_kept_on_nodes_that_stay_where_they_have_it() -> None:
    cluster = seen([node("a"), node("b"), replica("web-1", "b", cpu="1"), hpa(minimum=3)])
    planner = Planner(cluster, DisruptionLedger(cluster), judge(cluster, ["a"]).candidates, "likely")
    assert {name: held["cpu"] for name, held in planner.start.starting_on.items()} == {"b": 2000}


def test_a_refusal_names_a_few_hpas_and_counts_the_rest() -> None:
    names = [f"w{number}" for number in range(5)]
    things = [node("a"), node("b", "5")]
    for name in names:
        things += [replica(name, "b", of=name, cpu="1"), hpa(minimum=2, name=name, target=f"Deployment/{name}")]
    [refusal] = plan(things).refusals["a"]
    assert refusal.detail.count("is about to start") == 3
    assert " and 1 more: without this node" in refusal.detail


def test_more_replicas_than_are_moved_at_a_time_are_no_trouble() -> None:
    things = [node("a"), node("b", "64", "256Gi", "500"), pod("p", "a", "1")]
    things += [replica("web-1", "b", cpu="100m", memory="1Mi"), hpa(minimum=2 * MOST_IN_THE_WAY, maximum=1000)]
    assert plan(things, most=1000).removals
    full = [node("a"), node("b", "20", "256Gi", "500"), *things[2:]]
    assert why(plan(full, most=1000)) == [Reason.SCALE_UP_NEEDS_NODE]


def test_gaps_are_told() -> None:
    [reported] = warnings_of(seen([node("a"), hpa(minimum=0, desired=3, current=0)]))
    assert reported.startswith("HPA default/web is about to start 3 more replicas (desiredReplicas is 3, 0 exist)")
    assert warnings_of(snapshot([node("a")])) == (), "files have long been made without HPAs"

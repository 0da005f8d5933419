"""Pools with strategies of their own, planned on one space."""

from __future__ import annotations

import pytest
from cluster_builder import node, pod, snapshot

from tightship.cluster import Snapshot
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan import STRATEGIES, Candidate, Judgement, PerPool, Plan, Planner, Strategy, make_plan
from tightship.planning.plan.model import Placement


class _Open:
    def __init__(self, most: int = 99) -> None:
        self._most = most

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        if len(planner.removals) < self._most:
            return []
        return [Refusal(Reason.MAX_NODES_REACHED, candidate.name, "enough")]


def cluster() -> Snapshot:
    """Pool a: a small node with much on it, a big one with little; pool b the same."""
    return snapshot(
        [
            *(node(f"{pool}-big", cpu="8", memory="32Gi") for pool in "ab"),
            *(node(f"{pool}-small", cpu="2", memory="8Gi") for pool in "ab"),
            *(pod(f"{pool}-1", f"{pool}-big", cpu="1") for pool in "ab"),
            *(pod(f"{pool}-2", f"{pool}-small", cpu="1") for pool in "ab"),
        ]
    )


def planned(strategy: Strategy, most: int = 99, placement: Placement = "likely", held: Snapshot | None = None) -> Plan:
    held = held or cluster()
    candidates = tuple(
        Candidate(
            name,
            name[0],
            sum(pod.requests["cpu"] for pod in view.pods) / view.node.allocatable["cpu"],
            view.pods,
        )
        for name, view in held.nodes.items()
    )
    return make_plan(held, lambda _: Judgement(candidates, {}, _Open(most)), strategy, placement)


def removed(plan: Plan) -> list[str]:
    return [each.node for each in plan.removals]


def test_each_pool_goes_by_its_own_order() -> None:
    found = planned(PerPool({"a": "least-utilized", "b": "fewest-nodes"}, "least-utilized"))
    assert found.strategy == "per-pool"
    order = removed(found)
    assert order[0] == "a-big", "the least utilized of pool a"
    assert next(name for name in order if name.startswith("b")) == "b-small", "the smallest of pool b"


@pytest.mark.parametrize("placement", ["possible", "likely"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_one_strategy_for_all_pools_plans_as_it_does_alone(name: str, placement: Placement) -> None:
    per_pool, alone = PerPool({"a": name, "b": name}, name), STRATEGIES[name]
    theirs, own = planned(per_pool, placement=placement), planned(alone, placement=placement)
    assert (theirs.removals, theirs.refusals) == (own.removals, own.refusals)


def test_pools_that_are_not_named_go_by_the_default() -> None:
    named = planned(PerPool({"a": "fewest-nodes", "b": "least-utilized"}, "fewest-nodes"))
    assert removed(planned(PerPool({"b": "least-utilized"}, "fewest-nodes"))) == removed(named)


def test_gates_and_room_are_shared() -> None:
    strategy = PerPool({"a": "fewest-nodes", "b": "least-utilized"}, "least-utilized")
    one = planned(strategy, most=1)
    assert removed(one) == ["b-big"], "least-utilized comes first, whichever pool it is for"
    assert {found[0].reason for found in one.refusals.values()} == {Reason.MAX_NODES_REACHED}
    every = planned(strategy)
    gone = set(removed(every))
    at: dict[str, int] = dict.fromkeys(cluster().nodes, 0)
    for removal in every.removals:
        for move in removal.moves:
            at[move.target] += 1
    assert len(gone) < 4, "somebody holds the pods"
    assert {*gone, *every.refusals} == set(cluster().nodes)


def test_possible_places_are_chosen_by_the_strategy_whose_turn_it_is() -> None:
    """best_fit takes the fuller node, aligned the one whose room has the pod's proportions."""
    held = snapshot(
        [
            node("a-1", cpu="1", memory="1Gi"),
            node("b-1", cpu="1", memory="1Gi"),
            node("x-fuller", cpu="4", memory="3Gi"),
            node("x-shaped", cpu="16", memory="16Gi"),
            pod("p-a", "a-1", cpu="1", memory="1Gi"),
            pod("p-b", "b-1", cpu="1", memory="1Gi"),
        ]
    )

    def targets(strategy: Strategy) -> dict[str, str]:
        candidates = tuple(Candidate(name, name[0], 0.5, held.nodes[name].pods) for name in ("a-1", "b-1"))
        plan = make_plan(held, lambda _: Judgement(candidates, {}, _Open(2)), strategy, "possible")
        return {move.pod.name: move.target for removal in plan.removals for move in removal.moves}

    mixed = targets(PerPool({"a": "least-utilized", "b": "fewest-nodes"}, "least-utilized"))
    least, fewest = targets(STRATEGIES["least-utilized"]), targets(STRATEGIES["fewest-nodes"])
    assert mixed["p-a"] == least["p-a"]
    assert mixed["p-b"] == fewest["p-b"]
    assert least["p-a"] != fewest["p-a"], "the two choose differently here"

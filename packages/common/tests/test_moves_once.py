"""A pod should move once: nodes that go are no destination where there is another."""

from __future__ import annotations

import json
from typing import Any

from cluster_builder import node, pod, snapshot

from tightship.cluster import Snapshot
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.selectors import Taint
from tightship.planning.plan import (
    STRATEGIES,
    STRATEGIES_BY_CPU,
    Candidate,
    Judgement,
    Placement,
    Plan,
    Planner,
    SteeringRules,
    forecast,
    make_plan,
)
from tightship.planning.plan.model import measured, utilization

Json = dict[str, Any]
TAINT = Taint("tightship.dev/candidate", "PreferNoSchedule", "node-compactor")
STEERING = SteeringRules(TAINT, 2)


class Most:
    """A gate: no node above this CPU ratio goes."""

    def __init__(self, ratio: float = 9.0) -> None:
        self._ratio = ratio

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        full = planner.ratio(candidate.name) >= self._ratio
        return [Refusal(Reason.NOT_UNDERUTILIZED, candidate.name, "full")] if full else []


def judgement(seen: Snapshot, only: str, most: float = 9.0) -> Judgement:
    found = []
    for name in only.split():
        if name in seen.nodes:
            view = seen.nodes[name]
            found.append(Candidate(name, "", utilization(view, 0.0).ratio("cpu"), view.pods))
    return Judgement(tuple(found), {}, Most(most))


def planned(
    things: list[Json],
    only: str,
    placement: Placement = "possible",
    *,
    strategy: str = "least-utilized",
    most: float = 9.0,
    until_stable: bool = False,
    steering: SteeringRules | None = None,
) -> Plan:
    return make_plan(
        snapshot(things),
        lambda seen: judgement(seen, only, most),
        STRATEGIES[strategy],
        placement,
        until_stable=until_stable,
        steering=steering,
    )


def moves(plan: Plan) -> list[tuple[str, str]]:
    return [(move.pod.name, move.target) for removal in plan.removals for move in removal.moves]


def budget(allowed: int) -> Json:
    raw = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": allowed, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 3, "expectedPods": 3},
    }
    return json.loads(json.dumps(raw))  # type: ignore[no-any-return]


def test_where_the_plan_chooses_no_pod_goes_to_a_node_that_goes_too() -> None:
    things = [node("a"), node("b"), node("c"), node("d"), *(pod(f"p-{name}", name, "500m") for name in "abc")]
    things += [pod("q", "d", "2"), pod("r", "c", "500m")]
    plan = planned(things, "a b")
    assert {removal.node for removal in plan.removals} == {"a", "b"}
    assert {target for _, target in moves(plan)} <= {"c", "d"}
    assert plan.evictions == plan.pods == 2


def test_a_budget_that_spreads_a_plan_over_rounds_makes_no_pod_move_twice() -> None:
    things = [node(name) for name in "abc"] + [pod(f"p-{name}", name, labels={"app": "web"}) for name in "abc"]
    plan = planned([*things, budget(1)], "a b c", until_stable=True)
    assert [(removal.node, removal.round) for removal in plan.removals] == [("a", 1), ("b", 2)]
    assert moves(plan) == [("p-a", "c"), ("p-b", "c")]


def test_pods_that_go_elsewhere_fill_no_node_that_could_go() -> None:
    """Were p-a sent to b, that node would be above the limit."""
    things = [node("a"), node("b"), node("c"), pod("p-a", "a", "1"), pod("p-b", "b", "2"), pod("q", "c", "500m")]
    plan = planned(things, "a b", strategy="fewest-nodes", most=0.6)
    assert {removal.node for removal in plan.removals} == {"a", "b"}


def test_a_node_that_goes_is_better_than_none() -> None:
    """The pods of a fit only on b, and those of both only on c, once the pod of c has left."""
    things = [node("a", "2"), node("b", "3"), node("c", "4"), pod("p-a", "a", "2"), pod("p-b", "b", "1")]
    things += [pod("q", "c", "2500m")]
    assert moves(planned(things, "a")) == [("p-a", "b")]


def test_kube_scheduler_is_modelled_with_the_soft_taint_on_nodes_that_go() -> None:
    things = [node("a"), node("b"), node("c"), pod("p-a", "a", "1"), pod("p-b", "b", "1"), pod("q", "c", "1500m")]
    unsteered, steered = (planned(things, "a b", "likely", steering=each) for each in (None, STEERING))
    assert (moves(unsteered)[0], unsteered.evictions, unsteered.pods) == (("p-a", "b"), 3, 2)
    assert moves(steered) == [("p-a", "c"), ("p-b", "c")]
    assert (steered.evictions, steered.pods) == (2, 2)


def test_a_pod_that_tolerates_the_soft_taint_goes_where_it_would_without() -> None:
    things = [node("a"), node("b"), node("c"), pod("p-b", "b", "1"), pod("q", "c", "1500m")]
    things += [pod("p-a", "a", "1", tolerations=[{"operator": "Exists"}])]
    assert moves(planned(things, "a b", "likely", steering=STEERING))[0] == ("p-a", "b")


def test_soft_taints_of_an_earlier_plan_are_not_those_of_this_one() -> None:
    def tainted(value: str) -> Plan:
        taint = {"key": TAINT.key, "value": value, "effect": TAINT.effect}
        things = [node("a"), node("b", taints=[taint]), node("c"), pod("p-a", "a", "1"), pod("q", "c", "1500m")]
        return planned(things, "a", "likely", steering=STEERING)

    assert moves(tainted("node-compactor")) == [("p-a", "b")], "b stays now, so it loses the taint"
    assert moves(tainted("node-refiner")) == [("p-a", "c")]


def test_only_as_many_nodes_are_steered_around_as_may_carry_the_taint() -> None:
    things = [node("a"), node("b"), node("c"), node("d"), *(pod(f"p-{name}", name, "500m") for name in "abc")]
    things += [pod("q", "d", "1500m")]
    one, three = (planned(things, "a b c", "likely", steering=SteeringRules(TAINT, most)) for most in (1, 3))
    assert moves(one)[0] == ("p-a", "b"), "only a carries the taint"
    assert moves(three) == [("p-a", "d"), ("p-b", "d"), ("p-c", "d")]


def test_nodes_that_wait_for_a_budget_are_steered_around_too() -> None:
    things = [node(name) for name in "abc"] + [pod(f"p-{name}", name, labels={"app": "web"}) for name in "abc"]
    plan = planned([*things, pod("q", "c", "500m", labels={}), budget(1)], "a b", "likely", steering=STEERING)
    assert (moves(plan), plan.later) == ([("p-a", "c")], ("b",))


def test_the_forecast_counts_with_the_steering_too() -> None:
    things = [node("a"), node("b"), node("c"), pod("p-a", "a", "1"), pod("p-b", "b", "1"), pod("q", "c", "1500m")]
    seen = snapshot(things)
    plan, candidates = planned(things, "a b"), judgement(seen, "a b").candidates
    without = forecast(seen, plan, candidates)
    assert (without.evictions, without.pods) == (3, 2)
    steered = forecast(seen, plan, candidates, STEERING)
    assert (steered.evictions, steered.pods) == (2, 2)


def test_the_measure_is_the_largest_ratio_or_that_of_cpu() -> None:
    ratios = {"cpu": 0.2, "memory": 0.9, "nvidia.com/gpu": 0.5}
    assert (measured(ratios), measured(ratios, "cpu"), measured({})) == (0.9, 0.2, 0.0)


def test_a_node_full_of_memory_or_gpus_is_not_the_least_utilized() -> None:
    seen = snapshot([node("cpu"), node("gpu"), node("memory"), node("rest", "16", "64Gi")])
    candidates = (
        Candidate("cpu", "", 0.5, (), memory_ratio=0.1),
        Candidate("gpu", "", 0.2, (), memory_ratio=0.1, extended={"nvidia.com/gpu": 1.0}),
        Candidate("memory", "", 0.1, (), memory_ratio=0.94),
    )

    def order(strategies: Any) -> list[str]:
        plan = make_plan(seen, lambda _: Judgement(candidates, {}, Most()), strategies["least-utilized"], "likely")
        return [removal.node for removal in plan.removals]

    assert order(STRATEGIES) == ["cpu", "memory", "gpu"]
    assert order(STRATEGIES_BY_CPU) == ["memory", "gpu", "cpu"]

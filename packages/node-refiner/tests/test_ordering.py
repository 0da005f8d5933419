"""Which candidate goes first, and which comes last among equals."""

from __future__ import annotations

from typing import Any

import pytest

from node_refiner.judge import RefinerJudge
from node_refiner.ordering import Keys, single_replicas
from node_refiner.settings import RefinerSettings
from tightship.planning.evaluate import evaluate
from tightship.planning.facts import FactRules, candidates_of, gather
from tightship.planning.plan import Planner
from tightship.rules.disruption import DisruptionLedger
from tightship_testkit.builders import NOW, budget, controller, node, pod, snapshot, workload

Json = dict[str, Any]

OPEN = {"excess_nodes_threshold": 0.0, "minimum_nodes": 0, "minimum_non_tainted_nodes": 0}
BIG = {"cpu": "64", "memory": "256Gi", "pods": "500"}


def sink() -> list[Json]:
    """A node that never goes and has room for everything; ReplicaSet web has two pods there."""
    roomy = node("sink", allocatable=BIG, notes={"tightship.dev/do-not-drain": "true"})
    return [roomy, pod("web-8", on="sink"), pod("web-9", on="sink")]


def order(*items: Json, **settings: Any) -> list[str]:
    """The order in which all nodes but the sink go."""
    found = evaluate(snapshot(*sink(), *items, workload()), RefinerJudge(RefinerSettings(**OPEN | settings)), NOW)
    assert found.plan.strategy == settings.get("candidate_order", "score")
    return [each.node for each in found.plan.removals]


def holding(name: str, cpu: str = "1", memory: str = "1Gi", **given: Any) -> list[Json]:
    """A node with one pod in a ReplicaSet that has others elsewhere."""
    return [node(name), pod(f"on-{name}", on=name, cpu=cpu, memory=memory, **given)]


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({}, "memory"),
        ({"cpu_weight": 0.5, "memory_weight": 0.5}, "memory"),
        ({"cpu_weight": 0.2, "memory_weight": 0.8}, "cpu"),
        ({"cpu_weight": 1, "memory_weight": 0}, "memory"),
        ({"cpu_weight": 0, "memory_weight": 1}, "cpu"),
    ],
)
def test_the_lowest_score_goes_first_by_its_weights(settings: Json, first: str) -> None:
    items = [*holding("cpu", cpu="3", memory="2Gi"), *holding("memory", cpu="1", memory="8Gi")]
    assert order(*items, **settings)[0] == first


def test_the_score_counts_what_the_plan_has_moved_there() -> None:
    """a's pod lands on b (the scheduler's choice is modelled), which is then fuller than c."""
    items = [
        *holding("a", cpu="400m"),
        *holding("b", cpu="500m"),
        *holding("c", cpu="800m"),
        node("full", taints=[{"key": "x", "effect": "NoSchedule"}]),
    ]
    found = evaluate(snapshot(*items, workload()), RefinerJudge(RefinerSettings(**OPEN)), NOW)
    [first, second, *_] = found.plan.removals
    assert first.node == "a"
    assert [move.target for move in first.moves] == ["b"]
    assert second.node == "c"


def test_fewest_evictions_go_first_whatever_they_weigh() -> None:
    few = [node("few"), pod("large", on="few", cpu="3", memory="8Gi")]
    many = [node("many"), *(pod(f"small-{each}", on="many", cpu="10m", memory="16Mi") for each in range(3))]
    assert order(*few, *many) == ["many", "few"]
    assert order(*few, *many, candidate_order="fewest-evictions") == ["few", "many"]


def test_daemon_pods_and_pods_on_their_way_out_are_no_evictions() -> None:
    agents = [pod(f"agent-{each}", on="a", owner=controller("DaemonSet", f"agent-{each}")) for each in range(3)]
    leaving = pod("leaving", on="a", deletion=NOW + 60)
    items = [node("a"), pod("one", on="a"), *agents, leaving, node("b"), pod("x", on="b"), pod("y", on="b")]
    assert order(*items, candidate_order="fewest-evictions") == ["a", "b"]


def test_of_as_many_evictions_the_score_decides() -> None:
    items = [*holding("a", cpu="2"), *holding("b", cpu="1"), *holding("c", cpu="3")]
    assert order(*items, candidate_order="fewest-evictions") == ["b", "a", "c"]


def test_the_least_important_pods_go_first() -> None:
    items = [
        *holding("high", cpu="100m", priority=1000),
        *holding("low", cpu="3", priority=-10),
        *holding("none", cpu="2"),
        node("empty"),
    ]
    assert order(*items, candidate_order="pods-priority") == ["empty", "low", "none", "high"]


def test_of_one_priority_the_fewest_pods_go_first_and_the_others_do_not_count() -> None:
    one = [
        node("one"),
        pod("a1", on="one", cpu="3", priority=100),
        *(pod(f"a{each}", on="one", cpu="10m") for each in (2, 3)),
    ]
    two = [node("two"), *(pod(f"b{each}", on="two", cpu="10m", priority=100) for each in (1, 2))]
    assert order(*one, *two, candidate_order="pods-priority") == ["one", "two"]


PRICE = "tightship.dev/hourly-price"


def priced(name: str, price: str, *priorities: int) -> list[Json]:
    """A node that costs *price* an hour, with a pod of each of *priorities*."""
    pods = (pod(f"{name}-{each}", on=name, cpu="10m", priority=number) for each, number in enumerate(priorities))
    return [node(name, notes={PRICE: price}), *pods]


def test_what_saves_most_for_each_eviction_goes_first() -> None:
    items = [*priced("cheap", "0.1", 0), *priced("many", "0.4", 0, 0, 0), *priced("dear", "0.3", 0)]
    assert order(*items, candidate_order="balanced") == ["dear", "many", "cheap"]


def test_of_one_saving_the_least_important_pods_go_first() -> None:
    items = [*priced("important", "0.2", 100), *priced("plain", "0.2", 0), *priced("empty", "0.01")]
    assert order(*items, candidate_order="balanced") == ["empty", "plain", "important"]


def test_of_one_saving_it_is_the_most_important_pod_that_counts() -> None:
    items = [*priced("mixed", "0.2", 0, 100), *priced("even", "0.2", 50, 50)]
    assert order(*items, candidate_order="balanced") == ["even", "mixed"]


def test_a_removal_that_saves_too_little_does_not_go() -> None:
    items = [*priced("dear", "0.3", 0), *priced("cheap", "0.1", 0)]
    assert order(*items, candidate_order="balanced", minimum_saving=100) == ["dear"]


# -- among equals


def alone(name: str, app: str, cpu: str = "1", **given: Any) -> list[Json]:
    """A node with the only pod of a ReplicaSet."""
    own = {"owner": controller("ReplicaSet", app), "labels": {"app": app}}
    return [node(name), pod(f"{app}-1", on=name, cpu=cpu, memory="1Gi", **own, **given), workload(name=app)]


@pytest.mark.parametrize("how", ["score", "fewest-evictions", "balanced", "pods-priority"])
def test_a_single_replica_comes_last_among_equals(how: str) -> None:
    items = [*alone("a", "only"), *holding("b"), *holding("c")]
    assert order(*items, candidate_order=how) == ["b", "c", "a"]


def test_a_replica_whose_others_are_not_ready_is_the_only_one() -> None:
    ill = pod("on-sink", on="sink", ready=False, owner=controller("ReplicaSet", "only"), labels={"app": "only"})
    items = [*alone("a", "only"), ill, *holding("b"), *holding("c")]
    assert order(*items) == ["b", "c", "a"]


def test_one_that_is_not_ready_itself_is_not_felt() -> None:
    assert order(*alone("a", "only", ready=False), *holding("b")) == ["a", "b"]


@pytest.mark.parametrize("how", ["score", "fewest-evictions", "pods-priority"])
@pytest.mark.parametrize("allowed", [1, 2, 3])
def test_a_node_that_would_use_up_a_budget_comes_last_among_equals(how: str, allowed: int) -> None:
    tight = {"labels": {"app": "tight"}}
    items = [
        node("a"),
        *(pod(f"t{each}", on="a", cpu="500m", memory="512Mi", **tight) for each in (1, 2)),
        node("b"),
        *(pod(f"w{each}", on="b", cpu="500m", memory="512Mi") for each in (1, 2)),
        pod("w3", on="sink"),
        budget(selector={"matchLabels": {"app": "tight"}}, status={"disruptionsAllowed": allowed}),
    ]
    # With 1 allowed its pods wait for each other, with 2 nothing is left, with 3 something is.
    assert order(*items, candidate_order=how) == (["a", "b"] if allowed == 3 else ["b", "a"])


def test_a_budget_becomes_tight_as_the_plan_spends_it() -> None:
    shared = {"labels": {"app": "tight"}}
    items = [
        *holding("a", cpu="1", **shared),
        *holding("b", cpu="1010m", **shared),
        *holding("c", cpu="1012m"),
        budget(selector={"matchLabels": {"app": "tight"}}, status={"disruptionsAllowed": 2}),
    ]
    # After a has gone b would use up the budget, so that c, equal in whole percent, comes before it.
    assert order(*items) == ["a", "c", "b"]


def test_equal_means_equal_in_whole_percent() -> None:
    """10 of 4000 millis are no reason to touch a single replica, 100 are."""
    assert order(*alone("a", "only"), *holding("b", cpu="1010m")) == ["b", "a"]
    assert order(*alone("a", "only"), *holding("b", cpu="1100m")) == ["a", "b"]


def test_after_that_the_exact_score_decides_then_the_name() -> None:
    assert order(*holding("a", cpu="1010m"), *holding("b", cpu="1005m"), *holding("c", cpu="1005m")) == ["b", "c", "a"]


def test_single_replicas_are_told_by_namespace_kind_and_name() -> None:
    cluster = snapshot(
        node(),
        pod("a-1", namespace="red", owner=controller("ReplicaSet", "a")),
        pod("a-1", namespace="blue", owner=controller("ReplicaSet", "a")),
        pod("a-0", namespace="red", owner=controller("StatefulSet", "a")),
        pod("b-1", owner=controller("ReplicaSet", "b")),
        pod("b-2", owner=controller("ReplicaSet", "b")),
        pod("naked", naked=True),
        pod("pending", on="", phase="Pending", owner=controller("ReplicaSet", "c")),
    )
    assert single_replicas(cluster) == {
        ("red", "ReplicaSet", "a"),
        ("blue", "ReplicaSet", "a"),
        ("red", "StatefulSet", "a"),
    }


@pytest.mark.parametrize("how", ["score", "fewest-evictions", "pods-priority"])
def test_keys_only_grow_as_a_plan_does(how: Any) -> None:
    items = [
        *(item for number in range(5) for item in holding(f"n{number}", cpu=f"{number + 1}00m", priority=number - 2)),
        *alone("n5", "only"),
        budget(status={"disruptionsAllowed": 6}),
    ]
    cluster = snapshot(*items, workload())
    settings = RefinerSettings(candidate_order=how)
    candidates = candidates_of(gather(cluster, FactRules(), NOW))
    planner = Planner(cluster, DisruptionLedger(cluster), candidates, "likely")
    keys = Keys(settings)
    before = {name: keys.of(planner, each) for name, each in planner.candidates.items()}
    for candidate in candidates[:3]:
        assert planner.attempt(candidate) == []
        now = {name: keys.of(planner, each) for name, each in planner.candidates.items()}
        gone = {removal.node for removal in planner.removals}
        assert all(now[name] >= before[name] for name in now if name not in gone)
        before = now

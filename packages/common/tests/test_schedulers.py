"""Schedulers that filter as kube-scheduler does: their pods may move and hold room, and go where they put them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cluster_builder import ZONE, node, one, pod, snapshot
from test_plans import judge

from tightship.objects.schedulers import SCHEDULERS
from tightship.planning.plan import STRATEGIES, make_plan
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.evictability import Evictability, EvictionRules
from tightship.scheduler.scoring import in_turn, scheduler_choice, scheduler_scores
from tightship.scheduler.space import Space

GKE = "gke.io/optimize-utilization-scheduler"
NODES = [node("a"), node("b"), node("c"), pod("p1", "a", "2", "1Gi"), pod("p2", "b", "1", "4Gi")]


def space_with(new: dict[str, object], schedulers: dict[str, str] | None = None) -> Space:
    return Space(msgspec.structs.replace(snapshot([*NODES, new]), schedulers={**SCHEDULERS, **(schedulers or {})}))


@pytest.mark.parametrize(
    ("name", "schedulers", "packs"),
    [
        ("default-scheduler", {}, False),
        ("gke.io/default-scheduler", {}, False),
        (GKE, {}, True),
        ("packer", {"packer": "MostAllocated"}, True),
        ("packer", {"packer": "LeastAllocated"}, False),
        ("default-scheduler", {"default-scheduler": "MostAllocated"}, True),
        ("unknown", {}, False),
    ],
)
def test_a_pod_goes_where_its_scheduler_puts_it(name: str, schedulers: dict[str, str], *, packs: bool) -> None:
    space = space_with(pod("new", cpu="500m", memory="512Mi", schedulerName=name), schedulers)
    ask = space.demand_of(space.snapshot.unscheduled[0])
    nodes = space.feasible(ask).nonzero()[0]
    assert space.names[scheduler_choice(space, ask, nodes)] == ("a" if packs else "c")


@pytest.mark.parametrize(("count", "first", "second"), [(100, "n099", "n099"), (101, "n000", "n001")])
def test_where_the_scheduler_looks_at_a_part_of_the_nodes_a_guess_takes_them_in_turn(
    count: int, first: str, second: str
) -> None:
    """Up to 100 nodes it looks at all (``minFeasibleNodesToFind``) and takes the best, here the last: it is empty."""
    full = [pod(f"p{at}", f"n{at:03d}", "1", "1Gi") for at in range(count - 1)]
    space = Space(snapshot([*(node(f"n{at:03d}") for at in range(count)), *full, pod("new", cpu="1", memory="1Gi")]))
    ask = space.demand_of(space.snapshot.unscheduled[0])
    nodes = space.feasible(ask).nonzero()[0]
    assert [space.names[in_turn(space, ask, nodes)] for _ in range(2)] == [first, second]


def test_scores_are_those_of_most_allocated_to_the_point() -> None:
    space = space_with(pod("new", cpu="700m", memory="3Gi", schedulerName=GKE))
    ask = space.demand_of(space.snapshot.unscheduled[0])
    scores = scheduler_scores(space, ask, np.arange(3)) - scheduler_scores_balanced(space)
    gi = 2**30
    used = {"a": (2700, 4 * gi), "b": (1700, 7 * gi), "c": (700, 3 * gi)}
    # mostRequestedScore of noderesources/most_allocated.go: requested * 100 / capacity, rounded down for each resource.
    right = [((cpu * 100 // 4000) + (memory * 100 // (16 * gi))) // 2 for cpu, memory in used.values()]
    assert scores.tolist() == right


def scheduler_scores_balanced(space: Space) -> np.ndarray:
    """What is left of the default scores without LeastAllocated, computed apart."""
    plain = Space(msgspec.structs.replace(space.snapshot, schedulers={}))
    ask = plain.demand_of(plain.snapshot.unscheduled[0])
    gi = 2**30
    used = [(2700, 4 * gi), (1700, 7 * gi), (700, 3 * gi)]
    least = [((4000 - cpu) * 100 // 4000 + (16 * gi - memory) * 100 // (16 * gi)) // 2 for cpu, memory in used]
    return scheduler_scores(plain, ask, np.arange(3)) - np.array(least)


def test_a_pod_that_requests_nothing_never_counts_above_the_capacity() -> None:
    things = [node("a", "100m", "128Mi"), node("b"), pod("new", cpu="", memory="", schedulerName=GKE)]
    space = Space(snapshot(things))
    assert scheduler_scores(space, space.demand_of(space.snapshot.unscheduled[0]), np.arange(2))[0] == 100


@pytest.mark.parametrize(
    ("name", "rules", "free"),
    [
        (GKE, EvictionRules(), True),
        ("gke.io/default-scheduler", EvictionRules(), True),
        ("packer", EvictionRules(), False),
        ("packer", EvictionRules(schedulers={**SCHEDULERS, "packer": "MostAllocated"}), True),
        ("volcano", EvictionRules(schedulers={**SCHEDULERS, "packer": "MostAllocated"}), False),
    ],
)
def test_pods_of_a_known_scheduler_may_move(name: str, rules: EvictionRules, *, free: bool) -> None:
    seen = snapshot([node("a"), pod("p1", "a", schedulerName=name)])
    verdict = Evictability(seen, rules, 0.0, DisruptionLedger(seen).covers).judge(seen.nodes["a"].pods[0])
    assert not verdict.refusals if free else [each.reason for each in verdict.refusals] == ["OtherScheduler"]


@pytest.mark.parametrize(("name", "holds"), [(GKE, True), ("volcano", False)])
def test_a_pending_pod_of_a_known_scheduler_holds_room(name: str, *, holds: bool) -> None:
    things = [node("a"), node("b"), pod("p1", "a", "3"), pod("p2", "b", "1"), pod("new", cpu="3", schedulerName=name)]
    seen = snapshot(things)
    gone = make_plan(seen, lambda each: judge(each, ["b"]), STRATEGIES["least-utilized"], "possible").removals
    assert bool(gone) is not holds


def test_nodes_that_a_pod_prefers_score_by_the_sum_of_their_weights() -> None:
    """As a part of the best node's sum, and twice, as the plugin NodeAffinity counts by default."""
    terms = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}}
        for weight, zones in ((1, ["z1", "z2"]), (3, ["z2"]))
    ]
    prefers = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    newcomer = pod("new", affinity=prefers)
    zones = (("a", "z1"), ("b", "z2"), ("c", "z3"))
    space = Space(snapshot([*(node(name, zone=zone) for name, zone in zones), newcomer]))
    some, most, none = scheduler_scores(space, space.demand_of(one(newcomer)), np.arange(3))
    assert (some - none, most - none) == (50, 200)

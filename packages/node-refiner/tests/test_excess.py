"""How many nodes a cluster could do without: by hand, and against the older controller's formulas."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from node_refiner.excess import Excess, is_counted, sums
from node_refiner.ordering import Scoring
from node_refiner.settings import RefinerSettings
from tightship.planning.facts import FactRules, NodeFacts, gather
from tightship_testkit.builders import NOW, controller, node, pod, snapshot, workload

Json = dict[str, Any]

DRAINING = {"tightship.dev/drain": json.dumps({"v": 1, "phase": "Evicting", "controller": "node-compactor"})}
SOFT = [{"key": "tightship.dev/candidate", "value": "node-compactor", "effect": "PreferNoSchedule"}]


def facts(*items: Json) -> dict[str, NodeFacts]:
    return gather(snapshot(*items), FactRules(), NOW)


def score(fact: NodeFacts, **weights: Any) -> float:
    return Scoring(RefinerSettings(**weights)).of(fact.cpu_ratio, fact.memory_ratio)


def loaded(name: str, cpu: str, memory: str, room: Json | None = None, **given: Any) -> list[Json]:
    """A node of 4 CPUs and 16 GiB with one pod on it."""
    return [node(name, allocatable=room, **given), pod(f"on-{name}", on=name, cpu=cpu, memory=memory)]


def excess(found: dict[str, NodeFacts], name: str) -> Excess:
    return sums(found.values()).excess(found[name].view.node)


@pytest.mark.parametrize(
    ("cpu", "memory", "by_cpu", "by_memory"),
    [
        # Four equal nodes: what one of them leaves free, times four.
        ("2", "4Gi", 2.0, 3.0),
        ("3", "4Gi", 1.0, 3.0),
        ("1", "12Gi", 3.0, 1.0),
        ("4", "16Gi", 0.0, 0.0),
        ("100m", "1Gi", 3.9, 3.75),
    ],
)
def test_equal_nodes(cpu: str, memory: str, by_cpu: float, by_memory: float) -> None:
    found = facts(*(item for number in range(4) for item in loaded(f"n{number}", cpu, memory)), workload())
    figure = excess(found, "n0")
    assert (figure.cpu, figure.memory) == pytest.approx((by_cpu, by_memory))
    assert figure.nodes == min(figure.cpu, figure.memory)


def test_unlike_nodes_are_counted_in_nodes_of_the_candidates_size() -> None:
    big = {"cpu": "16", "memory": "32Gi", "pods": "110"}
    found = facts(*loaded("small", "1", "4Gi"), *loaded("big", "4", "24Gi", big), workload())
    # Free are 20 - 5 CPUs and 48 - 28 GiB.
    small, large = excess(found, "small"), excess(found, "big")
    assert (small.cpu, small.memory, small.scarcer) == (15 / 4, 20 / 16, "memory")
    assert (large.cpu, large.memory, large.scarcer) == (15 / 16, 20 / 32, "memory")


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({}, True),
        ({"taints": SOFT}, True),
        ({"taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}]}, True),
        ({"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]}, False),
        ({"taints": [{"key": "dedicated", "effect": "NoExecute"}]}, False),
        ({"unschedulable": True}, False),
        ({"ready": "False"}, False),
        ({"notes": DRAINING}, False),
        ({"allocatable": {"pods": "110"}}, False),
        ({"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}}, False),
        ({"labels": {"node-role.kubernetes.io/control-plane": ""}}, True),
        ({"notes": {"tightship.dev/do-not-drain": "true"}}, True),
    ],
    ids=[
        "plain",
        "a soft taint of node-compactor",
        "a soft taint of Cluster Autoscaler",
        "NoSchedule",
        "NoExecute",
        "cordoned",
        "not Ready",
        "in drain",
        "with nothing to allocate",
        "being deleted",
        "control plane without a taint",
        "opted out",
    ],
)
def test_which_nodes_are_counted(given: Json, counts: bool) -> None:
    found = facts(node("n1", **given), *loaded("n2", "2", "4Gi"), workload())
    assert is_counted(found["n1"].view.node) == counts
    assert excess(found, "n2").cpu == (1.5 if counts else 0.5)


def test_requests_are_those_of_kube_scheduler() -> None:
    init = {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]}
    found = facts(node(), pod(cpu="1", memory="1Gi", **init), workload())
    assert excess(found, "n1").cpu == 0.25


def test_a_terminating_pod_past_its_grace_requests_nothing() -> None:
    assert excess(facts(node(), pod(cpu="3", deletion=NOW - 1)), "n1").cpu == 1.0


def test_when_a_node_has_gone_its_pods_are_on_the_rest_but_for_those_that_go_with_it() -> None:
    agents = [
        pod(f"agent-{name}", on=name, cpu="400m", memory="1Gi", owner=controller("DaemonSet", "agent"))
        for name in ("n1", "n2")
    ]
    found = facts(*loaded("n1", "1", "1Gi"), *loaded("n2", "1", "1Gi"), *agents, workload())
    rest = sums(found.values()).without(found["n1"])
    assert (rest.many, rest.cpu_requested, rest.cpu_allocatable) == (1, 2400, 4000)
    assert (rest.memory_requested, rest.memory_allocatable) == (3 * 2**30, 16 * 2**30)


def test_what_a_node_has_nothing_of_says_nothing() -> None:
    found = facts(node("n1", allocatable={"cpu": "4", "pods": "10"}), node("n2"))
    assert excess(found, "n1").memory == math.inf
    assert excess(found, "n1").nodes == 2.0


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({}, 0.8 * 0.5 + 0.2 * 0.25),
        ({"cpu_weight": 1, "memory_weight": 0}, 0.5),
        ({"cpu_weight": 0, "memory_weight": 1}, 0.25),
    ],
)
def test_the_score_is_the_weighted_sum_of_the_ratios(weights: Json, expected: float) -> None:
    found = facts(*loaded("n1", "2", "4Gi"), workload())
    assert score(found["n1"], **weights) == pytest.approx(expected)


def test_a_score_is_a_number_whatever_a_node_allocates() -> None:
    found = facts(*loaded("n1", "2", "4Gi", {"cpu": "4", "pods": "10"}), workload())
    assert score(found["n1"], memory_weight=0) == pytest.approx(0.4)

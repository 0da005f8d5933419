"""Dedicated pools: nodes with equal taints that keep pods away, counted by themselves with ``countTaintedNodes``."""

from __future__ import annotations

from typing import Any

import pytest

from node_refiner.controller import load_settings
from node_refiner.judge import RefinerJudge
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import Evaluation, evaluate
from tightship.rules.nodes import draining
from tightship_testkit.builders import NOW, node, pod, snapshot, workload

Json = dict[str, Any]

GPU = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
GPU_POOL = "dedicated=gpu:NoSchedule"
ON = {"countTaintedNodes": True, "minimumNodeCount": 0, "minimumNonTaintedNodeCount": 0}


def cluster(plain: int, gpu: int, **gpu_spec: Any) -> list[Json]:
    """Return so many plain nodes p1.. and tainted ones g1.. with half a CPU of pods each."""
    items: list[Json] = [workload()]
    for name in (f"p{number}" for number in range(1, plain + 1)):
        items += [node(name), pod(f"web-{name}", on=name, cpu="500m")]
    for name in (f"g{number}" for number in range(1, gpu + 1)):
        items.append(node(name, taints=[GPU], **gpu_spec))
        tolerations = [{"key": "dedicated", "operator": "Exists"}]
        wanted = {"nodeSelector": {"dedicated": "gpu"}}
        items[-1]["metadata"]["labels"]["dedicated"] = "gpu"
        items.append(pod(f"web-{name}", on=name, cpu="500m", tolerations=tolerations, **wanted))
    return items


def judged(items: list[Json], limit: int | None = None, **settings: object) -> Evaluation:
    chosen = (
        load_settings({**ON, **settings})
        if limit is None
        else load_settings(ON).model_copy(update={"max_nodes": limit})
    )
    return evaluate(snapshot(*items), RefinerJudge(chosen), NOW)


def removed(found: Evaluation) -> tuple[int, int]:
    """Return how many plain and how many dedicated nodes go."""
    names = [each.node for each in found.plan.removals]
    return sum(name.startswith("p") for name in names), sum(name.startswith("g") for name in names)


def test_a_dedicated_pool_has_an_excess_of_its_own() -> None:
    found = judged(cluster(2, 4))
    # Of 2 plain nodes one could go, which is below the threshold of 2; of 4 dedicated ones 3 could.
    assert removed(found) == (0, 2)
    assert {name: len(each.turns) for name, each in found.gates.outlooks.items()} == {"": 1, GPU_POOL: 3}
    excess = found.gates.outlooks[GPU_POOL].excess
    assert excess is not None
    assert excess.cpu == pytest.approx((16 - 2) / 4)
    kept = [found.plan.refusals[name] for name in found.gates.outlooks[GPU_POOL].turns if name in found.plan.refusals]
    assert [each.reason for refusals in kept for each in refusals] == [Reason.EXCESS_BELOW_THRESHOLD]


def test_without_the_setting_tainted_nodes_stay_and_count_for_nothing() -> None:
    found = judged(cluster(4, 4), countTaintedNodes=False)
    assert removed(found) == (2, 0)
    assert list(found.gates.outlooks) == [""]
    assert [each.reason for each in found.plan.refusals["g1"]] == [Reason.TAINTED]


def test_each_pool_ends_by_itself() -> None:
    found = judged(cluster(4, 3))
    assert removed(found) == (2, 1)


def test_the_minimums_count_all_nodes_and_the_untainted_ones() -> None:
    assert removed(judged(cluster(4, 4))) == (2, 2)
    assert removed(judged(cluster(4, 4), minimumNodeCount=6)) == (2, 0)
    assert removed(judged(cluster(4, 4), minimumNonTaintedNodeCount=4)) == (0, 2)
    assert sum(removed(judged(cluster(4, 4), limit=3))) == 3


@pytest.mark.parametrize(
    "key",
    ["node.kubernetes.io/disk-pressure", "node-role.kubernetes.io/control-plane", "node.cloudprovider.kubernetes.io/x"],
)
def test_a_taint_that_comes_and_goes_makes_no_pool(key: str) -> None:
    items = cluster(1, 4)
    for each in items:
        if each["kind"] == "Node" and each["metadata"]["name"] == "g1":
            each["spec"]["taints"] = [GPU, {"key": key, "effect": "NoSchedule"}]
    found = judged(items)
    assert Reason.TAINTED in {each.reason for each in found.plan.refusals["g1"]}
    assert found.gates.outlooks[GPU_POOL].counted.many == 3


def test_a_drain_of_a_dedicated_node_goes_on_under_its_own_taints() -> None:
    items = cluster(1, 4)
    for each in items:
        if each["kind"] == "Node" and each["metadata"]["name"] == "g1":
            each["spec"]["taints"] = [GPU, {"key": "tightship.dev/draining", "value": "a1", "effect": "NoSchedule"}]
    found = snapshot(*items)
    g1 = found.nodes["g1"].node
    assert draining(g1)
    assert RefinerJudge(load_settings(dict(ON))).node_refusals(found, g1) == []
    without = RefinerJudge(load_settings({**ON, "countTaintedNodes": False}))
    assert [each.reason for each in without.node_refusals(found, g1)] == [Reason.TAINTED]


def test_a_group_at_its_minimum_size_could_not_go_either() -> None:
    text = "nodeGroups:\n- name: a\n  health:\n    minSize: 3\n"
    meta = {"name": "cluster-autoscaler-status", "namespace": "kube-system"}
    status = {"kind": "ConfigMap", "metadata": meta, "data": {"status": text}}
    items = [*cluster(5, 0), status]
    for each in items:
        if each["kind"] == "Node":
            each["metadata"]["labels"]["agentpool"] = "a"
    assert len(judged(items).gates.outlook.turns) == 2
    assert removed(judged(items)) == (1, 0)
    found = judged(items, excessNodesThreshold=1)
    assert removed(found) == (2, 0)
    assert {each.reason for found in found.plan.refusals.values() for each in found} == {Reason.NODE_GROUP_MIN_SIZE}

"""Which nodes go: both figures against the threshold, strict minimums, and how it is said."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from node_refiner.controller import REFINER
from node_refiner.judge import RefinerJudge
from node_refiner.settings import RefinerSettings
from tightship.objects import ObjectError
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.evaluate import Evaluation, evaluate
from tightship_testkit.builders import DAY, NOW, autoscaler, budget, controller, node, pod, snapshot, state_of, workload

Json = dict[str, Any]

PATIENT = {"time_since_last_addition": 0.0}
PLACEMENTS = ("possible", "likely")
DRAINING = {"tightship.dev/drain": json.dumps({"v": 1, "phase": "Evicting", "controller": "node-compactor"})}


def decided(*items: Json, **settings: Any) -> Evaluation:
    return evaluate(snapshot(*items), RefinerJudge(RefinerSettings(**PATIENT | settings)), NOW)


def removed(found: Evaluation) -> list[str]:
    return [each.node for each in found.plan.removals]


def reasons(found: Evaluation) -> dict[str, list[Reason]]:
    return {name: sorted({each.reason for each in refusals}) for name, refusals in found.plan.refusals.items()}


def even(nodes: int, cpu: str = "1", memory: str = "1Gi", pods: int = 2, **given: Any) -> list[Json]:
    """Nodes of 4 CPUs and 16 GiB with so many equal pods on each."""
    return [
        *(node(f"n{number}", **given) for number in range(1, nodes + 1)),
        *(
            pod(f"p{number}-{each}", on=f"n{number}", cpu=cpu, memory=memory)
            for number in range(1, nodes + 1)
            for each in range(pods)
        ),
        workload(),
    ]


# -- the older controller's README: CPU 50 % on every node, so the autoscaler keeps them all


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(("threshold", "gone"), [(2, 1), (1, 2), (0.5, 2), (2.01, 0), (3, 0)])
def test_four_half_full_nodes_have_an_excess_of_two(threshold: float, gone: int, placement: str) -> None:
    found = decided(*even(4), excess_nodes_threshold=threshold, placement=placement)
    assert found.gates.outlook.excess is not None
    assert found.gates.outlook.excess.nodes == 2.0
    assert len(found.gates.outlook.turns) == 2
    assert len(removed(found)) == gone
    moved = {move.target for each in found.plan.removals for move in each.moves}
    assert not moved & set(removed(found))


def test_the_excess_shrinks_with_every_removal_by_what_is_taken_away() -> None:
    found = decided(*even(6, pods=1), excess_nodes_threshold=2, minimum_nodes=0, minimum_non_tainted_nodes=0)
    # 24 CPUs, 6 requested: (24 - 6) / 4, then (20 - 6) / 4, and so on.
    assert [each.excess.nodes for each in found.gates.outlook.turns.values()] == [4.5, 3.5, 2.5, 1.5]
    # Of four that could go, the last two are the margin.
    assert len(removed(found)) == 3


def test_after_each_removal_the_next_pass_finds_what_the_plan_foresaw() -> None:
    foreseen = decided(*even(6, pods=1), excess_nodes_threshold=2)
    first = foreseen.plan.removals[0]
    targets = {move.pod.name: move.target for move in first.moves}
    left = [item for item in even(6, pods=1) if item["metadata"]["name"] != first.node]
    for item in left:
        if item["kind"] == "Pod" and item["metadata"]["name"] in targets:
            item["spec"]["nodeName"] = targets[item["metadata"]["name"]]
    then = decided(*left, excess_nodes_threshold=2)
    assert removed(then) == removed(foreseen)[1:]
    foretold = [each.excess for each in foreseen.gates.outlook.turns.values()]
    assert [each.excess for each in then.gates.outlook.turns.values()] == foretold[1:]


# -- the two figures


def test_both_hold_back() -> None:
    """Memory is scarce, though the pods of three small nodes all fit on the big one."""
    big = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    found = decided(
        node("big", allocatable=big),
        pod("heavy", on="big", cpu="6", memory="30Gi"),
        *even(3, cpu="100m", memory="5Gi", pods=2),
        excess_nodes_threshold=3,
    )
    # (112 - 60) / 16 = 3.25 nodes by memory, (20 - 6.6) / 4 = 3.35 by CPU: enough for one, not for the next.
    assert len(found.gates.outlook.turns) == 3
    assert removed(found) == ["n1"]
    assert found.plan.refusals["n2"] == (
        Refusal(
            Reason.EXCESS_BELOW_THRESHOLD,
            "n2",
            "at the turn of n2 the excess is 2.25 nodes by memory (CPU 2.35, memory 2.25), and 2 could really go; "
            "the threshold is 3: both hold it back",
            "lower excessNodesThreshold to 2 (--threshold 2)",
        ),
    )


def test_the_excess_alone_holds_back() -> None:
    """In nodes of the size of the big one, which is the emptiest, there is little in excess; small ones could go."""
    big = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    minimums = {"minimum_nodes": 0, "minimum_non_tainted_nodes": 0}
    found = decided(node("big", allocatable=big), *even(4, pods=1), **minimums)
    # (32 - 4) / 16 = 1.75 nodes like big, but big and three of the others could go.
    assert list(found.gates.outlook.turns) == ["big", "n1", "n3", "n2"]
    assert removed(found) == []
    [said] = {each.detail for name in found.gates.outlook.turns for each in found.plan.refusals[name]}
    assert said == (
        "at the turn of big the excess is 1.75 nodes by CPU (CPU 1.75, memory 1.94), and 4 could really go; "
        "the threshold is 2: the excess holds it back"
    )
    assert len(removed(decided(node("big", allocatable=big), *even(4, pods=1), excess_nodes_threshold=1.75))) == 3


def test_the_count_holds_back_what_the_sums_would_allow() -> None:
    """Half of the cluster is free, but every pod is larger than what any other node has left."""
    found = decided(*even(4, cpu="2100m", pods=1), excess_nodes_threshold=1.5)
    assert found.gates.outlook.excess is not None
    assert found.gates.outlook.excess.nodes == pytest.approx(1.9)
    assert found.gates.outlook.turns == {}
    assert removed(found) == []
    assert set(map(tuple, reasons(found).values())) == {(Reason.NO_PLACE,)}


def test_one_that_could_go_is_held_back_by_the_count() -> None:
    items = [*even(4, cpu="2100m", pods=1), node("n5")]
    found = decided(*items, excess_nodes_threshold=2)
    assert list(found.gates.outlook.turns) == ["n5"]
    [refusal] = found.plan.refusals["n5"]
    assert refusal.reason is Reason.EXCESS_BELOW_THRESHOLD
    assert refusal.detail.endswith("and 1 could really go; the threshold is 2: the count holds it back")
    assert "(--threshold 1)" in refusal.fix
    assert removed(decided(*items, excess_nodes_threshold=1)) == ["n5"]


def flags(refusals: tuple[Refusal, ...]) -> Json:
    """The settings that the fixes of *refusals* suggest."""
    fields = {
        "--threshold": "excess_nodes_threshold",
        "--min-nodes": "minimum_nodes",
        "--min-non-tainted-nodes": "minimum_non_tainted_nodes",
        "--max-nodes": "max_nodes",
    }
    found = [each for refusal in refusals for each in re.findall(r"\((--[a-z-]+) ([0-9.]+)\)", refusal.fix)]
    return {fields[flag]: float(value) if flag == "--threshold" else int(value) for flag, value in found}


@pytest.mark.parametrize(
    "strict",
    [
        {"excess_nodes_threshold": 6.0},
        {"excess_nodes_threshold": 2.0},
        {"excess_nodes_threshold": 1.99, "minimum_nodes": 4},
        {"excess_nodes_threshold": 3.3, "minimum_nodes": 6, "minimum_non_tainted_nodes": 5, "max_nodes": 1},
    ],
)
def test_what_is_suggested_for_a_node_lets_it_through(strict: Json) -> None:
    """Nodes of four sizes, so that the excess does not just fall by one with each."""
    items = [
        *(
            node(f"n{size}-{each}", allocatable={"cpu": str(size), "memory": f"{4 * size}Gi", "pods": "110"})
            for size in (3, 4, 7, 9)
            for each in (1, 2)
        ),
        *(pod(f"p{size}", on=f"n{size}-1", cpu="700m", memory="2Gi") for size in (3, 4, 7, 9)),
        workload(),
    ]
    found = decided(*items, **strict)
    kept = [name for name in found.gates.outlook.turns if name not in removed(found)]
    assert kept
    for name in kept:
        again = decided(*items, **strict | flags(found.plan.refusals[name]))
        assert removed(again) == list(found.gates.outlook.turns)[: found.gates.outlook.turns[name].number + 1]


def test_a_node_that_could_not_go_says_so_besides() -> None:
    kept = pod("kept", on="n3", cpu="1", notes={"tightship.dev/do-not-drain": "true"})
    wide = pod("wide", on="n4", cpu="4")
    found = decided(*even(2), node("n3"), kept, node("n4"), wide, excess_nodes_threshold=4)
    assert reasons(found)["n3"] == [Reason.POD_DO_NOT_DRAIN]
    assert reasons(found)["n4"] == [Reason.EXCESS_BELOW_THRESHOLD, Reason.NO_PLACE]
    assert reasons(found)["n1"] == [Reason.EXCESS_BELOW_THRESHOLD]


def test_what_only_the_free_plan_would_leave_no_place_for_is_not_said_of_the_real_one() -> None:
    """n1 would take the room on n3 that n2's pod needs; but n1 does not go, so that is no reason of n2's."""
    items = [
        node("n1"),
        node("n2"),
        node("n3", notes={"tightship.dev/do-not-drain": "true"}),
        pod("a", on="n1", cpu="2"),
        pod("b", on="n2", cpu="3"),
        workload(),
    ]
    free = decided(*items, excess_nodes_threshold=0, minimum_nodes=0, minimum_non_tainted_nodes=0)
    assert removed(free) == ["n1"]
    assert reasons(free)["n2"] == [Reason.NO_PLACE_AFTER_PLAN]
    held = reasons(decided(*items, excess_nodes_threshold=5))
    assert held["n1"] == held["n2"] == [Reason.EXCESS_BELOW_THRESHOLD]


# -- minimums


@pytest.mark.parametrize(("minimum", "gone"), [(0, 3), (1, 3), (2, 2), (3, 1), (4, 0), (5, 0)])
def test_the_cluster_never_falls_below_its_minimum(minimum: int, gone: int) -> None:
    empty = [node(f"n{number}") for number in range(4)]
    found = decided(*empty, minimum_nodes=minimum, minimum_non_tainted_nodes=0, excess_nodes_threshold=1.5)
    assert len(removed(found)) == gone


@pytest.mark.parametrize(("minimum", "gone"), [(0, 3), (1, 3), (2, 2), (3, 1), (4, 0), (5, 0)])
def test_untainted_nodes_have_a_minimum_of_their_own(minimum: int, gone: int) -> None:
    tainted = [node(f"t{number}", taints=[{"key": "dedicated", "effect": "NoSchedule"}]) for number in range(3)]
    empty = [node(f"n{number}") for number in range(4)]
    found = decided(*empty, *tainted, minimum_non_tainted_nodes=minimum, excess_nodes_threshold=1.5)
    assert len(removed(found)) == gone


@pytest.mark.parametrize(
    "leaving",
    [
        {"notes": DRAINING, "unschedulable": True},
        {"unschedulable": True},
        {"ready": "False"},
        {"allocatable": {"pods": "110"}},
        {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
        {"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}},
    ],
    ids=["in drain", "cordoned", "not Ready", "nothing to allocate", "deleted by the autoscaler", "being deleted"],
)
def test_a_node_on_its_way_out_is_none_that_the_cluster_keeps(leaving: Json) -> None:
    items = [node("n1"), node("n2"), node("n3"), node("n4", **leaving)]
    assert removed(decided(*items, minimum_nodes=2, minimum_non_tainted_nodes=0, excess_nodes_threshold=1)) == ["n1"]
    assert removed(decided(*items, minimum_nodes=3, minimum_non_tainted_nodes=0, excess_nodes_threshold=1)) == []


def test_an_unreadable_node_is_none_that_the_cluster_keeps() -> None:
    state = state_of(*(node(f"n{number}") for number in range(1, 4)))
    state.mark_unreadable(ObjectError("Node", "", "n3", "status.allocatable.cpu: 'four' is no quantity"))
    found = evaluate(state.snapshot(), RefinerJudge(RefinerSettings(minimum_nodes=2, excess_nodes_threshold=1)), NOW)
    assert removed(found) == []
    assert reasons(found)["n3"] == [Reason.UNREADABLE]


def test_the_minimum_that_refuses_is_named_with_what_would_be_left() -> None:
    items = [node("n1"), node("n2"), node("n3", taints=[{"key": "dedicated", "effect": "NoSchedule"}])]
    found = decided(*items, minimum_nodes=3, minimum_non_tainted_nodes=2, excess_nodes_threshold=1)
    [refusal] = found.plan.refusals["n1"]
    assert refusal == Refusal(
        Reason.MIN_NODES,
        "n1",
        "without n1, at its turn, 2 nodes would be left, minimumNodeCount is 3; "
        "1 untainted node would be left, minimumNonTaintedNodeCount is 2",
        "lower minimumNodeCount to 2 (--min-nodes 2) and minimumNonTaintedNodeCount to 1 (--min-non-tainted-nodes 1)",
    )
    assert reasons(found)["n2"] == [Reason.MIN_NODES]


# -- who is a candidate at all


def test_a_tainted_node_is_no_candidate_and_the_taint_is_named() -> None:
    taints = [
        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
    ]
    found = decided(*even(4), node("n9", taints=taints))
    [refusal] = found.plan.refusals["n9"]
    assert refusal == Refusal(
        Reason.TAINTED,
        "n9",
        "carries the taint dedicated=gpu:NoSchedule",
        "kubectl taint node n9 dedicated:NoSchedule-",
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
            Reason.CORDONED,
        ),
        (
            {"ready": "Unknown", "taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
            Reason.NOT_READY,
        ),
        ({"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}, Reason.TO_BE_DELETED),
        ({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}, Reason.KARPENTER_DISRUPTED),
        (
            {
                "notes": DRAINING,
                "unschedulable": True,
                "taints": [{"key": "tightship.dev/draining", "value": "a", "effect": "NoSchedule"}],
            },
            Reason.DRAIN_IN_PROGRESS,
        ),
        ({"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}, Reason.TAINTED),
    ],
)
def test_a_taint_that_comes_with_a_state_is_told_by_that(given: Json, reason: Reason) -> None:
    assert reasons(decided(*even(4), node("n9", **given)))["n9"] == [reason]


def test_a_node_marked_by_the_compactor_is_a_candidate_all_the_same() -> None:
    mark = {"v": 1, "phase": "Marked", "controller": "node-compactor", "since": {"Marked": "2026-01-01T00:00:00.000Z"}}
    soft = [{"key": "tightship.dev/candidate", "value": "node-compactor", "effect": "PreferNoSchedule"}]
    items = [*even(4, pods=1), node("n0", notes={"tightship.dev/drain": json.dumps(mark)}, taints=soft)]
    assert removed(decided(*items))[0] == "n0"


def test_a_node_of_another_controllers_drain_is_not_touched_and_not_counted() -> None:
    found = decided(*even(4), node("n5", notes=DRAINING, unschedulable=True))
    assert reasons(found)["n5"] == [Reason.DRAIN_IN_PROGRESS]
    assert found.gates.outlook.counted.many == 4


def test_a_plan_stops_after_so_many_nodes() -> None:
    empty = [node(f"n{number}") for number in range(6)]
    found = decided(*empty, max_nodes=1)
    assert removed(found) == ["n0"]
    assert reasons(found)["n1"] == [Reason.MAX_NODES_REACHED]


def test_every_node_has_a_removal_or_refusals() -> None:
    items = [*even(5), node("x", ready="False"), node("y", unschedulable=True), node("z", notes=DRAINING)]
    found = decided(*items, excess_nodes_threshold=1)
    assert {*removed(found), *found.plan.refusals} == set(found.snapshot.nodes)
    assert not set(removed(found)) & {name for name, refusals in found.plan.refusals.items() if refusals}


def test_without_a_counted_node_there_is_no_excess() -> None:
    found = decided(node("n1", unschedulable=True))
    assert found.gates.outlook.excess is None
    assert removed(found) == []


def test_with_nothing_that_could_go_the_excess_is_the_older_controllers() -> None:
    """Its candidate: the lowest score among all that are counted, whatever stands against draining it."""
    optout = {"tightship.dev/do-not-drain": "true"}
    found = decided(*even(2, notes=optout), node("n0", notes=optout))
    assert found.gates.outlook.excess is not None
    assert (found.gates.outlook.excess.node, found.gates.outlook.excess.nodes) == ("n0", 2.0)


@pytest.mark.parametrize("allowed", [1, 2, 8])
def test_a_budget_over_the_pods_of_all_nodes_makes_none_of_them_one_that_could_not_go(allowed: int) -> None:
    """One node after the other: the pods of the first are Ready again before the next one begins."""
    found = decided(*even(4), budget(status={"disruptionsAllowed": allowed}))
    assert len(found.gates.outlook.turns) == 2
    assert removed(found) == ["n1"]
    assert [turn.later for turn in found.gates.outlook.turns.values()] == [False, allowed < 8]


def test_a_budget_that_allows_none_now_keeps_all_of_them() -> None:
    found = decided(*even(4), budget(status={"disruptionsAllowed": 0}))
    assert found.gates.outlook.turns == {}


def test_one_that_waits_for_a_budget_says_so_beside_what_ends_the_plan() -> None:
    items = [*even(4), budget(status={"disruptionsAllowed": 1})]
    found = reasons(decided(*items))
    assert found["n2"] == [Reason.EXCESS_BELOW_THRESHOLD, Reason.PDB_SPENT_BY_PLAN]
    # With a lower threshold it is only the budget that makes it wait.
    assert reasons(decided(*items, excess_nodes_threshold=1))["n4"] == [Reason.PDB_SPENT_BY_PLAN]


def test_a_budget_that_pods_are_deleted_past_keeps_no_node() -> None:
    blocked = budget(status={"disruptionsAllowed": 0})
    items = [*even(4), blocked]
    assert removed(decided(*items)) == []
    assert len(removed(decided(*items, eviction_method="delete"))) == 1


def test_pods_that_end_by_themselves_keep_their_node_unless_drains_wait_for_them() -> None:
    job = pod("batch", on="n0", owner=controller("Job", "batch"), restartPolicy="Never")
    items = [*even(3), node("n0"), job, workload("Job", "batch")]
    assert "n0" not in removed(decided(*items))
    assert removed(decided(*items, await_timeout=3600.0))[0] == "n0"


# -- what holds a plan


def test_a_pause_holds_every_planned_node() -> None:
    items = [*even(5, pods=1), node("new", age=600.0)]
    found = evaluate(snapshot(*items), RefinerJudge(RefinerSettings()), NOW)
    assert len(removed(found)) > 1
    assert set(found.held) == set(removed(found))
    assert {each.reason for each in found.held.values()} == {Reason.COOL_DOWN}
    assert all(found.plan.holding(found.held).refusals[name] == (found.held[name],) for name in removed(found))
    over = RefinerSettings(time_since_last_addition=600.0, regret_window=600.0)
    assert evaluate(snapshot(*items), RefinerJudge(over), NOW).held == {}


def test_the_health_brake_holds_every_planned_node() -> None:
    judge = RefinerJudge(RefinerSettings())
    found = evaluate(snapshot(*even(4, age=2 * DAY)), judge, NOW, api_failures=3)
    assert found.unhealthy is not None
    assert found.unhealthy.reason is Reason.CLUSTER_UNHEALTHY
    assert removed(found)
    assert found.held == dict.fromkeys(removed(found), found.unhealthy)


def test_the_same_plan_hashes_alike() -> None:
    assert decided(*even(4)).plan.hash == decided(*reversed(even(4))).plan.hash
    assert decided(*even(4)).plan.hash != decided(*even(6, pods=1)).plan.hash


# -- replicas that an HPA is about to start


def test_what_an_hpa_is_about_to_start_is_requested_already() -> None:
    # Four nodes with 4 CPUs, half of them requested: 8 are free, an excess of 2. Of these the replicas take 3.
    found = decided(*even(4), autoscaler(11), excess_nodes_threshold=0)
    assert found.gates.outlook.excess is not None
    assert found.gates.outlook.excess.cpu == 5 / 4
    assert len(found.gates.outlook.turns) == 1
    assert {tuple(each) for each in reasons(found).values()} == {(Reason.SCALE_UP_NEEDS_NODE,)}
    without = decided(*even(4), autoscaler(11), excess_nodes_threshold=0, disabled_rules=["ScaleUpNeedsNode"])
    assert without.gates.outlook.excess is not None
    assert (without.gates.outlook.excess.cpu, len(without.gates.outlook.turns)) == (2.0, 2)


def test_what_will_start_on_nodes_that_are_not_counted_leaves_the_excess_alone() -> None:
    room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    gpu = node("gpu", labels={"disk": "fast"}, allocatable=room, taints=[{"key": "gpu", "effect": "NoSchedule"}])
    only_there: Json = {"nodeSelector": {"disk": "fast"}, "tolerations": [{"operator": "Exists"}]}
    own = pod("gpu-1", on="gpu", cpu="1", owner=controller("ReplicaSet", "gpu"), **only_there)
    scaler = autoscaler(4, target={"kind": "ReplicaSet", "name": "gpu"})
    found = decided(*even(4), gpu, own, scaler)
    assert [each.more for each in found.snapshot.starting] == [3]
    assert found.gates.outlook.excess is not None
    assert found.gates.outlook.excess.cpu == 2.0


@pytest.mark.parametrize("text", ["false", "F", "0"])
def test_the_veto_is_switched_off_as_the_other_switches_are(text: str) -> None:
    settings = REFINER.configured({"scaleUpVeto": text, "maximumScaleUpReplicas": "7"}, {})
    assert (settings.scale_up_veto, settings.scale_up_replicas) == (False, 7)

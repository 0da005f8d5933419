"""The compactor's gates: one row for each way in which settings, marks and other nodes decide."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from node_compactor.judge import CompactorJudge
from node_compactor.marking import marked_since
from node_compactor.settings import load_settings
from tightship.cluster import Snapshot
from tightship.objects import ObjectError
from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, encode_record
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import Horizon, evaluate
from tightship.planning.plan import Plan
from tightship_testkit.builders import DAY, NOW, autoscaler, controller, node, pod, snapshot, state_of, when, workload

Json = dict[str, Any]

GATES_OFF: Json = {"minimumNodeAge": 0, "neededMarkedTimeForRemoval": 0}
DRAINING = {"tightship.dev/drain": json.dumps({"phase": "Draining"})}


def pool(**keys: object) -> Json:
    short = {
        "limit": "scaleDownCPURequestRatioLimit",
        "required": "scaleDownRequiredUnderutilizedNodeCount",
        "minimum": "minimumNodeCount",
        "budget": "maximumNodesInDrain",
    }
    return {"enabled": True, short["limit"]: 0.5, **{short.get(key, key): value for key, value in keys.items()}}


def plan(
    cluster: Snapshot, pools: Json, only: set[str] | None = None, since: Json | None = None, **more: object
) -> Plan:
    settings = load_settings({"nodePools": pools, **GATES_OFF, **more})
    return evaluate(marked(cluster, since or {}), CompactorJudge(settings), NOW, Horizon(only=only)).plan


def marked(cluster: Snapshot, since: Json) -> Snapshot:
    """The cluster with our marks on the nodes named in *since*, of these times."""
    nodes = dict(cluster.nodes)
    for name, time in since.items():
        record = DrainRecord(phase=Phase.MARKED, controller="node-compactor", since={"Marked": time})
        node = msgspec.structs.replace(nodes[name].node, annotations={DRAIN_ANNOTATION: encode_record(record)})
        nodes[name] = msgspec.structs.replace(nodes[name], node=node)
    return msgspec.structs.replace(cluster, nodes=nodes)


def removed(found: Plan) -> list[str]:
    return [each.node for each in found.removals]


def reasons(found: Plan) -> dict[str, list[Reason]]:
    return {name: sorted({each.reason for each in refusals}) for name, refusals in found.refusals.items()}


def empty(count: int, **given: Any) -> list[Json]:
    """Nodes n1, n2, ... of no pool without any pods."""
    return [node(f"n{number}", **given) for number in range(1, count + 1)]


def busy(name: str, cpu: str, **given: Any) -> list[Json]:
    """A node with one pod that asks for so much of its 4 CPUs."""
    return [node(name, **given), pod(f"on-{name}", on=name, cpu=cpu), workload()]


# -- the pool and the limit


@pytest.mark.parametrize(
    ("pools", "found"),
    [
        ({"blue": pool()}, []),
        ({"*": pool()}, []),
        ({"blue": pool(), "*": pool(enabled=False)}, []),
        ({"blue": pool(enabled=False), "*": pool()}, [Reason.POOL_DISABLED]),
        ({"green": pool()}, [Reason.POOL_NOT_CONFIGURED]),
        ({}, [Reason.POOL_NOT_CONFIGURED]),
        ({"blue": {"enabled": True}}, [Reason.NOT_UNDERUTILIZED]),
        ({"blue": {"scaleDownCPURequestRatioLimit": 0.5}}, [Reason.POOL_DISABLED]),
    ],
    ids=["named", "*", "named over *", "disabled over *", "another", "none", "no limit", "not enabled by default"],
)
def test_the_settings_of_a_nodes_pool(pools: Json, found: list[Reason]) -> None:
    outcome = plan(snapshot(node(labels={"nodepool": "blue"})), pools)
    assert reasons(outcome).get("n1", []) == found
    assert removed(outcome) == ([] if found else ["n1"])


@pytest.mark.parametrize(("cpu", "goes"), [("1999m", True), ("2", False), ("2001m", False)])
def test_a_node_goes_only_below_the_limit(cpu: str, goes: bool) -> None:
    outcome = plan(snapshot(*busy("n1", cpu), node("roomy", labels={"nodepool": "other"})), {"": pool()})
    assert removed(outcome) == (["n1"] if goes else [])
    if not goes:
        assert reasons(outcome)["n1"] == [Reason.NOT_UNDERUTILIZED]


def test_the_limit_holds_with_what_was_moved_to_the_node_in_the_same_plan() -> None:
    cluster = snapshot(*busy("n1", "1200m"), *busy("n2", "1300m"))
    outcome = plan(cluster, {"*": pool()})
    assert removed(outcome) == ["n1"]
    assert reasons(outcome)["n2"] == [Reason.FILLED_BY_PLAN]


def test_ignored_daemonset_pods_bring_a_node_under_the_limit() -> None:
    agent = pod("agent", owner=controller("DaemonSet", "agent"), cpu="2")
    cluster = snapshot(node(), agent)
    assert reasons(plan(cluster, {"*": pool()}))["n1"] == [Reason.NOT_UNDERUTILIZED]
    assert removed(plan(cluster, {"*": pool()}, ignoreDaemonSetsUtilization=True)) == ["n1"]


# -- age and marks


@pytest.mark.parametrize(("age", "goes"), [(1199, False), (1200, True), (DAY, True)])
def test_a_node_goes_only_from_its_minimum_age_on(age: float, goes: bool) -> None:
    outcome = plan(snapshot(node(age=age)), {"*": pool()}, minimumNodeAge="20m")
    assert removed(outcome) == (["n1"] if goes else [])
    if not goes:
        assert reasons(outcome)["n1"] == [Reason.TOO_YOUNG]


@pytest.mark.parametrize(
    ("since", "goes"),
    [({}, False), ({"n1": NOW - 299}, False), ({"n1": NOW - 300}, True), ({"n1": NOW + 60}, False)],
    ids=["not marked", "not long enough", "just long enough", "marked in the future"],
)
def test_a_node_goes_only_when_it_was_marked_long_enough(since: Json, goes: bool) -> None:
    outcome = plan(snapshot(node()), {"*": pool()}, since=since, neededMarkedTimeForRemoval="5m")
    assert removed(outcome) == (["n1"] if goes else [])
    if not goes:
        assert reasons(outcome)["n1"] == [Reason.NOT_MARKED_LONG_ENOUGH]


def test_a_node_that_is_not_underutilized_is_not_asked_for_a_mark() -> None:
    outcome = plan(snapshot(*busy("n1", "3")), {"*": pool()}, neededMarkedTimeForRemoval="5m")
    assert reasons(outcome)["n1"] == [Reason.NOT_UNDERUTILIZED]


def test_marks_of_the_older_controller_count() -> None:
    def marked(**state: object) -> Json:
        return {"estafette.io/node-compactor-state": json.dumps(state)}

    cluster = snapshot(
        node("n1", notes=marked(lastUpdated=when(NOW - 600))),
        node("n2", notes=marked(lastUpdated=when(NOW - 60))),
        node("n3", notes=marked(lastUpdated=when(NOW - 600), markedForRemoval=False)),
    )
    found = {name: marked_since(view.node) for name, view in cluster.nodes.items()}
    assert {name: since for name, since in found.items() if since is not None} == {"n1": NOW - 600, "n2": NOW - 60}
    assert removed(plan(cluster, {"*": pool()}, neededMarkedTimeForRemoval="5m")) == ["n1"]


# -- the required count


@pytest.mark.parametrize(("required", "gone"), [(0, 4), (1, 4), (2, 3), (3, 2), (4, 1), (5, 0)])
def test_the_pool_must_have_as_many_underutilized_nodes_as_required(required: int, gone: int) -> None:
    outcome = plan(snapshot(*empty(4)), {"*": pool(required=required)})
    assert len(removed(outcome)) == gone
    assert set(map(tuple, reasons(outcome).values())) <= {(Reason.REQUIRED_COUNT_NOT_REACHED,)}


def test_nodes_in_drain_come_on_top_of_the_required_count() -> None:
    cluster = snapshot(*empty(3), node("n4", notes=DRAINING))
    assert len(removed(plan(cluster, {"*": pool(required=2)}))) == 1
    assert removed(plan(cluster, {"*": pool(required=3)})) == []


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        ([node("n2", notes={"tightship.dev/do-not-drain": "true"})], True),
        ([node("n2", age=60)], False),
        (busy("n2", "2"), False),
        ([node("n2", notes=DRAINING)], False),
        ([node("n2", labels={"nodepool": "other"})], False),
    ],
    ids=["opted out", "too young", "over the limit", "in drain", "of another pool"],
)
def test_which_nodes_count_as_underutilized(other: list[Json], counts: bool) -> None:
    outcome = plan(snapshot(node(), *other), {"": pool(required=2), "other": pool(required=9)}, minimumNodeAge="20m")
    assert removed(outcome) == (["n1"] if counts else [])


def test_a_node_that_the_plan_fills_up_counts_no_more() -> None:
    cluster = snapshot(*busy("n1", "1200m"), *busy("n2", "1300m"), *busy("n3", "1400m"))
    # With n1 gone, its pod has put one of the others over the limit: one underutilized node is left.
    assert len(removed(plan(cluster, {"*": pool(required=2)}))) == 1


# -- minimum, budgets, size of the plan


@pytest.mark.parametrize(("minimum", "gone"), [(0, 3), (1, 2), (2, 1), (3, 0), (4, 0)])
def test_a_pool_never_falls_below_its_minimum(minimum: int, gone: int) -> None:
    outcome = plan(snapshot(*empty(3)), {"*": pool(minimum=minimum)})
    assert len(removed(outcome)) == gone
    assert set(map(tuple, reasons(outcome).values())) <= {(Reason.POOL_MIN_SIZE,)}


def test_nodes_in_drain_are_no_longer_of_the_pool() -> None:
    cluster = snapshot(*empty(2), node("n3", notes=DRAINING))
    assert removed(plan(cluster, {"*": pool(minimum=1)})) == ["n1"]
    assert removed(plan(cluster, {"*": pool(minimum=2)})) == []


def test_each_pool_has_its_own_minimum() -> None:
    cluster = snapshot(*(node(f"{name}{i}", labels={"nodepool": name}) for name in "ab" for i in (1, 2)))
    assert removed(plan(cluster, {"a": pool(minimum=1), "b": pool(minimum=2)})) == ["a1"]


@pytest.mark.parametrize(
    "other",
    [
        {"ready": "False"},
        {"notes": DRAINING},
        {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
    ],
    ids=["not Ready", "in drain", "taken"],
)
def test_a_plan_a_claim_and_a_drain_count_alike_who_stays(other: Json) -> None:
    cluster = snapshot(*empty(2), node("n3", **other))
    for minimum, goes in ((1, True), (2, False)):
        judge = CompactorJudge(
            load_settings({"nodePools": {"*": pool(minimum=minimum)}, **GATES_OFF, "maximumNodesInDrain": 9})
        )
        found = evaluate(cluster, judge, NOW)
        assert removed(found.plan) == ["n1"] * goes
        in_drain = judge.node_refusals(cluster, cluster.nodes["n1"].node)
        assert [each.reason for each in in_drain] == [Reason.POOL_MIN_SIZE] * (not goes)
        assert list(found.plan.refusals.get("n1", ())) == in_drain
        assert judge.room("n1", found.facts, []) == (in_drain[0] if in_drain else None)


def claimable(cluster: Snapshot, pools: Json, **more: object) -> list[str]:
    """The nodes of the plan that may be claimed at once, in order."""
    judge = CompactorJudge(load_settings({"nodePools": pools, **GATES_OFF, "maximumNodesInDrain": "100%", **more}))
    found = evaluate(cluster, judge, NOW)
    claimed: list[str] = []
    for name in removed(found.plan):
        refusal = judge.room(name, found.facts, claimed)
        if refusal is None:
            claimed.append(name)
        else:
            assert refusal.reason is Reason.BUDGET_EXHAUSTED
    return claimed


@pytest.mark.parametrize(
    ("budget", "gone"), [(0, 0), (1, 1), (3, 3), ("10%", 1), ("50%", 2), ("51%", 3), ("100%", 4), ("0%", 0)]
)
def test_a_budget_is_a_number_or_a_share_rounded_up(budget: object, gone: int) -> None:
    assert len(claimable(snapshot(*empty(4)), {"*": pool(budget=budget)})) == gone


def test_a_budget_sets_the_pace_and_not_the_direction() -> None:
    outcome = plan(snapshot(*empty(4)), {"*": pool(budget=1)}, maximumNodesInDrain=1)
    assert removed(outcome) == ["n1", "n2", "n3", "n4"]
    assert reasons(outcome) == {}


@pytest.mark.parametrize(
    ("other", "takes"),
    [
        ({"ready": "False"}, 1),
        ({"notes": DRAINING}, 1),
        ({"notes": DRAINING, "ready": "False"}, 1),
        ({"unschedulable": True}, 0),
    ],
    ids=["not Ready", "in drain", "in drain and not Ready", "cordoned by somebody"],
)
@pytest.mark.parametrize("whose", ["pool", "cluster"])
def test_what_consumes_a_budget(other: Json, takes: int, whose: str) -> None:
    cluster = snapshot(*empty(3), node("n4", **other))
    if whose == "pool":
        found = claimable(cluster, {"*": pool(budget=2)})
    else:
        found = claimable(cluster, {"*": pool()}, maximumNodesInDrain=2)
    assert len(found) == 2 - takes


def test_a_share_of_ten_nodes_is_used_up_by_one_that_is_not_ready() -> None:
    cluster = snapshot(*empty(9), node("n0", ready="False"))
    assert claimable(cluster, {"*": pool(budget="10%")}) == []


def test_the_budget_of_the_cluster_spans_its_pools() -> None:
    cluster = snapshot(*(node(f"{name}{i}", labels={"nodepool": name}) for name in "ab" for i in (1, 2)))
    assert claimable(cluster, {"*": pool(budget=1)}) == ["a1", "b1"]
    assert claimable(cluster, {"*": pool(budget=1)}, maximumNodesInDrain=1) == ["a1"]


def test_a_plan_stops_after_so_many_nodes() -> None:
    outcome = plan(snapshot(*empty(3)), {"*": pool()}, maximumNodesInPlan=2)
    assert removed(outcome) == ["n1", "n2"]
    assert reasons(outcome) == {"n3": [Reason.MAX_NODES_REACHED]}


PRICE = "tightship.dev/hourly-price"


@pytest.mark.parametrize(
    ("least", "strategy", "going"),
    [
        (0, "balanced", ["dear", "crowded", "cheap"]),
        (0, "fewest-evictions", ["cheap", "dear", "crowded"]),
        (72, "balanced", ["dear", "crowded", "cheap"]),
        (74, "balanced", ["dear", "crowded"]),
        (74, "fewest-evictions", ["dear", "crowded"]),
        (150, "balanced", ["dear"]),
        (220, "balanced", []),
    ],
)
def test_a_plan_ends_where_a_removal_is_not_worth_its_evictions(least: float, strategy: str, going: list[str]) -> None:
    """An hour of 0.1 is a month of 73."""
    cluster = snapshot(
        workload(),
        node("cheap", notes={PRICE: "0.1"}),
        pod("one", on="cheap", cpu="10m"),
        node("crowded", notes={PRICE: "0.4"}),
        *(pod(f"many-{each}", on="crowded", cpu="10m") for each in range(3)),
        node("dear", notes={PRICE: "0.3"}),
        pod("other", on="dear", cpu="20m"),
        node("sink", notes={"tightship.dev/do-not-drain": "true"}),
    )
    found = plan(cluster, {"*": pool()}, strategy=strategy, minimumSavingPerEviction=least, placement="possible")
    assert removed(found) == going
    stay = {"dear", "crowded", "cheap"} - {*going}
    assert all(reasons(found)[name] == [Reason.SAVING_TOO_SMALL] for name in stay)


def test_where_a_saving_is_asked_for_a_node_without_a_price_stays_unless_it_is_empty() -> None:
    cluster = snapshot(workload(), node("n1"), pod("p", on="n1"), node("n2"), node("n3"), pod("q", on="n3", cpu="2"))
    found = plan(cluster, {"*": pool()}, minimumSavingPerEviction=1)
    assert removed(found) == ["n2"]
    assert {each.fix for each in found.refusals["n1"]} == {
        "give the node a price (--prices FILE), or set --min-saving-per-eviction 0"
    }


@pytest.mark.parametrize(("pods", "first"), [("b", "large"), ("bcd", "small")])
def test_without_prices_balanced_goes_by_size(pods: str, first: str) -> None:
    big = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    small = [node("small"), pod("a", on="small", cpu="10m")]
    large = [node("large", allocatable=big), *(pod(each, on="large", cpu="10m") for each in pods)]
    sink = node("sink", allocatable=big, notes={"tightship.dev/do-not-drain": "true"})
    found = plan(snapshot(workload(), *small, *large, sink), {"*": pool()}, strategy="balanced", placement="possible")
    assert removed(found)[0] == first


def test_all_gates_that_refuse_are_named() -> None:
    outcome = plan(snapshot(*empty(2)), {"*": pool(required=3, minimum=2)})
    assert reasons(outcome)["n1"] == [Reason.POOL_MIN_SIZE, Reason.REQUIRED_COUNT_NOT_REACHED]


# -- whole nodes


def test_all_blockers_of_a_node_are_given_at_once() -> None:
    cluster = snapshot(
        node(notes={"tightship.dev/do-not-drain": "true"}, ready="False", age=60),
        pod("naked", naked=True, cpu="3"),
        pod("kept", notes={"karpenter.sh/do-not-disrupt": "true"}),
        workload(),
    )
    outcome = plan(cluster, {"blue": pool()}, minimumNodeAge="20m")
    assert reasons(outcome)["n1"] == sorted(
        [
            Reason.NODE_DO_NOT_DRAIN,
            Reason.NOT_READY,
            Reason.TOO_YOUNG,
            Reason.POOL_NOT_CONFIGURED,
            Reason.NOT_REPLICATED,
            Reason.POD_DO_NOT_DISRUPT,
        ]
    )


@pytest.mark.parametrize(
    ("rule", "cluster"),
    [
        ("NodeDoNotDrain", [node(notes={"tightship.dev/do-not-drain": "true"})]),
        ("NotReplicated", [node(), pod(naked=True), node("roomy", labels={"nodepool": "other"})]),
    ],
)
def test_rules_are_switched_off_by_their_reason(rule: str, cluster: list[Json]) -> None:
    assert reasons(plan(snapshot(*cluster), {"": pool()}))["n1"] == [Reason(rule)]
    assert removed(plan(snapshot(*cluster), {"": pool()}, disabledRules=[rule])) == ["n1"]


def test_an_unreadable_node_is_refused_by_name_and_nothing_else_of_it_counts() -> None:
    state = state_of(*empty(2))
    state.mark_unreadable(ObjectError("Node", "", "n2", "status.allocatable.cpu: 'four' is no quantity"))
    outcome = plan(state.snapshot(), {"*": pool(minimum=1)})
    [refusal] = outcome.refusals["n2"]
    assert (refusal.reason, refusal.subject) == (Reason.UNREADABLE, "n2")
    assert "four" in refusal.detail
    # It may not be there: the pool must keep its minimum without it.
    assert removed(outcome) == []
    assert reasons(outcome)["n1"] == [Reason.POOL_MIN_SIZE]


def test_an_unreadable_pod_blocks_its_node_and_keeps_pods_from_it() -> None:
    state = state_of(*busy("n1", "1"), *empty(2)[1:])
    state.mark_unreadable(ObjectError("Pod", "shop", "broken", "spec: not an object"), "n2")
    outcome = plan(state.snapshot(), {"*": pool()})
    assert reasons(outcome) == {"n1": [Reason.NO_PLACE], "n2": [Reason.POD_UNREADABLE]}


def test_a_selection_limits_what_goes_and_not_where_pods_go() -> None:
    cluster = snapshot(*busy("n1", "1"), *empty(3)[1:])
    outcome = plan(cluster, {"*": pool()}, only={"n1"})
    assert removed(outcome) == ["n1"]
    assert outcome.removals[0].moves[0].target in {"n2", "n3"}


def test_pods_that_go_with_the_node_are_counted_apart() -> None:
    agent = pod("agent", owner=controller("DaemonSet", "agent"))
    static = pod("static", owner=controller("Node", "n1"), notes={"kubernetes.io/config.mirror": "x"})
    [removal] = plan(snapshot(node(), agent, static), {"*": pool()}).removals
    assert (removal.moves, removal.stays) == ((), 2)


def test_a_terminating_pod_past_its_grace_is_neither_load_nor_moved() -> None:
    cluster = snapshot(node(), pod(cpu="3", deletion=NOW - 1), workload())
    [removal] = plan(cluster, {"*": pool()}).removals
    assert removal.moves == ()


@pytest.mark.parametrize(
    ("settings", "gone"),
    [({}, []), ({"disabledRules": ["ScaleUpNeedsNode"]}, ["n1"]), ({"scaleUpVeto": False}, ["n1"])],
)
def test_what_an_hpa_is_about_to_start_keeps_its_room_unless_that_is_switched_off(
    settings: Json, gone: list[str]
) -> None:
    small = {"cpu": "3", "memory": "16Gi", "pods": "110"}
    rest = node("n2", labels={"nodepool": "rest"}, allocatable=small)
    cluster = snapshot(*busy("n1", "1900m"), rest, autoscaler(2))
    judge = CompactorJudge(load_settings({"nodePools": {"": pool()}, **GATES_OFF, **settings}))
    found = evaluate(cluster, judge, NOW)
    assert removed(found.plan) == gone
    if not gone:
        [refusal] = found.plan.refusals["n1"]
        assert refusal.reason is Reason.SCALE_UP_NEEDS_NODE
        assert "HPA shop/web is about to start 1 more replica (minReplicas is 2, 1 exists)" in refusal.detail
    assert bool(found.snapshot.starting) is not bool(gone)

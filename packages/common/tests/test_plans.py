"""Plans: cumulative, explained, and no surer than they say."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from cluster_builder import HOST, anti_affinity, node, pod, snapshot

from tightship.cluster import Snapshot
from tightship.drain.assessment import Assessment
from tightship.drain.machine import DrainRules
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan import (
    STRATEGIES,
    Candidate,
    Judgement,
    Ordered,
    Placement,
    Plan,
    Planner,
    forecast,
    make_plan,
)
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.evictability import EvictionRules


class NoGates:
    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        return []


def judge(seen: Snapshot, only: Sequence[str] | None = None) -> Judgement:
    """Every node a candidate, or only some."""
    candidates = tuple(
        Candidate(
            name,
            "",
            view.usage.requested.get("cpu", 0) / view.node.allocatable["cpu"],
            tuple(each for each in view.pods if not each.daemon and each.deletion is None),
        )
        for name, view in seen.nodes.items()
        if only is None or name in only
    )
    return Judgement(candidates, {}, NoGates())


def plan(
    things: list[dict[str, Any]],
    strategy: str = "least-utilized",
    placement: Placement = "possible",
    only: Sequence[str] | None = None,
    *,
    until_stable: bool = False,
) -> Plan:
    seen = snapshot(things)
    return make_plan(seen, lambda each: judge(each, only), STRATEGIES[strategy], placement, until_stable=until_stable)


def reasons(result: Plan, name: str) -> set[Reason]:
    return {refusal.reason for refusal in result.refusals[name]}


def test_of_two_half_full_nodes_that_fit_only_one_exactly_one_goes() -> None:
    things = [node("a"), node("b"), node("c"), pod("p1", "a", "2"), pod("p2", "b", "2"), pod("p3", "c", "2")]
    result = plan(things, only=["a", "b"])
    assert [removal.node for removal in result.removals] == ["a"]
    assert [(move.pod.name, move.target) for move in result.removals[0].moves] == [("p1", "c")], "b may go too"


def test_a_planned_node_is_no_destination() -> None:
    things = [node("a"), node("b", "8"), node("c", "1"), pod("p1", "a", "2"), pod("p2", "b", "1")]
    result = plan(things)
    gone = {removal.node for removal in result.removals}
    assert gone
    assert not gone & {move.target for removal in result.removals for move in removal.moves}


def test_each_pod_is_sent_straight_to_where_it_ends_up() -> None:
    things = [node(f"n{i}", cpu) for i, cpu in enumerate(["2", "4", "8", "16"])]
    things += [pod(f"p{i}", f"n{i}", "1") for i in range(4)]
    result = plan(things, "fewest-nodes")
    assert [removal.node for removal in result.removals] == ["n0", "n1", "n2"]
    assert [move.target for removal in result.removals for move in removal.moves] == ["n3"] * 3


def test_a_pod_that_fits_nowhere_is_named_with_the_shortage_and_the_smallest_change() -> None:
    things = [node("a"), node("b", "4"), pod("big", "a", "3"), pod("other", "b", "2")]
    (refusal,) = plan(things, only=["a"]).refusals["a"]
    assert refusal.reason is Reason.NO_PLACE
    assert refusal.subject == "default/big"
    assert "1 insufficient cpu" in refusal.detail
    assert refusal.fix == "free 1 more cpu on b"


def test_no_room_is_asked_for_on_a_node_too_small_for_the_pod() -> None:
    things = [node("a", "16"), node("b", "2"), pod("big", "a", "8"), pod("other", "b", "1")]
    (refusal,) = plan(things, only=["a"]).refusals["a"]
    assert (refusal.reason, refusal.fix) == (Reason.NO_PLACE, "")


def test_all_pods_without_a_place_are_named_not_only_the_first() -> None:
    things = [node("a", "16"), node("b", "1"), pod("x", "a", "3"), pod("y", "a", "4"), pod("z", "a", "500m")]
    assert {each.subject for each in plan(things, only=["a"]).refusals["a"]} == {"default/x", "default/y"}


def test_pods_that_fit_alone_but_not_together_say_so() -> None:
    things = [node("a"), node("b", "3"), pod("x", "a", "2"), pod("y", "a", "2")]
    assert reasons(plan(things, only=["a"]), "a") == {Reason.NO_PLACE_TOGETHER}


def test_a_joint_placement_that_greed_misses_is_found() -> None:
    """Best fit puts the 2-CPU pod where only the 3 fits beside nothing; the search turns it round."""
    things = [node("a", "16"), node("b", "5"), node("c", "4")]
    things += [pod("w", "a", "3"), pod("x", "a", "2"), pod("y", "a", "2"), pod("z", "a", "2")]
    result = plan(things, only=["a"])
    assert [removal.node for removal in result.removals] == ["a"]


def test_what_no_longer_fits_because_of_the_plan_says_so() -> None:
    things = [node("a"), node("b"), node("c"), pod("p1", "a", "2"), pod("p2", "b", "3"), pod("p3", "c", "1")]
    result = plan(things, only=["a", "b"])
    assert [removal.node for removal in result.removals] == ["a"]
    assert reasons(result, "b") == {Reason.NO_PLACE_AFTER_PLAN}


def test_a_pending_pod_that_could_only_use_the_node_vetoes_it() -> None:
    things = [node("a"), node("b", "1"), pod("waiting", cpu="3")]
    assert reasons(plan(things, only=["a"]), "a") == {Reason.PENDING_POD_NEEDS_NODE}


def test_a_pending_pod_that_fits_nowhere_blocks_nothing() -> None:
    things = [node("a"), node("b"), pod("impossible", cpu="64"), pod("p", "a")]
    assert [removal.node for removal in plan(things, only=["a"]).removals] == ["a"]


def test_a_pending_pod_holds_its_room() -> None:
    things = [node("a"), node("b"), pod("waiting", cpu="3", nodeSelector={HOST: "b"}), pod("p", "a", "2")]
    assert reasons(plan(things, only=["a"]), "a") == {Reason.NO_PLACE}


def in_drain(name: str, phase: str = "Evicting", since: str = "2026-01-01T00:00:00.000Z") -> dict[str, Any]:
    """A node that some drain owns since a time."""
    note = json.dumps({"v": 1, "phase": phase, "controller": "any", "op": name, "since": {"Claimed": since}})
    owns = phase != "Backoff"
    taints = [{"key": "tightship.dev/draining", "value": name, "effect": "NoSchedule"}] * owns
    return node(name, annotations={"tightship.dev/drain": note}, unschedulable=owns, taints=taints)


def test_a_pod_that_is_about_to_leave_a_node_in_drain_holds_its_room() -> None:
    things = [node("a"), node("b"), pod("p", "a", "3"), in_drain("d"), pod("leaves", "d", "3")]
    assert reasons(plan(things, only=["a"]), "a") == {Reason.NO_PLACE}
    roomy = [*things, node("c")]
    (removal,) = plan(roomy, only=["a"]).removals
    assert [move.pod.name for move in removal.moves] == ["p"], "another drain's pods are no evictions of this plan"


def test_a_node_that_alone_could_take_a_pod_in_drain_stays() -> None:
    things = [node("a"), node("b", "1"), in_drain("d"), pod("leaves", "d", "3")]
    result = plan(things, only=["a"])
    assert reasons(result, "a") == {Reason.PENDING_POD_NEEDS_NODE}
    assert "default/leaves, which is leaving the draining node d, could run only here" in result.refusals["a"][0].detail


def test_what_is_given_back_or_empty_holds_nothing_elsewhere() -> None:
    for phase in ("Restoring", "Drained", "Backoff"):
        things = [node("a"), node("b"), pod("p", "a", "3"), in_drain("d", phase), pod("stays", "d", "3")]
        assert plan(things, only=["a"]).removals, phase


def test_a_terminating_pod_holds_room_only_if_its_replacement_comes_after_it() -> None:
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    for kind, goes in (("ReplicaSet", True), ("StatefulSet", False)):
        last = pod("last", "d", "3", owner=f"{kind}/o", **ending)
        things = [node("a"), node("b"), pod("p", "a", "3"), in_drain("d"), last]
        assert bool(plan(things, only=["a"]).removals) is goes, kind


JOB: dict[str, Any] = {"kind": "Job", "metadata": {"name": "o", "namespace": "default"}}
LATER, SOON = {"podReplacementPolicy": "Failed"}, {"podReplacementPolicy": "TerminatingOrFailed"}


@pytest.mark.parametrize(
    ("kind", "spec", "afterwards"),
    [
        ("StatefulSet", None, True),
        ("StatefulSet", {}, True),
        ("ReplicaSet", {}, False),
        ("ReplicaSet", {"podReplacementPolicy": "TerminationComplete"}, True),
        ("Job", SOON, False),
        ("Job", LATER, True),
        ("Job", {"podFailurePolicy": {"rules": []}}, True),
        ("Job", {"podFailurePolicy": {"rules": []}} | SOON, False),
    ],
)
def test_a_pod_whose_replacement_comes_afterwards_needs_its_room_once(
    kind: str, spec: dict[str, Any] | None, afterwards: bool
) -> None:
    known = [] if spec is None else [{**JOB, "kind": kind, "spec": spec}]
    ending = pod("last", "a", "3", owner=f"{kind}/o", deletionTimestamp="2026-01-01T00:00:00Z")
    things = [*known, node("a"), node("b"), pod("p", "b", "2"), ending]
    found = plan(things, only=["a", "b"])
    reported = found.refusals.get("a", ())
    assert [each.reason for each in reported] == [Reason.PENDING_POD_NEEDS_NODE] * afterwards, "no other node has room"
    for refusal in reported:
        assert "the replacement of pod default/last, which comes once the pod has gone, could run only here" in str(
            refusal
        )
    assert plan([*things, node("c")], only=["a"]).removals, "it may also go to another"
    # It can have its own room again: for that, it takes none from others.
    assert plan([*known, node("a", "4"), node("b"), pod("p", "b", "1"), ending], only=["b"]).removals


def test_a_pod_in_drain_whose_job_cannot_be_read_holds_the_room_of_its_replacement() -> None:
    ending = pod("last", "d", "3", owner="Job/o", deletionTimestamp="2026-01-01T00:00:00Z")
    seen = snapshot([node("a"), node("b"), pod("p", "a", "3"), in_drain("d"), ending])
    for missing, goes in (({}, True), ({"Job": "forbidden"}, False)):
        now = msgspec.structs.replace(seen, missing=missing)
        found = make_plan(now, lambda each: judge(each, ["a"]), STRATEGIES["least-utilized"], "likely")
        assert bool(found.removals) is goes, "a Job that is gone replaces nothing"


def test_of_two_nodes_in_drain_at_once_the_first_has_the_right_to_the_last_place() -> None:
    first, second = in_drain("d1"), in_drain("d2", since="2026-01-01T00:00:01.000Z")
    seen = snapshot([node("a"), first, second, pod("p1", "d1", "3"), pod("p2", "d2", "3")])
    rules = {"rules": DrainRules(), "eviction": EvictionRules(disabled=frozenset({Reason.NOT_REPLICATED}))}
    now = 1767225700.0
    assert Assessment(seen, "d1", now, **rules).rest("likely") == []
    assert [each.reason for each in Assessment(seen, "d2", now, **rules).rest("likely")] == [Reason.NO_PLACE]


def test_a_gated_pod_holds_nothing() -> None:
    gated = pod("gated", cpu="3", nodeSelector={HOST: "b"}, schedulingGates=[{"name": "later"}])
    assert plan([node("a"), node("b"), gated, pod("p", "a", "2")], only=["a"]).removals


def budget(allowed: int, **status: Any) -> dict[str, Any]:
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": 3,
            "desiredHealthy": 2,
            "expectedPods": 3,
            **status,
        },
    }


THREE_BY_ONE = [node("a"), node("b"), node("c"), node("d"), *(pod(f"p{n}", n) for n in "abc")]


def test_a_budget_of_one_lets_one_node_go_a_round() -> None:
    result = plan([*THREE_BY_ONE, budget(1)], only=["a", "b", "c"])
    assert [removal.node for removal in result.removals] == ["a"]
    assert reasons(result, "b") == {Reason.PDB_SPENT_BY_PLAN}


def test_until_stable_goes_on_in_further_rounds() -> None:
    result = plan([*THREE_BY_ONE, budget(1)], until_stable=True)
    assert [(removal.node, removal.round) for removal in result.removals] == [("d", 1), ("a", 1), ("b", 2)]
    assert result.rounds == 2


def test_more_pods_of_a_budget_on_one_node_wait_for_each_other() -> None:
    result = plan([node("a"), node("b"), pod("x", "a"), pod("y", "a"), budget(1)], only=["a"])
    assert {move.waits_for for move in result.removals[0].moves} == {"default/web"}


def test_the_same_cluster_in_another_order_gives_the_same_plan() -> None:
    things = [node(f"n{i}", str(2 + i % 3)) for i in range(9)]
    things += [pod(f"p{i}", f"n{i % 9}", "500m", affinity=anti_affinity() if i % 2 else {}) for i in range(8)]
    for strategy in STRATEGIES:
        assert plan(things, strategy).removals == plan(things[::-1], strategy).removals


def test_what_is_only_asked_leaves_no_trace() -> None:
    things = [node("a"), node("b"), node("c", "2"), pod("x", "a", "2"), pod("y", "b", "3")]
    seen = snapshot(things)
    planner = Planner(seen, DisruptionLedger(seen), judge(seen).candidates, "likely")
    free, opened = planner.space.free.copy(), planner.space.open.copy()
    assert planner.attempt(planner.candidates["a"], keep=False) == []
    assert planner.attempt(planner.candidates["b"], keep=False) != []
    assert (planner.space.free == free).all()
    assert (planner.space.open == opened).all()
    assert planner.removals == []
    assert planner.attempt(planner.candidates["a"]) == []


def test_a_candidate_has_with_it_what_was_moved_to_its_node() -> None:
    things = [node("a"), node("b", "8", "32Gi"), pod("x", "a", "2", "4Gi"), pod("y", "b", "1", "8Gi")]
    seen = snapshot(things)
    planner = Planner(seen, DisruptionLedger(seen), judge(seen).candidates, "likely")
    there = planner.candidates["b"]
    assert [each.name for each in planner.pods_of(there)] == ["y"]
    planner.attempt(planner.candidates["a"])
    assert [each.name for each in planner.pods_of(there)] == ["y", "x"]
    assert planner.ratio("b") == 1 / 8 + 2 / 8
    assert planner.memory_ratio("b") == there.memory_ratio + 4 / 32


def test_candidates_go_in_the_order_of_their_keys_as_they_grow() -> None:
    """By memory: n1 goes, its pod lands on n2, which then comes after n3."""
    things = [node(f"n{i}", labels={"to": "n2"} if i == 2 else {}) for i in (1, 2, 3)]
    things += [pod("p1", "n1", memory="1Gi", nodeSelector={"to": "n2"}), pod("p2", "n2", memory="2Gi")]
    things += [pod("p3", "n3", memory="2560Mi")]
    order = Ordered("by-memory", lambda planner, each: (planner.memory_ratio(each.name),))
    seen = snapshot(things)
    candidates = tuple(
        Candidate(name, "", 0.0, view.pods, memory_ratio=view.usage.requested["memory"] / (16 << 30))
        for name, view in seen.nodes.items()
    )
    made = make_plan(seen, lambda _: Judgement(candidates, {}, NoGates()), order, "likely")
    assert made.strategy == "by-memory"
    assert [removal.node for removal in made.removals] == ["n1", "n3"]


def test_a_plan_tells_what_its_nodes_wait_for_and_hashes_by_its_nodes() -> None:
    made = plan([node("a"), node("b"), pod("x", "a")])
    pause = Refusal(Reason.COOL_DOWN, "cluster", "why")
    held = made.holding({removal.node: pause for removal in made.removals})
    assert held.removals == made.removals
    assert all(held.refusals[removal.node] == (pause,) for removal in made.removals)
    assert held.hash == made.hash != plan([node("c"), node("b"), pod("x", "b")]).hash


def test_a_failed_attempt_leaves_no_trace() -> None:
    things = [
        node("a"),
        node("b"),
        pod("x", "a", "2"),
        pod("y", "a", "2"),
        pod("z", "b", "1", affinity=anti_affinity()),
    ]
    seen = snapshot(things)
    planner = Planner(seen, DisruptionLedger(seen), judge(seen).candidates, "possible")
    free, opened = planner.space.free.copy(), planner.space.open.copy()
    assert planner.attempt(planner.candidates["a"])
    assert (planner.space.free == free).all()
    assert (planner.space.open == opened).all()
    assert planner.removals == []


def test_no_place_is_exact_where_all_orders_of_replicas_would_be_too_many() -> None:
    """The last of the small pods may go beside the large ones only, which have no other place."""
    things = [node("a", "30"), *(node(f"n{number}", "5") for number in range(5))]
    things += [pod(f"s{number}", "a", "2") for number in range(8)] + [
        pod(f"l{number}", "a", "3") for number in range(3)
    ]
    assert reasons(plan(things, only=["a"], placement="possible"), "a")
    assert plan(things[:-1], only=["a"], placement="possible").removals


def test_the_forecast_says_where_the_scheduler_would_put_a_pod() -> None:
    things = [node("a"), node("full"), node("empty"), pod("x", "a"), pod("y", "full", "2")]
    seen = snapshot(things)
    made = plan(things, only=["a"])
    assert [move.target for move in made.removals[0].moves] == ["full"]
    assert forecast(seen, made, judge(seen, ["a"]).candidates).targets == {"default/x": "empty"}


def test_the_order_of_sizes_does_not_depend_on_which_nodes_have_gone() -> None:
    """A running controller plans anew after every node: each of its plans must go on where the last one was."""
    sizes = {"small": ("8", "16Gi"), "cpu": ("32", "64Gi"), "memory": ("16", "256Gi"), "big": ("64", "512Gi")}
    things = [node(name, cpu, memory=memory) for name, (cpu, memory) in sizes.items()]
    things += [node(f"gone{i}", "16", memory="512Gi") for i in range(8)]
    before = plan(things, "fewest-nodes", placement="likely")
    after = plan([each for each in things if not each["metadata"]["name"].startswith("gone")], "fewest-nodes")
    order = [each.node for each in before.removals if not each.node.startswith("gone")]
    assert order[: len(after.removals)] == [each.node for each in after.removals]


def test_of_nodes_of_about_one_size_those_with_few_pods_go_first_where_the_scheduler_places() -> None:
    things = [node("a", "8"), node("b", "8.1"), node("big", "64")]
    things += [pod("large", "b", "3"), *(pod(f"p{i}", "a", "500m") for i in range(3))]
    assert plan(things, "fewest-nodes", placement="likely").removals[0].node == "b"
    assert plan(things, "fewest-nodes", placement="possible").removals[0].node == "a"

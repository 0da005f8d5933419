"""What holds for every plan of the refiner on every cluster, on small awkward clusters made at random."""

from __future__ import annotations

import copy
import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from node_refiner.excess import is_counted, remains
from node_refiner.judge import RefinerJudge
from node_refiner.settings import RefinerSettings
from tightship.cluster import Snapshot
from tightship.planning.evaluate import AT_ONCE, Evaluation, Evaluator, Horizon, evaluate
from tightship_simulator import check, random_cluster
from tightship_testkit.builders import state_of
from tightship_testkit.planning import NOW, plain, snapshot_of

Json = dict[str, Any]

SEEDS = st.integers(min_value=0, max_value=10**9)
SETTINGS = st.builds(
    RefinerSettings,
    excess_nodes_threshold=st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0]),
    minimum_nodes=st.integers(0, 8),
    minimum_non_tainted_nodes=st.integers(0, 8),
    max_nodes=st.sampled_from([None, 1, 2]),
    candidate_order=st.sampled_from(["score", "fewest-evictions", "pods-priority"]),
    placement=st.sampled_from(["possible", "likely"]),
    cpu_weight=st.sampled_from([0.8, 0.2, 1.0]),
)
NOTHING_HELD_BACK = {
    "excess_nodes_threshold": 0.0,
    "minimum_nodes": 0,
    "minimum_non_tainted_nodes": 0,
    "max_nodes": None,
}
quick = settings(max_examples=60, deadline=None, derandomize=True)


def decided(cluster: Snapshot, chosen: RefinerSettings, horizon: Horizon = AT_ONCE) -> Evaluation:
    return evaluate(cluster, RefinerJudge(chosen), NOW, horizon)


def names(found: Evaluation) -> tuple[str, ...]:
    return tuple(each.node for each in found.plan.removals)


def tainted(cluster: Json, rng: random.Random) -> Json:
    """Some nodes get what takes them out of the count."""
    marks: list[Json] = [
        {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]},
        {"taints": [{"key": "soft", "effect": "PreferNoSchedule"}]},
        {"unschedulable": True},
    ]
    changed = copy.deepcopy(cluster)
    for item in changed["items"]:
        if item["kind"] == "Node" and rng.random() < 0.25:
            item["spec"] = {**item.get("spec", {}), **rng.choice(marks)}
    return changed


def cluster_of(seed: int) -> Json:
    return tainted(random_cluster(seed), random.Random(seed))


@quick
@given(SEEDS, SETTINGS)
def test_the_plan_is_the_beginning_of_the_one_that_nothing_holds_back(seed: int, chosen: RefinerSettings) -> None:
    cluster = snapshot_of(cluster_of(seed))
    real = decided(cluster, chosen)
    # Excess may be negative where a node holds more than it has; no threshold lets that through.
    could_go = tuple(real.gates.outlook.turns)
    assert names(real) == could_go[: len(names(real))]
    open_settings = chosen.model_copy(update=NOTHING_HELD_BACK)
    assert names(decided(cluster, open_settings))[: len(names(real))] == names(real)


@quick
@given(SEEDS, SETTINGS)
def test_minimums_and_threshold_hold_after_every_removal(seed: int, chosen: RefinerSettings) -> None:
    cluster = snapshot_of(cluster_of(seed))
    found = decided(cluster, chosen)
    gone = set(names(found))
    kept = [view.node for name, view in cluster.nodes.items() if name not in gone]
    if gone:
        assert sum(map(remains, kept)) >= chosen.minimum_nodes
        assert sum(map(is_counted, kept)) >= chosen.minimum_non_tainted_nodes
    for number, name in enumerate(names(found)):
        assert is_counted(cluster.nodes[name].node)
        assert found.gates.outlook.turns[name].excess.nodes >= chosen.excess_nodes_threshold
        assert len(found.gates.outlook.turns) - number >= chosen.excess_nodes_threshold
    if chosen.max_nodes is not None:
        assert len(gone) <= chosen.max_nodes


@quick
@given(SEEDS, SETTINGS, st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_the_input(
    seed: int, chosen: RefinerSettings, rng: random.Random
) -> None:
    cluster = cluster_of(seed)
    first = decided(snapshot_of(cluster), chosen)
    rng.shuffle(cluster["items"])
    again = decided(snapshot_of(cluster), chosen)
    assert plain(again.plan) == plain(first.plan)
    assert again.plan.refusals == first.plan.refusals
    assert again.gates.outlook == first.gates.outlook


@quick
@given(SEEDS, SETTINGS, st.booleans())
def test_a_plan_passes_the_independent_checker(seed: int, chosen: RefinerSettings, until_stable: bool) -> None:
    cluster = cluster_of(seed)
    plan = decided(snapshot_of(cluster), chosen, Horizon(until_stable=until_stable)).plan
    if until_stable:
        # Budgets are as the first round leaves them; the checker can't know what their controller would say later.
        cluster = {**cluster, "items": [each for each in cluster["items"] if each["kind"] != "PodDisruptionBudget"]}
    assert check(cluster, plain(plan), straight=False).wrong == []


@quick
@given(SEEDS, SETTINGS)
def test_every_node_has_a_removal_or_refusals_that_say_something(seed: int, chosen: RefinerSettings) -> None:
    cluster: Snapshot = snapshot_of(cluster_of(seed))
    found = decided(cluster, chosen)
    assert {*names(found), *found.plan.refusals} == set(cluster.nodes)
    for name, refusals in found.plan.refusals.items():
        assert (name in names(found)) != bool(refusals)
        assert all(each.detail and "None" not in each.detail for each in refusals)


@quick
@given(SEEDS, SETTINGS, st.randoms(use_true_random=False))
def test_one_that_remembers_its_last_pass_decides_as_one_that_does_not(
    seed: int, chosen: RefinerSettings, rng: random.Random
) -> None:
    items = cluster_of(seed)["items"]
    state, judge, now = state_of(*items), RefinerJudge(chosen), NOW
    again = Evaluator()
    for _ in range(8):
        match rng.randrange(5):
            case 0:
                now += rng.choice((1.0, 30.0, 600.0))
            case 1:
                judge = RefinerJudge(judge.settings.model_copy(update={"minimum_nodes": rng.randrange(4)}))
            case 2:
                gone = rng.choice(items)["metadata"]
                for kind in ("Pod", "Node"):
                    state.delete(kind, gone.get("namespace", ""), gone["name"])
            case _:
                pass
        fresh, warm = evaluate(state.snapshot(), judge, now), again(state.snapshot(), judge, now)
        assert warm.gates.outlook == fresh.gates.outlook
        assert msgspec.structs.replace(warm, gates=fresh.gates) == fresh


def test_a_cluster_in_which_nothing_has_changed_is_not_planned_anew() -> None:
    state, judge = state_of(*cluster_of(3)["items"]), RefinerJudge(RefinerSettings())
    again = Evaluator()
    first = again(state.snapshot(), judge, NOW)
    assert again(state.snapshot(), judge, NOW + 1).plan is first.plan
    state.delete("Node", "", next(iter(first.snapshot.nodes)))
    assert again(state.snapshot(), judge, NOW + 2).plan is not first.plan

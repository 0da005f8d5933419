"""What holds for every searched plan: it is valid, no worse than the greedy one, and the same for the same effort."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from cluster_builder import anti_affinity, node, pod
from hypothesis import example, given, settings
from hypothesis import strategies as st
from search_fleets import OWNER, exclusive_fleet, gpu_fleet

from tightship.cluster import Snapshot
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.evaluate import _over_rounds
from tightship.planning.plan import STRATEGIES, Candidate, Judgement, Plan, Planner, SearchRules, make_plan
from tightship.planning.plan.model import Searched
from tightship.planning.plan.strategies import Strategy, after
from tightship.rules.disruption import DisruptionLedger
from tightship.search.bound import bound
from tightship.search.improve import Effort, Packed, improve
from tightship.search.limits import limits_of
from tightship.search.problem import Problem, extract
from tightship.search.state import Packing
from tightship.search.strategy import Searching
from tightship_simulator import check, random_cluster
from tightship_testkit.planning import judge, plain, snapshot_of

SEEDS = st.integers(min_value=0, max_value=10**9)
STRATEGY = st.sampled_from(sorted(STRATEGIES))
quick = settings(max_examples=15, deadline=None, derandomize=True)


def searched(
    snapshot: Snapshot, strategy: str = "fewest-nodes", *, judged: object = None, **rules: object
) -> tuple[Plan, Searched]:
    """Return the searched plan of *snapshot* and what the search says of itself."""
    searching = Searching(STRATEGIES[strategy], SearchRules(**({"iterations": 60} | rules)))  # type: ignore[arg-type]
    plan = make_plan(snapshot, judged or judge, searching, "possible")  # type: ignore[arg-type]
    assert searching.searched is not None
    return plan, searching.searched


def problem_of(snapshot: Snapshot) -> Problem:
    judgement = judge(snapshot)
    planner = Planner(snapshot, DisruptionLedger(snapshot), judgement.candidates, "possible")
    found = extract(planner, limits_of(judgement.gates, planner))
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.takes(8)
@quick
@given(SEEDS, STRATEGY)
def test_a_searched_plan_passes_the_independent_checker_and_is_never_worse(seed: int, strategy: str) -> None:
    cluster = random_cluster(seed)
    snapshot = snapshot_of(cluster)
    greedy = make_plan(snapshot, judge, STRATEGIES[strategy], "possible")
    plan, reported = searched(snapshot, strategy)
    assert check(cluster, plain(plan), straight=False).wrong == []
    assert (len(plan.removals), -plan.evictions) >= (len(greedy.removals), -greedy.evictions)
    assert (reported.greedy_removed, reported.greedy_evictions) == (len(greedy.removals), greedy.evictions)
    assert (reported.removed, reported.evictions) == (len(plan.removals), plan.evictions)
    assert reported.bound <= len(snapshot.nodes) - len(plan.removals)


@pytest.mark.slow
@pytest.mark.takes(8)
@quick
@given(SEEDS, st.integers(min_value=0, max_value=5))
def test_the_same_seed_and_iterations_give_the_same_plan(seed: int, search_seed: int) -> None:
    snapshot = snapshot_of(random_cluster(seed))
    one, reported = searched(snapshot, seed=search_seed)
    other, again = searched(snapshot, seed=search_seed)
    assert (plain(one), one.refusals, reported) == (plain(other), other.refusals, again)


@pytest.mark.takes(3)
@quick
@given(SEEDS)
@example(198408)
def test_a_state_that_is_rolled_back_is_as_before(seed: int) -> None:
    problem = problem_of(snapshot_of(random_cluster(seed)))
    state = Packing(problem)
    before = _footprint(state)
    first = state.mark()
    for number in range(len(problem.names)):
        if state.may_close(number):
            state.close(number)
            for pod in list(state.unplaced):
                nodes = state.fits(state.kind[pod])
                if len(nodes):
                    state.move(pod, int(nodes[-1]))
    for number in list(state.closed)[::2]:
        state.reopen(number)
    state.rollback(first)
    assert _footprint(state) == before
    fresh = Packing(problem)
    assert _footprint(fresh) == before


def _footprint(state: Packing) -> tuple[object, ...]:
    arrays = (state.free, state.movable, state.kept, state.where, state.newcomer, state.marks, state.fit, state.choices)
    lists = [sorted(each) for each in state.newcomers]
    kinds = [state.fits(kind).tolist() for kind in range(len(state.problem.demands))]
    return tuple(each.tobytes() for each in arrays), lists, kinds, list(state.unplaced), set(state.closed), state.moves


@pytest.mark.slow
@pytest.mark.takes(8)
@quick
@given(SEEDS)
@example(100)
def test_a_last_plan_starts_the_next_search_while_it_holds(seed: int) -> None:
    snapshot = snapshot_of(random_cluster(seed))
    last, _ = searched(snapshot)
    again, reported = searched(snapshot, iterations=0, warm=(last,))
    assert reported.warm_start or not _straight(last)
    assert (len(again.removals), -again.evictions) >= (len(last.removals), -last.evictions)


def _straight(plan: Plan) -> bool:
    removed = {removal.node for removal in plan.removals}
    return not any(move.target in removed for removal in plan.removals for move in removal.moves)


@pytest.fixture(scope="module")
def gpus() -> Snapshot:
    return snapshot_of(gpu_fleet(1))


@pytest.fixture(scope="module")
def last(gpus: Snapshot) -> Plan:
    return searched(gpus, iterations=2000)[0]


@pytest.mark.takes(3)
def test_a_search_keeps_far_fewer_nodes_of_a_fleet_with_gpus(gpus: Snapshot, last: Plan) -> None:
    reported = last.searched or searched(gpus, iterations=2000)[1]
    kept, greedy = len(gpus.nodes) - reported.removed, len(gpus.nodes) - reported.greedy_removed
    assert kept <= 1.04 * reported.bound
    assert kept < greedy


@pytest.mark.takes(3)
def test_a_search_comes_near_the_bound_where_no_node_may_run_two_replicas(subtests: pytest.Subtests) -> None:
    for seed in (1, 2):
        with subtests.test(seed=seed):
            snapshot = snapshot_of(exclusive_fleet(seed))
            _, reported = searched(snapshot, iterations=3000)
            assert len(snapshot.nodes) - reported.removed <= 1.04 * reported.bound


def test_the_rest_of_a_plan_holds_after_its_first_drains(gpus: Snapshot, last: Plan) -> None:
    drained = after(gpus, list(last.removals[:10]))
    again, reported = searched(drained, iterations=0, warm=(last,))
    assert reported.warm_start
    assert [each.node for each in again.removals][: len(last.removals) - 10] == [
        each.node for each in last.removals[10:]
    ], "in the same order"


def test_a_plan_whose_target_is_gone_loses_only_what_went_there(gpus: Snapshot, last: Plan) -> None:
    target = last.removals[-1].moves[0].target
    nodes = {name: view for name, view in gpus.nodes.items() if name != target}
    again, reported = searched(msgspec.structs.replace(gpus, nodes=nodes), iterations=0, warm=(last,))
    whole = [each for each in last.removals if all(move.target != target for move in each.moves)]
    assert reported.warm_start is False
    assert reported.broken == len(last.removals) - len(whole) > 0
    assert _places(again).items() >= _places(msgspec.structs.replace(last, removals=tuple(whole))).items()


def test_a_pod_that_has_come_to_a_planned_node_finds_its_own_place(gpus: Snapshot, last: Plan) -> None:
    cluster = gpu_fleet(1)
    busy = last.removals[-1]
    extra = pod("late", busy.node, "100m", "64Mi")
    again, reported = searched(
        snapshot_of({**cluster, "items": [*cluster["items"], extra]}), iterations=0, warm=(last,)
    )
    assert (reported.warm_start, reported.broken) == (False, 1)
    assert len(again.removals) == len(last.removals)
    assert _places(again).items() >= _places(last).items()


def test_a_pod_replaced_by_an_equal_one_leaves_the_plan_whole(gpus: Snapshot, last: Plan) -> None:
    moved = last.removals[-1].moves[0]
    view = gpus.nodes[moved.origin]
    pods = tuple(msgspec.structs.replace(each, name=f"new-{each.name}") for each in view.pods)
    nodes = {**gpus.nodes, moved.origin: msgspec.structs.replace(view, pods=pods)}
    again, reported = searched(msgspec.structs.replace(gpus, nodes=nodes), iterations=0, warm=(last,))
    assert (reported.warm_start, reported.broken) == (True, 0)
    assert (len(again.removals), again.evictions) == (len(last.removals), last.evictions)


def test_a_pod_that_landed_elsewhere_costs_what_it_pushes_aside_and_a_search_repairs_that(
    gpus: Snapshot, last: Plan
) -> None:
    busy = [removal for removal in last.removals if removal.moves]
    done, left = busy[:5], busy[5:]
    wrong = left[0].moves[0].target  # all moved pods that fit there take what others are to get
    moves = [msgspec.structs.replace(move, target=wrong) for move in done[0].moves]
    landed = after(gpus, [msgspec.structs.replace(done[0], moves=tuple(moves)), *done[1:]])
    again, reported = searched(landed, iterations=0, warm=(last,))
    assert reported.warm_start is False
    assert 0 < reported.broken <= 3
    kept = len(landed.nodes) - len(again.removals)
    assert kept <= len(gpus.nodes) - len(last.removals) + 2
    better, _ = searched(landed, iterations=1500, warm=(again,))
    assert len(landed.nodes) - len(better.removals) <= kept


def test_nodes_in_drain_fall_away_from_a_plan(gpus: Snapshot, last: Plan) -> None:
    first = last.removals[-1]
    cluster = gpu_fleet(1)
    for each in cluster["items"]:
        if each["metadata"]["name"] == first.node:
            each["spec"].setdefault("taints", []).append(
                {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
            )
    again, _ = searched(snapshot_of(cluster), iterations=0, warm=(last,))
    # The room of its pods is kept where the scheduler would put them, which may break a few others.
    assert first.node not in {each.node for each in again.removals}
    assert len(again.removals) >= len(last.removals) - 4


def _places(plan: Plan) -> dict[str, str]:
    return {move.pod.key: move.target for removal in plan.removals for move in removal.moves}


def test_the_better_of_two_known_plans_is_taken(gpus: Snapshot, last: Plan) -> None:
    greedy = make_plan(gpus, judge, STRATEGIES["fewest-nodes"], "possible")
    for known in ((greedy, last), (last, greedy)):
        again, _ = searched(gpus, iterations=0, warm=known)
        assert plain(again) == plain(last)


@pytest.mark.parametrize("holds", [True, False])
def test_only_a_known_plan_that_breaks_is_compared_with_what_the_strategy_would_plan(
    gpus: Snapshot, last: Plan, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = type(STRATEGIES["fewest-nodes"])
    run, plans = strategy.run, list[str]()

    def counted(self: Strategy, *given: Any) -> Any:
        plans.append(self.name)
        return run(self, *given)

    monkeypatch.setattr(strategy, "run", counted)
    told = Searched(
        None, 2000, len(last.removals) - 3, last.evictions - 5, len(last.removals), last.evictions, bound=30
    )
    known = msgspec.structs.replace(last, searched=told)
    gone = last.removals[-1].moves[0].target
    left = {name: view for name, view in gpus.nodes.items() if holds or name != gone}
    again, reported = searched(msgspec.structs.replace(gpus, nodes=left), iterations=0, warm=(known,))
    assert (not plans, not reported.broken, reported.warm_start) == (holds, holds, holds)
    if holds:
        assert plain(again) == plain(last)
        assert (reported.greedy_removed, reported.greedy_evictions) == (told.greedy_removed, told.greedy_evictions)


def test_where_a_searched_first_round_ends_worse_over_all_rounds_the_strategys_own_plan_counts(last: Plan) -> None:
    told = Searched(None, 60, greedy_removed=3, greedy_evictions=4, removed=5, evictions=6, bound=1)
    plain_plan = msgspec.structs.replace(last, searched=None)
    as_good = msgspec.structs.replace(last, searched=told)
    assert _over_rounds(as_good, plain_plan, {}) is as_good
    worse = msgspec.structs.replace(as_good, removals=last.removals[:-1])
    unused = msgspec.structs.replace(told, removed=3, evictions=4)
    assert _over_rounds(worse, plain_plan, {}) == msgspec.structs.replace(plain_plan, searched=unused)
    # Nothing was searched.
    unsearched = msgspec.structs.replace(worse, searched=None)
    assert _over_rounds(unsearched, plain_plan, {}) is unsearched


def test_a_search_that_is_told_to_stop_plays_nothing(gpus: Snapshot, last: Plan) -> None:
    asked = iter([False] * 40 + [True] * 10_000)
    plan, reported = searched(gpus, iterations=10_000, stop=lambda: next(asked))
    assert reported.iterations < 40
    assert reported.removed == reported.greedy_removed == len(plan.removals)


def test_every_pod_moves_once_and_empty_nodes_go_first(last: Plan) -> None:
    moved = [move.pod.key for removal in last.removals for move in removal.moves]
    assert len(moved) == len(set(moved))
    assert _straight(last)
    empty = [not removal.moves for removal in last.removals]
    assert empty == sorted(empty, reverse=True)


class _AtMost:
    """Gates that let a number of nodes of each pool go, and some in all."""

    def __init__(self, of_pool: int, total: int) -> None:
        self._of_pool, self._total = of_pool, total

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        mates = [each for each in planner.removals if planner.candidates[each.node].pool == candidate.pool]
        full = len(mates) >= self._of_pool or len(planner.removals) >= self._total
        return [Refusal(Reason.POOL_MIN_SIZE, candidate.name)] if full else []


@pytest.mark.parametrize(("of_pool", "total"), [(5, 100), (40, 7), (0, 10)])
def test_gates_hold_while_a_search_looks_for_more(gpus: Snapshot, of_pool: int, total: int) -> None:
    def judged(snapshot: Snapshot) -> Judgement:
        found = judge(snapshot)
        candidates = tuple(msgspec.structs.replace(each, pool=each.name[-1]) for each in found.candidates)
        return Judgement(candidates, found.refusals, _AtMost(of_pool, total))

    plan, reported = searched(gpus, judged=judged, iterations=400)
    by_pool = [removal.node[-1] for removal in plan.removals]
    assert len(plan.removals) == min(total, 10 * of_pool)
    assert all(by_pool.count(pool) <= of_pool for pool in set(by_pool))
    assert reported.removed == reported.greedy_removed


def test_a_search_spends_a_budget_as_far_as_a_plan_may(gpus: Snapshot) -> None:
    cluster = gpu_fleet(1)
    status = {"disruptionsAllowed": 12, "currentHealthy": 200, "desiredHealthy": 188, "expectedPods": 200}
    everything = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 12},
        "status": {**status, "observedGeneration": 1},
    }
    cluster = {**cluster, "items": [*cluster["items"], everything]}
    plan, reported = searched(snapshot_of(cluster), iterations=600)
    assert check(cluster, plain(plan), straight=False).wrong == []
    assert reported.removed >= reported.greedy_removed
    moves = [len(removal.moves) for removal in plan.removals]
    assert sum(moves) - max(moves) < 12


def test_only_plans_that_choose_places_are_searched(gpus: Snapshot) -> None:
    searching = Searching(STRATEGIES["fewest-nodes"], SearchRules(iterations=100))
    likely = make_plan(gpus, judge, searching, "likely")
    assert searching.searched is None
    assert plain(likely) == plain(make_plan(gpus, judge, STRATEGIES["fewest-nodes"], "likely"))


def test_a_cluster_too_large_for_memory_is_planned_without_a_search(
    gpus: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tightship.search.problem.MOST_CELLS", 100)
    plan, reported = searched(gpus)
    assert plain(plan) == plain(make_plan(gpus, judge, STRATEGIES["fewest-nodes"], "possible"))
    assert (reported.iterations, reported.removed) == (0, reported.greedy_removed)


def test_a_search_ends_with_its_time(gpus: Snapshot) -> None:
    ticks = iter(range(10**9))
    _, reported = searched(gpus, iterations=None, seconds=500.0, clock=lambda: float(next(ticks)))
    assert 0 < reported.iterations <= 500


def test_effort_needs_an_end() -> None:
    with pytest.raises(ValueError, match="needs iterations"):
        Effort()


def test_nothing_to_do_is_done_at_once() -> None:
    empty = Snapshot(nodes={})
    plan, reported = searched(empty)
    assert (plan.removals, reported.removed, reported.bound) == ((), 0, 0)


def _bound_of(*items: dict[str, Any]) -> int:
    return bound(problem_of(snapshot_of({"kind": "List", "items": [OWNER, *items]}))).nodes


def test_replicas_that_exclude_each_other_need_a_node_each() -> None:
    apart = anti_affinity()
    nodes = [node(f"n{number}") for number in range(5)]
    pods = [pod(f"p{number}", f"n{number}", "10m", "1Mi", affinity=apart) for number in range(4)]
    assert _bound_of(*nodes, *pods) == 4
    assert _bound_of(*nodes, *(pod(f"p{number}", f"n{number}", "10m", "1Mi") for number in range(4))) == 1


def test_the_bound_allows_what_is_so_already() -> None:
    apart = anti_affinity()
    together = [pod(f"p{number}", "n0", "10m", "1Mi", affinity=apart) for number in range(3)]
    assert _bound_of(node("n0"), node("n1"), *together) == 1
    overcommitted = [pod(f"p{number}", "n0", "3", "1Mi") for number in range(3)]
    assert _bound_of(node("n0"), node("n1"), *overcommitted) == 1


@pytest.mark.slow
@pytest.mark.takes(3)
@quick
@given(SEEDS)
def test_no_packing_that_is_found_is_below_the_bound(seed: int) -> None:
    problem = problem_of(snapshot_of(random_cluster(seed)))
    floor = bound(problem)
    found = improve(problem, floor, Packed((), tuple(problem.homes.tolist()), 0), Effort(200), seed)
    assert found is not None
    assert len(problem.names) - len(found.closed) >= floor.nodes
    assert floor.exact <= floor.nodes + 1e-6
    assert np.isfinite(floor.prices).all()


@pytest.mark.takes(5)
def test_a_search_of_a_strategy_by_price_keeps_the_plan_that_saves_more_money() -> None:
    fewer = 0
    for seed in range(4):
        snapshot = snapshot_of(gpu_fleet(seed, 40))
        rng = Random(seed)
        prices = {name: rng.choice((1, 1, 1, 40)) for name in snapshot.nodes}

        def priced(current: Snapshot, prices: dict[str, int] = prices) -> Judgement:
            found = judge(current)
            candidates = (msgspec.structs.replace(each, price=prices[each.name]) for each in found.candidates)
            return msgspec.structs.replace(found, candidates=tuple(candidates))

        def saved(plan: Plan, prices: dict[str, int] = prices) -> int:
            return sum(prices[each.node] for each in plan.removals)

        plain = make_plan(snapshot, priced, STRATEGIES["lowest-cost"], "possible")
        nodes = make_plan(
            snapshot, priced, Searching(STRATEGIES["fewest-nodes"], SearchRules(iterations=300)), "possible"
        )
        found = make_plan(
            snapshot, priced, Searching(STRATEGIES["lowest-cost"], SearchRules(iterations=300)), "possible"
        )
        assert saved(found) >= saved(plain)
        fewer += saved(nodes) < saved(plain)
    assert fewer, "a search for fewer nodes alone would have saved less"

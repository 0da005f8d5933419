"""What holds for every plan on every cluster, on small awkward clusters made at random; no control plane needed."""

from __future__ import annotations

import copy
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan import STRATEGIES, Candidate, Placement, Planner, make_plan
from tightship.rules.disruption import DisruptionLedger
from tightship.scheduler.space import Space
from tightship_simulator import World, check, random_cluster
from tightship_testkit.planning import Json, judge, plain, snapshot_of

SEEDS = st.integers(min_value=0, max_value=10**9)
KINDS_OF_PLAN = st.tuples(st.sampled_from(sorted(STRATEGIES)), st.sampled_from(["possible", "likely"]))
quick = settings(max_examples=60, deadline=None, derandomize=True)

BRUTE_LIMIT = 400
"""Placements a brute-force search may try before a case is given up as too large."""


@quick
@given(SEEDS, KINDS_OF_PLAN, st.booleans())
def test_a_plan_passes_the_independent_checker(seed: int, kind: tuple[str, Placement], until_stable: bool) -> None:
    cluster = random_cluster(seed)
    strategy, placement = kind
    plan = make_plan(snapshot_of(cluster), judge, STRATEGIES[strategy], placement, until_stable=until_stable)
    if until_stable:
        # Budgets are as the first round leaves them; the checker can't know what their controller would say later.
        cluster = without(cluster, "PodDisruptionBudget")
    assert check(cluster, plain(plan), straight=False).wrong == []


@quick
@given(SEEDS, KINDS_OF_PLAN, st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_the_input(
    seed: int, kind: tuple[str, Placement], rng: random.Random
) -> None:
    cluster = random_cluster(seed)
    strategy, placement = kind
    plan = make_plan(snapshot_of(cluster), judge, STRATEGIES[strategy], placement)
    rng.shuffle(cluster["items"])
    again = make_plan(snapshot_of(cluster), judge, STRATEGIES[strategy], placement)
    assert plain(again) == plain(plan)
    assert again.refusals == plan.refusals


@quick
@given(SEEDS)
def test_a_node_takes_a_pod_exactly_where_the_independent_rules_say_so(seed: int) -> None:
    cluster = random_cluster(seed)
    snapshot = snapshot_of(cluster)
    space = Space(snapshot)
    for candidate in judge(snapshot).candidates:
        world = World(cluster)
        world.cordon(candidate.name)
        mark = space.mark()
        column = space.index[candidate.name]
        space.close(column)
        asks = [space.demand_of(pod) for pod in candidate.evict]
        pods = [world.remove(pod.key) for pod in candidate.evict]
        for ask in asks:
            space.remove(ask, column)
        for ask, pod in zip(asks, pods, strict=True):
            ours = [space.names[index] for index in np.flatnonzero(space.feasible(ask)).tolist()]
            assert ours == sorted(world.feasible(pod)), f"{candidate.name}: {pod['metadata']['name']}"
        space.rollback(mark)


class StrictPlanner(Planner):
    """Checks after every failed attempt that nothing is left of it."""

    def attempt(self, candidate: Candidate) -> list[Refusal]:
        before = self.footprint()
        refusals = super().attempt(candidate)
        if refusals:
            assert self.footprint() == before
        return refusals

    def footprint(self) -> tuple[object, ...]:
        """Free amounts, open nodes, and what every pod could do now: that depends on every counter there is."""
        space = self.space
        masks = tuple(
            space.feasible(space.demand_of(pod)).tobytes() for view in self.snapshot.nodes.values() for pod in view.pods
        )
        ledger = tuple(self.ledger.left(budget) for budget in self.snapshot.budgets)
        return space.free.tobytes(), space.open.tobytes(), masks, ledger, len(self.removals)


@quick
@given(SEEDS, st.sampled_from(["possible", "likely"]))
def test_a_failed_attempt_leaves_no_trace(seed: int, placement: Placement) -> None:
    snapshot = snapshot_of(random_cluster(seed))
    candidates = judge(snapshot).candidates
    planner = StrictPlanner(snapshot, DisruptionLedger(snapshot), candidates, placement)
    for candidate in candidates:
        planner.attempt(candidate)
    assert (planner.space.free[:, planner.space.open] >= 0).all()


@quick
@given(SEEDS)
def test_no_place_is_said_only_where_no_placement_exists(seed: int) -> None:
    cluster = without(random_cluster(seed), "PodDisruptionBudget")
    snapshot = snapshot_of(cluster)
    candidates = judge(snapshot).candidates
    for candidate in candidates:
        planner = Planner(snapshot, DisruptionLedger(snapshot), candidates, "possible")
        refusals = planner.attempt(candidate)
        if refusals and {each.reason for each in refusals} <= {Reason.NO_PLACE, Reason.NO_PLACE_TOGETHER}:
            world = World(cluster)
            world.cordon(candidate.name)
            # Pending pods keep the room they were given.
            pending = {
                guest.pod.key: planner.space.names[node] for node, guests in planner.waiting.items() for guest in guests
            }
            for key, node in pending.items():
                world.add(world.remove(key), node)
            pods = [world.remove(pod.key) for pod in candidate.evict]
            assert not fits(world, pods), f"{candidate.name}: {refusals}"


def fits(world: World, pods: list[Json]) -> bool:
    """Whether the pods can be placed in some order on some nodes, by brute force."""
    steps = 0

    def descend(left: list[Json]) -> bool:
        nonlocal steps
        if not left:
            return True
        for pod in left:
            rest = [each for each in left if each is not pod]
            for node in world.feasible(pod):
                steps += 1
                if steps > BRUTE_LIMIT:
                    return False
                world.add(pod, node)
                found = descend(rest)
                world.remove(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
                if found:
                    return True
        return False

    return descend(pods)


def without(cluster: Json, kind: str) -> Json:
    """Return a copy of the List without objects of a kind."""
    return {**copy.deepcopy(cluster), "items": [item for item in cluster["items"] if item["kind"] != kind]}

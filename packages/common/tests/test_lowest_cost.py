"""The strategy lowest-cost: what a plan removes is worth most, and nothing else changes."""

from __future__ import annotations

import random

import msgspec
import pytest
from cluster_builder import node, pod, snapshot

from tightship.cluster import Snapshot
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan import (
    STRATEGIES,
    Candidate,
    Gates,
    Judgement,
    PerPool,
    Placement,
    Plan,
    Planner,
    make_plan,
)
from tightship_simulator import check, random_cluster
from tightship_testkit.planning import judge, plain, snapshot_of

SEEDS = range(40)


class _AtMost:
    def __init__(self, most: int) -> None:
        self._most = most

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        enough = len(planner.removals) >= self._most
        return [Refusal(Reason.MAX_NODES_REACHED, candidate.name, "enough")] if enough else []


def planned(
    held: Snapshot,
    strategy: str,
    prices: dict[str, int],
    placement: Placement = "possible",
    gates: Gates | None = None,
) -> Plan:
    def priced(current: Snapshot) -> Judgement:
        found = judge(current)
        candidates = tuple(msgspec.structs.replace(each, price=prices.get(each.name)) for each in found.candidates)
        return msgspec.structs.replace(found, candidates=candidates, gates=gates or found.gates)

    return make_plan(held, priced, STRATEGIES[strategy], placement)


def some_prices(held: Snapshot, seed: int, missing: float = 0.0) -> dict[str, int]:
    rng = random.Random(seed)
    prices = {name: rng.randint(1, 5_000_000) for name in sorted(held.nodes)}
    return {name: price for name, price in prices.items() if rng.random() >= missing}


def worth(plan: Plan, prices: dict[str, int]) -> int:
    return sum(prices[each.node] for each in plan.removals)


def names(plan: Plan) -> list[str]:
    return [each.node for each in plan.removals]


def two_or_one() -> Snapshot:
    """Two small nodes could go, or the big one: not all three."""
    return snapshot(
        [
            node("big", cpu="8", memory="32Gi"),
            node("small-1", cpu="4", memory="16Gi"),
            node("small-2", cpu="4", memory="16Gi"),
            *(pod(f"web-{number}", on, cpu="2") for number, on in enumerate(["big", "small-1", "small-2"])),
        ]
    )


def test_the_dear_big_node_goes_instead_of_two_cheap_small_ones() -> None:
    prices = {"big": 3_000_000, "small-1": 1_000_000, "small-2": 1_000_000}
    assert set(names(planned(two_or_one(), "fewest-nodes", prices))) == {"small-1", "small-2"}
    assert names(planned(two_or_one(), "lowest-cost", prices)) == ["big"]


def test_two_small_nodes_go_where_the_big_one_is_cheap_for_its_size() -> None:
    prices = {"big": 1_500_000, "small-1": 1_000_000, "small-2": 1_000_000}
    assert set(names(planned(two_or_one(), "lowest-cost", prices))) == {"small-1", "small-2"}


@pytest.mark.parametrize("placement", ["possible", "likely"])
@pytest.mark.parametrize("price", [None, 0, 1_000_000])
def test_without_prices_and_with_equal_ones_the_plan_is_that_of_fewest_nodes(
    placement: Placement, price: int | None
) -> None:
    for seed in SEEDS:
        held = snapshot_of(random_cluster(seed))
        prices = {} if price is None else dict.fromkeys(held.nodes, price)
        own, other = (planned(held, each, prices, placement) for each in ("lowest-cost", "fewest-nodes"))
        assert (own.removals, own.refusals) == (other.removals, other.refusals), seed


@pytest.mark.parametrize("placement", ["possible", "likely"])
def test_a_plan_never_saves_less_than_one_of_fewest_nodes(placement: Placement) -> None:
    more = 0
    for seed in SEEDS:
        held = snapshot_of(random_cluster(seed))
        prices = some_prices(held, seed)
        own, other = (worth(planned(held, each, prices, placement), prices) for each in ("lowest-cost", "fewest-nodes"))
        assert own >= other, seed
        more += own > other
    assert more, "prices change no plan at all"


def test_a_plan_by_price_passes_the_independent_checker_whatever_nodes_have_no_price() -> None:
    for seed in SEEDS:
        cluster = random_cluster(seed)
        held = snapshot_of(cluster)
        plan = planned(held, "lowest-cost", some_prices(held, seed, missing=0.3))
        assert check(cluster, plain(plan), straight=False).wrong == [], seed


def test_a_plan_by_price_does_not_depend_on_the_order_of_the_input() -> None:
    for seed in SEEDS:
        cluster = random_cluster(seed)
        prices = some_prices(snapshot_of(cluster), seed)
        plan = planned(snapshot_of(cluster), "lowest-cost", prices)
        random.Random(seed).shuffle(cluster["items"])
        again = planned(snapshot_of(cluster), "lowest-cost", prices)
        assert (plain(again), again.refusals) == (plain(plan), plan.refusals), seed


def test_a_plan_of_one_node_takes_the_dearest_that_can_go() -> None:
    held = snapshot([*(node(f"n{number}") for number in range(4)), pod("web", "n0", cpu="1")])
    prices = {"n0": 1_000_000, "n1": 2_000_000, "n2": 9_000_000, "n3": 3_000_000}
    assert names(planned(held, "lowest-cost", prices, gates=_AtMost(1))) == ["n2"]


def test_pools_of_a_plan_may_go_by_price() -> None:
    assert PerPool({"a": "lowest-cost"}, "least-utilized").by_price
    assert not PerPool({"a": "fewest-nodes"}, "least-utilized").by_price

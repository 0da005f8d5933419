"""Disagreements with kube-scheduler that random clusters brought to light, each as the smallest cluster that shows it.

The same clusters are shown to the real scheduler in ``e2e/tests/test_scheduler_regressions.py``.
"""

from __future__ import annotations

from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan import Placement, Planner
from tightship.rules.disruption import DisruptionLedger
from tightship.scheduler.space import Space
from tightship_simulator import small
from tightship_simulator.small import Json
from tightship_testkit.planning import judge, snapshot_of


def refusals(cluster: Json, node: str, placement: Placement = "possible") -> list[Refusal]:
    """Return what stands against draining one node of a cluster first."""
    snapshot = snapshot_of(cluster)
    candidates = judge(snapshot).candidates
    planner = Planner(snapshot, DisruptionLedger(snapshot), candidates, placement)
    return planner.attempt(planner.candidates[node])


def test_taking_a_cordon_back_adds_no_node_to_a_spread_that_never_counted_it() -> None:
    snapshot = snapshot_of(small.spread_that_ignores_a_node())
    space = Space(snapshot)
    ask = space.demand_of(next(pod for pod in snapshot.nodes["n0"].pods))
    before = space.feasible(ask).tolist()
    mark = space.mark()
    space.close(space.index["n2"])
    space.rollback(mark)
    assert space.feasible(ask).tolist() == before


def test_a_pod_that_needs_a_companion_from_the_same_node_has_a_place_once_that_one_is_placed() -> None:
    assert refusals(small.companion_on_the_same_node(), "n0") == []


def test_a_pod_has_a_place_once_another_of_the_node_raised_the_minimum_of_its_spread() -> None:
    assert refusals(small.minimum_raised_by_a_neighbour(), "n0") == []


def test_pods_that_must_be_together_and_may_only_leave_in_turn_never_leave() -> None:
    found = refusals(small.together_but_in_turn(), "n0")
    assert {each.reason for each in found} == {Reason.NO_PLACE_TOGETHER}
    assert "one after another" in found[0].detail


def test_a_pod_that_excludes_its_own_kind_from_a_zone_may_move_within_the_zone() -> None:
    nobody_else = {"topologyKey": small.ZONE, "labelSelector": {"matchLabels": {"app": "alone"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [nobody_else]}
    replica = small.replicas("alone", ["n0"], {"affinity": {"podAntiAffinity": required}})
    assert refusals(small.cluster(small.node("n0"), small.node("n1"), *replica), "n0") == []
    taken = small.replicas("alone", ["n0", "n2"], {"affinity": {"podAntiAffinity": required}})
    both = small.cluster(small.node("n0"), small.node("n1"), small.node("n2"), *taken)
    assert [each.reason for each in refusals(both, "n0")] == [Reason.NO_PLACE]

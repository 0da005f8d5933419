"""What is kept from one pass to the next changes no answer: random clusters, and random changes between passes."""

import cluster_builder as build
import pytest

from tightship.core.reasons import Reason
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.facts import FactRules, Gatherer, gather
from tightship.planning.placement.space import Space
from tightship.planning.placement.together import feasible_each
from tightship.planning.plan import STRATEGIES, Candidate, Placement, Planner, Planners, make_plan
from tightship_simulator.generate import off_peak_cluster
from tightship_testkit.changing import AT, histories
from tightship_testkit.planning import judge, snapshot_of

SEEDS = (0, 1, 2, 3, 4, 5, 8, 9)


def test_a_space_that_follows_is_like_a_new_one() -> None:
    followed = 0
    for history in histories(SEEDS):
        space: Space | None = None
        for snapshot in history:
            new = Space(snapshot)
            if space is None or not space.follow(snapshot):
                space = Space(snapshot)
            else:
                followed += 1
            assert (space.free[: len(new.free)] == new.free).all() or len(space.free) != len(new.free)
            assert (space.open == new.open).all()
            assert (space.assumed == new.assumed).all()
            for view in snapshot.nodes.values():
                node = space.index[view.name]
                marks = space.mark(), new.mark()
                for each in (space, new):
                    each.close(node)
                    for pod in view.pods:
                        each.lift(each.ask(pod), node)
                asks = [*dict.fromkeys(map(space.ask, (*view.pods, *snapshot.unscheduled)))]
                for ask, mask in feasible_each(space, asks).items():
                    assert (mask == space.feasible(ask)).all(), ask.template
                    assert [space.accepts(ask, number) for number in range(len(mask))] == mask.tolist()
                for pod in (*view.pods, *snapshot.unscheduled):
                    assert (space.feasible(space.ask(pod)) == new.feasible(new.ask(pod))).all(), pod.key
                space.rollback(marks[0])
                new.rollback(marks[1])
    assert followed > len(SEEDS)


def test_facts_that_are_kept_are_those_gathered_anew() -> None:
    for history in histories(SEEDS):
        kept, rules = Gatherer(), FactRules()
        for number, snapshot in enumerate(history):
            now = AT + 1000 * number
            assert kept(snapshot, rules, now) == gather(snapshot, rules, now)
            assert kept(snapshot, rules, now + 90) == gather(snapshot, rules, now + 90)


@pytest.mark.parametrize("placement", ["possible", "likely", "certain"])
def test_planners_that_are_kept_plan_as_new_ones(placement: Placement) -> None:
    # The surest placement plays all choices through, which takes long on the larger clusters.
    for history in histories(SEEDS[:5] if placement == "certain" else SEEDS):
        for name, strategy in STRATEGIES.items():
            kept = Planners()
            for snapshot in history:
                planned = make_plan(snapshot, judge, strategy, placement, planners=kept)
                assert planned == make_plan(snapshot, judge, strategy, placement), name


def test_an_attempt_that_explains_itself_leaves_the_scheduler_where_any_other_does() -> None:
    snapshot = snapshot_of(off_peak_cluster(1, 160, pods=2400, conflicts=4000))
    candidates = [
        Candidate(name, "", 0.0, tuple(pod for pod in view.pods if not pod.daemon))
        for name, view in snapshot.nodes.items()
    ]
    told, untold = (
        Planner(snapshot, DisruptionLedger(snapshot), candidates, "likely", explain=explain)
        for explain in (True, False)
    )
    starts: set[int] = set()
    refused = 0
    for candidate in candidates:
        found, other = told.attempt(candidate), untold.attempt(candidate)
        assert bool(found) == bool(other)
        assert told.space.next_start == untold.space.next_start
        starts.add(told.space.next_start)
        refused += any(each.reason is Reason.NO_PLACE_AFTER_PLAN for each in found)
    assert len(starts) > 1
    assert refused
    assert told.removals == untold.removals


def test_a_refusal_that_is_sure_at_once_leaves_the_scheduler_where_a_search_does() -> None:
    nodes = [build.node(f"n{number:03}") for number in range(130)]
    lone = build.pod("lone", "n000", labels={"app": "lone"}, affinity=build.anti_affinity(app="lone"))
    huge = build.pod("huge", "n000", memory="12Gi")
    full = [build.pod(f"full-{number}", f"n{number:03}", memory="8Gi") for number in range(1, 130)]
    snapshot = build.snapshot([*nodes, lone, huge, *full])
    candidate = Candidate("n000", "", 0.0, snapshot.nodes["n000"].pods)
    for explain in (True, False):
        planner = Planner(snapshot, DisruptionLedger(snapshot), [candidate], "likely", explain=explain)
        assert [each.reason for each in planner.attempt(candidate)] == [Reason.NO_PLACE]
        assert planner.space.next_start == 101, explain  # 100 nodes looked at for the pod that is tried first

"""What is kept from one pass to the next changes no answer: random clusters, and random changes between passes."""

import pytest

from tightship.planning.facts import FactRules, Gatherer, gather
from tightship.planning.placement.space import Space
from tightship.planning.plan import STRATEGIES, Placement, Planners, make_plan
from tightship_testkit.changing import AT, histories
from tightship_testkit.planning import judge

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

"""What evictions buy: for more and more nodes the fewest evictions that a proof allows, and plans that come near."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tightship.frontier.guided import Guided
from tightship.frontier.program import Program
from tightship.planning.evaluate import Evaluation, Judge
from tightship.planning.facts import judgement, plannable
from tightship.planning.frontier import Bought
from tightship.planning.plan import STRATEGIES, Judgement, Plan, Planner, Strategy, make_plan
from tightship.rules.disruption import DisruptionLedger
from tightship.search.limits import limits_of
from tightship.search.problem import MOST_CELLS, extract

POINTS = 10
"""Plans of a frontier, from a tenth of the most nodes to all of them."""


def frontier(evaluation: Evaluation, judge: Judge, evictions: int | None = None) -> Sequence[Bought]:
    """Return plans that remove ever more nodes; with *evictions* the one that saves most with at most so many.

    Every plan is of one round, chooses places (``possible``) and keeps all rules of *judge*. A controller whose own
    plan ends by a count of nodes ends these plans there too. Nothing is returned where nothing can go. Raises
    :class:`ValueError` for a cluster of more nodes and kinds of pods than a search takes.
    """
    facts, now = evaluation.facts, evaluation.now
    snapshot = plannable(evaluation.snapshot, judge.rules)

    def judged(_: object = None) -> Judgement:
        return judgement(evaluation.snapshot, facts, judge.gates(snapshot, facts, now))

    def made(strategy: Strategy) -> Plan:
        return make_plan(snapshot, judged, strategy, "possible")

    start = judged()
    planner = Planner(snapshot, DisruptionLedger(snapshot), start.candidates, "possible")
    problem = extract(planner, limits_of(start.gates, planner))
    if problem is None:
        have = f"{len(planner.space.names):,} nodes with as many kinds of pods are too much"
        raise ValueError(f"{have}; allowed are {MOST_CELLS:,} pairs of both: choose nodes with --pool or --selector")
    program, own = Program(problem), evaluation.plan
    grows, most = judge.strategy(facts).grows, len(own.removals)

    def bought(plan: Plan, strategy: Strategy) -> Bought:
        choice = program.fewest(len(plan.removals))
        # The program takes no more nodes than the plan, so it always has a choice; the plan is one.
        return Bought(plan, strategy, plan.evictions if choice is None else choice.least, program.solved)

    if evictions is not None:
        priced = any(each.price is not None for each in start.candidates)
        worth = np.zeros(len(problem.names))
        for each in start.candidates:
            worth[planner.space.index[each.name]] = planner.start.worth(each) if priced else 1.0
        shares = (program.most(worth, evictions), np.zeros(len(worth)))
        limited = [
            Guided(program, share, len(worth) if grows else most, evictions, worth=worth, sure=sure, ended=own.refusals)
            for share in shares
            for sure in (True, False)
        ]
        tried = [(made(each), each) for each in limited]
        plans = [bought(*each) for each in tried if each[0].evictions <= evictions]

        def saved(each: Bought) -> tuple[float, int]:
            return sum(worth[planner.space.index[gone.node]] for gone in each.plan.removals), -each.plan.evictions

        return [max(plans, key=saved)]
    if grows:
        most = max(most, len(made(STRATEGIES["fewest-nodes"]).removals))
    found: dict[int, Bought] = {}
    for part in range(1, POINTS + 1):
        choice = program.fewest(round(most * part / POINTS))
        if choice is not None and most * part >= POINTS:
            strategy = Guided(
                program, choice.share, round(most * part / POINTS), least=choice.least, prices=choice.prices
            )
            plan = made(strategy)
            found[len(plan.removals)] = bought(plan, strategy)
    return [found[removed] for removed in sorted(found) if removed]

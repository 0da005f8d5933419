"""How far a plan is from the best: a proven bound, the best plan that a search finds, and what each rule costs.

A rule's cost is measured, never counted: the plan is made again without the rule, by the same strategy and without a
search. The bound holds for every plan of one round under the rules in force, wherever its pods would go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tightship.core.reasons import Reason
from tightship.planning.cluster import Snapshot
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.evaluate import Evaluation, Facts, Horizon, Judge, evaluate
from tightship.planning.facts import candidates_of, plannable
from tightship.planning.plan import Plan, Planner
from tightship.planning.search.bound import ascend
from tightship.planning.search.limits import GateLimits, limits_of
from tightship.planning.search.linear import solved, solver_installed
from tightship.planning.search.problem import Problem, extract
from tightship.planning.search.relaxation import proven, relaxed
from tightship.planning.search.strategy import SearchRules

SOLVING = 60.0
"""Most seconds of wall time for the solver; after that the bound is the ascent's."""

BUDGET_REASONS = frozenset(reason for reason in Reason if reason.name.startswith("PDB_")) | {Reason.MULTIPLE_PDBS}
"""What PodDisruptionBudgets say against a removal."""


class Without(Struct, frozen=True):
    """A *judge* without one *rule*, a word for people. A rule without *reasons* refuses nothing by itself."""

    rule: str
    judge: Judge[Any]
    reasons: frozenset[Reason] = frozenset()


class Alternatives(Struct, frozen=True):
    """Judges with other settings than those of a plan.

    *packed* obeys the same rules and chooses places, so that a search may begin. *cheapest* does that by price, if the
    controller can. *without* lacks one rule each. *most* is for gates that end a plan at a turn of its own order: how
    many nodes they let go in any order. The bound knows no more of them, because another order would have other turns.
    """

    packed: Judge[Any]
    cheapest: Judge[Any] | None = None
    without: tuple[Without, ...] = ()
    most: Callable[[Facts], int] | None = None


class RuleCost(Struct, frozen=True):
    """Without *rule* the same strategy keeps *nodes*, and so many *fewer* than with it."""

    rule: str
    nodes: int
    fewer: int


class Kept(Struct, frozen=True):
    """What is kept by the plan in hand, by the best plan found, and by every plan at least."""

    planned: int
    reachable: int
    proven: int


class Gap(Struct, frozen=True):
    """How far a plan is from the best after a search of *seconds*: in *nodes*, and in *micros* a month of the nodes
    that have a price, ``None`` if none has one.

    *solved* says whether the bound is the optimum of its linear program, *installed* whether the solver is there.
    """

    seconds: float
    nodes: Kept
    micros: Kept | None
    costs: tuple[RuleCost, ...]
    solved: bool
    installed: bool


def measure(
    snapshot: Snapshot,
    judge: Judge[Any],
    evaluation: Evaluation[Any],
    others: Alternatives,
    search: SearchRules,
    *,
    only: Collection[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Gap:
    """Return how far the plan of *evaluation*, by *judge*, is from the best. The plan is one round over *snapshot*.

    *search* says how long to look for a better plan, *only* limits what may be removed, as for the plan in hand.
    *progress* is told what is being done.
    """
    plan, facts, now = evaluation.plan, evaluation.facts, evaluation.now

    def again(judge: Judge[Any], rules: SearchRules | None = None) -> Plan:
        return evaluate(snapshot, judge, now, Horizon(only=only, search=rules)).plan

    progress(f"searching for the best plan for {search.seconds or 0:g} s")
    plans = [plan, again(others.packed, search)]
    costs: list[RuleCost] = []
    alone = len(plan.removals) if plan.searched is None else plan.searched.greedy_removed
    said = {refusal.reason for found in plan.refusals.values() for refusal in found}
    for each in others.without:
        if not each.reasons or each.reasons & said:
            progress(f"planning without {each.rule}")
            removed = len(again(each.judge).removals)
            # The plan in hand stays valid without the rule, so a rule never costs less than nothing.
            costs.append(RuleCost(each.rule, len(facts) - max(alone, removed), max(0, removed - alone)))
    prices = {name: 0 if fact.price is None else fact.price.monthly for name, fact in facts.items()}
    priced = any(fact.price is not None for fact in facts.values())
    if priced and others.cheapest is not None:
        plans.append(again(others.cheapest))
    progress("proving a bound")
    problem = _problem(judge, evaluation, others.most)
    least, best = _least(problem, facts)
    micros = None
    if priced:
        money = [sum(prices.values()) - sum(prices[each.node] for each in one.removals) for one in plans]
        micros = Kept(money[0], min(money), _least(problem, facts, prices)[0])
    return Gap(
        seconds=search.seconds or 0.0,
        nodes=Kept(len(facts) - len(plan.removals), len(facts) - max(len(each.removals) for each in plans), least),
        micros=micros,
        costs=tuple(costs),
        solved=best,
        installed=solver_installed(),
    )


def _problem(judge: Judge[Any], evaluation: Evaluation[Any], most: Callable[[Facts], int] | None) -> Problem | None:
    """Return what the plan of *evaluation* had to solve, before it planned anything; ``None`` if that is too large."""
    plan_snapshot = plannable(evaluation.snapshot, judge.rules)
    candidates = candidates_of(evaluation.facts)
    planner = Planner(plan_snapshot, DisruptionLedger(plan_snapshot), candidates, "possible", explain=False)
    if most is not None:
        pools = {each.pool: len(candidates) for each in candidates}
        total = min(len(candidates), most(evaluation.facts))
        limits = GateLimits(frozenset(each.name for each in candidates), pools, total)
    else:
        limits = limits_of(evaluation.gates, planner)
    return extract(planner, limits)


def _least(problem: Problem | None, facts: Facts, prices: Mapping[str, int] | None = None) -> tuple[int, bool]:
    """Return what every plan keeps at least, and whether that is the optimum of the linear program."""
    if problem is None:
        stays: Sequence[str] = [name for name, fact in facts.items() if fact.refusals]
        return (len(stays) if prices is None else sum(prices[name] for name in stays)), False
    relaxation = relaxed(problem, None if prices is None else [prices.get(name, 0) for name in problem.names])
    duals = solved(relaxation, SOLVING)
    least = proven(relaxation, ascend(relaxation)[0] if duals is None else duals).least
    virtual = len(problem.names) - len(facts)  # they stay, and count nowhere
    return (max(least, problem.kept_by_gates) - virtual if prices is None else least), duals is not None

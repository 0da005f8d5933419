"""How many nodes could go, and how many may: where threshold and minimums end a plan. Pure.

Both figures must reach the threshold: the cluster's sums, which are the older controller's, and the count of nodes
whose pods all have a place, which sums know nothing of. Minimums are strict: the older controller asked for them before
a drain, and so went to one node less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from node_refiner.excess import Counted, Excess, count, is_counted, remains
from node_refiner.ordering import Scoring
from node_refiner.settings import RefinerSettings
from tightship.core.counting import counted
from tightship.core.reasons import Reason, Refusal
from tightship.core.resources import Resources
from tightship.planning.checks import Check, refusals
from tightship.planning.evaluate import Facts
from tightship.planning.plan import Removal


class Turn(Struct, frozen=True):
    """When a node that could go comes: *number* nodes go before it, and then the *excess* is such.

    *reached* is the largest threshold with which a plan comes past it. *later* says that it has to wait for a
    PodDisruptionBudget which those before it use up.
    """

    number: int
    excess: Excess
    reached: float
    later: bool = False


class End(Struct, frozen=True):
    """Something that ends a plan: *why* the node whose turn is number *turn* may not go."""

    turn: int
    why: Refusal


class Outlook(Struct, frozen=True):
    """What a plan that nothing holds back says of the cluster as a whole.

    *turns* has the nodes that could go, in order; *goes* of them may. *ends* has for each reason the first turn at
    which it ends the plan, and none where the plan ends by itself. *excess* is that of the first turn, or, where
    nothing could go, of the counted node with the lowest score (the older controller's figure); ``None`` where no node
    is counted. *remaining* nodes count for the minimum.
    """

    counted: Counted
    remaining: int
    turns: Mapping[str, Turn] = {}
    ends: tuple[End, ...] = ()
    excess: Excess | None = None

    @property
    def goes(self) -> int:
        """How many of those that could go may."""
        return min((end.turn for end in self.ends), default=len(self.turns))

    @property
    def stop(self) -> tuple[Refusal, ...]:
        """What the plan ends with: all that refuses the first that may not go."""
        return tuple(end.why for end in self.ends if end.turn == self.goes)

    def reached(self, turn: int) -> tuple[Refusal, ...]:
        """Return all that ends the plan at *turn* or before."""
        return tuple(end.why for end in self.ends if end.turn <= turn)


def outlook(
    free: Sequence[Removal],
    facts: Facts,
    settings: RefinerSettings,
    at_once: int,
    starting_on: Mapping[str, Resources] = {},
) -> Outlook:
    """Return how far threshold and minimums follow *free*, the removals of a plan that nothing holds back.

    *at_once* of them need no budget to be renewed. *starting_on* is by node what replicas about to start will request.
    """
    rest = counted = count(facts.values(), starting_on)
    remaining = sum(remains(fact.view.node) for fact in facts.values())
    turns: dict[str, Turn] = {}
    ends: dict[Reason, End] = {}
    reached = math.inf
    for number, removal in enumerate(free):
        fact, could_go = facts[removal.node], len(free) - number
        excess = rest.excess(fact.view.node)
        rest = rest.without(fact)
        reached = min(reached, excess.nodes, could_go)
        turns[removal.node] = Turn(number, excess, reached, later=number >= at_once)
        for why in refusals(
            (
                threshold_check(excess, could_go, settings),
                minimums_check(removal.node, remaining - number - 1, rest.many, settings),
                plan_size_check(number, settings),
            ),
            removal.node,
        ):
            ends.setdefault(why.reason, End(number, why))
    return Outlook(
        counted=counted,
        remaining=remaining,
        turns=turns,
        ends=tuple(ends.values()),
        excess=turns[free[0].node].excess if free else _of_the_lowest(counted, facts, settings),
    )


def _of_the_lowest(counted: Counted, facts: Facts, settings: RefinerSettings) -> Excess | None:
    score = Scoring(settings)
    scores = [
        (score.of(fact.cpu_ratio, fact.memory_ratio), name)
        for name, fact in facts.items()
        if is_counted(fact.view.node)
    ]
    return counted.excess(facts[min(scores)[1]].view.node) if scores else None


def threshold_check(excess: Excess, could_go: int, settings: RefinerSettings) -> Check:
    """Return whether the threshold lets the node of *excess* go next, when *could_go* nodes still could."""
    threshold = settings.excess_nodes_threshold
    short, few = excess.nodes < threshold, could_go < threshold
    detail = (
        f"at the turn of {excess.node} the excess is {figures(excess)}, and {could_go} could really go; "
        f"the threshold is {threshold:g}"
    )
    if short or few:
        holds = "both hold" if short and few else "the excess holds" if short else "the count holds"
        return Check("excess", Reason.EXCESS_BELOW_THRESHOLD, False, f"{detail}: {holds} it back")
    return Check("excess", Reason.EXCESS_BELOW_THRESHOLD, True, detail)


def minimums_check(name: str, nodes: int, untainted: int, settings: RefinerSettings) -> Check:
    """Return whether the minimums let *name* go next, after which so many nodes, and untainted ones, are left."""
    left = (
        (nodes, settings.minimum_nodes, "node", "minimum_nodes"),
        (untainted, settings.minimum_non_tainted_nodes, "untainted node", "minimum_non_tainted_nodes"),
    )
    below = [each for each in left if each[0] < each[1]]
    told = [f"{counted(many, what)} would be left, {key} is {least}" for many, least, what, key in below or left]
    return Check("minimums", Reason.MIN_NODES, not below, f"without {name}, at its turn, {'; '.join(told)}")


def plan_size_check(planned: int, settings: RefinerSettings) -> Check | None:
    """Return whether a plan with *planned* removals may grow; ``None`` where plans have no limit."""
    allowed = settings.max_nodes
    if allowed is None:
        return None
    return Check(
        "plan size", Reason.MAX_NODES_REACHED, planned < allowed, f"the plan stops after {counted(allowed, 'node')}"
    )


def ended(name: str, ahead: Outlook, settings: RefinerSettings) -> list[Refusal]:
    """Return what keeps candidate *name* when its turn has come and the plan has ended, each with what would help.

    One that could go is kept by all that ends the plan up to its turn. One that could not (pods of those that go first
    take its places) is kept by what ends the plan, and no change to that would let it through.
    """
    turn = ahead.turns.get(name)
    if turn is None:
        return [Refusal(each.reason, name, each.detail) for each in ahead.stop]
    return [
        Refusal(each.reason, name, each.detail, _fix(each.reason, turn, ahead, settings))
        for each in ahead.reached(turn.number)
    ]


def _fix(reason: Reason, turn: Turn, ahead: Outlook, settings: RefinerSettings) -> str:
    """Return the smallest change after which *reason* ends no plan up to *turn*."""
    if reason is Reason.EXCESS_BELOW_THRESHOLD:
        # Rounded down: what is shown must let the node through.
        enough = math.floor(turn.reached * 100) / 100
        return f"lower excess_nodes_threshold to {enough:g} (--threshold {enough:g})" if enough >= 0 else ""
    if reason is Reason.MAX_NODES_REACHED:
        return f"allow longer plans (--max-nodes {turn.number + 1})"
    nodes, untainted = ahead.remaining - turn.number - 1, ahead.counted.many - turn.number - 1
    lower = []
    if nodes < settings.minimum_nodes:
        lower.append(f"minimum_nodes to {nodes} (--min-nodes {nodes})")
    if untainted < settings.minimum_non_tainted_nodes:
        lower.append(f"minimum_non_tainted_nodes to {untainted} (--min-non-tainted-nodes {untainted})")
    return f"lower {' and '.join(lower)}"


def figures(excess: Excess) -> str:
    """Return an excess for people, the smaller figure first."""
    each = f"CPU {_two(excess.cpu)}, memory {_two(excess.memory)}"
    return f"{_two(excess.nodes)} nodes by {excess.scarcer} ({each})"


def _two(nodes: float) -> str:
    return f"{nodes:.2f}" if math.isfinite(nodes) else "any"

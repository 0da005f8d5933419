"""How many nodes could go, and how many may: where threshold and minimums end a plan. Pure.

Two figures must reach the threshold: the older controller's sums over the cluster, and the number of nodes whose pods
all have a place, which the sums ignore. Minimums are strict; the older controller checked them before a drain, and so
ended one node below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from node_refiner.excess import Counted, Excess, dedicated, is_counted, remains, sums
from node_refiner.ordering import Scoring
from node_refiner.settings import RefinerSettings
from tightship.objects import Node, NodeGroup
from tightship.objects.counting import counted
from tightship.objects.reasons import Check, Reason, Refusal, refusals
from tightship.objects.resources import Resources
from tightship.planning.evaluate import Facts
from tightship.planning.facts import NodeFacts
from tightship.planning.plan import Removal
from tightship.rules.limits import CLUSTER, Count, Limit, group_kind, zone_kind


class Turn(Struct, frozen=True):
    """The turn of a node that could go: *number* nodes go before it, and *excess* is the excess then.

    *reached* is the largest threshold with which a plan passes this turn. *later* says that the node waits for a
    PodDisruptionBudget that the nodes before it use up.
    """

    number: int
    excess: Excess
    reached: float
    later: bool = False


class End(Struct, frozen=True):
    """The end of a plan: *why* the node at turn number *turn* may not go."""

    turn: int
    why: Refusal


class Outlook(Struct, frozen=True):
    """The free plan's figures for the cluster as a whole.

    *turns* has the nodes that could go, in order; *goes* of them may. *ends* has the first turn at which each reason
    ends the plan, and is empty if the plan ends by itself. *excess* belongs to the first turn, or, if nothing could go,
    to the counted node with the lowest score (the older controller's figure); ``None`` if no node counts. *remaining*
    nodes count for the minimum. *minimums* has the check of them at each turn.
    """

    counted: Counted
    remaining: int
    count: Count
    minimums: Mapping[str, Check] = {}
    turns: Mapping[str, Turn] = {}
    ends: tuple[End, ...] = ()
    excess: Excess | None = None

    @property
    def goes(self) -> int:
        """How many of the nodes that could go may go."""
        return min((end.turn for end in self.ends), default=len(self.turns))

    @property
    def stop(self) -> tuple[Refusal, ...]:
        """The refusals of the first node that may not go."""
        return tuple(end.why for end in self.ends if end.turn == self.goes)

    def reached(self, turn: int) -> tuple[Refusal, ...]:
        """Return the refusals that end the plan at *turn* or before."""
        return tuple(end.why for end in self.ends if end.turn <= turn)


def outlooks(
    free: Sequence[Removal],
    facts: Facts,
    settings: RefinerSettings,
    *,
    at_once: int,
    count: Count,
    starting_on: Mapping[str, Resources] = {},
) -> Mapping[str, Outlook]:
    """Return how far threshold and minimums allow *free*, the removals of the free plan: of untainted nodes under the
    empty name, and of each dedicated pool by itself if ``countTaintedNodes`` is on.

    The first *at_once* removals need no renewed budget. *count* is that before the plan. *starting_on* has the future
    requests of replicas about to start, by node.
    """
    pools = [""]
    if settings.count_tainted:
        nodes = [fact.view.node for fact in facts.values()]
        pools += sorted({dedicated(node) for node in nodes if remains(node)} - {""})
    found: dict[str, Outlook] = {}
    for pool in pools:
        own = [
            (number < at_once, each) for number, each in enumerate(free) if pool_of(facts[each.node], settings) == pool
        ]
        before = sum(each.goes for each in found.values())
        found[pool] = ahead = _outlook(
            own, facts, settings, pool=pool, count=count, starting_on=starting_on, before=before
        )
        count = count.copied()
        for _, each in own[: ahead.goes]:
            count.goes(each.node)
    return found


def pool_of(fact: NodeFacts, settings: RefinerSettings) -> str:
    """Return the dedicated pool of a node, empty for all nodes that have none, or if none is counted by itself."""
    return dedicated(fact.view.node) if settings.count_tainted else ""


def _outlook(
    free: Sequence[tuple[bool, Removal]],
    facts: Facts,
    settings: RefinerSettings,
    *,
    pool: str,
    count: Count,
    starting_on: Mapping[str, Resources],
    before: int,
) -> Outlook:
    rest = counted = sums(facts.values(), starting_on, pool)
    left, limits = count.copied(), minimums(settings)
    turns: dict[str, Turn] = {}
    checks: dict[str, Check] = {}
    ends: dict[Reason, End] = {}
    reached = math.inf
    for number, (at_once, removal) in enumerate(free):
        fact, could_go = facts[removal.node], len(free) - number
        excess = rest.excess(fact.view.node)
        rest = rest.without(fact)
        reached = min(reached, excess.nodes, could_go)
        turns[removal.node] = Turn(number, excess, reached, later=not at_once)
        checks[removal.node] = minimum = minimums_check(limits, left, removal.node)
        left.goes(removal.node)
        for why in refusals(
            (
                threshold_check(excess, could_go, settings),
                minimum,
                plan_size_check(before + number, settings),
            ),
            removal.node,
        ):
            ends.setdefault(why.reason, End(number, why))
    return Outlook(
        counted=counted,
        remaining=count.without("", REMAINING),
        count=count,
        minimums=checks,
        turns=turns,
        ends=tuple(ends.values()),
        excess=turns[free[0][1].node].excess if free else _of_the_lowest(counted, facts, settings, pool),
    )


def _of_the_lowest(counted: Counted, facts: Facts, settings: RefinerSettings, pool: str) -> Excess | None:
    score = Scoring(settings)
    scores = [
        (score.of(fact.cpu_ratio, fact.memory_ratio), name)
        for name, fact in facts.items()
        if (remains(fact.view.node) and dedicated(fact.view.node) == pool if pool else is_counted(fact.view.node))
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


REMAINING = "node"
"""The kind of a node that the cluster keeps."""

UNTAINTED = "untainted node"
"""The kind of a node that it keeps and that no taint keeps pods from."""


def kinds(node: Node, group: NodeGroup | None) -> tuple[str, ...]:
    """Return the kinds, as limits count them, of *node* of *group*."""
    own = (REMAINING, UNTAINTED)[: remains(node) + is_counted(node)]
    return CLUSTER, *own, *group_kind(group)


def kinds_of(fact: NodeFacts) -> tuple[str, ...]:
    """Return the kinds of the node of *fact*."""
    return (*kinds(fact.view.node, fact.group), *zone_kind(fact.view.node))


def minimums(settings: RefinerSettings) -> tuple[Limit, ...]:
    """Return the minimums of all nodes that remain, and of those without taints."""
    return (
        _minimum(REMAINING, settings.minimum_nodes, "minimumNodeCount", "--min-nodes"),
        _minimum(
            UNTAINTED, settings.minimum_non_tainted_nodes, "minimumNonTaintedNodeCount", "--min-non-tainted-nodes"
        ),
    )


def _minimum(kind: str, least: int, key: str, flag: str) -> Limit:
    return Limit(
        gate="minimums",
        kind=kind,
        reason=Reason.MIN_NODES,
        least=least,
        detail=lambda left: f"{counted(left, kind)} would be left, {key} is {least}",
        fix=lambda left: f"{key} to {left} ({flag} {left})",
    )


def minimums_check(limits: Sequence[Limit], count: Count, name: str) -> Check:
    """Return whether the minimums *limits* let *name* go at the moment of *count*."""
    checks = [each.check(count, name) for each in limits]
    below = [each for each in checks if not each.open]
    detail = f"without {name}, at its turn, {'; '.join(each.detail for each in below or checks)}"
    fix = f"lower {' and '.join(each.fix for each in below)}" if below else ""
    return Check("minimums", Reason.MIN_NODES, not below, detail, fix)


def plan_size_check(planned: int, settings: RefinerSettings) -> Check | None:
    """Return whether a plan with *planned* removals may grow; ``None`` if plans have no limit."""
    allowed = settings.max_nodes
    if allowed is None:
        return None
    return Check(
        "plan size", Reason.MAX_NODES_REACHED, planned < allowed, f"the plan stops after {counted(allowed, 'node')}"
    )


def ended(name: str, ahead: Outlook) -> list[Refusal]:
    """Return why candidate *name* stays once the plan has ended before it, each reason with its fix.

    All refusals up to its turn keep a candidate that could go. A candidate that could not go (pods of earlier nodes
    take its places) stays because the plan ends, and no fix would let it through.
    """
    turn = ahead.turns.get(name)
    if turn is None:
        return [Refusal(each.reason, name, each.detail) for each in ahead.stop]
    return [
        Refusal(each.reason, name, each.detail, _fix(each.reason, turn, ahead)) for each in ahead.reached(turn.number)
    ]


def _fix(reason: Reason, turn: Turn, ahead: Outlook) -> str:
    """Return the smallest change after which *reason* ends no plan up to *turn*."""
    if reason is Reason.EXCESS_BELOW_THRESHOLD:
        # Rounded down, because the shown threshold must let the node through.
        enough = math.floor(turn.reached * 100) / 100
        return f"lower excessNodesThreshold to {enough:g} (--threshold {enough:g})" if enough >= 0 else ""
    if reason is Reason.MAX_NODES_REACHED:
        return f"allow longer plans (--max-nodes {turn.number + 1})"
    return ahead.minimums[turn.excess.node].fix


def figures(excess: Excess) -> str:
    """Return an excess for people, the smaller figure first."""
    each = f"CPU {_two(excess.cpu)}, memory {_two(excess.memory)}"
    return f"{_two(excess.nodes)} nodes by {excess.scarcer} ({each})"


def _two(nodes: float) -> str:
    return f"{nodes:.2f}" if math.isfinite(nodes) else "any"

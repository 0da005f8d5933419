"""How many nodes could go, and how many may: where threshold and minimums end a plan. Pure.

Both figures must reach the threshold: the cluster's sums, which are the older controller's, and the count of nodes
whose pods all have a place, which sums know nothing of. Minimums are strict: the older controller asked for them before
a drain, and so went to one node less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from node_refiner.excess import Counted, Excess, count
from node_refiner.facts import NodeFacts
from node_refiner.settings import RefinerSettings
from tightship.plan import Removal
from tightship.reasons import Reason, Refusal


class Stop(Struct, frozen=True):
    """Where a plan ends: *node* is the candidate at hand, *why* says what stands against removing it next."""

    node: str
    why: tuple[Refusal, ...]

    def refusals(self, name: str) -> list[Refusal]:
        """Return what keeps node *name*: that candidate, or one whose turn would have come later."""
        return [Refusal(each.reason, name, each.detail, each.fix) for each in self.why]


class Outlook(Struct, frozen=True):
    """What a plan that nothing holds back says of the cluster as a whole.

    *could_go* are its nodes in order, of which the first *goes* may; *stop* is what refuses the next one, ``None``
    where the plan ends by itself. *excesses* is the excess for each of them as it stands when its turn comes. *excess*
    is that of the first, or, where none could go, of the counted node with the lowest score (the older controller's
    figure); ``None`` where no node is counted. *remaining* nodes count for the minimum of all nodes.
    """

    counted: Counted
    remaining: int
    could_go: tuple[str, ...] = ()
    goes: int = 0
    stop: Stop | None = None
    excess: Excess | None = None
    excesses: Mapping[str, Excess] = {}


def outlook(free: Sequence[Removal], facts: Mapping[str, NodeFacts], settings: RefinerSettings) -> Outlook:
    """Return how far threshold and minimums follow *free*, the removals of a plan that nothing holds back."""
    rest = counted = count(facts.values())
    remaining = sum(fact.remains for fact in facts.values())
    excesses: dict[str, Excess] = {}
    stop: Stop | None = None
    goes = 0
    for number, removal in enumerate(free):
        fact = facts[removal.node]
        excess = excesses[removal.node] = rest.excess(fact.view.node)
        rest = rest.without(fact)
        if stop is not None:
            continue
        why = (
            *below_threshold(excess, len(free) - number, settings),
            *below_minimums(removal.node, remaining - number - 1, rest.many, settings),
            *_plan_size(removal.node, number, settings),
        )
        if why:
            stop = Stop(removal.node, why)
        else:
            goes += 1
    return Outlook(
        counted=counted,
        remaining=remaining,
        could_go=tuple(excesses),
        goes=goes,
        stop=stop,
        excess=next(iter(excesses.values()), None) or _of_the_lowest(counted, facts),
        excesses=excesses,
    )


def _of_the_lowest(counted: Counted, facts: Mapping[str, NodeFacts]) -> Excess | None:
    lowest = min(((fact.score, name) for name, fact in facts.items() if fact.counted), default=None)
    return counted.excess(facts[lowest[1]].view.node) if lowest is not None else None


def below_threshold(excess: Excess, could_go: int, settings: RefinerSettings) -> list[Refusal]:
    """Return what the threshold says to removing the node of *excess* next, when *could_go* nodes still could."""
    threshold = settings.excess_nodes_threshold
    short, few = excess.nodes < threshold, could_go < threshold
    if not (short or few):
        return []
    holds = "both hold" if short and few else "the excess holds" if short else "the count holds"
    detail = (
        f"for {excess.node}, next in order, the excess is {figures(excess)}, and {could_go} could really go; "
        f"the threshold is {threshold:g}: {holds} it back"
    )
    # Rounded down: what is shown must let the node through.
    enough = math.floor(min(excess.nodes, could_go) * 100) / 100
    fix = f"lower excess_nodes_threshold to {enough:g} (--threshold {enough:g})" if enough >= 0 else ""
    return [Refusal(Reason.EXCESS_BELOW_THRESHOLD, excess.node, detail, fix)]


def below_minimums(name: str, nodes: int, untainted: int, settings: RefinerSettings) -> list[Refusal]:
    """Return what the minimums say to removing *name* next, after which so many nodes, and untainted ones, are left."""
    found: list[str] = []
    flags: list[str] = []
    for left, minimum, what, key, flag in (
        (nodes, settings.minimum_nodes, "nodes", "minimum_nodes", "--min-nodes"),
        (
            untainted,
            settings.minimum_non_tainted_nodes,
            "untainted nodes",
            "minimum_non_tainted_nodes",
            "--min-non-tainted-nodes",
        ),
    ):
        if left < minimum:
            found.append(f"{left} {what} would be left, {key} is {minimum}")
            flags.append(f"{key} ({flag} {max(0, left)})")
    if not found:
        return []
    detail = f"without {name}, next in order, {'; '.join(found)}"
    return [Refusal(Reason.MIN_NODES, name, detail, f"lower {' and '.join(flags)}")]


def _plan_size(name: str, planned: int, settings: RefinerSettings) -> list[Refusal]:
    allowed = settings.max_nodes
    if allowed is None or planned < allowed:
        return []
    return [Refusal(Reason.MAX_NODES_REACHED, name, f"the plan stops after {allowed} nodes")]


def figures(excess: Excess) -> str:
    """Return an excess for people, the smaller figure first."""
    each = f"CPU {_two(excess.cpu)}, memory {_two(excess.memory)}"
    return f"{_two(excess.nodes)} nodes by {excess.scarcer} ({each})"


def _two(nodes: float) -> str:
    return f"{nodes:.2f}" if math.isfinite(nodes) else "any"


__all__ = ["Outlook", "Stop", "below_minimums", "below_threshold", "figures", "outlook"]

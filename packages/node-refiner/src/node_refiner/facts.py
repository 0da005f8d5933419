"""What the refiner knows of one node before a plan: what every controller does, its score, and whether it counts. Pure.

Tainted nodes are left out, as by the older controller: what they are kept for is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from node_refiner.excess import hard_taints, is_counted, remains
from node_refiner.ordering import Scoring
from tightship.core.objects import Node
from tightship.core.objects.pod import CORDON, DRAINING
from tightship.core.reasons import Reason, Refusal
from tightship.planning.facts import NodeFacts as CommonFacts
from tightship.planning.nodes import KARPENTER_DISRUPTED, TO_BE_DELETED

_TOLD_ALREADY: Mapping[str, frozenset[Reason]] = {
    CORDON.key: frozenset({Reason.CORDONED, Reason.DRAIN_IN_PROGRESS}),
    DRAINING.key: frozenset({Reason.DRAIN_IN_PROGRESS}),
    TO_BE_DELETED: frozenset({Reason.TO_BE_DELETED}),
    KARPENTER_DISRUPTED: frozenset({Reason.KARPENTER_DISRUPTED}),
    "node.kubernetes.io/not-ready": frozenset({Reason.NOT_READY}),
    "node.kubernetes.io/unreachable": frozenset({Reason.NOT_READY}),
}
"""Taints that come with a state which has a reason of its own."""


class NodeFacts(CommonFacts, frozen=True, kw_only=True):
    """What is known of one node before a plan.

    *score* is what candidates are ordered by. *counted* nodes make up the excess, *remains* says that the node is one
    the cluster keeps; see :mod:`node_refiner.excess`.
    """

    score: float
    counted: bool
    remains: bool


def with_score(fact: CommonFacts, scoring: Scoring) -> NodeFacts:
    """Return *fact* with the node's score, and whether it counts."""
    node = fact.view.node
    tainted = _tainted(node, {refusal.reason for refusal in fact.refusals})
    return NodeFacts(
        view=fact.view,
        pool=fact.pool,
        utilization=fact.utilization,
        draining=fact.draining,
        evict=fact.evict,
        stays=fact.stays,
        refusals=fact.refusals if tainted is None else tuple(sorted((*fact.refusals, tainted))),
        awaits=fact.awaits,
        score=scoring.of(fact.cpu_ratio, fact.memory_ratio),
        counted=is_counted(node),
        remains=remains(node),
    )


def taint_of_others(node: Node) -> Refusal | None:
    """Return the refusal of a node that somebody has tainted for reasons of their own."""
    return _tainted(node, frozenset[Reason]().union(*_TOLD_ALREADY.values()))


def _tainted(node: Node, told: Collection[Reason]) -> Refusal | None:
    taints = [each for each in hard_taints(node) if not _TOLD_ALREADY.get(each.key, frozenset()).intersection(told)]
    if not taints:
        return None
    fixes = " ".join(f"{each.key}:{each.effect}-" for each in taints)
    detail = f"carries the taint {', '.join(map(str, taints))}"
    return Refusal(Reason.TAINTED, node.name, detail, f"kubectl taint node {node.name} {fixes}")

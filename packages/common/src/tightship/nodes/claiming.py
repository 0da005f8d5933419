"""Claims the nodes of a plan in their order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from tightship.draining.claims import Claim
from tightship.draining.drain_manager import Drainer, Order
from tightship.nodes.controller import ClaimJudge
from tightship.nodes.metrics import ConsolidationMetrics
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.evaluate import Evaluation, ExplainedGates
from tightship.planning.plan import Removal
from tightship.process.logging import log

G = TypeVar("G", bound=ExplainedGates)

TOGETHER = 20
"""Most claims that are one write."""


async def claim_in_order(  # noqa: PLR0917
    evaluation: Evaluation[G],
    judge: ClaimJudge[G],
    drainer: Drainer,
    metrics: ConsolidationMetrics,
    logger: logging.Logger,
    may_begin: Callable[[], bool],
) -> None:
    """Claim the plan's nodes until a budget refuses, or *may_begin* does.

    A node where a drain wants a pod to land has to wait: otherwise the pod would move twice. Raises
    :class:`~tightship.objects.api_errors.KubeError`.
    """
    wanted, landings = evaluation.plan.targets, set(drainer.landings(evaluation.snapshot).values())
    waiting = [
        each for each in evaluation.plan.removals if each.node not in evaluation.held and each.node not in landings
    ]

    def order(removal: Removal) -> Order:
        fact = evaluation.facts[removal.node]

        def allows(claims: Sequence[Claim]) -> Refusal | None:
            return judge.room(removal.node, evaluation.facts, {claim.node for claim in claims})

        targets = {move.pod.uid: wanted[move.pod.uid] for move in removal.moves}
        return Order(fact.view.node, fact.pool, evaluation.plan.hash, allows, targets)

    for at in range(0, len(waiting), TOGETHER):
        if not may_begin():
            return
        orders = [order(removal) for removal in waiting[at : at + TOGETHER]]
        refusals = await drainer.claim(orders)
        for each, refusal in zip(orders, refusals, strict=False):
            name = each.node.name
            metrics.claimed(refusal)
            if refusal is None:
                ratio = round(evaluation.facts[name].utilization.ratio("cpu"), 3)
                log(logger, logging.INFO, "claimed", node=name, pool=each.pool, ratio=ratio)
            else:
                log(logger, logging.INFO, "not claimed", node=name, reason=refusal.reason, detail=refusal.detail)
        if refusals and refusals[-1] is not None and refusals[-1].reason is Reason.BUDGET_EXHAUSTED:
            return


__all__ = ["claim_in_order"]

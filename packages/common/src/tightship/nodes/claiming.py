"""Claims the nodes of a plan in their order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from tightship.app.observability.logging import log
from tightship.core.reasons import Reason, Refusal
from tightship.drain_io.claims import Claim
from tightship.drain_io.drain_manager import Drainer
from tightship.nodes.controller import ClaimJudge
from tightship.nodes.metrics import ConsolidationMetrics
from tightship.planning.evaluate import Evaluation, ExplainedGates

G = TypeVar("G", bound=ExplainedGates)


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
    :class:`~tightship.core.api_errors.KubeError`.
    """
    wanted, landings = evaluation.plan.targets, set(drainer.landings(evaluation.snapshot).values())
    for removal in evaluation.plan.removals:
        if not may_begin():
            return
        name = removal.node
        if name in evaluation.held or name in landings:
            continue
        fact = evaluation.facts[name]

        def allows(claims: Sequence[Claim], name: str = name) -> Refusal | None:
            return judge.room(name, evaluation.facts, {claim.node for claim in claims})

        refusal = await drainer.claim(
            fact.view.node,
            pool=fact.pool,
            plan_hash=evaluation.plan.hash,
            allows=allows,
            targets={move.pod.uid: wanted[move.pod.uid] for move in removal.moves},
        )
        metrics.claimed(refusal)
        if refusal is None:
            ratio = round(fact.utilization.ratio("cpu"), 3)
            log(logger, logging.INFO, "claimed", node=name, pool=fact.pool, ratio=ratio)
            continue
        log(logger, logging.INFO, "not claimed", node=name, reason=refusal.reason, detail=refusal.detail)
        if refusal.reason is Reason.BUDGET_EXHAUSTED:
            return


__all__ = ["claim_in_order"]

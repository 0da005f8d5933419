"""The log of a controller of nodes: one line for each pass, and one for each piece of news."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from tightship.cluster.installations import Beside
from tightship.cluster.pools import shown
from tightship.objects.reasons import Refusal
from tightship.planning.evaluate import Evaluation, ExplainedGates, Facts
from tightship.process.logging import log

POOLS_SHOWN = 5
"""Most pools of another installation that a sentence names."""


class PassLog:
    """Logs passes to *logger*. *ledger* names the Lease of the claims."""

    def __init__(self, logger: logging.Logger, ledger: str) -> None:
        self._log = logger
        self._ledger = ledger
        self._off = False
        self._note = ""
        self._planned: Mapping[str, Refusal | None] = {}
        self._elsewhere: Sequence[tuple[str, str]] = ()
        self._others: Collection[str] = ()
        self._held: Mapping[str, Sequence[str]] = {}
        self._told: Sequence[str] = ()

    def judged(self, evaluation: Evaluation[ExplainedGates], *, off: bool, leader: bool, dry_run: bool) -> None:
        """Log one line for the pass, and one for each node that is newly planned, newly held back, or released."""
        if off != self._off:
            self._log.info("switched off: no new drain begins" if off else "switched on")
        self._off = off
        plan, held = evaluation.plan, evaluation.held
        log(
            self._log,
            logging.INFO,
            "judged",
            dry_run=dry_run,
            leader=leader,
            nodes=len(evaluation.facts),
            planned=len(plan.removals),
            evictions=plan.evictions,
            pods=plan.pods,
            held=len(held),
            next=plan.removals[0].node if plan.removals else "",
        )
        for removal in plan.removals:
            name, why = removal.node, held.get(removal.node)
            if name in self._planned and (self._planned[name] is None) == (why is None):
                continue
            log(
                self._log,
                logging.INFO,
                "plans to remove" if why is None else "held back",
                node=name,
                pods=len(removal.moves),
                reason=why.reason if why is not None else "",
                detail=why.detail if why is not None else "",
            )
        self._planned = {each.node: held.get(each.node) for each in plan.removals}

    def noted(self, text: str) -> None:
        """Log a sentence about what is judged from now on, if there is any; :meth:`problems` has the sentence too."""
        self._note = text
        if text:
            self._log.info(text)

    def told(self, sentences: Sequence[str]) -> Sequence[str]:
        """Warn of each of *sentences* when it first appears, and return them."""
        before, self._told = self._told, sentences
        for each in sentences:
            if each not in before:
                self._log.warning(each)
        return sentences

    def claimed_elsewhere(self, drains: Sequence[tuple[str, str]]) -> None:
        """Warn of each drain (node and controller) without a claim in our Lease when it first appears."""
        before, self._elsewhere = self._elsewhere, drains
        for node, controller in drains:
            if (node, controller) not in before:
                what = "another controller keeps its claims in another Lease, so the two share no budget"
                log(self._log, logging.WARNING, what, node=node, controller=controller, lease=self._ledger)

    def beside(self, beside: Beside, facts: Facts) -> None:
        """Log each other installation once when it first appears, and warn of pools that it holds when that begins."""
        others = {each.lease: each for each in beside.others()}
        for lease in others.keys() - set(self._others):
            what = "another installation of this controller is live, and what it drains and marks is left alone"
            log(self._log, logging.INFO, what, lease=lease, controller=beside.controller)
        self._others = others.keys()
        pools: dict[str, set[str]] = {}
        for fact in facts.values():
            holder = beside.holder(fact.view.node) if others else None
            if holder is not None:
                pools.setdefault(holder.lease, set()).add(shown(fact.pool))
        held = {lease: sorted(found) for lease, found in sorted(pools.items())}
        for lease, found in held.items():
            if found != self._held.get(lease):
                what = "another installation holds pools that are configured here too"
                log(self._log, logging.WARNING, what, lease=lease, pools=", ".join(found))
        self._held = held

    def problems(self) -> tuple[str, ...]:
        """Return the sentence about what is judged, and the same warnings as whole sentences."""
        note = (self._note,) if self._note else ()
        held = (
            f"The installation with Lease {lease} holds {_pools(found)}, which this one drains only once the other has "
            "given them up, or is gone."
            for lease, found in self._held.items()
        )
        elsewhere = (
            f"{controller} drains node {node} without a claim in Lease {self._ledger}: {controller} keeps its claims "
            "elsewhere (CLAIMS_LEASE_NAMESPACE), so the two share no budget."
            for node, controller in self._elsewhere
        )
        return (*note, *held, *elsewhere)


def _pools(names: Sequence[str]) -> str:
    more = len(names) - POOLS_SHOWN
    return f"the pools {', '.join(names[:POOLS_SHOWN])}" + (f" and {more} more" if more > 0 else "")

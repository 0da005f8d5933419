"""One pass of the running refiner: everything it would do and why, from a snapshot. Pure; made in a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from node_refiner.describing import summarize, wire
from node_refiner.facts import NodeFacts
from node_refiner.outlook import Outlook, below_minimums
from node_refiner.pacing import cooling
from node_refiner.policy import CONTROLLER, Policy
from node_refiner.settings import RefinerSettings
from tightship.core.drain_record import Finished
from tightship.core.reasons import Refusal
from tightship.drain_io.claims import Claim
from tightship.nodes.claim_budget import cluster_room
from tightship.nodes.decision import NodeNote
from tightship.nodes.soft_taints import Steering, steer
from tightship.planning.cluster import Snapshot
from tightship.planning.demand import with_demand
from tightship.planning.plan import Plan, make_plan
from tightship.report import SettingsView


class Decision(Struct, frozen=True):
    """What to do with *snapshot* at *now* (seconds since 1970).

    The plan is the direction; *held* says of its nodes what they all wait for, a pause or the health brake
    (*unhealthy*). *outlook* has the figures behind the plan.
    """

    snapshot: Snapshot
    settings: RefinerSettings
    now: float
    facts: Mapping[str, NodeFacts]
    outlook: Outlook
    plan: Plan
    held: Mapping[str, Refusal]
    unhealthy: Refusal | None
    steering: Steering

    @property
    def notes(self) -> tuple[NodeNote, ...]:
        """Nothing is written on nodes but drains and soft taints."""
        return ()

    @property
    def settings_view(self) -> SettingsView:
        return SettingsView(summarize(self.settings, "live"), wire(self.settings))

    def room(self, node: str, claims: Sequence[Claim]) -> Refusal | None:
        """Return why *node* may not be claimed beside *claims*, ``None`` if it may.

        The minimums are asked for once more: what a sibling has claimed since the plan is no node that remains.
        """
        refusal = cluster_room(node, self.facts, self.settings.cluster_budget, claims)
        if refusal is not None:
            return refusal
        taken = {claim.node for claim in claims} | {node}
        left = [fact for name, fact in self.facts.items() if name not in taken]
        remaining, untainted = sum(fact.remains for fact in left), sum(fact.counted for fact in left)
        return below_minimums(node, remaining, untainted, self.settings)


class Decider:
    """Decides pass after pass; of a cluster in which nothing has changed it plans nothing anew.

    Time alone may change facts (how old a node is, whose grace is over): they are asked for in every pass, and where
    they are the same, so is all that follows from them.
    """

    def __init__(self) -> None:
        self._read: tuple[Snapshot, RefinerSettings, Snapshot] | None = None
        self._planned: tuple[Mapping[str, NodeFacts], Outlook, Plan] | None = None

    def __call__(
        self,
        snapshot: Snapshot,
        settings: RefinerSettings,
        now: float,
        *,
        finished: Sequence[Finished] = (),
        regrets: Mapping[str, Refusal] = {},
        unhealthy: Refusal | None = None,
    ) -> Decision:
        """Judge every node of *snapshot*.

        *finished* are drains that ended lately, of whichever controller, *regrets* say of pools what came of them;
        *unhealthy* is the health brake's refusal.
        """
        read = self._read
        if read is None or read[0] is not snapshot or read[1] is not settings:
            read = self._read = (snapshot, settings, with_demand(snapshot, settings.ahead))
            self._planned = None
        snapshot = read[2]
        policy = Policy(settings, now)
        facts: Mapping[str, NodeFacts] = policy.facts(snapshot)
        planned = self._planned
        if planned is None or planned[0] != facts:
            ahead = policy.outlook(snapshot, facts)
            judgement = policy.judgement(snapshot, facts, ahead)
            plan = make_plan(policy.plannable(snapshot), lambda _: judgement, policy.strategy, settings.placement)
            planned = self._planned = (facts, ahead, plan)
        facts, ahead, plan = planned
        pools = {name: fact.pool for name, fact in facts.items()}
        pause = unhealthy or cooling(snapshot, settings, now, finished)
        held = {each.node: pause or regrets.get(pools[each.node]) for each in plan.removals}
        return Decision(
            snapshot=snapshot,
            settings=settings,
            now=now,
            facts=facts,
            outlook=ahead,
            plan=plan,
            held={name: refusal for name, refusal in held.items() if refusal is not None},
            unhealthy=unhealthy,
            steering=steer(
                snapshot,
                plan,
                settings.candidate_taints,
                settings.steering,
                CONTROLLER,
                spared=[name for name, pool in pools.items() if pool in regrets],
            ),
        )

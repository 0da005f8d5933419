"""One pass of the running refiner: everything it would do and why, from a snapshot. Pure; made in a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from node_refiner.facts import NodeFacts
from node_refiner.outlook import Outlook
from node_refiner.pacing import cooling
from node_refiner.policy import Policy
from node_refiner.settings import RefinerSettings
from tightship.cluster import Snapshot
from tightship.drain_record import Finished
from tightship.plan import Plan, make_plan
from tightship.reasons import Refusal


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

    @property
    def shown(self) -> Plan:
        """The plan with what its nodes wait for among the refusals, for metrics."""
        return self.plan.holding(self.held)

    @property
    def plan_hash(self) -> str:
        """Which plan a drain belongs to."""
        return self.plan.hash


def decide(
    snapshot: Snapshot,
    settings: RefinerSettings,
    now: float,
    *,
    finished: Sequence[Finished] = (),
    unhealthy: Refusal | None = None,
) -> Decision:
    """Judge every node of *snapshot*.

    *finished* are drains that ended lately, of whichever controller; *unhealthy* is the health brake's refusal.
    """
    policy = Policy(settings, now)
    facts = policy.facts(snapshot)
    ahead = policy.outlook(snapshot, facts)
    judgement = policy.judgement(snapshot, facts, ahead)
    plan = make_plan(policy.plannable(snapshot), lambda _: judgement, policy.strategy, settings.placement)
    held = unhealthy or cooling(snapshot, settings, now, finished)
    return Decision(
        snapshot=snapshot,
        settings=settings,
        now=now,
        facts=facts,
        outlook=ahead,
        plan=plan,
        held={} if held is None else {each.node: held for each in plan.removals},
        unhealthy=unhealthy,
    )

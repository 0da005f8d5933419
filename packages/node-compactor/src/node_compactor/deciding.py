"""One pass of the running compactor: everything it would do and why, from a snapshot. Pure; made in a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from node_compactor.budgets import without_budgets
from node_compactor.marking import MarkWrite, mark_writes
from node_compactor.pacing import brake, cooling
from node_compactor.policy import Marks, NodeFacts, Policy
from node_compactor.settings import CompactorSettings
from node_compactor.steering import Steering, steer
from node_compactor.strategies import strategy_of
from tightship.cluster import Snapshot
from tightship.drain_record import Finished
from tightship.plan import Judgement, Plan, make_plan
from tightship.reasons import Refusal


class Decision(Struct, frozen=True):
    """What to do with *snapshot* at *now* (seconds since 1970): marks to write, a plan, soft taints.

    The plan is the direction; *held* says of its nodes which have to wait for a cool-down, or all of them for the
    health brake (*unhealthy*). *marks* are those the plan was made with.
    """

    snapshot: Snapshot
    settings: CompactorSettings
    now: float
    facts: Mapping[str, NodeFacts]
    marks: Marks
    judgement: Judgement
    plan: Plan
    held: Mapping[str, Refusal]
    mark_writes: tuple[MarkWrite, ...]
    steering: Steering
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
    settings: CompactorSettings,
    now: float,
    *,
    finished: Sequence[Finished] = (),
    api_failures: int = 0,
) -> Decision:
    """Judge every node of *snapshot*. *finished* are drains that ended lately, *api_failures* loops failed in a row."""
    marks = Marks.of(snapshot)
    policy = Policy(without_budgets(settings), now, marks)
    facts = policy.facts(snapshot)
    pools = {name: fact.pool for name, fact in facts.items()}
    unhealthy = brake(snapshot, finished, settings, now, api_failures)
    pauses = cooling(snapshot, facts, finished, settings, now)
    judgement = policy.judgement(snapshot, facts)
    plan = make_plan(policy.plannable(snapshot), lambda _: judgement, strategy_of(settings, pools), settings.placement)
    held = {each.node: unhealthy or pauses.of(pools[each.node]) for each in plan.removals}
    return Decision(
        snapshot=snapshot,
        settings=settings,
        now=now,
        facts=facts,
        marks=marks,
        judgement=judgement,
        plan=plan,
        held={name: refusal for name, refusal in held.items() if refusal is not None},
        mark_writes=mark_writes(facts, now),
        steering=steer(snapshot, plan, settings.candidate_taints, settings.steering),
        unhealthy=unhealthy,
    )

"""One pass of the running compactor: everything it would do and why, from a snapshot. Pure; made in a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from node_compactor.budgets import room, without_budgets
from node_compactor.describing import summarize, wire
from node_compactor.marking import MarkWrite, mark_writes
from node_compactor.pacing import cooling
from node_compactor.policy import CONTROLLER, Marks, NodeFacts, Policy
from node_compactor.settings import CompactorSettings
from node_compactor.strategies import strategy_of
from tightship.core.drain_record import Finished
from tightship.core.reasons import Refusal
from tightship.drain_io.claims import Claim
from tightship.nodes.soft_taints import Steering, steer
from tightship.planning.cluster import Snapshot
from tightship.planning.demand import with_demand
from tightship.planning.plan import Plan, make_plan
from tightship.report import SettingsView


class Decision(Struct, frozen=True):
    """What to do with *snapshot* at *now* (seconds since 1970): marks to write, a plan, soft taints.

    The plan is the direction; *held* says of its nodes which have to wait for a cool-down, or all of them for the
    health brake (*unhealthy*). *marks* are those the plan was made with; *notes* are how they change.
    """

    snapshot: Snapshot
    settings: CompactorSettings
    now: float
    facts: Mapping[str, NodeFacts]
    marks: Marks
    plan: Plan
    held: Mapping[str, Refusal]
    notes: tuple[MarkWrite, ...]
    steering: Steering
    unhealthy: Refusal | None

    @property
    def settings_view(self) -> SettingsView:
        return SettingsView(summarize(self.settings, "live"), wire(self.settings))

    def room(self, node: str, claims: Sequence[Claim]) -> Refusal | None:
        """Return why *node* may not be claimed beside *claims*, ``None`` if it may."""
        return room(node, self.facts, self.settings, claims)


def decide(
    snapshot: Snapshot,
    settings: CompactorSettings,
    now: float,
    *,
    finished: Sequence[Finished] = (),
    regrets: Mapping[str, Refusal] = {},
    unhealthy: Refusal | None = None,
) -> Decision:
    """Judge every node of *snapshot*.

    *finished* are drains that ended lately, *regrets* say of pools what came of them; *unhealthy* is the brake's
    refusal.
    """
    snapshot = with_demand(snapshot, settings.ahead)
    marks = Marks.of(snapshot)
    policy = Policy(without_budgets(settings), now, marks)
    facts = policy.facts(snapshot)
    pools = {name: fact.pool for name, fact in facts.items()}
    pauses = cooling(snapshot, facts, finished, settings, now)
    judgement = policy.judgement(snapshot, facts)
    plan = make_plan(policy.plannable(snapshot), lambda _: judgement, strategy_of(settings, pools), settings.placement)
    held = {
        each.node: unhealthy or regrets.get(pools[each.node]) or pauses.of(pools[each.node]) for each in plan.removals
    }
    return Decision(
        snapshot=snapshot,
        settings=settings,
        now=now,
        facts=facts,
        marks=marks,
        plan=plan,
        held={name: refusal for name, refusal in held.items() if refusal is not None},
        notes=mark_writes(facts, now),
        steering=steer(
            snapshot,
            plan,
            settings.candidate_taints,
            settings.steering,
            CONTROLLER,
            spared=[name for name, pool in pools.items() if pool in regrets],
        ),
        unhealthy=unhealthy,
    )

"""Karpenter's NodePools (karpenter.sh): what Karpenter does with the nodes that it made."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Struct

from tightship.objects.cron import CronError, Schedule, parse_schedule
from tightship.objects.meta import NOBODY, ManagedBy, Metadata, managed_by
from tightship.objects.mistyped import part_explained
from tightship.objects.selectors import Taint
from tightship.objects.times import DurationError, parse_duration
from tightship.objects.unreadable import UNREADABLE

WHEN_EMPTY = "WhenEmpty"
NEVER = "Never"


class DisruptionBudget(Struct, frozen=True, gc=False):
    """How many *nodes*, a number or a percentage, Karpenter may disrupt at once for *reasons*, for all if empty.

    With a *schedule* the budget holds for *duration* seconds from each of its times.
    """

    nodes: str
    reasons: tuple[str, ...] = ()
    schedule: Schedule | None = None
    duration: float = 0.0
    text: str = ""
    """The schedule as written."""

    def forbids(self, reason: str, now: float | None) -> bool:
        """Whether the budget allows no disruption for *reason* at *now* (seconds since 1970).

        Without *now* a budget that holds only at times forbids nothing. Karpenter rounds percentages up, so that only
        zero forbids all.
        """
        if self.nodes.removesuffix("%").strip("0") or (self.reasons and reason not in self.reasons):
            return False
        if self.schedule is None:
            return True
        return now is not None and self.schedule.began_within(self.duration, now)


class NodePool(Struct, frozen=True, gc=False):
    """A NodePool. *policy* is its ``consolidationPolicy``; *after* seconds without a pod event a node is consolidated.

    *after* is ``None`` for ``Never``. A static pool has *replicas*, which Karpenter keeps. *startup* are the taints of
    its new nodes that go once everything on them has started. *problem* says why the rest is unreadable.
    """

    name: str
    policy: str = "WhenEmptyOrUnderutilized"
    after: float | None = 0.0
    budgets: tuple[DisruptionBudget, ...] = ()
    replicas: int | None = None
    startup: tuple[Taint, ...] = ()
    problem: str = ""
    managed: ManagedBy = NOBODY


class _Budget(Struct, frozen=True, gc=False):
    nodes: str | int = "10%"
    reasons: tuple[str, ...] | None = None
    schedule: str | None = None
    duration: str | None = None

    def budget(self) -> DisruptionBudget:
        nodes, schedule = str(self.nodes), None
        if not nodes.removesuffix("%").isdecimal():
            raise ValueError(f"spec.disruption.budgets: nodes is {nodes}; allowed is a number or a percentage")
        if self.schedule is not None:
            schedule = parse_schedule(self.schedule)
        duration = parse_duration(self.duration) if self.duration is not None else 0.0
        return DisruptionBudget(nodes, self.reasons or (), schedule, duration, self.schedule or "")


class _Disruption(Struct, frozen=True, rename="camel", gc=False):
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after: str | None = None
    budgets: tuple[_Budget, ...] | None = None


class _NodeClaimSpec(Struct, frozen=True, rename="camel", gc=False):
    startup_taints: tuple[Taint, ...] | None = None


class _Template(Struct, frozen=True, gc=False):
    spec: _NodeClaimSpec = _NodeClaimSpec()


class _Spec(Struct, frozen=True, gc=False):
    template: _Template = _Template()
    disruption: _Disruption = _Disruption()
    replicas: int | None = None


_specs = msgspec.json.Decoder(_Spec)


class NodePoolWire(Struct, frozen=True, gc=False):
    """A NodePool on the wire: v1 and v1beta1 have the same fields, and other words for a policy."""

    metadata: Metadata
    spec: Annotated[msgspec.Raw, _Spec] = msgspec.Raw(b"{}")

    def pool(self) -> NodePool:
        """Return the NodePool. A bad spec is a problem of the object, which concerns the nodes of that pool alone."""
        name = self.metadata.name
        try:
            spec = _specs.decode(self.spec)
            disruption = spec.disruption
            after = disruption.consolidate_after
            return NodePool(
                name=name,
                policy=disruption.consolidation_policy or "WhenEmptyOrUnderutilized",
                after=None if after == NEVER else parse_duration(after or "0s"),
                budgets=tuple(each.budget() for each in disruption.budgets or ()),
                replicas=spec.replicas,
                startup=spec.template.spec.startup_taints or (),
                managed=managed_by(self.metadata),
            )
        except UNREADABLE as error:
            return NodePool(name=name, problem=part_explained("spec", self.spec, error))
        except (CronError, DurationError, ValueError) as error:
            return NodePool(name=name, problem=str(error))

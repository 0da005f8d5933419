"""What every controller of nodes asks of its settings: how a drain goes about it, the health brake, and steering.

Each class is a section of a controller's settings; on the wire all keys stand beside each other. Durations are in
seconds. Aliases are node-compactor's keys; node-refiner writes the same in its own style.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from pydantic import Field, ValidationInfo, field_validator

from tightship.app.settings.fields import SWITCHABLE_RULES, Flag, Rules, Seconds
from tightship.app.settings.loading import Layered
from tightship.core.reasons import Reason
from tightship.drain.rules import DrainRules
from tightship.planning.demand import Ahead
from tightship.planning.evictability import EvictionRules, awaited_for
from tightship.planning.plan.model import Placement
from tightship.planning.pools import KNOWN_POOL_LABELS

_RULES = DrainRules()


class DrainKeys(Layered):
    """How a drain goes about it: :class:`tightship.drain.rules.DrainRules`, whose names and defaults these are."""

    eviction_method: Literal["evict", "delete"] = Field(default="evict", alias="evictionMethod")
    """``evict`` asks the API server, which keeps every PodDisruptionBudget. ``delete`` deletes the pods **past every
    PodDisruptionBudget**, as the older controller did: budgets then neither keep a node nor slow its drain."""
    settle: Seconds = Field(default=_RULES.settle, alias="settleTime")
    """How long a cordoned node is left alone before its pods are listed and judged once more: a binding under way
    becomes visible (Cluster Autoscaler's ``--node-delete-delay-after-taint`` and Karpenter's minimum are 5 s)."""
    pod_timeout: Seconds = Field(default=_RULES.pod_timeout, alias="podEvictionTimeout")
    """How long a drain goes without any pod agreeing to go before it is given up."""
    node_timeout: Seconds = Field(default=_RULES.node_timeout, alias="nodeDrainTimeout")
    """How long emptying one node may take altogether, without ``awaitCompletionFor``."""
    await_timeout: Seconds = Field(default=_RULES.await_timeout, alias="awaitCompletionFor")
    """How long a drain waits for pods that end by themselves: those of Jobs that must not be restarted, and those whose
    safe-to-evict annotation says ``on-completion``. 0: they keep their node."""
    not_ready_timeout: Seconds = Field(default=_RULES.not_ready_timeout, alias="notReadyTimeout")
    """How long a node in drain may be NotReady before the drain is given up and the rest left to node lifecycle."""
    pending_timeout: Seconds = Field(default=_RULES.pending_timeout, alias="pendingTimeout")
    """How long a pod made since the drain began may have no node, where the drained one could take it, before that is
    given back: the longer, the likelier the autoscaler adds a node for it."""
    hand_over_timeout: Seconds = Field(default=_RULES.hand_over_timeout, alias="handOverTimeout")
    """How long an empty node waits for the autoscaler (which by default takes it after 10 minutes)."""
    when_not_taken: Literal["restore", "keep"] = Field(default="restore", alias="whenNotTaken")
    """What becomes of an empty node that no autoscaler takes in that time: ``restore`` uncordons it, ``keep`` leaves it
    empty and cordoned, and in drain, for a person to delete."""
    backoff: Seconds = Field(default=_RULES.backoff, alias="backoff")
    """Pause before a node whose drain failed is tried again; doubled with each failure in a row."""
    backoff_limit: Seconds = Field(default=_RULES.backoff_limit, alias="backoffLimit", validate_default=True)
    """The longest such pause."""
    hold_off: Seconds = Field(default=_RULES.hold_off, alias="holdOff")
    """How long a node is left alone when someone else uncordoned it during a drain."""
    most_in_flight: int = Field(default=_RULES.most_in_flight, ge=1, alias="maximumEvictionsInFlight")
    """Pods of one node on their way out at a time."""

    @field_validator("backoff_limit")
    @classmethod
    def _grows(cls, limit: float, info: ValidationInfo) -> float:
        first = info.data.get("backoff")
        if first is not None and limit < first:
            raise ValueError(f"is below backoff; allowed is {first:g} s or more")
        return limit

    @property
    def past_budgets(self) -> bool:
        """Whether drains delete pods past every PodDisruptionBudget."""
        return self.eviction_method == "delete"

    @property
    def keep_drained(self) -> bool:
        """Whether a drained node that nobody takes stays drained."""
        return self.when_not_taken == "keep"

    @property
    def drain_rules(self) -> DrainRules:
        """The rules of drains."""
        return msgspec.convert(self, DrainRules, from_attributes=True)


class HealthKeys(Layered):
    """While the cluster is not well, nothing is drained: the health brake."""

    not_ready_count: int = Field(default=1, ge=0, alias="maximumNotReadyNodeCount")
    """Nodes that may be NotReady, whatever the percentage says, before nothing is drained any more."""
    not_ready_percent: float = Field(default=10.0, ge=0, le=100, alias="maximumNotReadyNodePercentage")
    """The same as a percentage of all nodes; the larger of the two counts, as with Cluster Autoscaler's
    ``--ok-total-unready-count`` (3) and ``--max-total-unready-percentage`` (45). Ours are stricter: nothing is lost by
    packing a troubled cluster later."""
    api_failures: int = Field(default=2, ge=0, alias="maximumAPIFailures")
    """Passes in a row that the API server may have failed before nothing is drained any more."""
    stranded_after: Seconds = Field(default=120.0, alias="pendingAfterDrainTimeout")
    """How long a pod made since the last drain may be Pending before nothing is drained any more."""
    stranded_window: Seconds = Field(default=3600.0, alias="pendingAfterDrainWindow")
    """How long after a drain that is looked at: a pod that nothing can help must not stop the compactor for ever."""


class RegretKeys(Layered):
    """What is learned from drains after which a node was added again: see :mod:`tightship.nodes.regret`."""

    regret_window: Seconds = Field(default=3600.0, alias="regretWindow")
    """How long after a drain an added node counts as the drained one come back, and how long its pool then pauses;
    doubled with each such node, halved with each drain that stays. 0: nothing is learned."""
    regret_limit: Seconds = Field(default=86400.0, alias="regretLimit")
    """The longest such pause."""


class NodeKeys(HealthKeys, RegretKeys):
    """What every controller of nodes goes by before it begins anything."""


class ScaleUpKeys(Layered):
    """Room for replicas that HorizontalPodAutoscalers are about to start: see :mod:`tightship.planning.demand`."""

    scale_up_veto: Annotated[
        bool,
        Flag(
            "--scale-up-veto",
            "keep nodes whose removal would need the room of replicas that HPAs are about to start (default: on)",
            "rules",
        ),
    ] = Field(default=True, alias="scaleUpVeto")
    scale_up_replicas: Annotated[
        int,
        Flag(
            "--scale-up-replicas N", "for how many replicas of each HPA room is kept, 1 or more (default: 100)", "rules"
        ),
    ] = Field(default=100, ge=1, alias="maximumScaleUpReplicas")
    """For how many of them room is kept, of each HPA: a runaway one must not cost every pass its time."""


class SteeringKeys(Layered):
    """Where evicted pods should not land: nodes that the plan would remove next carry a soft taint."""

    steering: bool = True
    """Whether nodes that go next carry the taint ``tightship.dev/candidate:PreferNoSchedule``."""
    candidate_taints: int = Field(default=300, ge=0, alias="maximumCandidateTaints")
    """How many do at most, the first of the plan. Pods then rarely land where they will have to leave again; but the
    more nodes are unwanted, the fewer are left to choose from, and they fill up in a way that keeps more of them. On a
    real cluster of 1,523 nodes (``bench/live.py``) 300 kept 437 of them and cost 1,980 evictions; 20 kept 435, for
    2,762; all of the plan's 1,112 kept 444, for 1,556."""


HowSure = Annotated[
    Placement,
    Field(default="likely"),
    Flag(
        "--placement WORD",
        "how sure a pod's new place must be: possible (there is one), likely (kube-scheduler's scoring, as modelled, "
        "finds one), certain (whatever it picks, all find one) (default: likely)",
        "plan",
    ),
]
MostRemovals = Annotated[
    int | None,
    Field(default=None, ge=1, alias="maximumNodesInPlan"),
    Flag("--max-nodes N", "removals after which the plan stops, 1 or more (default: no limit)", "plan"),
]
PoolLabels = Annotated[
    tuple[str, ...],
    Field(default=KNOWN_POOL_LABELS, alias="nodePoolLabels"),
    Flag(
        "--pool-label LABEL",
        "node label that names the pool; repeatable, the first that a node carries counts (default: the labels of the "
        "known clouds)",
        "rules",
    ),
]
DisabledRules = Annotated[
    Rules,
    Field(default=frozenset(), alias="disabledRules"),
    Flag(
        "--disable-rule REASON",
        "switch a rule off; repeatable, and together they replace the file's list: "
        f"{', '.join(sorted(SWITCHABLE_RULES))} (default: all rules are on)",
        "rules",
    ),
]
SystemPodTimeout = Annotated[
    Seconds,
    Field(default=3600.0, alias="blockingSystemPodTimeout"),
    Flag(
        "--system-pod-timeout DURATION",
        "how long after its creation a kube-system pod without a PodDisruptionBudget keeps its node (default: 1h)",
        "rules",
    ),
]


class NodeSettings(DrainKeys, NodeKeys, ScaleUpKeys, SteeringKeys):
    """What all controllers of nodes go by. A controller names these fields again where its own list has them."""

    placement: HowSure
    max_nodes: MostRemovals
    pool_labels: PoolLabels
    disabled_rules: DisabledRules
    system_pod_timeout: SystemPodTimeout

    @property
    def eviction_rules(self) -> EvictionRules:
        """The rules for pods; a drain and the plan before it go by the same."""
        awaited = awaited_for(self.await_timeout)
        return EvictionRules(self.disabled_rules, self.system_pod_timeout, awaited, self.node_timeout)

    @property
    def ahead(self) -> Ahead:
        """For which demand without pods room is kept."""
        hpas = self.scale_up_veto and Reason.SCALE_UP_NEEDS_NODE not in self.disabled_rules
        return Ahead(self.scale_up_replicas if hpas else 0, Reason.BUFFER_NEEDS_NODE not in self.disabled_rules)

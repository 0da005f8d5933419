"""What every controller of nodes asks of its settings: how a drain goes about it, the health brake, and steering.

Each class is a section of a controller's settings; on the wire all keys stand beside each other. Durations are in
seconds. Aliases are node-compactor's keys; node-refiner writes the same in its own style.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from tightship.app.settings.fields import Seconds
from tightship.core.reasons import Reason
from tightship.planning.demand import Ahead


class DrainKeys(BaseModel):
    """How a drain goes about it; the defaults are those of :class:`tightship.drain.rules.DrainRules`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    eviction_method: Literal["evict", "delete"] = Field(default="evict", alias="evictionMethod")
    """``evict`` asks the API server, which keeps every PodDisruptionBudget. ``delete`` deletes the pods **past every
    PodDisruptionBudget**, as the older controller did: budgets then neither keep a node nor slow its drain."""
    settle: Seconds = Field(default=5.0, alias="settleTime")
    """How long a cordoned node is left alone before its pods are listed and judged once more: a binding under way
    becomes visible (Cluster Autoscaler's ``--node-delete-delay-after-taint`` and Karpenter's minimum are 5 s)."""
    pod_timeout: Seconds = Field(default=600.0, alias="podEvictionTimeout")
    """How long a drain goes without any pod agreeing to go before it is given up."""
    node_timeout: Seconds = Field(default=1800.0, alias="nodeDrainTimeout")
    """How long emptying one node may take altogether, without ``awaitCompletionFor``."""
    await_timeout: Seconds = Field(default=0.0, alias="awaitCompletionFor")
    """How long a drain waits for pods that end by themselves: those of Jobs that must not be restarted, and those whose
    safe-to-evict annotation says ``on-completion``. 0: they keep their node."""
    not_ready_timeout: Seconds = Field(default=300.0, alias="notReadyTimeout")
    """How long a node in drain may be NotReady before the drain is given up and the rest left to node lifecycle."""
    pending_timeout: Seconds = Field(default=30.0, alias="pendingTimeout")
    """How long a pod made since the drain began may have no node, where the drained one could take it, before that is
    given back: the longer, the likelier the autoscaler adds a node for it."""
    hand_over_timeout: Seconds = Field(default=3600.0, alias="handOverTimeout")
    """How long an empty node waits for the autoscaler (which by default takes it after 10 minutes)."""
    when_not_taken: Literal["restore", "keep"] = Field(default="restore", alias="whenNotTaken")
    """What becomes of an empty node that no autoscaler takes in that time: ``restore`` uncordons it, ``keep`` leaves it
    empty and cordoned, and in drain, for a person to delete."""
    backoff: Seconds = Field(default=300.0, alias="backoff")
    """Pause before a node whose drain failed is tried again; doubled with each failure in a row."""
    backoff_limit: Seconds = Field(default=6 * 3600.0, alias="backoffLimit", validate_default=True)
    """The longest such pause."""
    hold_off: Seconds = Field(default=4 * 3600.0, alias="holdOff")
    """How long a node is left alone when someone else uncordoned it during a drain."""
    most_in_flight: int = Field(default=10, ge=1, alias="maximumEvictionsInFlight")
    """Pods of one node on their way out at a time."""

    @field_validator("backoff_limit")
    @classmethod
    def _grows(cls, limit: float, info: ValidationInfo) -> float:
        first = info.data.get("backoff")
        if first is not None and limit < first:
            raise ValueError(f"is below backoff; allowed is {first:g} s or more")
        return limit


class HealthKeys(BaseModel):
    """While the cluster is not well, nothing is drained: the health brake."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

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


class RegretKeys(BaseModel):
    """What is learned from drains after which a node was added again: see :mod:`tightship.nodes.regret`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    regret_window: Seconds = Field(default=3600.0, alias="regretWindow")
    """How long after a drain an added node counts as the drained one come back, and how long its pool then pauses;
    doubled with each such node, halved with each drain that stays. 0: nothing is learned."""
    regret_limit: Seconds = Field(default=86400.0, alias="regretLimit")
    """The longest such pause."""


class NodeKeys(HealthKeys, RegretKeys):
    """What every controller of nodes goes by before it begins anything."""


class ScaleUpKeys(BaseModel):
    """Room for replicas that HorizontalPodAutoscalers are about to start: see :mod:`tightship.planning.demand`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    scale_up_veto: bool = Field(default=True, alias="scaleUpVeto")
    """Whether a node is left alone whose removal would need the room of such replicas."""
    scale_up_replicas: int = Field(default=100, ge=1, alias="maximumScaleUpReplicas")
    """For how many of them room is kept, of each HPA: a runaway one must not cost every pass its time."""

    def ahead(self, disabled: Collection[Reason]) -> Ahead:
        """Return for which demand without pods room is kept; *disabled* are rules switched off."""
        hpas = self.scale_up_veto and Reason.SCALE_UP_NEEDS_NODE not in disabled
        return Ahead(self.scale_up_replicas if hpas else 0, Reason.BUFFER_NEEDS_NODE not in disabled)


class SteeringKeys(BaseModel):
    """Where evicted pods should not land: nodes that the plan would remove next carry a soft taint."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    steering: bool = True
    """Whether nodes that go next carry the taint ``tightship.dev/candidate:PreferNoSchedule``."""
    candidate_taints: int = Field(default=300, ge=0, alias="maximumCandidateTaints")
    """How many do at most, the first of the plan. Pods then rarely land where they will have to leave again; but the
    more nodes are unwanted, the fewer are left to choose from, and they fill up in a way that keeps more of them. On a
    real cluster of 1,523 nodes (``bench/live.py``) 300 kept 437 of them and cost 1,980 evictions; 20 kept 435, for
    2,762; all of the plan's 1,112 kept 444, for 1,556."""

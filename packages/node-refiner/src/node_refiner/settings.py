"""What a user can set: the older controller's six keys, the order of candidates, and what all controllers share.

On the wire all keys are flat and in snake case, in the older controller's style, and a plain number of a duration is
**minutes**, its unit; in these fields durations are in seconds. :mod:`node_refiner.configuration` reads the one into
the other.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from tightship.app.settings.fields import Budget, BudgetField, GoBool, Rules, Seconds
from tightship.app.settings.sections import DrainKeys, NodeKeys, ScaleUpKeys, SteeringKeys
from tightship.planning.pools import KNOWN_POOL_LABELS

CandidateOrder = Literal["score", "fewest_evictions", "pods_priority"]


class RefinerSettings(DrainKeys, NodeKeys, ScaleUpKeys, SteeringKeys):
    """Everything the refiner depends on besides the cluster and the time. Durations are in seconds.

    The defaults of the first seven are those of the older controller's README.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    drainer_enabled: GoBool = True
    """Whether anything is drained; without it everything is judged and shown, and nothing is changed."""
    time_gap: Seconds = 600.0
    """Pause after a drain, from its end on, and from its start on while it is under way."""
    time_since_last_addition: Seconds = 3600.0
    """Pause after a node was added to the cluster."""
    minimum_nodes: int = Field(default=2, ge=0)
    """Nodes the cluster keeps in any case."""
    minimum_non_tainted_nodes: int = Field(default=2, ge=0)
    """The same of nodes that no taint keeps pods from."""
    excess_nodes_threshold: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    """Nodes the cluster must be able to do without before one of them goes."""
    candidate_order: CandidateOrder = "score"
    cpu_weight: float = Field(default=0.8, ge=0, allow_inf_nan=False)
    """What the CPU ratio counts in the score."""
    memory_weight: float = Field(default=0.2, ge=0, allow_inf_nan=False)
    """The same of the memory ratio."""
    placement: Literal["possible", "likely", "certain"] = "likely"
    cluster_budget: BudgetField = Field(default=Budget(count=1), alias="maximum_nodes_in_drain")
    """Nodes of the whole cluster in drain at once, nodes that are not Ready included."""
    max_nodes: int | None = Field(default=None, ge=1, alias="maximum_nodes_in_plan")
    """Removals after which a plan stops."""
    pool_labels: tuple[str, ...] = Field(default=KNOWN_POOL_LABELS, alias="node_pool_labels")
    """Labels that name a node's pool; pools are only shown and selected by, the refiner goes by the whole cluster."""
    disabled_rules: Rules = frozenset()
    system_pod_timeout: Seconds = Field(default=3600.0, alias="blocking_system_pod_timeout")
    """How long after its creation a kube-system pod without a PDB blocks its node."""
    pod_timeout: Seconds = Field(default=510.0, alias="podEvictionTimeout")
    node_timeout: Seconds = Field(default=510.0, alias="nodeDrainTimeout")
    """The older controller gave every drain 8 minutes and 30 seconds."""
    backoff: Seconds = 600.0
    """Without a value of its own as long as ``time_gap``, after which the older controller tried again."""
    scale_up_veto: GoBool = Field(default=True, alias="scaleUpVeto")
    """See :class:`~tightship.app.settings.sections.ScaleUpKeys`."""
    steering: GoBool = True
    """See :class:`~tightship.app.settings.sections.SteeringKeys`."""

    @field_validator("memory_weight")
    @classmethod
    def _weighs(cls, memory: float, info: ValidationInfo) -> float:
        if memory == 0 and info.data.get("cpu_weight") == 0:
            raise ValueError("cpu_weight is 0 as well; allowed is at least one above 0, or every node scores the same")
        return memory


__all__ = ["CandidateOrder", "RefinerSettings"]

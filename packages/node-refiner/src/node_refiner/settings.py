"""The user's settings: when and how much, the order of candidates, and the settings of all controllers of nodes.

Durations are in seconds. :mod:`node_refiner.older` reads the keys of SAP node-refiner.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args, get_origin

from pydantic import Field, ValidationInfo, field_validator

from tightship.nodes.annexes import PricesSetting
from tightship.process.settings.loading import Budget, BudgetField, Flag, GoBool, Seconds
from tightship.process.settings.sections import (
    DisabledRules,
    HowSure,
    LeastSaving,
    MostRemovals,
    NodeSettings,
    PoolLabels,
    Schedulers,
    SteeringWord,
    SystemPodTimeout,
)

CandidateOrder = Literal["score", "fewest-evictions", "balanced", "pods-priority"]
_ORDERS = get_args(CandidateOrder)


class RefinerSettings(NodeSettings):
    """The refiner's settings: its only input besides the cluster and the time. Durations are in seconds.

    The defaults of the first fields are from SAP node-refiner's README.
    """

    drainer_enabled: GoBool = Field(default=True, alias="enabled")
    """Whether anything is drained. Otherwise the refiner judges and shows everything, and changes nothing."""
    time_gap: Seconds = Field(default=600.0, alias="clusterCoolDownAfterDrain")
    """Pause after a drain: from its start while it is under way, then from its end."""
    time_since_last_addition: Seconds = Field(default=3600.0, alias="clusterCoolDownAfterNodeAdded")
    """Pause after a node was added to the cluster."""
    minimum_nodes: Annotated[int, Flag("--min-nodes N", "nodes the cluster keeps (default: 2)")] = Field(
        default=2, ge=0, alias="minimumNodeCount"
    )
    minimum_non_tainted_nodes: Annotated[
        int,
        Flag(
            "--min-non-tainted-nodes N",
            "nodes without a taint that keeps pods away, which the cluster keeps (default: 2)",
        ),
    ] = Field(default=2, ge=0, alias="minimumNonTaintedNodeCount")
    count_tainted: Annotated[
        GoBool,
        Flag("--count-tainted", "count nodes of dedicated (tainted) pools as well, each pool by itself (default: no)"),
    ] = Field(default=False, alias="countTaintedNodes")
    """Whether nodes with equal taints that keep pods away are a pool with an excess of its own. Otherwise they stay."""
    excess_nodes_threshold: Annotated[
        float,
        Flag(
            "--threshold NODES", "nodes the cluster must be able to do without before one may go (default: 2)", rank=-1
        ),
    ] = Field(default=2.0, ge=0, allow_inf_nan=False, alias="excessNodesThreshold")
    candidate_order: Annotated[
        CandidateOrder,
        Flag(
            "--candidate-order WORD",
            f"which nodes go first: {', '.join(_ORDERS[:-1])} or {_ORDERS[-1]} (default: score)",
            "plan",
        ),
    ] = Field(default="score", alias="candidateOrder")
    cpu_weight: Annotated[
        float, Flag("--cpu-weight W", "weight of the CPU ratio in the score (default: 0.8)", "plan")
    ] = Field(default=0.8, ge=0, allow_inf_nan=False, alias="cpuWeight")
    memory_weight: Annotated[
        float, Flag("--memory-weight W", "weight of the memory ratio in the score (default: 0.2)", "plan")
    ] = Field(default=0.2, ge=0, allow_inf_nan=False, alias="memoryWeight")
    placement: HowSure
    cluster_budget: BudgetField = Field(default=Budget(count=1), alias="maximumNodesInDrain")
    """Most nodes of the whole cluster in drain at once, including NotReady nodes."""
    max_nodes: MostRemovals
    minimum_saving: LeastSaving
    pool_labels: PoolLabels
    """Labels that name a node's pool. Pools are only for display and selection; the refiner judges the whole
    cluster."""
    disabled_rules: DisabledRules
    schedulers: Schedulers
    system_pod_timeout: SystemPodTimeout
    prices: PricesSetting
    scale_up_veto: GoBool = Field(default=True, alias="scaleUpVeto")
    """See :class:`~tightship.process.settings.sections.ScaleUpKeys`."""
    steering: SteeringWord = "taints"
    """See :class:`~tightship.process.settings.sections.SteeringKeys`."""
    deletion_cost: GoBool = Field(default=False, alias="deletionCost")
    """See :class:`~tightship.process.settings.sections.SteeringKeys`."""

    @field_validator("memory_weight")
    @classmethod
    def _weighs(cls, memory: float, info: ValidationInfo) -> float:
        if memory == 0 and info.data.get("cpu_weight") == 0:
            raise ValueError("cpuWeight is 0 as well; allowed is at least one above 0, or every node scores the same")
        return memory

    @classmethod
    def read(cls, field: str, value: object) -> object:
        """Return *value* for the validation: a text of the field of a list is a list with commas."""
        if isinstance(value, str) and get_origin(cls.model_fields[field].annotation) in (tuple, frozenset):
            return [part.strip() for part in value.split(",") if part.strip()]
        return value.strip() if isinstance(value, str) else value
